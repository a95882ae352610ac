//! Arithmetic on times, and the time settings of a deployment. The crate reads no clock: the current time is always an
//! argument.

use std::time::Duration;

use jiff::Timestamp;

/// Returns `time` plus `duration`, or the maximum timestamp on overflow. The limits on durations prevent an overflow.
#[must_use]
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns `time` minus `duration`, or the minimum timestamp on overflow.
#[must_use]
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

/// The time settings of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the scheduler may take to handle a wake before the supervisor sends another one.
    pub pickup_within: Duration,
    /// The maximum difference between two clocks. The supervisor waits this much longer than complete-by.
    pub clock_skew: Duration,
    /// How long a task is kept after its end, unless its workflow sets its own retention.
    pub retention: Duration,
}

impl Timing {
    /// The default of [`retention`](Self::retention).
    pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
}
