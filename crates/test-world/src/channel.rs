//! The queues and the event bus in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use steward_core::model::events::BusEvent;
use steward_runtime::ports::{Channel, EventBus, NoSuchQueue, OutgoingMessage, PortError, Queue};

use super::storage::lock;

/// The largest message in bytes that SQS accepts: the limit of a queue that does not configure another.
const MESSAGE_BYTES_MAX: usize = 256 * 1_024;

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
