//! The clock of a test world.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use steward_core::model::time::later;
use steward_runtime::ports::Clock;
use tokio::time::Instant;

use super::storage::lock;

/// A clock that tests set. Its clones are set together.
#[derive(Debug, Clone, Default)]
pub struct WorldClock {
    set_to: Arc<Mutex<Timestamp>>,
    pace: Pace,
    /// How far this instance's clock is ahead of the others.
    ahead: Duration,
}

/// How time passes between two settings of a clock.
#[derive(Debug, Clone, Copy, Default)]
enum Pace {
    /// It stands still, and who sleeps wakes at once.
    #[default]
    Manual,
    /// It stands still, and who sleeps does so on tokio's clock.
    Frozen,
    /// It passes as on tokio's clock since then. On a paused runtime, that is virtual time.
    Running(Instant),
}

impl WorldClock {
    /// A clock that stands still until it is set. Sleeping takes time on tokio's clock.
    #[must_use]
    pub fn frozen(now: Timestamp) -> Self {
        Self { pace: Pace::Frozen, ..Self::at(now) }
    }

    /// A clock whose time passes as on tokio's clock.
    #[must_use]
    pub fn running(now: Timestamp) -> Self {
        Self { pace: Pace::Running(Instant::now()), ..Self::at(now) }
    }

    fn at(now: Timestamp) -> Self {
        Self { set_to: Arc::new(Mutex::new(now)), ..Self::default() }
    }

    /// The clock of an instance that is ahead of the others.
    #[must_use]
    pub fn ahead_by(&self, ahead: Duration) -> Self {
        Self { ahead, ..self.clone() }
    }

    /// Sets the time of a clock that stands still. It may go back, as real clocks do.
    pub fn set(&self, now: Timestamp) {
        *lock(&self.set_to) = now;
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        let mut now = lock(&self.set_to);
        *now = later(*now, by);
    }

    /// Moves the time forward, or back.
    pub fn advance_by(&self, time: SignedDuration) {
        let mut now = lock(&self.set_to);
        *now = now.saturating_add(time).unwrap_or(*now);
    }

    /// Moves the time forward by seconds.
    pub fn advance_seconds(&self, seconds: i64) {
        self.advance_by(SignedDuration::from_secs(seconds));
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        let passed = match self.pace {
            Pace::Manual | Pace::Frozen => Duration::ZERO,
            Pace::Running(since) => since.elapsed(),
        };
        later(*lock(&self.set_to), passed + self.ahead)
    }

    async fn sleep(&self, duration: Duration) {
        match self.pace {
            Pace::Manual => tokio::task::yield_now().await,
            Pace::Frozen | Pace::Running(_) => tokio::time::sleep(duration).await,
        }
    }
}
