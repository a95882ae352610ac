//! Backoff of a writer that loses races for a task.
//!
//! The replies to a task of hundreds of parts arrive in a hundred invocations at once. Every save is conditional, so
//! one writer wins each round. The losers pause for random times, so that most of them succeed with the first save
//! after their pause ("full jitter",
//! <https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/>). The limit is a time and not a
//! number of retries: a message that returns to its queue is redelivered only after the visibility timeout, and by then
//! the attempt that it answers may be over.

use std::time::Duration;

use jiff::Timestamp;

use steward_core::{definition::recovery::spread, limits, model::names::TaskId};

/// The retries of one writer that saves one task.
pub(super) struct ConflictBackoff {
    since: Timestamp,
    losses: u32,
    paused: Duration,
    stored_documents: usize,
}

impl ConflictBackoff {
    /// A backoff without lost races.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { since: now, losses: 0, paused: Duration::ZERO, stored_documents: 0 }
    }

    /// The number of lost races.
    pub(super) fn losses(&self) -> u32 {
        self.losses
    }

    /// Counts a lost race. Returns the pause before the next retry, or nothing if the time for retries is over.
    ///
    /// The elapsed time is that of the clock, or the sum of the pauses if that is longer: a clock may stop, or be set
    /// back.
    pub(super) fn lost(
        &mut self,
        instance: &str,
        task_id: &TaskId,
        now: Timestamp,
    ) -> Option<Duration> {
        self.losses = self.losses.saturating_add(1);
        let elapsed = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        if elapsed.max(self.paused) >= limits::SAVE_CONFLICT_RETRY_WITHIN {
            return None;
        }
        let pause = pause(instance, task_id, self.losses);
        self.paused += pause;
        Some(pause)
    }

    /// Counts a document that an earlier save attempt wrote with other content. Returns whether to decide again. The
    /// limit depends on the number of events in the decision, because each event may meet one such document.
    pub(super) fn may_retry_after_stored_document(&mut self, events: usize) -> bool {
        self.stored_documents += 1;
        self.stored_documents <= events.saturating_add(limits::SAVE_CONFLICTS_MAX as usize)
    }
}

/// The pause after this number of lost races in a row. It is zero after the first; then its upper bound grows by a
/// factor of four. It is always the same for the same instance, task and number.
fn pause(instance: &str, task_id: &TaskId, losses: u32) -> Duration {
    let Some(growth) = losses.checked_sub(2) else { return Duration::ZERO };
    let longest = limits::SAVE_CONFLICT_PAUSE_FIRST.saturating_mul(4_u32.saturating_pow(growth));
    let longest = longest.min(limits::SAVE_CONFLICT_PAUSE_MAX);
    let share = f64::from(spread(&format!("{instance}/{task_id}/{losses}"))) / f64::from(u32::MAX);
    // Never zero: if the clock stops, only the sum of the pauses limits the retries.
    longest.mul_f64(share).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> TaskId {
        "t".parse().unwrap()
    }

    #[test]
    fn the_first_retry_has_no_pause_and_later_pauses_grow_up_to_a_limit() {
        assert_eq!(pause("i", &id(), 1), Duration::ZERO);
        for (losses, longest) in [(2, 50), (3, 200), (4, 800), (5, 1_000), (u32::MAX, 1_000)] {
            let pauses: Vec<_> =
                (0..100).map(|n| pause(&format!("i-{n}"), &id(), losses).as_millis()).collect();
            assert!(pauses.iter().all(|pause| (1..=longest).contains(pause)), "{pauses:?}");
            assert!(pauses.iter().any(|pause| *pause > longest * 3 / 4), "{pauses:?}");
            assert!(pauses.iter().any(|pause| *pause < longest / 4), "{pauses:?}");
        }
    }

    #[test]
    fn tries_end_by_the_clock_and_also_if_the_clock_stops() {
        let start = Timestamp::UNIX_EPOCH;
        let mut backoff = ConflictBackoff::new(start);
        assert!(backoff.lost("i", &id(), start + Duration::from_secs(11)).is_some());
        assert!(backoff.lost("i", &id(), start + Duration::from_secs(12)).is_none());
        let mut backoff = ConflictBackoff::new(start);
        let retries = std::iter::from_fn(|| backoff.lost("i", &id(), start)).count();
        assert!((10..100).contains(&retries), "{retries}");
    }
}
