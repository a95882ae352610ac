//! What an operator's command makes of a task, or why it is refused. Each is put on the task's
//! record with who asked and why, and told as an event; so is a refused one.

use serde_json::{Value, json};

use crate::{
    change::{Change, begun},
    command::{Command, CommandRecord, Order},
    effects::Effect,
    events::{BusEvent, Happened},
    limits::{self, shorten},
    messages::Action,
    names::Part,
    ports::{Attempt, Document, DocumentKey},
    request::too_large,
    task::{ProcessState, StepState, Task, later},
    undo::{self, PointOfNoReturn},
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
        at: change.context.now,
        refused: refused.map(short),
    };
    change.tell.push(told(&change.task, &record));
    let commands = &mut change.task.commands;
    commands.push(record);
    let surplus = commands.len().saturating_sub(limits::COMMANDS_KEPT_MAX);
    commands.drain(..surplus);
}

/// The event that tells of a command on record.
pub(crate) fn told(task: &Task, record: &CommandRecord) -> Effect {
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
        self.change.due_anew = true;
        match &command.order {
            Order::Resubmit { step, input, did_not_run } => {
                self.resubmit(step.as_ref(), *did_not_run, input.is_some())?;
                if let Some(patch) = input {
                    self.edit(command, patch)?;
                }
            }
            Order::Skip { step, did_not_run } => self.skip(step.as_ref(), *did_not_run)?,
            Order::Complete { step, output } => self.complete(step.as_ref(), output)?,
            Order::Undo => self.undo(command)?,
            Order::Cancel => self.cancel(command)?,
            Order::Pause => self.pause()?,
            Order::Resume => self.resume()?,
        }
        self.change.advance();
        Ok(())
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
        let may_go = |state: &StepState| {
            matches!(state, StepState::Failed { .. } | StepState::Waiting { .. })
        };
        let steps: Vec<_> = self
            .change
            .task
            .actions()
            .filter(|(name, action, progress)| {
                *action == direction
                    && may_go(&progress.state)
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

    fn try_again(
        &mut self,
        step: &Part,
        action: Action,
        did_not_run: bool,
        edited: bool,
    ) -> Result<(), Refused> {
        let idempotent =
            self.change.workflow.steps.get(&step.step).is_none_or(|step| step.idempotent);
        let Some(progress) = self.change.task.progress_mut(step, action) else { return Ok(()) };
        progress.may_have_run &= !did_not_run;
        // Another content needs another idempotency key, by which no service knows the first call.
        let another_call = edited || (!idempotent && action == Action::Do);
        if another_call && progress.may_have_run {
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
        progress.state = StepState::waiting(attempt, self.change.context.now);
        progress.failure_count = 0;
        progress.error = None;
        Ok(())
    }

    /// Changes the input, for what was resubmitted and for what starts from now on.
    fn edit(&mut self, command: &Command, patch: &Value) -> Result<(), Refused> {
        if let Some(reason) = too_large("edit of the input", patch) {
            return Err(reason);
        }
        // What is not at hand is asked for, and this is asked again.
        let Ok(input) = self.change.sources().input(self.change.task.input.as_ref()) else {
            return Ok(());
        };
        let mut input = input.clone();
        json_patch::merge(&mut input, patch);
        if let Some(reason) = too_large("edited input", &input) {
            return Err(reason);
        }
        if let Some(schema) = &self.change.workflow.input {
            schema.validate(&input)?;
        }
        let (id, at) = (command.command_id.clone(), self.change.context.now);
        let (key, body) = (DocumentKey::Input(id.clone()), json!({ "input": input }));
        self.change.documents.push(Document::new(key, at, body));
        let task = &mut self.change.task;
        let direction = task.direction();
        task.input = Some(id.clone());
        for step in &self.steps {
            if let Some(progress) = task.progress_mut(step, direction) {
                progress.input = Some(id.clone());
            }
        }
        Ok(())
    }

    fn skip(&mut self, step: Option<&Part>, did_not_run: bool) -> Result<(), Refused> {
        let (step, direction) = self.by_hand(step)?;
        let now = self.change.context.now;
        let progress = begun(&mut self.change.task, &step, direction, now);
        let progress = progress.ok_or_else(|| not_begun(&step))?;
        progress.state = StepState::Skipped { attempt: progress.state.attempt() };
        progress.may_have_run &= !did_not_run;
        self.steps.push(step);
        self.revive();
        Ok(())
    }

    fn complete(&mut self, step: Option<&Part>, output: &Value) -> Result<(), Refused> {
        let (step, action) = self.by_hand(step)?;
        if let Some(reason) = too_large("output", output) {
            return Err(reason);
        }
        let definition = self.change.workflow.steps.get(&step.step);
        if step.item.is_none() && definition.is_some_and(|step| step.for_each.is_some()) {
            return Err(format!("step {step} goes item by item: complete those, as {step}[0]"));
        }
        let now = self.change.context.now;
        let progress = begun(&mut self.change.task, &step, action, now);
        let progress = progress.ok_or_else(|| not_begun(&step))?;
        // An attempt of its own: whatever an agent still says is about an earlier one.
        let number = progress.state.attempt() + 1;
        self.steps.push(step.clone());
        self.change.complete(Attempt { step, action, number }, output);
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
        let definition = self.change.workflow.steps.get(&step.step);
        let definition = definition.ok_or_else(|| format!("the workflow has no step {step}"))?;
        if step.item.is_some() && definition.for_each.is_none() {
            return Err(format!("step {} has no items", step.step));
        }
        let task = &self.change.task;
        let progress = task.progress(step, direction);
        let is_left = || undo::left(self.change.workflow, task).contains(step);
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
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Processed
            | ProcessState::Error => {}
        }
        if let PointOfNoReturn::Passed(step) = undo::point_of_no_return(self.change.workflow, task)
        {
            return Err(format!("past the point of no return, step {step}"));
        }
        self.change.reopen();
        self.change.begin_undo(&format!("asked for by {}: {}", command.by, command.why));
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
        self.change.task.paused_at = Some(self.change.context.now);
        Ok(())
    }

    /// The pause does not count: the task has as much time left as it had.
    fn resume(&mut self) -> Result<(), Refused> {
        let Some(paused_at) = self.change.task.paused_at.take() else {
            return Err("the task is not paused".to_owned());
        };
        let paused = self.change.context.now.duration_since(paused_at);
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

fn not_begun(step: &Part) -> Refused {
    format!("item {step} has not begun")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        messages::{AttemptTimes, Outcome, StepReply},
        ports::Timing,
        submission::{accept, parse},
        transition::{Context, Documents, Event, Transition, transition},
        workflow::Workflow,
    };
    use serde_json::json;
    use std::time::Duration;

    /// Decides, and stores what was decided.
    fn play(workflow: &Workflow, task: &mut Task, documents: &mut Documents, event: &Event) {
        let timing = Timing { pickup_within: Duration::ZERO, clock_skew: Duration::ZERO };
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
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1,
            "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission = parse(r#"{ "task_id": "t", "workflow": "w", "input": {} }"#).unwrap();
        let timing = Timing { pickup_within: Duration::ZERO, clock_skew: Duration::ZERO };
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
                times: AttemptTimes::default(),
            };
            play(&workflow, &mut task, &mut documents, &Event::Replied(reply));
            let patch = json!({ edit: "x".repeat(limits::DOCUMENT_BYTES_MAX * 2 / 3) });
            let order = Order::Resubmit { step: None, input: Some(patch), did_not_run: false };
            let (command_id, task_id) = (edit.parse().unwrap(), task.task_id.clone());
            let (by, why) = ("ann".to_owned(), "a test".to_owned());
            let command = Command { command_id, task_id, by, why, order };
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
    fn an_edit_that_the_schema_does_not_take_is_refused() {
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1, "input": { "required": ["n"], "properties": { "n": { "type": "integer" } } },
            "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission =
            parse(r#"{ "task_id": "t", "workflow": "w", "input": { "n": 1 } }"#).unwrap();
        let timing = Timing { pickup_within: Duration::ZERO, clock_skew: Duration::ZERO };
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
            times: AttemptTimes::default(),
        };
        play(&workflow, &mut task, &mut documents, &Event::Replied(reply));
        let input = Some(json!({ "n": "secret" }));
        let order = Order::Resubmit { step: None, input, did_not_run: false };
        let (command_id, task_id) = ("edit".parse().unwrap(), task.task_id.clone());
        let (by, why) = ("ann".to_owned(), "a test".to_owned());
        let command = Command { command_id, task_id, by, why, order };
        play(&workflow, &mut task, &mut documents, &Event::Commanded(command));
        let refused = task.commands[0].refused.as_deref();
        assert_eq!(refused, Some("input.n: it is not of type \"integer\""));
        assert_eq!(task.process_state, ProcessState::Error);
    }
}
