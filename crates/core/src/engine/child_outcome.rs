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
