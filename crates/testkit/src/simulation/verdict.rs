//! The oracle's last word, once it is quiet: what every task has come to, against the ledger.

use steward_core::model::{
    attempt::Action,
    names::{Part, StepName, TaskId},
    step::StepState,
    task::{ProcessState, Task},
};

use super::{
    blueprint::{Output, StepPlan, WorkPlan},
    edits, family,
    ledger::Ledger,
    oracle::{Oracle, describe, is_final},
    plan::Plan,
    sense::{Known, Sense},
};

/// Judges every task that was submitted, by a client or for a step.
pub(super) fn judge(oracle: &mut Oracle, ledger: &Ledger, plan: &Plan) {
    let mut found = Vec::new();
    for submitted in &plan.tasks {
        let id = &submitted.task_id;
        if !oracle.tasks.contains_key(id) {
            found.push(format!("{id}: submitted, and never recorded"));
        }
    }
    for id in oracle.tasks.keys() {
        let Some(sense) = Sense::of(oracle, ledger, id) else {
            // That a task of a step was never done is on record whether or not there is its workflow.
            let task = oracle.tasks.get(id);
            let never_done = |task: &Task| {
                task.parent.is_some()
                    && task.process_state == ProcessState::Undone
                    && task.steps.is_empty()
            };
            if task.is_some_and(never_done) {
                continue;
            }
            found.push(format!("{id}: of no workflow that there is"));
            continue;
        };
        found.extend(Case(sense).judge().into_iter().map(|finding| format!("{id}: {finding}")));
    }
    oracle.findings.extend(found);
}

struct Case<'a>(Sense<'a>);

impl Case<'_> {
    fn judge(&self) -> Vec<String> {
        let mut found = Vec::new();
        let task = self.task();
        let state = task.process_state;
        if !is_final(task) {
            found.push(format!("it is quiet, and the task is {state}"));
        }
        if task.due.is_some() {
            found.push(format!("it is quiet, and the task, {state}, is still due"));
        }
        let (id, ended_at) = (self.id(), task.ended_at.unwrap_or_default());
        let told = (id.to_string(), state.to_string(), ended_at.as_millisecond());
        if task.reply_to.is_some() && !self.0.oracle.notices.contains(&told) {
            found.push(format!("{state}, and its client was not told"));
        }
        if state == ProcessState::Processed {
            for (name, step) in self.0.graph.steps() {
                found.extend(self.judge_done(name, step));
            }
            found.extend(edits::judge(self.0));
            if matches!(self.0.graph.blueprint.output, Output::Broken) {
                found.push("Processed, and it can return nothing".to_owned());
            }
        }
        for part in self.0.all_parts() {
            found.extend(self.judge_part(&part));
            found.extend(family::judge(&part, self.0));
        }
        if state == ProcessState::Error {
            found.extend(self.judge_alert());
        }
        found
    }

    fn task(&self) -> &Task {
        self.0.task
    }

    fn id(&self) -> &TaskId {
        &self.task().task_id
    }

    /// A step of a task that is done: every part that ought to have run did, once, and no other.
    fn judge_done(&self, name: &StepName, step: &StepPlan) -> Option<String> {
        let record = self.task().steps.get(name);
        let passed = record.is_some_and(|record| has_passed(&record.run.state));
        if !passed {
            return Some(format!("Processed, and step {name} is not done"));
        }
        let whole = Part::from(name.clone());
        if self.0.is_by_hand(&whole) {
            return None;
        }
        let skipped = self.0.oracle.is_skipped(self.id(), name);
        let ought = match self.0.holds(step) {
            Known::Is(holds) => holds,
            Known::Fails => {
                return Some(format!("Processed, and `when` of step {name} has no value"));
            }
            Known::Open => !skipped,
        };
        if skipped == ought {
            return Some(format!("Processed, and step {name} was skipped: {skipped}"));
        }
        let parts = if ought { self.0.parts(name, step) } else { Vec::new() };
        let known = self.0.all_parts();
        let other = known.iter().find(|part| part.step == *name && !parts.contains(part));
        if let Some(other) = other {
            return Some(format!("Processed, and {other}, which ought not to run, did"));
        }
        parts.iter().find_map(|part| self.judge_done_part(part, step))
    }

    fn judge_done_part(&self, part: &Part, step: &StepPlan) -> Option<String> {
        if self.0.is_by_hand(part) {
            return None;
        }
        let account = self.0.account(part);
        let effects = account.map_or(0, |account| account.effects.len());
        match &step.work {
            WorkPlan::Call { callback, .. } => {
                let said = account.is_some_and(|account| !account.said.is_empty());
                if effects != 1 {
                    return Some(format!("Processed, and step {part} took effect {effects} times"));
                }
                (callback.is_some() && !said)
                    .then(|| format!("Processed, and nobody answered step {part}"))
            }
            WorkPlan::Wait(_) => None,
            WorkPlan::Child(_) => {
                let ran = self.0.oracle.children(self.id(), part).next().is_some();
                (!ran).then(|| format!("Processed, and no task ran for step {part}"))
            }
        }
    }

    /// A part that did something: it is known, and where it should be, undone.
    fn judge_part(&self, part: &Part) -> Option<String> {
        if self.task().process_state == ProcessState::Undone && self.0.is_left(part) {
            return Some(format!("Undone, and what step {part} did is not undone"));
        }
        let effects = self.0.account(part).is_some_and(|account| !account.effects.is_empty());
        let standing = self
            .0
            .oracle
            .children(self.id(), part)
            .any(|child| child.process_state != ProcessState::Undone);
        let record = self.task().record(part);
        let known = record.is_some_and(|record| {
            has_passed(&record.run.state)
                || record.run.may_have_run
                || matches!(
                    record.run.state,
                    StepState::Running { .. } | StepState::HandedOut { .. }
                )
        });
        let of = describe(self.id(), part, Action::Do);
        ((effects || standing) && !known)
            .then(|| format!("{of} took effect, and the task knows nothing of it"))
    }

    /// Error was alerted since it began; if the task was being undone, the alert names what is left.
    fn judge_alert(&self) -> Option<String> {
        let ended_at = self.task().ended_at.unwrap_or_default().as_millisecond();
        let mut alerts = self.0.oracle.alerts.get(self.id()).into_iter().flatten();
        let Some(alert) = alerts.rfind(|alert| alert.at.as_millisecond() == ended_at) else {
            return Some("in Error, and no alert was published".to_owned());
        };
        let backward = self.task().undo_reason.is_some();
        if backward != alert.undo_failed {
            return Some(format!("in Error, alerted as undo_failed: {}", alert.undo_failed));
        }
        let parts = self.0.all_parts();
        let mut left =
            parts.iter().filter(|part| self.0.is_left(part) && !alert.steps.contains(part));
        // Of very many it names the first, and says how many more there are.
        let left = left.nth(alert.more_steps).filter(|_| backward)?;
        Some(format!("undo failed; step {left} is left to undo, and the alert does not name it"))
    }
}

fn has_passed(state: &StepState) -> bool {
    match state {
        StepState::Completed { .. } | StepState::Skipped { .. } => true,
        StepState::Running { .. }
        | StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Waiting { .. }
        | StepState::Failed { .. } => false,
    }
}
