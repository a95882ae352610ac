//! The items of the tables, and what DynamoDB makes of their size: what every read and write is
//! charged by.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
use serde_aux::serde_introspection::serde_introspect;
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey, Kept, Owner, StoredKey},
    task::{ProcessState, Task},
    time::later,
};
use steward_runtime::ports::{PortError, ended_parts, shard_of};

use crate::errors::corrupt;

/// An item, as the SDK has it.
pub type Item = HashMap<String, AttributeValue>;

/// Bytes of an item beyond which DynamoDB refuses to write it.
pub const ITEM_BYTES_MAX: usize = 400 * 1_024;

/// Bytes of the items of one transaction beyond which DynamoDB refuses it.
pub const TRANSACTION_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// Bytes in one write unit.
pub const WRITE_UNIT_BYTES: usize = 1_024;

/// Bytes in one read unit, read consistently.
pub const READ_UNIT_BYTES: usize = 4_096;

/// When an attempt got how far, in its document's item: DynamoDB charges for names too.
pub(crate) const QUEUED_AT: &str = "q";
pub(crate) const CALLED_AT: &str = "c";
pub(crate) const ANSWERED_AT: &str = "r";

/// What a task's item has beside the task.
const SHARD: &str = "shard";
const EXPIRES_AT: &str = "expires_at";
const ENDED: &str = "ended";

/// All attributes that a task's item may have.
pub(crate) fn task_attributes() -> impl Iterator<Item = &'static str> {
    serde_introspect::<Task>().iter().copied().chain([SHARD, EXPIRES_AT, ENDED])
}

/// What a deployment's items have in common.
#[derive(Debug, Clone, Copy)]
pub struct Items {
    /// Into how many parts the due index is split.
    pub shards: NonZeroU32,
    /// How long a finished task is kept.
    pub retention: Duration,
}

impl Items {
    /// A task's item, with its shard of the due index or the time at which it may go, and once it has
    /// ended its part of that index.
    ///
    /// # Errors
    /// The task cannot be an item.
    pub fn task(&self, task: &Task) -> Result<Item, PortError> {
        let operation = || format!("write task {}", task.task_id);
        let mut item: Item =
            serde_dynamo::to_item(task).map_err(|e| corrupt(operation())(e.into()))?;
        if task.due.is_some() {
            let shard = shard_of(&task.task_id, self.shards);
            item.insert(SHARD.to_owned(), number(i64::from(shard)));
        } else if task.process_state.is_final() {
            item.insert(EXPIRES_AT.to_owned(), number(self.task_expires_at(task).as_second()));
        }
        if task.process_state.is_final() {
            let part = shard_of(&task.task_id, ended_parts(self.shards));
            item.insert(ENDED.to_owned(), ended(task.process_state, part));
        }
        Ok(item)
    }

    /// A document's item.
    #[must_use]
    pub fn document(&self, owner: &Owner, kept: Kept, document: &Document) -> Item {
        let mut item = document_id(owner, &document.key);
        item.insert("at".to_owned(), time(document.at));
        item.insert("body".to_owned(), text(&document.body.to_string()));
        item.insert(EXPIRES_AT.to_owned(), number(self.expires_at(kept).as_second()));
        let AttemptTimes { queued_at, called_at, answered_at } = document.times;
        let times = [(QUEUED_AT, queued_at), (CALLED_AT, called_at), (ANSWERED_AT, answered_at)];
        item.extend(times.into_iter().filter_map(|(name, at)| Some((name.to_owned(), time(at?)))));
        item
    }

    /// When a document that is kept so long may go.
    #[must_use]
    pub fn expires_at(&self, kept: Kept) -> Timestamp {
        kept.expires_at(self.retention)
    }

    /// When a task that has ended may go: the retention time after its end, and not before the documents of
    /// the task that it runs for.
    fn task_expires_at(&self, task: &Task) -> Timestamp {
        let ended_at = task.ended_at.unwrap_or(task.complete_by);
        let own = later(ended_at, self.retention(task.retention_s));
        task.kept_for_parent.map_or(own, |kept| own.max(self.expires_at(kept)))
    }

    fn retention(&self, own_s: Option<u64>) -> Duration {
        own_s.map_or(self.retention, Duration::from_secs)
    }
}

/// When an item may go, in seconds since the epoch; never if absent. From then on DynamoDB may delete it
/// at any moment, so it counts as absent.
#[must_use]
pub fn expires_at(item: &Item) -> Option<i64> {
    item.get(EXPIRES_AT)?.as_n().ok()?.parse().ok()
}

/// Whether an item counts as absent at `now`.
#[must_use]
pub fn has_expired(item: &Item, now: Timestamp) -> bool {
    expires_at(item).is_some_and(|at| at <= now.as_second())
}

/// The partition of the index `ended` that has a part of the tasks that ended so.
pub(crate) fn ended(state: ProcessState, part: u32) -> AttributeValue {
    text(&format!("{state}#{part}"))
}

/// Why an item is not what it should be.
pub(crate) type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// The task of an item.
///
/// # Errors
/// It is no task's.
pub fn read_task(item: Item) -> Result<Task, Unreadable> {
    Ok(serde_dynamo::from_item(item)?)
}

/// A document's key.
pub(crate) fn document_id(owner: &Owner, key: &DocumentKey) -> Item {
    HashMap::from([
        ("task_id".to_owned(), text(owner.task_id.as_str())),
        ("document".to_owned(), text(&stored_key(owner, key).to_string())),
    ])
}

/// A document's key as it is stored.
pub(crate) fn stored_key(owner: &Owner, key: &DocumentKey) -> StoredKey {
    StoredKey { incarnation: owner.incarnation, key: key.clone() }
}

/// An item's size by DynamoDB's rule: names and texts as UTF-8, numbers by their digits, 3 bytes for a
/// map or a list and 1 for each of its values.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
#[must_use]
pub fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match value {
        AttributeValue::S(text) => text.len(),
        // Two digits share a byte, and there is one more.
        AttributeValue::N(number) => number.len().div_ceil(2) + 1,
        AttributeValue::M(fields) => 3 + fields.len() + size(fields),
        AttributeValue::L(values) => {
            3 + values.len() + values.iter().map(value_size).sum::<usize>()
        }
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        // Null and true and false; no item of ours has sets.
        _ => 1,
    }
}

pub(crate) fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn time(time: Timestamp) -> AttributeValue {
    number(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_names_and_values() {
        let list = AttributeValue::L(vec![text("ab"), AttributeValue::Bool(true)]);
        let map = AttributeValue::M(HashMap::from([("f".to_owned(), number(123))]));
        let item = HashMap::from([
            ("id".to_owned(), text("ü")),
            ("list".to_owned(), list),
            ("map".to_owned(), map),
        ]);
        // id: 2 + 2; list: 4 + (3 + 2 + 2 + 1); map: 3 + (3 + 1 + 1 + 3).
        assert_eq!(size(&item), 4 + 12 + 11);
    }
}
