//! Records what a child task reports about its end.

use serde_json::Value;

use crate::{
    engine::{
        outcome::{complete, complete_if_it_fits, fail},
        task_change::TaskChange,
    },
    model::{
        attempt::{Action, AttemptId},
        messages::ChildOutcome,
        names::Part,
        step::{Progress, StepState, StrayEffect},
    },
};

/// Records the end of a child task, which the child reported at the given revision.
pub(crate) fn record_child(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) {
    let undoing = attempt.action == Action::Undo;
    let completes = matches!(outcome, ChildOutcome::Processed { .. });
    // An earlier report of the child may arrive later, and must not complete the step then. A completed part
    // stores no revision if it has none yet: equal records of items are stored once.
    if let Some(progress) = change.task.progress_mut(&attempt.step, Action::Do)
        && (!completes || progress.child_revision.is_some())
    {
        progress.child_revision = revision.max(progress.child_revision);
    }
    match outcome {
        ChildOutcome::Processed { output } => complete_if_it_fits(change, attempt, output, None),
        ChildOutcome::Undone { .. } if undoing => complete(change, attempt, &Value::Null, None),
        ChildOutcome::Undone { reason } => {
            record_undone_child(change, &attempt.step, revision);
            fail(change, attempt, &format!("its child task was undone: {reason}"), false);
        }
        ChildOutcome::Refused { reason, id_taken } => {
            fail(change, attempt, &format!("its child task was refused: {reason}"), !id_taken);
        }
        ChildOutcome::Error { reason, .. } => {
            fail(change, attempt, &format!("its child task is in Error: {reason}"), true);
        }
    }
}

/// Records that a child task left no side effects. All attempts since the last edit of the input submitted this same
/// child.
pub(crate) fn record_undone_child(change: &mut TaskChange<'_>, part: &Part, revision: Option<u64>) {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.may_have_run = false;
    }
    record_revision(change, part, revision);
}

/// Records the revision of a report. Older ones are ignored from now on.
pub(crate) fn record_revision(change: &mut TaskChange<'_>, part: &Part, revision: Option<u64>) {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.child_revision = revision.max(progress.child_revision);
    }
}

/// Whether the report of a child task shows that it has taken effect, or failed, since the undo of the part was recorded as
/// done, by the child or by an operator.
pub(crate) fn is_effect_after_undo(
    run: &Progress,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> bool {
    match outcome {
        ChildOutcome::Processed { .. } => is_unrecorded(run, revision),
        // A report about a child that does not exist any more has no revision.
        ChildOutcome::Error { .. } => is_newer(run, revision),
        ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. } => false,
    }
}

/// Whether the part has not recorded this report of Processed. A completed part records such a report without its revision.
fn is_unrecorded(run: &Progress, revision: Option<u64>) -> bool {
    match run.child_revision {
        Some(last) => revision > Some(last),
        None => {
            !matches!(run.state, StepState::Completed { .. }) || run.completed_by_hand.is_some()
        }
    }
}

/// Records that a child task has taken effect since its undo was recorded as done. The effect remains: the undo counts as
/// failed, and the task stops in Error.
pub(crate) fn record_effect_after_undo(
    change: &mut TaskChange<'_>,
    part: &Part,
    revision: Option<u64>,
) {
    record_revision(change, part, revision);
    if let Some(undo) = change.task.progress_mut(part, Action::Undo) {
        undo.state = StepState::Failed { attempt: undo.state.newest_attempt() };
    }
    change.task.undo_is_final = true;
    change.fail_task_again(&format!("the child task of step {part} took effect after its undo"));
}

/// Whether the report says that a child task, which the part has recorded as completed, took effect once more since.
pub(crate) fn is_effect_after_end(
    run: &Progress,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> bool {
    matches!(outcome, ChildOutcome::Error { was_processed: true, .. }) && is_newer(run, revision)
}

/// Whether the report is newer than the newest that the part has recorded.
pub(crate) fn is_newer(run: &Progress, revision: Option<u64>) -> bool {
    revision.is_some() && run.child_revision.is_none_or(|last| revision > Some(last))
}

/// Records that a completed child task took effect once more. The task stops in Error, unless it is being undone: then the child is
/// undone next, and reports what it cannot undo.
pub(crate) fn record_effect_after_end(
    change: &mut TaskChange<'_>,
    part: &Part,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) {
    record_revision(change, part, revision);
    if let Some(run) = change.task.progress_mut(part, Action::Do) {
        run.add_stray_effect(StrayEffect::new(run.state.attempt_count(), true));
    }
    if let (ChildOutcome::Error { reason, .. }, Action::Do) = (outcome, change.task.direction()) {
        change.fail_task_again(&format!("step {part}: its child task is in Error: {reason}"));
    }
}
