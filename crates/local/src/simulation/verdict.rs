//! The oracle's last word, once it is quiet: what every task has come to, against the ledger.

use steward_core::{
    messages::Action,
    names::{Part, TaskId},
    task::{ProcessState, StepState, Task},
};

use super::{
    graph::Graph,
    ledger::Ledger,
    oracle::{Oracle, describe, is_final},
    plan::Plan,
};

/// Judges every task that was submitted.
pub(super) fn judge(oracle: &mut Oracle, ledger: &Ledger, plan: &Plan) {
    let mut found = Vec::new();
    for submitted in &plan.tasks {
        let id = &submitted.task_id;
        let Some((task, graph)) = oracle.tasks.get(id).zip(oracle.graph(id)) else {
            found.push(format!("{id}: submitted, and never recorded"));
            continue;
        };
        let case = Case { oracle, ledger, task, graph };
        found.extend(case.judge().into_iter().map(|finding| format!("{id}: {finding}")));
    }
    oracle.findings.extend(found);
}

struct Case<'a> {
    oracle: &'a Oracle,
    ledger: &'a Ledger,
    task: &'a Task,
    graph: &'a Graph,
}

impl Case<'_> {
    fn judge(&self) -> Vec<String> {
        let mut found = Vec::new();
        let state = self.task.process_state;
        if !is_final(self.task) {
            found.push(format!("it is quiet, and the task is {state}"));
        }
        if self.task.due.is_some() {
            found.push(format!("it is quiet, and the task, {state}, is still due"));
        }
        let (id, ended_at) = (self.id(), self.task.ended_at.unwrap_or_default());
        let told = (id.to_string(), state.to_string(), ended_at.as_millisecond());
        if !self.oracle.notices.contains(&told) {
            found.push(format!("{state}, and its client was not told"));
        }
        for step in self.graph.steps() {
            found.extend(self.judge_step(step));
        }
        if state == ProcessState::Error {
            found.extend(self.judge_alert());
        }
        found
    }

    fn id(&self) -> &TaskId {
        &self.task.task_id
    }

    fn effects(&self, step: &Part) -> usize {
        self.ledger.account(self.id(), step).map_or(0, |account| account.effects.len())
    }

    fn stands(&self, step: &Part) -> bool {
        self.ledger.account(self.id(), step).is_some_and(|account| account.stands())
    }

    /// Whether the step did something that its undo should take back, and has not.
    fn is_left(&self, step: &Part) -> bool {
        let by_hand = self.oracle.is_by_hand(self.id(), step, Action::Undo);
        self.graph.has_undo(step) && self.stands(step) && !by_hand
    }

    fn judge_step(&self, step: &Part) -> Option<String> {
        let record = self.task.record(step);
        let by_hand = self.oracle.is_by_hand(self.id(), step, Action::Do);
        let effects = self.effects(step);
        let passed = record.is_some_and(|record| match record.run.state {
            StepState::Completed { .. } | StepState::Skipped { .. } => true,
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => false,
        });
        match self.task.process_state {
            ProcessState::Processed if !passed => {
                return Some(format!("Processed, and step {step} is not done"));
            }
            ProcessState::Processed if !by_hand && effects != 1 => {
                return Some(format!("Processed, and step {step} took effect {effects} times"));
            }
            ProcessState::Undone if self.is_left(step) => {
                return Some(format!("Undone, and what step {step} did is not undone"));
            }
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Undoing
            | ProcessState::Processed
            | ProcessState::Undone
            | ProcessState::Error => {}
        }
        let known = passed
            || record
                .is_some_and(|record| record.run.may_have_run || record.run.state.is_running());
        let of = describe(self.id(), step, Action::Do);
        (effects > 0 && !known)
            .then(|| format!("{of} took effect, and the task knows nothing of it"))
    }

    /// Error was alerted since it began; if the task was being undone, the alert names what is left.
    fn judge_alert(&self) -> Option<String> {
        let ended_at = self.task.ended_at.unwrap_or_default().as_millisecond();
        let mut alerts = self.oracle.alerts.get(self.id()).into_iter().flatten();
        let Some(alert) = alerts.rfind(|alert| alert.at.as_millisecond() == ended_at) else {
            return Some("in Error, and no alert was published".to_owned());
        };
        let backward = self.task.undo_reason.is_some();
        if backward != alert.undo_failed {
            return Some(format!("in Error, alerted as undo_failed: {}", alert.undo_failed));
        }
        let left =
            self.graph.steps().find(|step| self.is_left(step) && !alert.steps.contains(step));
        let left = left.filter(|_| backward)?;
        Some(format!("undo failed; step {left} is left to undo, and the alert does not name it"))
    }
}
