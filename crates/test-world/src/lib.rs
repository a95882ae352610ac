//! In-memory implementations of all ports, for tests, simulations and forecasts, with a clock that the caller sets. One contract
//! suite (`tests/contract.rs`) runs on these ports and on the AWS adapters.
//!
//! Stored values pass through the same serialisation as on AWS and so lose the same precision: a time keeps its
//! milliseconds and nothing finer. These ports enforce the size limits of AWS. Items also expire as on AWS:
//! [`MemoryStore::expired`] lists the expired items, and a test deletes them one by one, at any time. Two things
//! are simpler than on AWS: a definition is visible as soon as it is published, and the indices never lag behind the
//! table of tasks.
//!
//! ```text
//! ports.with_instance("scheduler-1") ──┐
//! ports.with_instance("scheduler-2") ──┼──► the same tables, queues, events and clock
//! ports.with_instance("supervisor") ───┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    sync::{Arc, Mutex},
};

use steward_core::model::{events::BusEvent, time::Timing};
use steward_runtime::payloads::PayloadStore;
use steward_runtime::ports::{
    Channel, EventBus, NoSuchQueue, OutgoingMessage, PortError, Ports, Queue,
};

mod clock;
mod definitions;
pub mod intercepted_store;
mod payloads;
mod storage;
mod store;

use storage::lock;

pub use clock::ManualClock;
pub use definitions::MemoryDefinitions;
pub use payloads::MemoryPayloads;
pub use store::{ExpiredItem, MemoryStore};

/// The largest message in bytes that SQS accepts: the limit of a queue that does not configure another.
const MESSAGE_BYTES_MAX: usize = 256 * 1_024;

/// All ports in memory. A clone is another handle to the same tables, queues, events and clock.
#[derive(Debug, Clone)]
pub struct MemoryPorts {
    store: MemoryStore,
    definitions: MemoryDefinitions,
    channel: MemoryChannel,
    bus: MemoryBus,
    payloads: MemoryPayloads,
    clock: ManualClock,
    timing: Timing,
    instance: String,
}

impl MemoryPorts {
    /// Empty tables and queues, with this many shards in the due index.
    #[must_use]
    pub fn new(timing: Timing, shards: NonZeroU32) -> Self {
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::new(shards, timing.retention, clock.clone()),
            definitions: MemoryDefinitions::default(),
            channel: MemoryChannel::default(),
            bus: MemoryBus::default(),
            payloads: MemoryPayloads::new(clock.clone()),
            clock,
            timing,
            instance: "memory".to_owned(),
        }
    }

    /// The same tables, queues, events and clock, used by another instance. `name` is what it writes in `locked_by`.
    #[must_use]
    pub fn with_instance(&self, name: &str) -> Self {
        Self { instance: name.to_owned(), ..self.clone() }
    }

    /// The bucket of payloads.
    #[must_use]
    pub fn memory_payloads(&self) -> &MemoryPayloads {
        &self.payloads
    }

    /// The same ports, with this many tasks in a page of an index instead of 100.
    #[must_use]
    pub fn with_page_size(&self, tasks: NonZeroUsize) -> Self {
        Self { store: self.store.with_page_size(tasks), ..self.clone() }
    }
}

impl Ports for MemoryPorts {
    type Store = MemoryStore;
    type Definitions = MemoryDefinitions;
    type Channel = MemoryChannel;
    type Bus = MemoryBus;
    type Clock = ManualClock;

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    fn definitions(&self) -> &MemoryDefinitions {
        &self.definitions
    }

    fn channel(&self) -> &MemoryChannel {
        &self.channel
    }

    fn bus(&self) -> &MemoryBus {
        &self.bus
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn instance(&self) -> &str {
        &self.instance
    }

    fn payloads(&self) -> Option<&dyn PayloadStore> {
        Some(&self.payloads)
    }
}

/// The queues in memory. Every queue exists, except those that were deleted.
#[derive(Debug, Clone, Default)]
pub struct MemoryChannel {
    queues: Arc<Mutex<MemoryQueues>>,
}

#[derive(Debug, Default)]
struct MemoryQueues {
    waiting: BTreeMap<Queue, Vec<OutgoingMessage>>,
    deleted: BTreeSet<Queue>,
    dead_letters: BTreeMap<String, u64>,
    unread: BTreeSet<Queue>,
    unreadable: bool,
}

impl MemoryChannel {
    /// Removes and returns the messages sent to a queue since the last call, in the order sent.
    #[must_use]
    pub fn take(&self, queue: &Queue) -> Vec<OutgoingMessage> {
        lock(&self.queues).waiting.remove(queue).unwrap_or_default()
    }

    /// Sets how many dead letters a queue holds. The configuration lists this queue.
    pub fn set_dead_letters(&self, queue: &str, messages: u64) {
        lock(&self.queues).dead_letters.insert(queue.to_owned(), messages);
    }

    /// Sets which queues have messages that no function receives.
    pub fn set_unread(&self, queues: impl IntoIterator<Item = Queue>) {
        lock(&self.queues).unread = queues.into_iter().collect();
    }

    /// Sets whether SQS refuses to count messages.
    pub fn set_unreadable(&self, unreadable: bool) {
        lock(&self.queues).unreadable = unreadable;
    }

    /// Removes and returns the messages sent to all queues since the last call, queue by queue, in the order sent.
    #[must_use]
    pub fn take_all(&self) -> Vec<OutgoingMessage> {
        std::mem::take(&mut lock(&self.queues).waiting).into_values().flatten().collect()
    }

    /// Deletes a queue and its messages: sending to it fails from now on.
    pub fn delete_queue(&self, queue: &Queue) {
        let mut queues = lock(&self.queues);
        queues.waiting.remove(queue);
        queues.deleted.insert(queue.clone());
    }
}

impl Channel for MemoryChannel {
    async fn send(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<(), PortError>> {
        let mut queues = lock(&self.queues);
        let send = |message: OutgoingMessage| {
            if queues.deleted.contains(&message.queue) {
                let operation = format!("send to {:?}", message.queue);
                let source = Box::new(NoSuchQueue);
                return Err(PortError { operation, retryable: false, source });
            }
            if size(&message) > MESSAGE_BYTES_MAX {
                let operation = format!("send to {:?}", message.queue);
                let source = "one or more parameters are invalid: the message is too long".into();
                return Err(PortError { operation, retryable: false, source });
            }
            queues.waiting.entry(message.queue.clone()).or_default().push(message);
            Ok(())
        };
        messages.into_iter().map(send).collect()
    }

    fn configured_dead_letter_queues(&self) -> Vec<String> {
        lock(&self.queues).dead_letters.keys().cloned().collect()
    }

    async fn dead_letters(&self, queues: &[String]) -> Vec<(String, Result<u64, PortError>)> {
        let MemoryQueues { dead_letters: stored, unreadable, .. } = &*lock(&self.queues);
        let count = |queue: &String| {
            if *unreadable {
                return (queue.clone(), Err(refused_to_count(queue)));
            }
            let count = stored.get(queue).copied().ok_or_else(|| {
                let operation = format!("count the messages of {queue}");
                PortError { operation, retryable: false, source: Box::new(NoSuchQueue) }
            });
            (queue.clone(), count)
        };
        queues.iter().map(count).collect()
    }

    async fn unread(&self, queues: &[Queue]) -> Vec<Result<bool, PortError>> {
        let MemoryQueues { unread, unreadable, .. } = &*lock(&self.queues);
        let is_unread = |queue: &Queue| {
            if *unreadable {
                return Err(refused_to_count(&format!("{queue:?}")));
            }
            Ok(unread.contains(queue))
        };
        queues.iter().map(is_unread).collect()
    }
}

fn refused_to_count(queue: &str) -> PortError {
    let operation = format!("count the messages of {queue}");
    PortError { operation, retryable: false, source: "access denied".into() }
}

/// The size of a message as SQS counts it: its body, and the names, types and values of its attributes.
fn size(message: &OutgoingMessage) -> usize {
    let attributes = message.attributes.iter();
    let attributes = attributes.map(|(name, text)| name.len() + "String".len() + text.len());
    message.body.len() + attributes.sum::<usize>()
}

/// The event bus in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryBus {
    events: Arc<Mutex<Vec<BusEvent>>>,
}

impl MemoryBus {
    /// Removes and returns the events published since the last call, in the order published.
    #[must_use]
    pub fn take(&self) -> Vec<BusEvent> {
        std::mem::take(&mut *lock(&self.events))
    }
}

impl EventBus for MemoryBus {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        let answers = events.iter().map(|_| Ok(())).collect();
        lock(&self.events).extend(events);
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use std::time::Duration;
    use steward_core::model::document::{Document, DocumentKey};
    use steward_runtime::ports::{Clock, CreateOutcome, PutOutcome, StateStore};

    fn ports() -> MemoryPorts {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        MemoryPorts::new(timing, NonZeroU32::MIN)
    }

    #[test]
    fn instances_share_everything_except_their_name() {
        let (one, other) = (ports(), ports());
        let another = one.with_instance("another");
        assert_eq!((one.instance(), another.instance()), ("memory", "another"));
        another.clock().advance(Duration::from_millis(1_500));
        assert_eq!(one.clock().now().as_millisecond(), 1_500);
        assert_eq!(other.clock().now(), Timestamp::UNIX_EPOCH);
        one.clock().set(Timestamp::UNIX_EPOCH);
        assert_eq!(another.clock().now(), Timestamp::UNIX_EPOCH);
    }

    #[tokio::test]
    async fn items_and_messages_above_the_size_limits_of_aws_are_refused() {
        let ports = ports();
        let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
            "task_id": "t", "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Pending",
            "revision": 1, "complete_by": 9, "submitted_at": 0, "due": 1,
        }))
        .unwrap();
        let (owner, retention) = (task.document_owner(), task.document_retention());
        let of = |bytes: usize| {
            let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
            Document::new(key, at, "x".repeat(bytes).into())
        };
        // The bytes that remain for the text, beside the keys and attribute names of its item.
        let room = 400 * 1_024 - 100;
        let put = ports.store().put_document(&owner, retention, &of(room)).await;
        assert_eq!(put.unwrap(), PutOutcome::Stored);
        let error =
            ports.store().put_document(&owner, retention, &of(room + 100)).await.unwrap_err();
        assert!(!error.retryable && error.operation == "write submission of t", "{error:?}");
        let large =
            steward_core::model::task::Task { error: Some("\u{5b57}".repeat(140_000)), ..task };
        assert!(!ports.store().create(&large, Some(&of(0))).await.unwrap_err().retryable);
        assert_eq!(ports.store().load(&large.task_id).await.unwrap(), None);
        let message = |bytes: usize| OutgoingMessage {
            queue: Queue::Scheduler,
            body: "x".repeat(bytes),
            attributes: vec![("reason", "y".repeat(100))],
            tenant: None,
            delay: Duration::ZERO,
        };
        let room = 256 * 1_024 - "reasonString".len() - 100;
        let sent = ports.channel().send(vec![message(room), message(room + 1)]).await;
        assert!(sent[0].is_ok() && !sent[1].as_ref().unwrap_err().retryable, "{sent:?}");
    }

    #[tokio::test]
    async fn expired_items_are_deleted_one_by_one() {
        let ports = ports();
        let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
            "task_id": "t", "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Processed",
            "revision": 1, "complete_by": 0, "submitted_at": 0, "ended_at": 0, "retention_s": 3600,
        }))
        .unwrap();
        let submitted =
            Document::new(DocumentKey::Submission, Timestamp::UNIX_EPOCH, serde_json::Value::Null);
        ports.store().create(&task, Some(&submitted)).await.unwrap();
        let at = |hours: i64| Timestamp::from_second(hours * 3_600).unwrap();
        assert_eq!(ports.store().expired(at(0)), []);
        let task_item = ExpiredItem::Task(task.task_id.clone());
        let document = ExpiredItem::Document(task.document_owner(), DocumentKey::Submission);
        let all = ports.store().expired(at(24 * 365));
        assert_eq!(all, [task_item.clone(), document.clone()]);
        let ended = async || {
            let within = Timestamp::MIN..Timestamp::MAX;
            let page = ports.store().ended_tasks(task.process_state, 0, within, None).await;
            page.unwrap().ended.len()
        };
        assert_eq!(ended().await, 1);
        ports.store().delete_expired(&task_item);
        assert_eq!(ports.store().expired(at(24 * 365)), std::slice::from_ref(&document));
        assert_eq!(ended().await, 0);
        ports.store().delete_expired(&document);
        assert_eq!(ports.store().expired(at(24 * 365)), []);
    }

    #[tokio::test]
    async fn a_page_of_the_due_index_has_the_configured_size() {
        let ports = ports();
        for (task_id, due) in [("a", 3), ("b", 1), ("c", 2)] {
            let task = serde_json::json!({
                "task_id": task_id, "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Pending",
                "revision": 1, "complete_by": 9, "submitted_at": 0, "due": due,
            });
            let task = serde_json::from_value(task).unwrap();
            let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
            let document = Document::new(key, at, serde_json::Value::Null);
            let created = ports.store().create(&task, Some(&document)).await.unwrap();
            assert_eq!(created, CreateOutcome::Created);
        }
        let small = ports.with_page_size(NonZeroUsize::MIN);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = small.store().due_tasks(0, Timestamp::MAX, after.as_ref()).await.unwrap();
            assert!(page.task_ids.len() <= 1);
            found.extend(page.task_ids.iter().map(ToString::to_string));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["b", "c", "a"]);
        let whole = ports.store().due_tasks(0, Timestamp::MAX, None).await.unwrap();
        assert_eq!((whole.task_ids.len(), whole.next), (3, None));
    }
}
