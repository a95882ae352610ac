//! Counts the billed units of each port call, from the sizes of its items and messages.

use steward_aws::{
    channel,
    items::{self, ItemAttributes, READ_UNIT_BYTES, WRITE_UNIT_BYTES},
};
use steward_core::model::{events::BusEvent, task::Task};
use steward_runtime::ports::{OutgoingMessage, PortError};

use super::{
    ledger::{CostAccount, CostAccounts},
    plan::ForecastPlan,
    prices::{self, TaskUsage, gb_seconds},
};

/// The write units of an item.
pub(super) fn write_units(item: &ItemAttributes) -> f64 {
    items::size(item).div_ceil(WRITE_UNIT_BYTES).max(1) as f64
}

/// The read units of a consistent read. A read that finds no item costs one unit.
pub(super) fn read_units(item: Option<&ItemAttributes>) -> f64 {
    item.map_or(1, |item| items::size(item).div_ceil(READ_UNIT_BYTES).max(1)) as f64
}

/// The write units for replacing a task, in the table and in each index.
pub(super) struct ReplaceUnits {
    pub(super) table: f64,
    pub(super) due: f64,
    pub(super) ended: f64,
}

/// The write units for replacing a task. In the table DynamoDB charges the larger of the old and the new item. In an
/// index, a changed key costs a delete and a write.
pub(super) fn replaced(
    items: &items::Items,
    before: Option<&Task>,
    after: &Task,
) -> Result<ReplaceUnits, PortError> {
    let (old, new) = (before.map(|before| items.task(before)).transpose()?, items.task(after)?);
    let moved = |keys: [&str; 2]| {
        let entry = |item: &ItemAttributes| keys.map(|key| item.get(key).cloned());
        let entry = |item: &ItemAttributes| {
            Some(entry(item)).filter(|entry| entry.iter().all(Option::is_some))
        };
        match (old.as_ref().and_then(entry), entry(&new)) {
            (None, None) => 0.0,
            (None, Some(_)) | (Some(_), None) => 1.0,
            (Some(old), Some(new)) if old == new => 0.0,
            (Some(_), Some(_)) => 2.0,
        }
    };
    Ok(ReplaceUnits {
        table: old.as_ref().map_or(0.0, write_units).max(write_units(&new)),
        due: moved(["shard", "due"]),
        ended: moved(["ended", "ended_at"]),
    })
}

/// The counts of one run.
#[derive(Debug, Default)]
pub(super) struct UsageMeter {
    pub(super) accounts: CostAccounts,
    /// The bytes of documents.
    pub(super) written_bytes: u64,
}

impl UsageMeter {
    pub(super) fn add(&mut self, account: &CostAccount, usage: TaskUsage) {
        *self.accounts.entry(account.clone()).or_default() += usage;
    }

    /// Counts a sent message: its share of the batch's requests.
    pub(super) fn sent(
        &mut self,
        account: &CostAccount,
        message: &OutgoingMessage,
        plan: &ForecastPlan,
    ) {
        let sqs_requests = prices::share(channel::size(message), plan.settings.batch);
        self.add(account, TaskUsage { sqs_requests, ..TaskUsage::default() });
    }

    /// Counts a received message: its share of the receive, the delete and the invocation.
    pub(super) fn received(
        &mut self,
        account: &CostAccount,
        message: &OutgoingMessage,
        plan: &ForecastPlan,
    ) {
        let batch = plan.settings.batch;
        let one = 1.0 / f64::from(batch);
        let sqs_requests = prices::share(channel::size(message), batch) + one;
        self.add(account, TaskUsage { sqs_requests, invocations: one, ..TaskUsage::default() });
    }

    /// Counts a message's share of the time of an invocation.
    pub(super) fn took(&mut self, account: &CostAccount, millis: u64, plan: &ForecastPlan) {
        let gb_seconds = gb_seconds(millis) / f64::from(plan.settings.batch);
        self.add(account, TaskUsage { gb_seconds, ..TaskUsage::default() });
    }

    pub(super) fn published(&mut self, account: &CostAccount, event: &BusEvent) {
        let bytes = serde_json::to_string(event).map_or(0, |text| text.len());
        let events = bytes.div_ceil(prices::CHUNK_BYTES).max(1) as f64;
        self.add(account, TaskUsage { events, ..TaskUsage::default() });
    }
}
