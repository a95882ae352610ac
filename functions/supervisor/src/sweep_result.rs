//! The result of a run of the supervisor.

use serde::Serialize;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SweepResult {
    /// The number of due tasks.
    pub due: u64,
    /// How many of these could not be processed; they stay due.
    pub failed: u64,
    /// The number of shards that were not read to their end before the deadline.
    pub shards_left: u32,
}

impl SweepResult {
    /// Adds the result of another shard or sweep.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { due, failed, shards_left } = other;
        self.due += due;
        self.failed += failed;
        self.shards_left += shards_left;
    }
}
