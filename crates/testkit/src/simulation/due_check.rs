//! The oracle's check of the due time: the supervisor must look at a task that has not ended, and not too late.

use std::time::Duration;

use jiff::Timestamp;
use steward_core::model::{
    step::StepState,
    task::{ProcessState, Task},
};

use super::{oracle::Oracle, task_record::is_final};

/// How long a save may take.
const SAVE_TAKES: Duration = Duration::from_secs(1);

/// A task that has not ended has a due time that is not too late.
pub(super) fn check_due(oracle: &Oracle, task: &Task, now: Timestamp) -> Option<String> {
    let id = &task.task_id;
    match task.due {
        None if !is_final(task) => Some(format!("{id}: has not ended, but has no due time")),
        None => None,
        Some(due) if is_final(task) && task.process_state != ProcessState::Error => {
            Some(format!("{id}: is {}, but still due at {due}", task.process_state))
        }
        Some(due) => {
            let last = task.started_actions().filter_map(|(.., progress)| match progress.state {
                StepState::Running { complete_by, .. }
                | StepState::AwaitingCallback { complete_by, .. } => Some(complete_by),
                StepState::Waiting { until, .. } if task.paused_at.is_none() => {
                    Some(until.max(now + oracle.clock_skew) + oracle.pickup_within + SAVE_TAKES)
                }
                StepState::RunningItems
                | StepState::Waiting { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => None,
            });
            let last = last.min().filter(|last| due > *last && !is_final(task))?;
            Some(format!("{id}: due at {due}, but must be due by {last}"))
        }
    }
}
