//! The clock of the queues. Times are microseconds since 1970, so that the journal can store them. They advance with
//! tokio's clock, so that tests can pause it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Microseconds since 1970, or the length of a period.
pub(super) type Micros = i64;

/// One second.
pub(super) const SECOND: Micros = 1_000_000;

/// The clock of the queues.
pub(super) struct QueueClock {
    started: Instant,
    started_at: Micros,
}

impl QueueClock {
    /// Starts at the system's time.
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), started_at: Timestamp::now().as_microsecond() }
    }

    pub(super) fn now(&self) -> Micros {
        let elapsed = Micros::try_from(self.started.elapsed().as_micros());
        self.started_at.saturating_add(elapsed.unwrap_or(Micros::MAX))
    }

    /// The instant of tokio's clock for a time.
    pub(super) fn instant(&self, at: Micros) -> Instant {
        let since = u64::try_from(at.saturating_sub(self.started_at)).unwrap_or_default();
        self.started + Duration::from_micros(since)
    }
}
