//! How an agent's clock differs from that of the queues. An agent compares complete-by with its own clock: behind, it calls when
//! the attempt is over; ahead, it refuses requests that came in time. Both times of a comparison are of one event, so a message
//! that waits, or a slow service, never looks like a wrong clock.

use std::{fmt, time::Duration};

use jiff::Timestamp;

use crate::model::{
    attempt::AttemptTimes,
    time::{Timing, later},
};

/// The least difference that is an error, because some queues state times in whole seconds.
const TOLERANCE_MIN: Duration = Duration::from_secs(1);

/// By how much a clock differs, at least, from that of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockError {
    /// It shows a later time.
    Ahead(Duration),
    /// It shows an earlier time.
    Behind(Duration),
}

impl ClockError {
    /// The error of an agent that received a message at `now` by its own clock. `queue_time` is the latest time that the queue
    /// states of the message.
    #[must_use]
    pub fn of_receiver(
        queue_time: Option<Timestamp>,
        now: Timestamp,
        timing: Timing,
    ) -> Option<Self> {
        exceeds(queue_time?, now, timing).map(Self::Behind)
    }

    /// The error of an agent whose reply has these times, and was sent at `sent_at` by the clock of the queue.
    #[must_use]
    pub fn of_sender(
        times: AttemptTimes,
        sent_at: Option<Timestamp>,
        timing: Timing,
    ) -> Option<Self> {
        let answered_at = times.answered_at?;
        let ahead = sent_at.and_then(|sent_at| exceeds(answered_at, sent_at, timing));
        let behind = || exceeds(times.queued_at?, answered_at, timing);
        ahead.map(Self::Ahead).or_else(|| behind().map(Self::Behind))
    }
}

/// How much `time` is later than `limit`, if that is more than clocks may differ.
fn exceeds(time: Timestamp, limit: Timestamp, timing: Timing) -> Option<Duration> {
    let tolerance = timing.clock_skew.max(TOLERANCE_MIN);
    let is_later = time > later(limit, tolerance);
    is_later.then(|| Duration::try_from(time.duration_since(limit)).ok()).flatten()
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, side) = match self {
            Self::Ahead(by) => (by, "ahead of"),
            Self::Behind(by) => (by, "behind"),
        };
        write!(
            f,
            "the agent's clock is at least {:.1} s {side} that of its queue",
            by.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// The error of an agent whose request was sent at 100 s, that has the outcome at `answered`, and whose reply was sent at
    /// `sent`.
    fn of_sender(answered: i64, sent: i64) -> Option<String> {
        let second = Duration::from_secs(1);
        let timing = Timing { pickup_within: second, clock_skew: 2 * second, retention: second };
        let times = AttemptTimes {
            queued_at: Some(at(100)),
            called_at: None,
            answered_at: Some(at(answered)),
        };
        ClockError::of_sender(times, Some(at(sent)), timing).map(|error| error.to_string())
    }

    #[test]
    fn a_wait_is_no_error_and_an_order_that_is_impossible_is_one() {
        for (answered, sent) in [(100, 100), (98, 1_000), (1_002, 1_000), (500, 1_000)] {
            assert_eq!(of_sender(answered, sent), None, "{answered} {sent}");
        }
        let of_queue = "that of its queue";
        let ahead = format!("the agent's clock is at least 60.0 s ahead of {of_queue}");
        assert_eq!(of_sender(1_060, 1_000), Some(ahead));
        let behind = format!("the agent's clock is at least 3.0 s behind {of_queue}");
        assert_eq!(of_sender(97, 1_000), Some(behind));
    }
}
