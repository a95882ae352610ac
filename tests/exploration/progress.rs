//! Queries on tasks and progress records for the invariants, independent of the core's own functions.

use jiff::Timestamp;
use steward_core::model::{
    step::{Progress, StepState},
    task::{ProcessState, Task},
};

pub(super) fn has_stopped(task: &Task) -> bool {
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => false,
        ProcessState::Processed | ProcessState::Error | ProcessState::Undone => true,
    }
}

pub(super) fn is_completed(progress: &Progress) -> bool {
    matches!(progress.state, StepState::Completed { .. })
}

pub(super) fn has_passed(progress: &Progress) -> bool {
    is_completed(progress) || matches!(progress.state, StepState::Skipped { .. })
}

pub(super) fn is_running(progress: &Progress) -> bool {
    matches!(progress.state, StepState::Running { .. })
}

/// The deadline of the awaited reply or callback, if there is one.
pub(super) fn awaited_by(progress: &Progress) -> Option<Timestamp> {
    let (StepState::Running { complete_by, .. } | StepState::AwaitingCallback { complete_by, .. }) =
        progress.state
    else {
        return None;
    };
    Some(complete_by)
}

pub(super) fn is_awaited(progress: &Progress) -> bool {
    awaited_by(progress).is_some()
}

pub(super) fn is_failed(progress: &Progress) -> bool {
    matches!(progress.state, StepState::Failed { .. })
}

/// The end of a wait, if the part waits.
pub(super) fn waits_until(progress: &Progress) -> Option<Timestamp> {
    let StepState::Waiting { until, .. } = progress.state else { return None };
    Some(until)
}
