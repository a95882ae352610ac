//! The queues' time: microseconds since 1970, so that it can be kept, running with tokio's clock, so that
//! tests can stop it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Microseconds since 1970, or between two times.
pub(super) type Micros = i64;

/// A second.
pub(super) const SECOND: Micros = 1_000_000;

/// Tells the time.
pub(super) struct Clock {
    started: Instant,
    started_at: Micros,
}

impl Clock {
    /// Starts with the time of the machine.
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), started_at: Timestamp::now().as_microsecond() }
    }

    pub(super) fn now(&self) -> Micros {
        let elapsed = Micros::try_from(self.started.elapsed().as_micros());
        self.started_at.saturating_add(elapsed.unwrap_or(Micros::MAX))
    }

    /// When tokio's clock says so.
    pub(super) fn instant(&self, at: Micros) -> Instant {
        let since = u64::try_from(at.saturating_sub(self.started_at)).unwrap_or_default();
        self.started + Duration::from_micros(since)
    }
}
