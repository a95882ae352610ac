//! Times: all are arguments of a decision, none is read from a clock.

use std::time::Duration;

use jiff::Timestamp;

/// `time` plus `duration`, or the end of time: limits on durations make that unreachable.
#[must_use]
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// `time` less `duration`, or the beginning of time.
#[must_use]
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

/// Times that hold for the whole deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a wake may take to be acted on before the supervisor sends another.
    pub pickup_within: Duration,
    /// How far clocks may disagree: the supervisor waits this much longer than complete-by.
    pub clock_skew: Duration,
    /// How long a task is kept after its end, if its workflow does not say.
    pub retention: Duration,
}

impl Timing {
    /// How long a task is kept by default.
    pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
}
