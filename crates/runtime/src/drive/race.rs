//! What a writer does that loses races for a task: it pauses, a little longer each time, and tries again.
//!
//! A task of a thousand parts gets its replies over a hundred invocations at once. Every save is
//! conditional, so one writer wins each round. Pauses of random length spread the others, so that most
//! of them save at the first try after their pause ("full jitter",
//! <https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/>). The time is
//! limited, and not the number of tries: a message that is given back to its queue comes again only after
//! the visibility timeout, by which time the attempt that it answers may be over.

use std::time::Duration;

use jiff::Timestamp;

use steward_core::{definition::recovery::spread, limits, model::names::TaskId};

/// The tries of one writer to save one task.
pub(super) struct Race {
    since: Timestamp,
    losses: u32,
    paused: Duration,
    documents_met: usize,
}

impl Race {
    /// None is lost yet.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { since: now, losses: 0, paused: Duration::ZERO, documents_met: 0 }
    }

    /// How many races were lost.
    pub(super) fn losses(&self) -> u32 {
        self.losses
    }

    /// Counts a lost race. How long to pause before the next try; nothing if the time for tries is over.
    ///
    /// The time is that of the clock, or of the pauses if that is more: a clock may stand still, or be
    /// set back.
    pub(super) fn lost(
        &mut self,
        instance: &str,
        task_id: &TaskId,
        now: Timestamp,
    ) -> Option<Duration> {
        self.losses = self.losses.saturating_add(1);
        let elapsed = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        if elapsed.max(self.paused) >= limits::CONFLICTS_WITHIN {
            return None;
        }
        let pause = pause(instance, task_id, self.losses);
        self.paused += pause;
        Some(pause)
    }

    /// Counts a document that an earlier try had written, of a decision on so many events. Whether to go
    /// on: each event can meet one, and then says what it says.
    pub(super) fn met_document(&mut self, events: usize) -> bool {
        self.documents_met += 1;
        self.documents_met <= events.saturating_add(limits::CONFLICTS_MAX as usize)
    }
}

/// A pause after the so-many-th lost race in a row: none after the first, then up to four times as long
/// each time. The same for the same instance, task and number.
fn pause(instance: &str, task_id: &TaskId, losses: u32) -> Duration {
    let Some(growth) = losses.checked_sub(2) else { return Duration::ZERO };
    let longest = limits::CONFLICT_PAUSE_FIRST.saturating_mul(4_u32.saturating_pow(growth));
    let longest = longest.min(limits::CONFLICT_PAUSE_MAX);
    let share = f64::from(spread(&format!("{instance}/{task_id}/{losses}"))) / f64::from(u32::MAX);
    // Never nothing: the number of tries is limited by the sum of pauses if the clock stands still.
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
    fn tries_end_by_the_clock_and_also_if_the_clock_stands_still() {
        let start = Timestamp::UNIX_EPOCH;
        let mut race = Race::new(start);
        assert!(race.lost("i", &id(), start + Duration::from_secs(11)).is_some());
        assert!(race.lost("i", &id(), start + Duration::from_secs(12)).is_none());
        let mut race = Race::new(start);
        let tries = std::iter::from_fn(|| race.lost("i", &id(), start)).count();
        assert!((10..100).contains(&tries), "{tries}");
    }
}
