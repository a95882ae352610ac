//! The oracle's final checks, once the run is quiet: the final state of every task must match the ledger.

use steward_core::{
    engine::invariants::ending::PartEnding,
    model::{
        attempt::Action,
        names::{Part, StepName, TaskId},
        step::StepState,
        task::{ProcessState, Task},
    },
};
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::{OutputPlan, StepPlan, WorkPlan},
    child_checks,
    expectations::{Expected, TaskExpectations},
    list_edits,
    oracle::Oracle,
    plan::SimulationPlan,
    task_record::{describe, has_stopped},
};

/// Checks every task that was submitted, by a client or for a step.
pub(super) fn check(oracle: &mut Oracle, ledger: &EffectLedger, plan: &SimulationPlan) {
    let mut found = Vec::new();
    for submitted in &plan.tasks {
        let id = &submitted.task_id;
        if !oracle.tasks.contains_key(id) && !oracle.payloads.refused_as_expired.contains(id) {
            found.push(format!("{id}: was submitted, but never recorded"));
        }
    }
    for id in oracle.tasks.keys() {
        let Some(expected) = TaskExpectations::of(oracle, ledger, id) else {
            // The record that a child task never began may exist without its workflow.
            let task = oracle.tasks.get(id);
            let never_done = |task: &Task| {
                task.parent.is_some()
                    && task.process_state == ProcessState::Undone
                    && task.steps.is_empty()
            };
            if task.is_some_and(never_done) {
                continue;
            }
            found.push(format!("{id}: its workflow does not exist"));
            continue;
        };
        found.extend(
            TaskCheck(expected).check().into_iter().map(|finding| format!("{id}: {finding}")),
        );
    }
    oracle.violations.extend(found);
}

struct TaskCheck<'a>(TaskExpectations<'a>);

impl TaskCheck<'_> {
    fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        let task = self.task();
        let state = task.process_state;
        if !has_stopped(task) {
            found.push(format!("the run is quiet, but the task is {state}"));
        }
        if task.due.is_some() {
            found.push(format!("the run is quiet, but the task, {state}, is still due"));
        }
        let (id, ended_at) = (self.id(), task.ended_at.unwrap_or_default());
        let final_notification = (id.to_string(), state.to_string(), ended_at.as_millisecond());
        let may_be_lost = self.0.oracle.expired_before_redrive.contains(&task.task_id);
        let is_notified = self.0.oracle.notifications.contains(&final_notification);
        if task.reply_to.is_some() && !is_notified && !may_be_lost {
            found.push(format!("{state}, but its client was not notified"));
        }
        found.extend(self.0.oracle.unpublished(task));
        if state == ProcessState::Processed {
            for (name, step) in self.0.model.steps() {
                found.extend(self.check_processed_step(name, step));
            }
            found.extend(list_edits::check_final(self.0));
            if matches!(self.0.model.blueprint.output, OutputPlan::Broken) {
                found.push("Processed, but its output expression has no value".to_owned());
            }
        }
        for part in self.0.called_parts() {
            found.extend(self.check_part(&part));
            found.extend(child_checks::check_final(&part, self.0));
        }
        if state == ProcessState::Error {
            found.extend(self.check_alert());
        }
        found
    }

    fn task(&self) -> &Task {
        self.0.task
    }

    fn id(&self) -> &TaskId {
        &self.task().task_id
    }

    /// Checks a step of a Processed task: every part that must run took effect exactly once, and no other part did.
    fn check_processed_step(&self, name: &StepName, step: &StepPlan) -> Option<String> {
        let whole = Part::from(name.clone());
        if self.0.is_decided_by_operator(&whole) {
            return None;
        }
        let skipped = self.0.oracle.was_skipped(self.id(), name);
        let must_run = match self.0.should_run(step) {
            Expected::Value(should_run) => should_run,
            Expected::NoValue => {
                return Some(format!("Processed, but `when` of step {name} has no value"));
            }
            Expected::Undetermined => !skipped,
        };
        if skipped == must_run {
            return Some(format!(
                "Processed, but whether step {name} was skipped is wrong: {skipped}"
            ));
        }
        let parts = if must_run { self.0.parts(name, step) } else { Vec::new() };
        let known = self.0.called_parts();
        let other = known.iter().find(|part| part.step == *name && !parts.contains(part));
        if let Some(other) = other {
            return Some(format!("Processed, but {other} ran, which must not run"));
        }
        parts.iter().find_map(|part| self.check_processed_part(part, step))
    }

    fn check_processed_part(&self, part: &Part, step: &StepPlan) -> Option<String> {
        if self.0.is_decided_by_operator(part) {
            return None;
        }
        let account = self.0.account(part);
        match &step.work {
            WorkPlan::Call { callback, .. } => {
                let has_answer =
                    account.is_some_and(|account| !account.callback_outputs.is_empty());
                let ending = self.part_ending(part, Some(1));
                if let Some(wrong) = ending.violation(ProcessState::Processed) {
                    return Some(wrong);
                }
                (callback.is_some() && !has_answer).then(|| {
                    format!("Processed, but the callback of step {part} was never answered")
                })
            }
            WorkPlan::Wait(_) | WorkPlan::Event(_) => None,
            WorkPlan::Child(_) => {
                let ran = self.0.oracle.child_tasks_of_part(self.id(), part).next().is_some();
                (!ran).then(|| format!("Processed, but no child task ran for step {part}"))
            }
        }
    }

    /// The side effects of a part. Those of an Undone task count as long as they must be undone.
    fn part_ending(&self, part: &Part, expected: Option<usize>) -> PartEnding {
        let effects = self.0.account(part).map(|account| account.effects.as_slice());
        let effects = effects.unwrap_or_default();
        let active = match self.task().process_state {
            ProcessState::Undone => usize::from(self.0.needs_undo(part)),
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Processed
            | ProcessState::Undoing
            | ProcessState::Error => effects.iter().filter(|effect| !effect.undone).count(),
        };
        let (name, effects) = (format!("step {part}"), effects.len());
        PartEnding { name, effects, active, expected, ..PartEnding::default() }
    }

    /// Checks a part that was called: the task's record knows its effect, and it is undone if the task is Undone.
    fn check_part(&self, part: &Part) -> Option<String> {
        if let Some(wrong) = self.part_ending(part, None).violation(self.task().process_state) {
            return Some(wrong);
        }
        let effects = self.0.account(part).is_some_and(|account| !account.effects.is_empty());
        let standing = self
            .0
            .oracle
            .child_tasks_of_part(self.id(), part)
            .any(|child| child.process_state != ProcessState::Undone);
        let record = self.task().record(part);
        let known = record.is_some_and(|record| {
            has_passed(&record.forward.state)
                || record.forward.may_have_run
                // Another delivery of a deferred request may act. Whatever is done to the step next assumes so.
                || record.forward.state.deferred_by().is_some()
                || matches!(
                    record.forward.state,
                    StepState::Running { .. } | StepState::AwaitingCallback { .. }
                )
        });
        let of = describe(self.id(), part, Action::Do);
        ((effects || standing) && !known)
            .then(|| format!("{of} took effect, but the task's record does not show it"))
    }

    /// Checks the alert of a task in Error. If an undo failed, the alert must name the steps that remain to be undone.
    fn check_alert(&self) -> Option<String> {
        let ended_at = self.task().ended_at.unwrap_or_default().as_millisecond();
        let mut alerts = self.0.oracle.alerts.get(self.id()).into_iter().flatten();
        let Some(alert) = alerts.rfind(|alert| alert.at.as_millisecond() == ended_at) else {
            return Some("in Error, but no alert was published".to_owned());
        };
        let parts = self.0.called_parts();
        let mut left =
            parts.iter().filter(|part| self.0.needs_undo(part) && !alert.steps.contains(part));
        // An alert names only the first of many steps, and counts the others.
        let left = left.nth(alert.more_steps).filter(|_| alert.undo_failed)?;
        Some(format!(
            "undo failed; step {left} remains to be undone, but the alert does not name it"
        ))
    }
}

fn has_passed(state: &StepState) -> bool {
    matches!(state, StepState::Completed { .. } | StepState::Skipped { .. })
}
