//! A clock that tests set.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use steward_core::model::time::later;
use steward_runtime::ports::Clock;

use super::storage::lock;

/// A clock that moves only when a test sets it. It starts at the Unix epoch.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now: Arc<Mutex<Timestamp>>,
}

impl ManualClock {
    /// Sets the time. It may go back, as real clocks do.
    pub fn set(&self, now: Timestamp) {
        *lock(&self.now) = now;
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        let mut now = lock(&self.now);
        *now = later(*now, by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *lock(&self.now)
    }

    /// Returns at once, after other tasks had a chance to run: virtual time does not pass.
    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}
