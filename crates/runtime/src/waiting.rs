//! Waits for the end of a task, for a caller that wants its result at once.

use std::time::Duration;

use jiff::Timestamp;
use steward_core::model::{names::TaskId, task::Task, time::later};

use crate::ports::{Clock, PortError, StateStore};

/// The pause after the first read. Most tasks that somebody waits for end within a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between reads, which limits what a wait reads: some 30 times in 25 seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What to do about a task that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Wait for it: its submission is on the way.
    Wait,
    /// Return at once.
    Return,
}

/// Returns the task as soon as it has ended: it is Processed, Undone or in Error. After `within`, returns it as it is then.
/// `None` if there is no such task.
///
/// # Errors
/// The store failed.
pub async fn wait_for_end(
    store: &impl StateStore,
    clock: &impl Clock,
    id: &TaskId,
    within: Duration,
    missing: Missing,
) -> Result<Option<Task>, PortError> {
    let end = later(clock.now(), within);
    let mut pause = FIRST_PAUSE;
    loop {
        let task = store.load(id).await?;
        let left = time_until(end, clock.now());
        let is_over = match &task {
            Some(task) => task.process_state.has_stopped(),
            None => missing == Missing::Return,
        };
        if is_over || left.is_zero() {
            return Ok(task);
        }
        clock.sleep(pause.min(left)).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

fn time_until(end: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}
