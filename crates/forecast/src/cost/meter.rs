//! Counts what each call of a port is charged for, by the items and messages that it moves.

use steward_aws::{
    channel,
    items::{self, Item, READ_UNIT_BYTES, WRITE_UNIT_BYTES},
};
use steward_core::model::{events::BusEvent, task::Task};
use steward_runtime::ports::{Outgoing, PortError};

use super::{
    ledger::{Account, Accounts},
    plan::Plan,
    prices::{self, Usage},
};

/// The memory that `template.yaml` gives every function, in GB.
pub const MEMORY_GB: f64 = 0.25;

/// What an item takes to be written.
pub(super) fn write_units(item: &Item) -> f64 {
    items::size(item).div_ceil(WRITE_UNIT_BYTES).max(1) as f64
}

/// What it takes to be read consistently, if there is one; looking for one costs too.
pub(super) fn read_units(item: Option<&Item>) -> f64 {
    item.map_or(1, |item| items::size(item).div_ceil(READ_UNIT_BYTES).max(1)) as f64
}

/// What replacing a task takes.
pub(super) struct Replaced {
    pub(super) table: f64,
    pub(super) due: f64,
    pub(super) ended: f64,
}

/// What it takes in the table and then in the indices: DynamoDB charges the larger of the two items, and
/// an entry that moves in an index leaves one place and takes another.
pub(super) fn replaced(
    items: &items::Items,
    before: Option<&Task>,
    after: &Task,
) -> Result<Replaced, PortError> {
    let (old, new) = (before.map(|before| items.task(before)).transpose()?, items.task(after)?);
    let moved = |keys: [&str; 2]| {
        let entry = |item: &Item| keys.map(|key| item.get(key).cloned());
        let entry =
            |item: &Item| Some(entry(item)).filter(|entry| entry.iter().all(Option::is_some));
        match (old.as_ref().and_then(entry), entry(&new)) {
            (None, None) => 0.0,
            (None, Some(_)) | (Some(_), None) => 1.0,
            (Some(old), Some(new)) if old == new => 0.0,
            (Some(_), Some(_)) => 2.0,
        }
    };
    Ok(Replaced {
        table: old.as_ref().map_or(0.0, write_units).max(write_units(&new)),
        due: moved(["shard", "due"]),
        ended: moved(["ended", "ended_at"]),
    })
}

/// Counts for one run.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) accounts: Accounts,
    /// Bytes of documents.
    pub(super) written_bytes: u64,
}

impl Meter {
    pub(super) fn add(&mut self, account: &Account, usage: Usage) {
        *self.accounts.entry(account.clone()).or_default() += usage;
    }

    /// A message that a function sends: its share of a batch.
    pub(super) fn sent(&mut self, account: &Account, message: &Outgoing, plan: &Plan) {
        let sqs_requests = prices::share(channel::size(message), plan.settings.batch);
        self.add(account, Usage { sqs_requests, ..Usage::default() });
    }

    /// A message that a function is fed: its share of the receive, the delete and the invocation.
    pub(super) fn received(&mut self, account: &Account, message: &Outgoing, plan: &Plan) {
        let batch = plan.settings.batch;
        let one = 1.0 / f64::from(batch);
        let sqs_requests = prices::share(channel::size(message), batch) + one;
        self.add(account, Usage { sqs_requests, invocations: one, ..Usage::default() });
    }

    /// The time of an invocation that a batch shares, all in hand at once.
    pub(super) fn took(&mut self, account: &Account, millis: u64, plan: &Plan) {
        let gb_seconds = gb_seconds(millis) / f64::from(plan.settings.batch);
        self.add(account, Usage { gb_seconds, ..Usage::default() });
    }

    pub(super) fn published(&mut self, account: &Account, event: &BusEvent) {
        let bytes = serde_json::to_string(event).map_or(0, |text| text.len());
        let events = bytes.div_ceil(prices::CHUNK_BYTES).max(1) as f64;
        self.add(account, Usage { events, ..Usage::default() });
    }
}

/// What an invocation of so long takes. Lambda rounds up to whole milliseconds.
pub(super) fn gb_seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0 * MEMORY_GB
}
