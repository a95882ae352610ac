//! Undo: which steps are undone, and in what order.
//!
//! Everything that completed, and everything that may have run, in reverse order of the graph; a step
//! waits until all that came after it is undone, so branches are undone side by side. An attempt that
//! is still with an agent is waited for: what it does must not come after its own undo. For the same
//! reason a call of unknown outcome is waited for until it can no longer be in progress at its service.
//!
//! ```text
//! reserve ──► charge ──► ship            undo: ship, then charge and notify side by side,
//!        └──► notify ──┘                       then reserve
//! ```

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{
    definition::workflow::Workflow,
    model::{
        attempt::Action,
        names::{Part, StepName},
        step::{StepRecord, StepState},
        task::Task,
    },
};

/// Where a task stands to its point of no return, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointOfNoReturn {
    /// Not reached, or there is none.
    Ahead,
    /// Someone is at work on it: nobody knows yet.
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
        for (_, part) in record.parts(name) {
            if part.run.state.awaited_by().is_some() {
                stands = PointOfNoReturn::Running;
            } else if has_effect(part) {
                return PointOfNoReturn::Passed(name.clone());
            }
        }
    }
    stands
}

/// What is left to undo, in the workflow's order.
#[must_use]
pub fn left(workflow: &Workflow, task: &Task) -> Vec<Part> {
    parts(workflow, task, |step, record| is_left(workflow, step, record))
}

/// The same, and what someone is still at work on: it may have to be undone as well.
#[must_use]
pub fn outstanding(workflow: &Workflow, task: &Task) -> Vec<Part> {
    parts(workflow, task, |step, record| {
        is_left(workflow, step, record) || (has_undo(workflow, step) && is_awaited(record))
    })
}

/// The undos that can start now: not started, and everything that came after the step is undone. Of
/// the items of a step no more are undone at once than are done at once.
#[must_use]
pub fn ready(workflow: &Workflow, task: &Task, now: Timestamp) -> Vec<Part> {
    let may_act = |record: &StepRecord| is_awaited(record) || record.run.in_progress(now).is_some();
    let is_open = |record: &StepRecord, step: &StepName| {
        is_awaited(record) || record.in_progress(now).is_some() || is_left(workflow, step, record)
    };
    let held_back: BTreeSet<_> = workflow
        .ancestors()
        .into_iter()
        .filter(|(name, _)| {
            let record = task.steps.get(*name);
            record.is_some_and(|r| r.parts(name).any(|(_, part)| is_open(part, name)))
        })
        .flat_map(|(_, before)| before)
        .collect();
    let mut room = room(workflow, task);
    let mut ready = parts(workflow, task, |step, record| {
        record.undo.is_none()
            && !may_act(record)
            && is_left(workflow, step, record)
            && !held_back.contains(step)
    });
    ready.retain(|part| match room.get_mut(&part.step) {
        Some(room) => {
            let fits = *room > 0;
            *room = room.saturating_sub(1);
            fits
        }
        None => true,
    });
    ready
}

/// How many more items of each step with `for_each` can be undone at once.
fn room<'t>(workflow: &Workflow, task: &'t Task) -> BTreeMap<&'t StepName, usize> {
    let room = |(name, record): (&'t StepName, &StepRecord)| {
        let at_once = workflow.steps.get(name)?.for_each.as_ref()?.at_once as usize;
        let is_open = |undo: &StepState| !undo.has_passed() && !undo.is_failed();
        let undos = record.parts(name).filter_map(|(_, part)| part.undo.as_ref());
        let open = undos.filter(|undo| is_open(&undo.state)).count();
        Some((name, at_once.saturating_sub(open)))
    };
    task.steps.iter().filter_map(room).collect()
}

/// Whether nothing is left to undo, and nothing can add to it any more.
#[must_use]
pub fn is_done(workflow: &Workflow, task: &Task, now: Timestamp) -> bool {
    !task.parts().any(|(_, record)| is_awaited(record) || record.in_progress(now).is_some())
        && left(workflow, task).is_empty()
}

fn parts(
    workflow: &Workflow,
    task: &Task,
    wanted: impl Fn(&StepName, &StepRecord) -> bool,
) -> Vec<Part> {
    let records = workflow.steps.keys().filter_map(|name| Some((name, task.steps.get(name)?)));
    records
        .flat_map(|(name, record)| record.parts(name))
        .filter(|(part, record)| wanted(&part.step, record))
        .map(|(part, _)| part)
        .collect()
}

fn is_left(workflow: &Workflow, name: &StepName, record: &StepRecord) -> bool {
    let passed = record.undo.as_ref().is_some_and(|undo| undo.state.has_passed());
    has_undo(workflow, name) && has_effect(record) && !passed
}

fn has_undo(workflow: &Workflow, name: &StepName) -> bool {
    workflow.steps.get(name).is_some_and(|step| step.action(Action::Undo).is_some())
}

/// Whether someone is at work on doing it.
fn is_awaited(record: &StepRecord) -> bool {
    record.run.state.awaited_by().is_some()
}

/// Whether the step completed, or may have run.
fn has_effect(record: &StepRecord) -> bool {
    matches!(record.run.state, StepState::Completed { .. }) || record.run.may_have_run
}
