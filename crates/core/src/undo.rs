//! Undo: which steps are undone, and in what order.
//!
//! Everything that completed, and everything that may have run, in reverse order of the graph; a step
//! waits until all that came after it is undone, so branches are undone side by side. An attempt that
//! is still with an agent is waited for: what it does must not come after its own undo.
//!
//! ```text
//! reserve ──► charge ──► ship            undo: ship, then charge and notify side by side,
//!        └──► notify ──┘                       then reserve
//! ```

use std::collections::BTreeSet;

use crate::{
    messages::Action,
    names::StepName,
    task::{StepRecord, StepState, Task},
    workflow::Workflow,
};

/// Where a task stands to its point of no return, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointOfNoReturn {
    /// Not reached, or there is none.
    Ahead,
    /// An agent is at work on it: nobody knows yet.
    Running,
    /// This step completed, or may have.
    Passed(StepName),
}

/// Where `task` stands to its point of no return.
#[must_use]
pub fn point_of_no_return(workflow: &Workflow, task: &Task) -> PointOfNoReturn {
    let mut stands = PointOfNoReturn::Ahead;
    for (name, _) in workflow.steps.iter().filter(|(_, step)| step.point_of_no_return) {
        let Some(record) = task.steps.get(name) else { continue };
        if record.run.state.is_running() {
            stands = PointOfNoReturn::Running;
        } else if has_effect(record) {
            return PointOfNoReturn::Passed(name.clone());
        }
    }
    stands
}

/// The steps that are left to undo.
#[must_use]
pub fn left(workflow: &Workflow, task: &Task) -> Vec<StepName> {
    let is_left = |name: &StepName| task.steps.get(name).is_some_and(|r| is_left(workflow, name, r));
    workflow.steps.keys().filter(|name| is_left(name)).cloned().collect()
}

/// The steps that an operator must see to when undoing fails: those that are left to undo, and those
/// still with an agent, of which nobody knows yet.
#[must_use]
pub fn left_or_unknown(workflow: &Workflow, task: &Task) -> Vec<StepName> {
    let is_unknown = |name: &StepName, record: &StepRecord| {
        record.run.state.is_running() && has_undo(workflow, name)
    };
    let is_named = |name: &StepName| {
        let record = task.steps.get(name);
        record.is_some_and(|r| is_left(workflow, name, r) || is_unknown(name, r))
    };
    workflow.steps.keys().filter(|name| is_named(name)).cloned().collect()
}

/// The undos that can start now: not started, and everything that came after the step is undone.
#[must_use]
pub fn ready(workflow: &Workflow, task: &Task) -> Vec<StepName> {
    let held_back: BTreeSet<_> = workflow
        .ancestors()
        .into_iter()
        .filter(|(name, _)| {
            task.steps
                .get(*name)
                .is_some_and(|r| r.run.state.is_running() || is_left(workflow, name, r))
        })
        .flat_map(|(_, before)| before)
        .collect();
    let is_ready = |name: &StepName| {
        task.steps.get(name).is_some_and(|record| {
            record.undo.is_none()
                && !record.run.state.is_running()
                && is_left(workflow, name, record)
                && !held_back.contains(name)
        })
    };
    workflow.steps.keys().filter(|name| is_ready(name)).cloned().collect()
}

/// Whether nothing is left to undo, and nothing can add to it any more.
#[must_use]
pub fn is_done(workflow: &Workflow, task: &Task) -> bool {
    let running = task.steps.values().any(|record| record.run.state.is_running());
    !running && left(workflow, task).is_empty()
}

fn is_left(workflow: &Workflow, name: &StepName, record: &StepRecord) -> bool {
    let passed = record.undo.as_ref().is_some_and(|undo| undo.state.has_passed());
    has_undo(workflow, name) && has_effect(record) && !passed
}

fn has_undo(workflow: &Workflow, name: &StepName) -> bool {
    workflow.steps.get(name).is_some_and(|step| step.action(Action::Undo).is_some())
}

/// Whether the step completed, or may have run.
fn has_effect(record: &StepRecord) -> bool {
    matches!(record.run.state, StepState::Completed { .. }) || record.run.may_have_run
}
