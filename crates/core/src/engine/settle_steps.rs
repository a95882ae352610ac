//! Commands about single steps: resubmit, skip and complete.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    engine::{
        change::begun,
        operator::{Operator, Refused},
        order, outcome,
        request::{child_id, too_large},
    },
    model::{
        attempt::{Action, Attempt},
        command::CommandId,
        names::Part,
        step::{Progress, StepState},
        task::ProcessState,
    },
};

impl Operator<'_, '_> {
    pub(super) fn resubmit(
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

    pub(super) fn skip(&mut self, step: Option<&Part>, did_not_run: bool) -> Result<(), Refused> {
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

    pub(super) fn complete(
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
