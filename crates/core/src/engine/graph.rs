//! The order of steps and of their undos: which of them can start, and which undos remain.
//!
//! A step starts when all its predecessors have completed or were skipped. The undo covers every step that completed
//! or may have run, in reverse order: a step is undone after all its successors, so branches are undone in parallel.
//! The undo of a step waits for an attempt that an agent is still processing. After an unknown outcome, it waits
//! until the call can no longer be in progress at its service, because the call must not take effect after its own
//! undo.
//!
//! ```text
//! reserve ──► charge ──► ship            undo: ship, then charge and notify side by side,
//!        └──► notify ──┘                       then reserve
//! ```

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{
    definition::plan::Plan,
    model::{
        attempt::Action,
        names::{Part, StepName},
        part_span::PartSpan,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

/// Whether a task has passed its point of no return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointOfNoReturn {
    /// Not reached, or the workflow has none.
    Ahead,
    /// An attempt at the step is in progress, so it is not known yet.
    Running,
    /// This step completed, or may have run.
    Passed(StepName),
}

/// Determines whether `task` has passed its point of no return. An effect that came to light after the undo had begun or
/// ended does not count. A kept step of a rerun does: nothing before it is undone any more.
#[must_use]
pub fn point_of_no_return(plan: &Plan, task: &Task) -> PointOfNoReturn {
    let mut found = PointOfNoReturn::Ahead;
    for (name, _) in plan.steps().filter(|(_, step)| step.definition.point_of_no_return) {
        let Some(record) = task.steps.get(name) else { continue };
        for (_, part) in record.part_spans(name) {
            if part.forward.state.reply_due_by().is_some() {
                found = PointOfNoReturn::Running;
            } else if (part.has_effect() || task.keeps(name)) && !task.undo_is_final {
                return PointOfNoReturn::Passed(name.clone());
            }
        }
    }
    found
}

/// Whether nothing can cancel the undo of the task any more: a part is being undone, or the task was undone.
#[must_use]
pub fn is_undo_final(task: &Task) -> bool {
    task.undo_is_final
        || task.process_state == ProcessState::Undone
        || task.part_spans().any(|(_, record)| record.undo.is_some())
}

/// The parts that are undone, but ran beside a completion by an operator: only an operator can undo both.
pub fn parts_beside_completions<'a>(
    plan: &'a Plan,
    task: &'a Task,
) -> impl Iterator<Item = Part> + 'a {
    let by_service = |undo: &Progress| {
        matches!(undo.state, StepState::Completed { .. }) && undo.completed_by_hand.is_none()
    };
    // A child task that says that it is undone has checked its own effects.
    let records = spans(plan, task, move |step, record| {
        !plan.step(step).runs_child()
            && record.ran_beside_completion()
            && record.undo.as_ref().is_some_and(by_service)
    });
    records.flat_map(PartSpan::parts)
}

/// The steps that can start: they have not started, and all their predecessors have completed or were skipped.
pub fn ready_steps<'a>(plan: &'a Plan, task: &'a Task) -> impl Iterator<Item = &'a StepName> {
    let ready = plan.steps().filter(|(name, step)| {
        !task.steps.contains_key(*name)
            && step.definition.after.iter().all(|before| task.has_passed(before))
    });
    ready.map(|(name, _)| name)
}

/// Whether every step has completed or was skipped.
#[must_use]
pub fn is_complete(plan: &Plan, task: &Task) -> bool {
    plan.steps().all(|(name, _)| task.has_passed(name))
}

/// The parts that remain to be undone, in the order of the definition.
#[must_use]
pub fn parts_left_to_undo(plan: &Plan, task: &Task) -> Vec<Part> {
    parts(plan, task, |step, record| is_left(plan, step, record))
}

/// The parts that remain to be undone, and the parts in progress that may have to be undone as well.
#[must_use]
pub fn outstanding(plan: &Plan, task: &Task) -> Vec<Part> {
    parts(plan, task, |step, record| {
        is_left(plan, step, record) || (has_undo(plan, step) && is_awaited(record))
    })
}

/// The undos that can start: they have not started, and all successors of their step are undone. At most `at_once`
/// items of a step are undone at once. Items that have not completed go first: their child tasks may still be running,
/// or their submissions may still be in a queue, and would run beside the undo of the other items. A round
/// is undone after all later ones.
#[must_use]
pub fn ready_undos(plan: &Plan, task: &Task, now: Timestamp) -> Vec<Part> {
    let may_act =
        |record: &StepRecord| is_awaited(record) || record.forward.in_progress(now).is_some();
    let is_open = |record: &StepRecord, step: &StepName| {
        is_awaited(record) || record.in_progress(now).is_some() || is_left(plan, step, record)
    };
    let held_back: BTreeSet<_> = plan
        .steps()
        .filter(|(name, _)| {
            let record = task.steps.get(*name);
            record.is_some_and(|r| r.part_spans(name).any(|(_, part)| is_open(part, name)))
        })
        .flat_map(|(_, step)| &step.ancestors)
        .collect();
    let mut free_slots = free_undo_slots(plan, task);
    let ready = spans(plan, task, |step, record| {
        record.undo.as_ref().is_none_or(|undo| undo.state.is_completed_or_skipped())
            && !may_act(record)
            && is_left(plan, step, record)
            && !held_back.contains(step)
    });
    let mut ready: Vec<_> = ready.collect();
    let has_completed = |span: &PartSpan<'_>| {
        let first = span.clone().parts().next();
        let progress = first.and_then(|part| task.progress(&part, Action::Do));
        progress.is_some_and(|run| matches!(run.state, StepState::Completed { .. }))
    };
    for items in ready.chunk_by_mut(|a, b| a.step == b.step) {
        items.sort_by_key(has_completed);
    }
    let last_open_round = |step: &StepName| {
        let spans = task.steps.get(step)?.part_spans(step).filter(|(_, part)| is_open(part, step));
        spans.last()?.0.parts().last()
    };
    let mut parts = Vec::new();
    for span in ready {
        let repeat = plan.step(span.step).definition.repeat.as_ref();
        let last = repeat.and_then(|_| last_open_round(span.step));
        let may_start = |part: &Part| last.as_ref().is_none_or(|last| part == last);
        let free = free_slots.get_mut(span.step);
        let (most, before) = (free.as_ref().map_or(usize::MAX, |free| **free), parts.len());
        parts.extend(span.parts().filter(may_start).take(most));
        if let Some(free) = free {
            *free -= parts.len() - before;
        }
    }
    parts
}

/// The number of items of each step with items that can start their undo now.
fn free_undo_slots<'t>(plan: &Plan, task: &'t Task) -> BTreeMap<&'t StepName, usize> {
    let free_slots = |(name, record): (&'t StepName, &StepRecord)| {
        let at_once = plan.step(name).definition.items_at_once()? as usize;
        let is_open = |undo: &StepState| !undo.is_completed_or_skipped() && !undo.is_failed();
        let undoing = record
            .part_spans(name)
            .filter(|(_, part)| part.undo.as_ref().is_some_and(|undo| is_open(&undo.state)));
        let open: usize = undoing.map(|(span, _)| span.count()).sum();
        Some((name, at_once.saturating_sub(open)))
    };
    task.steps.iter().filter_map(free_slots).collect()
}

/// Whether nothing remains to be undone, and nothing in progress could add to it.
#[must_use]
pub fn is_undone(plan: &Plan, task: &Task, now: Timestamp) -> bool {
    let is_open = |record: &StepRecord| is_awaited(record) || record.in_progress(now).is_some();
    !task.part_spans().any(|(_, record)| is_open(record))
        && spans(plan, task, |step, record| is_left(plan, step, record)).next().is_none()
}

fn parts(plan: &Plan, task: &Task, accepts: impl Fn(&StepName, &StepRecord) -> bool) -> Vec<Part> {
    spans(plan, task, accepts).flat_map(PartSpan::parts).collect()
}

/// The parts whose records `accepts` accepts, in the order of the definition.
fn spans<'t>(
    plan: &'t Plan,
    task: &'t Task,
    accepts: impl Fn(&StepName, &StepRecord) -> bool,
) -> impl Iterator<Item = PartSpan<'t>> {
    let records = plan.steps().filter_map(|(name, _)| Some((name, task.steps.get(name)?)));
    records
        .flat_map(|(name, record)| record.part_spans(name))
        .filter(move |(span, record)| accepts(span.step, record))
        .map(|(span, _)| span)
}

fn is_left(plan: &Plan, name: &StepName, record: &StepRecord) -> bool {
    has_undo(plan, name) && record.next_to_undo().is_some()
}

fn has_undo(plan: &Plan, name: &StepName) -> bool {
    plan.step(name).undo().is_some()
}

/// Whether an attempt at doing the part is in progress, or its callback is awaited.
fn is_awaited(record: &StepRecord) -> bool {
    record.forward.state.reply_due_by().is_some()
}
