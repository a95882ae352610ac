//! What an operator's command makes of a task, or why it is refused. Each is put on the task's
//! record with who asked and why, and told as an event; so is a refused one.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::engine::{
    advance::advance,
    order::{self, PointOfNoReturn},
    outcome,
};
use crate::{
    definition::step::ForEach,
    engine::{
        change::{Change, begun},
        compensate,
        effect::Effect,
        request::{child_id, too_large},
        values::NoValue,
    },
    limits::{self, shorten},
    model::{
        attempt::{Action, Attempt},
        command::{Command, CommandId, CommandRecord, Order},
        document::{Document, DocumentKey},
        events::{BusEvent, Happened},
        names::{Part, StepName},
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::{earlier, later},
    },
};

/// Why a command is refused.
type Refused = String;

/// Carries out a command, or puts on record why it was refused. `change` makes one that changes
/// nothing yet.
pub(crate) fn operate<'a>(
    command: &Command,
    change: impl Fn() -> Box<Change<'a>>,
) -> Box<Change<'a>> {
    let mut changed = change();
    let mut operator = Operator { change: &mut changed, steps: Vec::new() };
    let refused = operator.obey(command).err();
    let steps = operator.steps;
    match refused {
        None => put_on_record(&mut changed, command, &steps, None),
        Some(reason) => {
            changed = change();
            put_on_record(&mut changed, command, &[], Some(&reason));
        }
    }
    changed
}

fn put_on_record(
    change: &mut Change<'_>,
    command: &Command,
    steps: &[Part],
    refused: Option<&str>,
) {
    let short = |text: &str| shorten(text, limits::COMMAND_TEXT_CHARS_MAX);
    let record = CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.order.describe(steps)),
        by: short(&command.by),
        why: short(&command.why),
        at: change.now(),
        refused: refused.map(short),
    };
    change.notifications.push(notification(&change.task, &record));
    let commands = &mut change.task.commands;
    commands.push(record);
    let surplus = commands.len().saturating_sub(limits::COMMANDS_KEPT_MAX);
    commands.drain(..surplus);
}

/// What would be on record of a command that is refused.
pub(crate) fn refused(command: &Command, reason: &str, at: Timestamp) -> CommandRecord {
    let short = |text: &str| shorten(text, limits::COMMAND_TEXT_CHARS_MAX);
    CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.order.describe(&[])),
        by: short(&command.by),
        why: short(&command.why),
        at,
        refused: Some(short(reason)),
    }
}

/// The event that tells of a command on record.
pub(crate) fn notification(task: &Task, record: &CommandRecord) -> Effect {
    let CommandRecord { id, command, by, why, at, refused } = record.clone();
    let data = Happened::OperatorCommand {
        task_id: task.task_id.clone(),
        command_id: id,
        command,
        by,
        why,
        refused,
    };
    let subject = format!("{}/{}", task.task_id, record.id);
    Effect::Publish(BusEvent::new(&subject, at, data))
}

struct Operator<'c, 'a> {
    change: &'c mut Change<'a>,
    /// The steps that the command turned out to be about.
    steps: Vec<Part>,
}

impl Operator<'_, '_> {
    fn obey(&mut self, command: &Command) -> Result<(), Refused> {
        self.is_known_to_be_new(command)?;
        self.change.due_anew = true;
        match &command.order {
            Order::Resubmit { step, input, did_not_run } => {
                self.resubmit(step.as_ref(), *did_not_run, input.is_some())?;
                if let Some(patch) = input {
                    self.edit(command, patch)?;
                }
            }
            Order::Skip { step, did_not_run } => self.skip(step.as_ref(), *did_not_run)?,
            Order::Complete { step, output } => {
                self.complete(&command.command_id, step.as_ref(), output)?
            }
            Order::Undo => self.undo(command)?,
            Order::Cancel => self.cancel(command)?,
            Order::Pause => self.pause()?,
            Order::Resume => self.resume()?,
        }
        advance(self.change);
        Ok(())
    }

    /// Refuses a command that may have been carried out and whose id has been forgotten since: the record
    /// is full, and all commands on it were decided after this one was issued.
    fn is_known_to_be_new(&self, command: &Command) -> Result<(), Refused> {
        let recorded_at =
            earlier(self.change.task.submitted_at, self.change.inputs.context.timing.clock_skew);
        if command.issued_at.is_some_and(|issued_at| issued_at < recorded_at) {
            return Err("it was issued for an earlier task with the same id".to_owned());
        }
        let commands = &self.change.task.commands;
        let is_full = commands.len() >= limits::COMMANDS_KEPT_MAX;
        let oldest = commands.iter().map(|record| record.at).min().filter(|_| is_full);
        match (command.issued_at, oldest) {
            (Some(issued_at), Some(oldest)) if issued_at < oldest => Err(format!(
                "it was issued before the {} commands on the task's record, and may have been carried \
                 out before them: if it was not, send it again",
                limits::COMMANDS_KEPT_MAX
            )),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Refuses what makes sense only for a task that goes on, or stopped in Error.
    fn is_open(&self) -> Result<(), Refused> {
        match self.change.task.process_state {
            ProcessState::Processing | ProcessState::Undoing | ProcessState::Error => Ok(()),
            ProcessState::Pending => Err("the task has not begun".to_owned()),
            ProcessState::Processed => Err("the task is Processed".to_owned()),
            ProcessState::Undone => Err("the task is Undone".to_owned()),
        }
    }

    fn resubmit(
        &mut self,
        only: Option<&Part>,
        did_not_run: bool,
        edited: bool,
    ) -> Result<(), Refused> {
        self.is_open()?;
        let direction = self.change.task.direction();
        let plan = self.change.plan();
        // Only an operator who names a wait cuts it short.
        let only_waits = |part: &Part| only.is_none() && plan.step(&part.step).waits();
        let may_go = |part: &Part, state: &StepState| match state {
            StepState::Failed { .. } => true,
            StepState::Waiting { .. } => !only_waits(part),
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        };
        let steps: Vec<_> = self
            .change
            .task
            .actions()
            .filter(|(name, action, progress)| {
                *action == direction
                    && may_go(name, &progress.state)
                    && only.is_none_or(|only| is_meant(only, name))
            })
            .map(|(name, ..)| name)
            .collect();
        if let (Some(step), true) = (only, steps.is_empty()) {
            let state = self.stands(step, direction)?.map_or("not started", StepState::name);
            return Err(format!("step {step} is {state}: it neither failed nor waits"));
        }
        if steps.is_empty() && self.change.task.process_state != ProcessState::Error {
            return Err("nothing failed and nothing waits".to_owned());
        }
        for step in &steps {
            self.try_again(step, direction, did_not_run, edited)?;
        }
        self.steps = steps;
        self.revive();
        Ok(())
    }

    /// Until when a call of a deferred request may be in progress: another delivery of it may call.
    fn deferred_call_until(&self, part: &Part, action: Action) -> Option<Timestamp> {
        let deferred = self.change.task.progress(part, action)?.state.deferred_by()?;
        let within = self.change.plan().step(&part.step).action(action)?.call_within;
        Some(crate::model::time::later(
            crate::model::time::later(deferred, self.change.inputs.context.timing.clock_skew),
            within,
        ))
    }

    /// An operator cannot know that a task which runs for a step did not: it may run now, or begin later. That is for the
    /// task itself to say, once it is undone.
    fn can_be_known(&self, part: &Part, action: Action) -> Result<(), Refused> {
        let runs_task = self.change.plan().step(&part.step).runs_child();
        let progress = self.change.task.progress(part, Action::Do);
        let may_stand = progress.is_some_and(|progress| progress.may_have_run);
        if !runs_task || !may_stand || action == Action::Undo {
            return Ok(());
        }
        let child = child_id(&self.change.task, part)?;
        Err(format!(
            "step {part} runs task `{child}`, which may run or stand: undo it, or this task as a whole"
        ))
    }

    fn try_again(
        &mut self,
        step: &Part,
        action: Action,
        did_not_run: bool,
        edited: bool,
    ) -> Result<(), Refused> {
        let repeatable = self.change.plan().step(&step.step).is_repeatable(action);
        let now = self.change.now();
        let until = self.deferred_call_until(step, action);
        if did_not_run {
            self.can_be_known(step, action)?;
        }
        let Some(progress) = self.change.task.progress_mut(step, action) else { return Ok(()) };
        if did_not_run {
            is_over(step, progress, until, now)?;
        }
        progress.may_have_run &= !did_not_run;
        // Another content needs another idempotency key, by which no service knows the first call.
        let another_call = edited || !repeatable;
        let deferred = progress.state.deferred_by().filter(|_| !did_not_run);
        if another_call && (progress.may_have_run || (edited && deferred.is_some())) {
            return Err(format!(
                "an attempt at step {step} may have taken effect: find out, then complete it, or \
                 resubmit it and say that it did not run"
            ));
        }
        let attempt = progress.state.attempt();
        if attempt == 0 && progress.state.is_failed() && step.item.is_none() {
            // It could not begin; from now on it has never been tried.
            self.change.task.steps.remove(&step.step);
            return Ok(());
        }
        progress.state = StepState::Waiting { attempt, until: now, complete_by: deferred };
        progress.failure_count = 0;
        Ok(())
    }

    /// Changes the input, for what was resubmitted and for what starts from now on.
    fn edit(&mut self, command: &Command, patch: &Value) -> Result<(), Refused> {
        if let Some(reason) = too_large("edit of the input", patch) {
            return Err(reason);
        }
        // What is not at hand is asked for, and this is asked again.
        let input = match self.change.sources().input(self.change.task.input.as_ref()) {
            Ok(input) => input,
            Err(NoValue::Wanted) => return Ok(()),
            Err(NoValue::Because(reason)) => return Err(reason),
        };
        let mut input = input.clone();
        json_patch::merge(&mut input, patch);
        if let Some(reason) = too_large("edited input", &input) {
            return Err(reason);
        }
        if let Some(schema) = &self.change.plan().input {
            schema.validate(&input)?;
        }
        let (id, at) = (command.command_id.clone(), self.change.now());
        let (key, body) = (DocumentKey::Input(id.clone()), json!({ "input": input }));
        self.change.documents.push(Document::new(key, at, body));
        for (name, step) in self.change.plan().steps() {
            if let Some(each) = &step.definition.for_each {
                self.keeps_items(name, each, &id)?;
            }
        }
        let task = &mut self.change.task;
        let direction = task.direction();
        task.input = Some(id.clone());
        for step in &self.steps {
            if let Some(progress) = task.progress_mut(step, direction) {
                progress.input = Some(id.clone());
                // Another task runs for the step from now on.
                progress.child_revision = None;
            }
        }
        Ok(())
    }

    /// Refuses an edit that would change the list of a step that goes item by item, but for items that
    /// have not completed and cannot have run: the others are done, or under way, in their places.
    fn keeps_items(
        &self,
        name: &StepName,
        each: &ForEach,
        edit: &CommandId,
    ) -> Result<(), Refused> {
        let (task, sources) = (&self.change.task, self.change.sources());
        let Some(record) = task.steps.get(name) else { return Ok(()) };
        let Some(items) = &record.items else { return Ok(()) };
        let list = |edit: Option<&CommandId>| match sources.items(name, each, edit) {
            Ok(list) => Ok(Some(list)),
            // What is not at hand is asked for, and this is asked again.
            Err(NoValue::Wanted) => Ok(None),
            Err(NoValue::Because(reason)) => Err(format!("step {name}: {reason}")),
        };
        let Some(new) = list(Some(edit))? else { return Ok(()) };
        if new.len() != items.count as usize {
            return Err(format!(
                "step {name} has begun with {} items, and the edited input gives it {}: an edit may \
                 only replace items that have not run, place by place",
                items.count,
                new.len()
            ));
        }
        for ((place, item), record) in (0_u32..).zip(new.iter()).zip(&items.begun) {
            let Some(old) = list(record.run.input.as_ref())? else { return Ok(()) };
            if old.get(place as usize) == Some(item) || self.can_be_replaced(&record.run) {
                continue;
            }
            return Err(format!(
                "step {name}: item {name}[{place}] is {}{}, and the edited input has another in its \
                 place: an edit may only replace items that have not run, place by place",
                record.run.state.name(),
                if record.run.may_have_run { " and may have run" } else { "" },
            ));
        }
        Ok(())
    }

    /// Whether an item has not completed, and cannot have run.
    fn can_be_replaced(&self, run: &Progress) -> bool {
        let may_act = run.may_have_run || run.in_progress(self.change.now()).is_some();
        match run.state {
            StepState::Waiting { .. } | StepState::Failed { .. } => !may_act,
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        }
    }

    fn skip(&mut self, step: Option<&Part>, did_not_run: bool) -> Result<(), Refused> {
        let (step, direction) = self.by_hand(step)?;
        let now = self.change.now();
        let until = self.deferred_call_until(&step, direction);
        if did_not_run {
            self.can_be_known(&step, direction)?;
        }
        let progress = begun(&mut self.change.task, &step, direction, now);
        let progress = progress.ok_or_else(|| not_begun(&step))?;
        if did_not_run {
            is_over(&step, progress, until, now)?;
        }
        // A deferred request may have been delivered twice, and the other delivery may still act.
        let deferred = progress.state.deferred_by();
        progress.state = StepState::Skipped { attempt: progress.state.attempt() };
        progress.may_have_run |= deferred.is_some();
        progress.may_have_run &= !did_not_run;
        if let Some(complete_by) = deferred {
            self.change.wait_for_call_begun_by(complete_by, &step, direction);
        }
        self.steps.push(step);
        self.revive();
        Ok(())
    }

    fn complete(
        &mut self,
        id: &CommandId,
        step: Option<&Part>,
        output: &Value,
    ) -> Result<(), Refused> {
        let (step, action) = self.by_hand(step)?;
        if let Some(reason) = too_large("output", output) {
            return Err(reason);
        }
        let definition = &self.change.plan().step(&step.step).definition;
        if step.item.is_none() && definition.for_each.is_some() {
            return Err(format!("step {step} goes item by item: complete those, as {step}[0]"));
        }
        let now = self.change.now();
        let progress = begun(&mut self.change.task, &step, action, now);
        let progress = progress.ok_or_else(|| not_begun(&step))?;
        // An attempt of its own: whatever an agent still says is about an earlier one.
        let number = progress.state.attempt() + 1;
        if let Some(complete_by) = progress.state.deferred_by() {
            self.change.wait_for_call_begun_by(complete_by, &step, action);
        }
        self.steps.push(step.clone());
        let attempt = Attempt { step, action, number };
        outcome::complete(self.change, attempt, output, Some(id));
        self.revive();
        Ok(())
    }

    /// The step that an operator settles by hand: named, or the only one that failed.
    fn by_hand(&self, named: Option<&Part>) -> Result<(Part, Action), Refused> {
        self.is_open()?;
        let direction = self.change.task.direction();
        let whole = named.filter(|step| self.has_items(step));
        let Some(step) = named.filter(|_| whole.is_none()) else {
            let failed: Vec<_> = self
                .change
                .task
                .actions()
                .filter(|(name, action, progress)| {
                    *action == direction
                        && progress.state.is_failed()
                        && whole.is_none_or(|whole| is_meant(whole, name))
                })
                .map(|(name, ..)| name)
                .collect();
            return match failed.as_slice() {
                [step] => Ok((step.clone(), direction)),
                [] => Err("no step failed: name one".to_owned()),
                several => {
                    let names: Vec<_> = several.iter().map(Part::to_string).collect();
                    Err(format!("several steps failed, name one: {}", names.join(", ")))
                }
            };
        };
        match self.stands(step, direction)? {
            None | Some(StepState::Failed { .. } | StepState::Waiting { .. }) => {
                Ok((step.clone(), direction))
            }
            Some(
                state @ (StepState::Running { .. }
                | StepState::HandedOut { .. }
                | StepState::Each
                | StepState::Completed { .. }
                | StepState::Skipped { .. }),
            ) => Err(format!("step {step} is {}", state.name())),
        }
    }

    /// Where a step stands in the direction in which the task goes; nowhere if it has not begun.
    fn stands(&self, step: &Part, direction: Action) -> Result<Option<&StepState>, Refused> {
        let definition = self.change.plan().find(&step.step);
        let definition = definition.ok_or_else(|| format!("the workflow has no step {step}"))?;
        if step.item.is_some() && definition.definition.for_each.is_none() {
            return Err(format!("step {} has no items", step.step));
        }
        let task = &self.change.task;
        let progress = task.progress(step, direction);
        let is_left = || order::left(self.change.plan(), task).contains(step);
        if direction == Action::Undo && progress.is_none() && !is_left() {
            return Err(format!("step {step} is not to be undone"));
        }
        Ok(progress.map(|progress| &progress.state))
    }

    fn undo(&mut self, command: &Command) -> Result<(), Refused> {
        let task = &self.change.task;
        match task.process_state {
            ProcessState::Undoing => return Err("the task is being undone".to_owned()),
            ProcessState::Undone => return Err("the task is Undone".to_owned()),
            ProcessState::Error if task.undo_reason.is_some() => {
                return Err("the task failed while it was undone: resubmit goes on".to_owned());
            }
            // Its parent goes by its having been done.
            ProcessState::Processed if let Some(parent) = &task.parent => {
                return Err(format!(
                    "it ran for step {} of task {}, which counts on it: undo that task",
                    parent.step, parent.task_id
                ));
            }
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Processed
            | ProcessState::Error => {}
        }
        if let PointOfNoReturn::Passed(step) = order::point_of_no_return(self.change.plan(), task) {
            return Err(format!("past the point of no return, step {step}"));
        }
        self.change.reopen();
        compensate::begin(self.change, &format!("asked for by {}: {}", command.by, command.why));
        Ok(())
    }

    fn cancel(&mut self, command: &Command) -> Result<(), Refused> {
        self.goes_on()?;
        self.change.fail_task(&format!("cancelled by {}: {}", command.by, command.why));
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Refused> {
        self.goes_on()?;
        if self.change.task.paused_at.is_some() {
            return Err("the task is paused".to_owned());
        }
        self.change.task.paused_at = Some(self.change.now());
        Ok(())
    }

    /// The pause does not count: the task has as much time left as it had.
    fn resume(&mut self) -> Result<(), Refused> {
        let Some(paused_at) = self.change.task.paused_at.take() else {
            return Err("the task is not paused".to_owned());
        };
        let paused = self.change.now().duration_since(paused_at);
        let task = &mut self.change.task;
        task.complete_by = later(task.complete_by, paused.try_into().unwrap_or_default());
        self.change.wake_waiting();
        Ok(())
    }

    fn goes_on(&self) -> Result<(), Refused> {
        let state = self.change.task.process_state;
        if state.is_final() { Err(format!("the task is {state}")) } else { Ok(()) }
    }

    /// Lets a task in Error go on, once nothing is left that failed.
    fn revive(&mut self) {
        let task = &self.change.task;
        let direction = task.direction();
        let failed = |action, state: &StepState| action == direction && state.is_failed();
        let stuck = task.actions().any(|(_, action, progress)| failed(action, &progress.state));
        if task.process_state != ProcessState::Error || stuck {
            return;
        }
        self.change.reopen();
        self.change.task.process_state = match direction {
            Action::Do => ProcessState::Processing,
            Action::Undo => ProcessState::Undoing,
        };
    }

    /// Whether it is a step that has begun and goes item by item.
    fn has_items(&self, step: &Part) -> bool {
        let record = self.change.task.steps.get(&step.step);
        step.item.is_none() && record.is_some_and(|record| record.items.is_some())
    }
}

/// Whether who names `named` means `part`: itself, or an item of the step.
fn is_meant(named: &Part, part: &Part) -> bool {
    named == part || (named.item.is_none() && named.step == part.step)
}

/// Refuses to believe that a part did not run while a call of it may be in progress.
fn is_over(
    part: &Part,
    progress: &Progress,
    deferred_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Refused> {
    let until = progress.in_progress(now).max(deferred_until.filter(|until| *until > now));
    match until {
        None => Ok(()),
        Some(until) => Err(format!(
            "a call of step {part} may be in progress until {until}: say that it did not run after that"
        )),
    }
}

fn not_begun(step: &Part) -> Refused {
    format!("item {step} has not begun")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        definition::plan::Plan,
        engine::{
            decision::{Context, Transition},
            documents::Documents,
            event::Event,
            transition::transition,
        },
        model::{
            attempt::AttemptTimes,
            messages::{Outcome, StepReply},
            time::Timing,
        },
        submission::{accept, parse},
    };
    use serde_json::json;
    use std::time::Duration;

    /// Decides, and stores what was decided.
    fn play(workflow: &Plan, task: &mut Task, documents: &mut Documents, event: &Event) {
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let context = Context { now, actor: "test", redelivered: false, timing };
        match transition(workflow, task, documents, event, context).unwrap() {
            Transition::Apply { task: next, documents: made, .. } => {
                *task = *next;
                documents.extend(made.into_iter().map(|document| (document.key, document.body)));
            }
            ignored @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{ignored:?}"),
        }
    }

    #[test]
    fn edits_that_add_up_to_more_than_a_document_are_refused() {
        let workflow: Plan = serde_json::from_value(json!({
            "name": "w", "version": 1,
            "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission = parse(r#"{ "task_id": "t", "workflow": "w", "input": {} }"#).unwrap();
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let (mut task, document) = accept(&submission, &workflow, None, now, timing);
        let mut documents = Documents::from([(document.key, document.body)]);
        play(&workflow, &mut task, &mut documents, &Event::Wake);
        for (attempt, edit) in [(1, "first"), (2, "second")] {
            let outcome = Outcome::Failed { reason: "no".to_owned(), may_have_run: false };
            let (task_id, step) = (task.task_id.clone(), "a".parse().unwrap());
            let reply = StepReply {
                task_id,
                step,
                action: Action::Do,
                attempt,
                outcome,
                incarnation: None,
                times: AttemptTimes::default(),
            };
            play(&workflow, &mut task, &mut documents, &Event::Replied(reply));
            let patch = json!({ edit: "x".repeat(limits::DOCUMENT_BYTES_MAX * 2 / 3) });
            let order = Order::Resubmit { step: None, input: Some(patch), did_not_run: false };
            let (command_id, task_id) = (edit.parse().unwrap(), task.task_id.clone());
            let (by, why) = ("ann".to_owned(), "a test".to_owned());
            let command = Command { command_id, task_id, by, why, order, issued_at: None };
            play(&workflow, &mut task, &mut documents, &Event::Commanded(command));
        }
        let refused: Vec<_> =
            task.commands.iter().map(|record| record.refused.as_deref()).collect();
        let reason = "an edited input of 174786 bytes; the limit is 131072";
        assert_eq!(refused, [None, Some(reason)]);
        assert_eq!(task.input, Some("first".parse().unwrap()));
        assert_eq!(task.process_state, ProcessState::Error);
    }

    #[test]
    fn an_old_command_whose_id_is_forgotten_is_not_carried_out_again() {
        let workflow: Plan = serde_json::from_value(json!({
            "name": "w", "version": 1,
            "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission = parse(r#"{ "task_id": "t", "workflow": "w" }"#).unwrap();
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let (mut task, document) = accept(&submission, &workflow, None, at(0), timing);
        let mut documents = Documents::from([(document.key, document.body)]);
        let mut command = |id: String, order, issued_at: i64, now: i64| {
            let (by, why) = ("ann".to_owned(), "a test".to_owned());
            let (command_id, task_id) = (id.parse().unwrap(), task.task_id.clone());
            let issued_at = Some(at(issued_at));
            let event =
                Event::Commanded(Command { command_id, task_id, by, why, order, issued_at });
            let context = Context { now: at(now), actor: "test", redelivered: false, timing };
            let decided = transition(&workflow, &task, &documents, &event, context).unwrap();
            let Transition::Apply { task: next, documents: made, .. } = decided else { panic!() };
            documents.extend(made.into_iter().map(|document| (document.key, document.body)));
            task = *next;
            (task.paused_at.is_some(), task.commands.last().unwrap().refused.clone())
        };
        assert_eq!(command("first".to_owned(), Order::Pause, 1, 2), (true, None));
        for n in 0..20 {
            let order = if n % 2 == 0 { Order::Resume } else { Order::Pause };
            let refused = command(format!("c-{n}"), order, 10 + n, 11 + n).1;
            assert_eq!(refused, None, "a new command is obeyed");
        }
        assert_eq!(command("newest".to_owned(), Order::Resume, 40, 41), (false, None));
        let (paused, refused) = command("first".to_owned(), Order::Pause, 1, 50);
        assert!(!paused, "the first command was carried out again");
        assert!(refused.unwrap().contains("may have been carried out"));
    }

    #[test]
    fn an_edit_that_the_schema_does_not_take_is_refused() {
        let workflow: Plan = serde_json::from_value(json!({
            "name": "w", "version": 1, "input": { "required": ["n"], "properties": { "n": { "type": "integer" } } },
            "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission =
            parse(r#"{ "task_id": "t", "workflow": "w", "input": { "n": 1 } }"#).unwrap();
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let (mut task, document) = accept(&submission, &workflow, None, now, timing);
        let mut documents = Documents::from([(document.key, document.body)]);
        play(&workflow, &mut task, &mut documents, &Event::Wake);
        let outcome = Outcome::Failed { reason: "no".to_owned(), may_have_run: false };
        let (task_id, step) = (task.task_id.clone(), "a".parse().unwrap());
        let reply = StepReply {
            task_id,
            step,
            action: Action::Do,
            attempt: 1,
            outcome,
            incarnation: None,
            times: AttemptTimes::default(),
        };
        play(&workflow, &mut task, &mut documents, &Event::Replied(reply));
        let input = Some(json!({ "n": "secret" }));
        let order = Order::Resubmit { step: None, input, did_not_run: false };
        let (command_id, task_id) = ("edit".parse().unwrap(), task.task_id.clone());
        let (by, why) = ("ann".to_owned(), "a test".to_owned());
        let command = Command { command_id, task_id, by, why, order, issued_at: None };
        play(&workflow, &mut task, &mut documents, &Event::Commanded(command));
        let refused = task.commands[0].refused.as_deref();
        assert_eq!(refused, Some("input.n: it is not of type \"integer\""));
        assert_eq!(task.process_state, ProcessState::Error);
    }
}
