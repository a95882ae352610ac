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
        step::{Progress, StepState},
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
    // An earlier report of the child may arrive later, and must not complete the step then.
    if let Some(progress) = change.task.progress_mut(&attempt.step, Action::Do)
        && !completes
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
        progress.child_revision = revision.max(progress.child_revision);
    }
}

/// Whether the report of a child task shows that it has taken effect since `undo` was recorded as done. A child that was
/// undone reports an Error if one of its steps takes effect late. After an undo by hand, the operator knows about the
/// child's Error, but not that an operator has completed the child since.
pub(crate) fn is_effect_after_undo(
    run: &Progress,
    undo: &Progress,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> bool {
    let by_hand = undo.completed_by.is_some();
    let shows_effect = match outcome {
        ChildOutcome::Processed { .. } => true,
        ChildOutcome::Error { .. } => !by_hand,
        ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. } => false,
    };
    // A completed step has recorded this report before, without its revision.
    let is_new = match run.child_revision {
        Some(last) => revision > Some(last),
        None => !matches!(run.state, StepState::Completed { .. }),
    };
    shows_effect && is_new
}

/// Records that a child task has taken effect since its undo was recorded as done. The effect remains: the undo counts as
/// failed, and the task stops in Error.
pub(crate) fn record_effect_after_undo(
    change: &mut TaskChange<'_>,
    part: &Part,
    revision: Option<u64>,
) {
    if let Some(record) = change.task.part_record_mut(part) {
        record.run.child_revision = revision.max(record.run.child_revision);
        if let Some(undo) = &mut record.undo {
            undo.state = StepState::Failed { attempt: undo.state.newest_attempt() };
        }
    }
    change.task.undo_is_final = true;
    change.fail_task_again(&format!("the child task of step {part} took effect after its undo"));
}
