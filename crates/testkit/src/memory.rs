//! Every port in memory, for stories and simulations: the world without AWS, under a clock that
//! moves by hand. One contract suite (`tests/contract.rs`) runs on it and on the AWS adapters.
//!
//! What is stored goes through the same serialisation as on AWS, so that whatever that loses is
//! lost here too: a time keeps its milliseconds, no more. What AWS refuses for its size is refused here,
//! and what expires there expires here: [`MemoryStore::expired`] lists it, and a test deletes it, item by
//! item and whenever it likes. One thing is simpler here: a definition is seen as soon as it is published.
//!
//! ```text
//! ports.with_instance("scheduler-1") ──┐
//! ports.with_instance("scheduler-2") ──┼──► the same tables, queues, events and clock
//! ports.with_instance("supervisor") ───┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use steward_core::model::{
    events::BusEvent,
    time::{Timing, later},
};
use steward_runtime::ports::{
    Channel, Clock, EventBus, NoSuchQueue, Outgoing, PortError, Ports, Queue,
};

mod definitions;
mod store;

pub use definitions::MemoryDefinitions;
pub use store::{ExpiredItem, MemoryStore};

/// Bytes of a message beyond which SQS refuses it: the limit of a queue that says nothing else.
const MESSAGE_BYTES_MAX: usize = 256 * 1_024;

/// All ports in memory. A clone is another handle to the same world.
#[derive(Debug, Clone)]
pub struct MemoryPorts {
    store: MemoryStore,
    definitions: MemoryDefinitions,
    channel: MemoryChannel,
    bus: MemoryBus,
    clock: ManualClock,
    timing: Timing,
    instance: String,
}

impl MemoryPorts {
    /// An empty world, with this many shards in its due index.
    #[must_use]
    pub fn new(timing: Timing, shards: NonZeroU32) -> Self {
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::new(shards, timing.retention, clock.clone()),
            definitions: MemoryDefinitions::default(),
            channel: MemoryChannel::default(),
            bus: MemoryBus::default(),
            clock,
            timing,
            instance: "memory".to_owned(),
        }
    }

    /// The same world, as another instance sees it: `name` is what it writes in `locked_by`.
    #[must_use]
    pub fn with_instance(&self, name: &str) -> Self {
        Self { instance: name.to_owned(), ..self.clone() }
    }

    /// The same world, read with this many tasks in a page of the due index, instead of 100.
    #[must_use]
    pub fn with_due_page(&self, tasks: NonZeroUsize) -> Self {
        Self { store: self.store.with_due_page(tasks), ..self.clone() }
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
}

/// The queues in memory. There is every queue, but those that were deleted.
#[derive(Debug, Clone, Default)]
pub struct MemoryChannel {
    queues: Arc<Mutex<Queues>>,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: BTreeMap<Queue, Vec<Outgoing>>,
    deleted: BTreeSet<Queue>,
    dead_letters: BTreeMap<String, u64>,
}

impl MemoryChannel {
    /// Takes what was sent to a queue since the last time, in the order sent.
    #[must_use]
    pub fn take(&self, queue: &Queue) -> Vec<Outgoing> {
        lock(&self.queues).waiting.remove(queue).unwrap_or_default()
    }

    /// Says how many dead letters a queue holds.
    pub fn set_dead_letters(&self, queue: &str, messages: u64) {
        lock(&self.queues).dead_letters.insert(queue.to_owned(), messages);
    }

    /// Takes what was sent to any queue since the last time, queue by queue, in the order sent.
    #[must_use]
    pub fn take_all(&self) -> Vec<Outgoing> {
        std::mem::take(&mut lock(&self.queues).waiting).into_values().flatten().collect()
    }

    /// From now on there is no such queue: what waits in it is gone, and sending to it fails.
    pub fn delete_queue(&self, queue: &Queue) {
        let mut queues = lock(&self.queues);
        queues.waiting.remove(queue);
        queues.deleted.insert(queue.clone());
    }
}

impl Channel for MemoryChannel {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Result<(), PortError>> {
        let mut queues = lock(&self.queues);
        let send = |message: Outgoing| {
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

    async fn dead_letters(&self) -> Result<Vec<(String, u64)>, PortError> {
        let queues = lock(&self.queues);
        Ok(queues.dead_letters.iter().map(|(queue, count)| (queue.clone(), *count)).collect())
    }
}

/// A message's size as SQS counts it: the body, and names, types and values of attributes.
fn size(message: &Outgoing) -> usize {
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
    /// Takes what was published since the last time, in the order published.
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

/// A clock that stands still unless it is moved. It starts in 1970.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now: Arc<Mutex<Timestamp>>,
}

impl ManualClock {
    /// Sets the time; also back, as real clocks may be.
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

    /// Lets others go first.
    async fn pause(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

/// Every change is whole by the time its guard is dropped, so a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `value` as it reads once it was stored.
fn stored<T: Serialize + DeserializeOwned>(
    value: &T,
    operation: impl Fn() -> String,
) -> Result<T, PortError> {
    from_text(&to_text(value, &operation)?, operation)
}

fn to_text<T: Serialize>(value: &T, operation: impl Fn() -> String) -> Result<String, PortError> {
    serde_json::to_string(value).map_err(|error| corrupt(operation, error))
}

fn from_text<T: DeserializeOwned>(
    text: &str,
    operation: impl Fn() -> String,
) -> Result<T, PortError> {
    serde_json::from_str(text).map_err(|error| corrupt(operation, error))
}

fn corrupt<E>(operation: impl Fn() -> String, error: E) -> PortError
where
    E: std::error::Error + Send + Sync + 'static,
{
    PortError { operation: operation(), retryable: false, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::model::document::{Document, DocumentKey};
    use steward_runtime::ports::{Created, Put, StateStore};

    fn ports() -> MemoryPorts {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        MemoryPorts::new(timing, NonZeroU32::MIN)
    }

    #[test]
    fn instances_share_all_but_their_name() {
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
    async fn what_aws_refuses_for_its_size_is_refused() {
        let ports = ports();
        let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
            "task_id": "t", "workflow": "order", "version": 1, "process_state": "Pending",
            "revision": 1, "complete_by": 9, "submitted_at": 0, "due": 1,
        }))
        .unwrap();
        let (owner, kept) = (task.owner(), task.kept());
        let of = |bytes: usize| {
            let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
            Document::new(key, at, "x".repeat(bytes).into())
        };
        // What is left to the text beside the keys and names of its item.
        let room = 400 * 1_024 - 100;
        let put = ports.store().put_document(&owner, kept, &of(room)).await;
        assert_eq!(put.unwrap(), Put::Stored);
        let error = ports.store().put_document(&owner, kept, &of(room + 100)).await.unwrap_err();
        assert!(!error.retryable && error.operation == "write submission of t", "{error:?}");
        let large =
            steward_core::model::task::Task { error: Some("\u{5b57}".repeat(140_000)), ..task };
        assert!(!ports.store().create(&large, &of(0)).await.unwrap_err().retryable);
        assert_eq!(ports.store().load(&large.task_id).await.unwrap(), None);
        let message = |bytes: usize| Outgoing {
            queue: Queue::Scheduler,
            body: "x".repeat(bytes),
            attributes: vec![("reason", "y".repeat(100))],
            delay: Duration::ZERO,
        };
        let room = 256 * 1_024 - "reasonString".len() - 100;
        let sent = ports.channel().send(vec![message(room), message(room + 1)]).await;
        assert!(sent[0].is_ok() && !sent[1].as_ref().unwrap_err().retryable, "{sent:?}");
    }

    #[tokio::test]
    async fn what_has_expired_is_deleted_item_by_item() {
        let ports = ports();
        let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
            "task_id": "t", "workflow": "order", "version": 1, "process_state": "Processed",
            "revision": 1, "complete_by": 0, "submitted_at": 0, "ended_at": 0, "retention_s": 3600,
        }))
        .unwrap();
        let submitted =
            Document::new(DocumentKey::Submission, Timestamp::UNIX_EPOCH, serde_json::Value::Null);
        ports.store().create(&task, &submitted).await.unwrap();
        let at = |hours: i64| Timestamp::from_second(hours * 3_600).unwrap();
        assert_eq!(ports.store().expired(at(0)), []);
        let task_item = ExpiredItem::Task(task.task_id.clone());
        let document = ExpiredItem::Document(task.owner(), DocumentKey::Submission);
        let all = ports.store().expired(at(24 * 365));
        assert_eq!(all, [task_item.clone(), document.clone()]);
        let ended = async || {
            let within = Timestamp::MIN..Timestamp::MAX;
            let page = ports.store().ended(task.process_state, 0, within, None).await;
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
    async fn a_page_of_the_due_index_is_as_large_as_asked() {
        let ports = ports();
        for (task_id, due) in [("a", 3), ("b", 1), ("c", 2)] {
            let task = serde_json::json!({
                "task_id": task_id, "workflow": "order", "version": 1, "process_state": "Pending",
                "revision": 1, "complete_by": 9, "submitted_at": 0, "due": due,
            });
            let task = serde_json::from_value(task).unwrap();
            let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
            let document = Document::new(key, at, serde_json::Value::Null);
            let created = ports.store().create(&task, &document).await.unwrap();
            assert_eq!(created, Created::Created);
        }
        let small = ports.with_due_page(NonZeroUsize::MIN);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = small.store().due(0, Timestamp::MAX, after.as_ref()).await.unwrap();
            assert!(page.task_ids.len() <= 1);
            found.extend(page.task_ids.iter().map(ToString::to_string));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["b", "c", "a"]);
        let whole = ports.store().due(0, Timestamp::MAX, None).await.unwrap();
        assert_eq!((whole.task_ids.len(), whole.next), (3, None));
    }
}
