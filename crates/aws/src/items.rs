//! Converts tasks and documents to items of the tables, and reads tasks and expiries from items. Computes the expiry of
//! an item, and the size by which DynamoDB charges reads and writes.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey, DocumentOwner, StoredDocumentKey},
    names::{LabelValue, ValueName},
    retention::DocumentRetention,
    task::{ProcessState, Task},
    time::later,
};
use steward_runtime::ports::{PortError, ended_index_partitions, shard_of};

use crate::{errors::corrupt, field_names::field_names};

/// An item in the representation of the SDK.
pub type ItemAttributes = HashMap<String, AttributeValue>;

/// The maximum size of an item in bytes. DynamoDB refuses to write larger items.
pub const ITEM_BYTES_MAX: usize = 400 * 1_024;

/// The maximum size of all items of one transaction in bytes. DynamoDB refuses larger transactions.
pub const TRANSACTION_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// The number of bytes in one write unit.
pub const WRITE_UNIT_BYTES: usize = 1_024;

/// The number of bytes in one read unit of a consistent read.
pub const READ_UNIT_BYTES: usize = 4_096;

/// The attributes of a document's item for the times at which its attempt was queued, called and answered. The names
/// are short because DynamoDB charges for names too.
pub(crate) const QUEUED_AT: &str = "q";
pub(crate) const CALLED_AT: &str = "c";
pub(crate) const ANSWERED_AT: &str = "r";

/// The attributes of a task's item that are not fields of the task. The item of a document has `expires_at` too.
const SHARD: &str = "shard";
const EXPIRES_AT: &str = "expires_at";
const ENDED: &str = "ended";

/// All attributes that a task's item may have.
pub(crate) fn task_attributes() -> impl Iterator<Item = &'static str> {
    field_names::<Task>().iter().copied().chain([SHARD, EXPIRES_AT, ENDED])
}

/// Builds items with the settings of a deployment.
#[derive(Debug, Clone, Copy)]
pub struct Items {
    /// The number of shards of the due index.
    pub shards: NonZeroU32,
    /// The default retention time of a finished task and its documents. A task's own `retention_s` overrides it.
    pub retention: Duration,
}

impl Items {
    /// The item of a task. A task that is due has its shard of the due index; a task that [expires](Task::expires) has its
    /// expiry. A task in a final state has its partition of the index `ended`.
    ///
    /// # Errors
    /// The task cannot be converted to an item.
    pub fn task(&self, task: &Task) -> Result<ItemAttributes, PortError> {
        let operation = || format!("write task {}", task.task_id);
        let mut item: ItemAttributes =
            serde_dynamo::to_item(task).map_err(|e| corrupt(operation())(e.into()))?;
        if task.due.is_some() {
            let shard = shard_of(&task.task_id, self.shards);
            item.insert(SHARD.to_owned(), number(i64::from(shard)));
        } else if task.expires() {
            item.insert(EXPIRES_AT.to_owned(), number(self.task_expires_at(task).as_second()));
        }
        if task.process_state.has_stopped() {
            let partition = shard_of(&task.task_id, ended_index_partitions(self.shards));
            let end = if task.resolved_at.is_some() {
                EndState::Resolved
            } else {
                task.process_state.into()
            };
            item.insert(ENDED.to_owned(), ended(end, partition));
        }
        Ok(item)
    }

    /// The item of a document.
    #[must_use]
    pub fn document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
    ) -> ItemAttributes {
        let mut item = document_id(owner, &document.key);
        item.insert("at".to_owned(), time(document.at));
        item.insert("body".to_owned(), text(&document.body.to_string()));
        item.insert(EXPIRES_AT.to_owned(), number(self.expires_at(retention).as_second()));
        let AttemptTimes { queued_at, called_at, answered_at } = document.times;
        let times = [(QUEUED_AT, queued_at), (CALLED_AT, called_at), (ANSWERED_AT, answered_at)];
        item.extend(times.into_iter().filter_map(|(name, at)| Some((name.to_owned(), time(at?)))));
        item
    }

    /// The entries of a task's labels in the index of labels. They expire like the task's documents, after the task.
    #[must_use]
    pub fn labels(&self, task: &Task) -> Vec<ItemAttributes> {
        let until = self.expires_at(task.document_retention()).as_second();
        let partition = shard_of(&task.task_id, LABEL_PARTITIONS);
        let position = label_position(task.submitted_at, task.task_id.as_str());
        let labels = task.labels.iter().map(|(name, value)| {
            HashMap::from([
                ("task_id".to_owned(), text(&label_partition(name, value, partition))),
                ("document".to_owned(), text(&position)),
                (EXPIRES_AT.to_owned(), number(until)),
            ])
        });
        labels.collect()
    }

    /// The expiry of a document.
    #[must_use]
    pub fn expires_at(&self, retention: DocumentRetention) -> Timestamp {
        retention.expires_at(self.retention)
    }

    /// The expiry of a finished task: its end plus the retention time, and not before the documents of its parent expire.
    fn task_expires_at(&self, task: &Task) -> Timestamp {
        let own = later(task.kept_from(), self.retention(task.retention_s));
        task.retention_for_parent.map_or(own, |retention| own.max(self.expires_at(retention)))
    }

    fn retention(&self, own_s: Option<u64>) -> Duration {
        own_s.map_or(self.retention, Duration::from_secs)
    }
}

/// The expiry of an item in seconds since the epoch, if it has one. From then on the item counts as absent, because
/// DynamoDB may delete it at any moment.
#[must_use]
pub fn expires_at(item: &ItemAttributes) -> Option<i64> {
    item.get(EXPIRES_AT)?.as_n().ok()?.parse().ok()
}

/// Whether an item counts as absent at `now`.
#[must_use]
pub fn has_expired(item: &ItemAttributes, now: Timestamp) -> bool {
    expires_at(item).is_some_and(|at| at <= now.as_second())
}

/// How a task ended, as the index `ended` knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// In this final state. In Error, nobody has settled it.
    In(ProcessState),
    /// In Error, and an operator has settled that.
    Resolved,
}

impl From<ProcessState> for EndState {
    fn from(state: ProcessState) -> Self {
        Self::In(state)
    }
}

/// The partition key of the index `ended`, for example `Error#3`.
pub(crate) fn ended(end: EndState, partition: u32) -> AttributeValue {
    match end {
        EndState::In(state) => text(&format!("{state}#{partition}")),
        EndState::Resolved => text(&format!("Resolved#{partition}")),
    }
}

/// The number of partitions of a label with one value. Each supports 1,000 new tasks a second. It must never change, because
/// the entries of a task are found by it.
pub(crate) const LABEL_PARTITIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

/// The start of the keys of the index of labels.
const LABELS: &str = "#label/";

/// The key of a partition of the index of labels, which no task id can be: `#label/customer/3/42`.
pub(crate) fn label_partition(name: &ValueName, value: &LabelValue, partition: u32) -> String {
    format!("{LABELS}{name}/{partition}/{value}")
}

/// The task of an entry of the index of labels; `None` for any other item.
#[must_use]
pub fn labelled_task(item: &ItemAttributes) -> Option<&str> {
    let field = |name| item.get(name).and_then(|value: &AttributeValue| value.as_s().ok());
    field("task_id").filter(|key| key.starts_with(LABELS))?;
    field("document")?.split_once('/').map(|(_, task_id)| task_id)
}

/// The sort key of a task in a partition of the index of labels: its time of submission in milliseconds, of the same number
/// of digits for all, and the task.
pub(crate) fn label_position(submitted_at: Timestamp, task_id: &str) -> String {
    format!("{:015}/{task_id}", submitted_at.as_millisecond().max(0))
}

/// The error of an item that cannot be parsed.
pub(crate) type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// Parses the item of a task.
///
/// # Errors
/// The item is not that of a task.
pub fn read_task(item: ItemAttributes) -> Result<Task, Unreadable> {
    Ok(serde_dynamo::from_item(item)?)
}

/// The primary key of a document's item.
pub(crate) fn document_id(owner: &DocumentOwner, key: &DocumentKey) -> ItemAttributes {
    HashMap::from([
        ("task_id".to_owned(), text(owner.task_id.as_str())),
        ("document".to_owned(), text(&stored_key(owner, key).to_string())),
    ])
}

/// The key of a document with the incarnation of its task, as it is stored.
pub(crate) fn stored_key(owner: &DocumentOwner, key: &DocumentKey) -> StoredDocumentKey {
    StoredDocumentKey { incarnation: owner.incarnation, key: key.clone() }
}

/// The size of an item in bytes, by the rules of DynamoDB: names and strings as UTF-8, numbers by their digits, 3 bytes
/// for a map or a list and 1 byte for each of its values.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
#[must_use]
pub fn size(item: &ItemAttributes) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match value {
        AttributeValue::S(text) => text.len(),
        // One byte for two digits, and one more.
        AttributeValue::N(number) => number.len().div_ceil(2) + 1,
        AttributeValue::M(fields) => 3 + fields.len() + size(fields),
        AttributeValue::L(values) => {
            3 + values.len() + values.iter().map(value_size).sum::<usize>()
        }
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        // Null, true or false. The items of tasks and documents have no sets.
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
    fn a_task_in_error_is_kept_until_it_is_settled_and_for_the_retention_from_its_complete_by() {
        let items = Items { shards: NonZeroU32::MIN, retention: Duration::from_secs(3_600) };
        let expires = |state: &str, resolved: Option<i64>| {
            let task = serde_json::json!({
                "task_id": "o-1", "workflow": "order", "v": 2, "i": 1_000, "k": 9_000, "process_state": state,
                "revision": 1, "complete_by": 5_000_000, "submitted_at": 1_000, "ended_at": 4_000_000, "resolved": resolved, "steps": {},
            });
            expires_at(&items.task(&serde_json::from_value(task).unwrap()).unwrap())
        };
        assert_eq!(expires("Processed", None), Some(4_000 + 3_600));
        assert_eq!(expires("Error", None), None);
        assert_eq!(expires("Error", Some(4_500_000)), Some(5_000 + 3_600));
        assert_eq!(expires("Error", Some(6_000_000)), Some(6_000 + 3_600));
    }

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
