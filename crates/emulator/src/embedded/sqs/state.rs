//! The state of the queues. Each change is a [`JournalRecord`]. A request is decided from the state and the time, which
//! gives records; the journal stores them, and then they are applied. After a restart, the same records give the
//! same state.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{
    attributes::QueueAttributes,
    error::SqsError,
    groups::{MessageGroups, Messages},
    message::QueueMessage,
    receipt::ReceiptHandle,
    time::Micros,
};

/// The most messages of a queue that may be in flight.
const IN_FLIGHT_MAX: usize = 120_000;

/// What a message needs in the journal beside its body, approximately.
const MESSAGE_BYTES_BESIDE_BODY: u64 = 300;

/// A change of the queues, as stored in the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalRecord {
    /// The number of the next message. Deleted messages have used smaller numbers.
    NextNumber(u64),
    /// A queue is created, or its attributes are set.
    Queue { name: String, attributes: BTreeMap<String, String>, at: Micros },
    /// A queue and its messages are deleted.
    QueueDeleted { name: String },
    /// All messages of a queue are deleted.
    QueuePurged { name: String },
    /// A message enters a queue.
    Sent { queue: String, message: QueueMessage },
    /// A consumer receives messages.
    Received { queue: String, numbers: Vec<u64>, at: Micros, visible_at: Micros },
    /// A consumer changes the visibility of a message.
    VisibilityChanged { queue: String, number: u64, visible_at: Micros },
    /// The consumers of messages have ended with their process.
    #[serde(rename = "given_back")]
    Released { queue: String, numbers: Vec<u64>, at: Micros },
    /// Messages are deleted, or their retention period is over.
    Removed { queue: String, numbers: Vec<u64> },
    /// Messages move to the dead-letter queue.
    DeadLettered { queue: String, to: String, numbers: Vec<u64>, at: Micros },
}

/// All queues.
#[derive(Default)]
pub(super) struct QueuesState {
    queues: BTreeMap<String, StoredQueue>,
    next_number: u64,
}

/// A queue with its messages.
pub(super) struct StoredQueue {
    pub(super) attributes: QueueAttributes,
    pub(super) created_at: Micros,
    pub(super) modified_at: Micros,
    messages: Messages,
    /// The bytes of the bodies of all messages.
    body_bytes: u64,
    /// The messages that a consumer has received, in flight or visible again.
    received: usize,
    groups: MessageGroups,
    /// Wakes waiting receives when a message arrives or its visibility changes.
    changed: Arc<Notify>,
}

/// The numbers of messages in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageCounts {
    pub(super) visible: usize,
    pub(super) in_flight: usize,
    pub(super) delayed: usize,
}

/// The outcome of a receive.
#[derive(Debug, Default)]
pub(super) struct ReceiveDecision {
    /// The numbers of the messages for the consumer.
    pub(super) received: Vec<u64>,
    /// All changes that the receive makes.
    pub(super) records: Vec<JournalRecord>,
}

impl QueuesState {
    pub(super) fn queue(&self, name: &str) -> Result<&StoredQueue, SqsError> {
        self.queues.get(name).ok_or_else(SqsError::no_queue)
    }

    /// All queues, by name.
    pub(super) fn queues(&self) -> impl Iterator<Item = (&String, &StoredQueue)> {
        self.queues.iter()
    }

    /// The number of the `n`th message of a request.
    pub(super) fn number(&self, n: u64) -> u64 {
        self.next_number + n
    }

    /// Decides which messages a consumer receives, at most `max`. They stay hidden until `visible_at`.
    pub(super) fn receive(
        &self,
        name: &str,
        max: usize,
        now: Micros,
        visible_at: Micros,
    ) -> Result<ReceiveDecision, SqsError> {
        let queue = self.queue(name)?;
        let redrive = queue.attributes.redrive.as_ref();
        let redrive = redrive.filter(|redrive| self.queues.contains_key(&redrive.to));
        let (mut received, mut dead, mut expired) = (Vec::new(), Vec::new(), Vec::new());
        for message in queue.visible(now) {
            if message.sent_at.saturating_add(queue.attributes.retention) <= now {
                expired.push(message.number);
            } else if redrive
                .is_some_and(|redrive| message.counted_receives() >= redrive.receives_max)
            {
                dead.push(message.number);
            } else {
                received.push(message.number);
                if received.len() >= max {
                    break;
                }
            }
        }
        if !received.is_empty() && queue.is_full(now) {
            return Err(SqsError::too_many_in_flight(IN_FLIGHT_MAX));
        }
        let mut records = Vec::new();
        let queue = || name.to_owned();
        if !expired.is_empty() {
            records.push(JournalRecord::Removed { queue: queue(), numbers: expired });
        }
        if let Some(redrive) = redrive
            && !dead.is_empty()
        {
            let to = redrive.to.clone();
            records.push(JournalRecord::DeadLettered {
                queue: queue(),
                to,
                numbers: dead,
                at: now,
            });
        }
        if !received.is_empty() {
            let numbers = received.clone();
            records.push(JournalRecord::Received { queue: queue(), numbers, at: now, visible_at });
        }
        Ok(ReceiveDecision { received, records })
    }

    /// Decides the deletion of received messages, except those that are deleted already or were received again.
    pub(super) fn delete(
        &self,
        name: &str,
        receipts: &[ReceiptHandle],
    ) -> Result<Vec<JournalRecord>, SqsError> {
        let queue = self.queue(name)?;
        let held = receipts.iter().filter(|receipt| queue.held_by(receipt).is_some());
        let numbers: Vec<_> = held.map(|receipt| receipt.number).collect();
        let is_any = !numbers.is_empty();
        let removed = JournalRecord::Removed { queue: name.to_owned(), numbers };
        Ok(is_any.then_some(removed).into_iter().collect())
    }

    /// Decides a change of the visibility of a received message.
    pub(super) fn change_visibility(
        &self,
        name: &str,
        receipt: &ReceiptHandle,
        now: Micros,
        visible_at: Micros,
    ) -> Result<JournalRecord, SqsError> {
        let message = self.queue(name)?.held_by(receipt);
        let message = message.ok_or_else(|| {
            let reason = "Message does not exist or is not available for visibility timeout change";
            SqsError::parameter("ReceiptHandle", receipt, reason)
        })?;
        if message.visible_at <= now {
            return Err(SqsError::not_in_flight());
        }
        let (queue, number) = (name.to_owned(), message.number);
        Ok(JournalRecord::VisibilityChanged { queue, number, visible_at })
    }

    /// Decides that received messages become visible. Their last receive does not count for the redrive policy.
    pub(super) fn release_messages(
        &self,
        name: &str,
        now: Micros,
    ) -> Result<JournalRecord, SqsError> {
        let received = self.queue(name)?.hidden(now).filter(|message| message.receives > 0);
        let numbers = received.map(|message| message.number).collect();
        Ok(JournalRecord::Released { queue: name.to_owned(), numbers, at: now })
    }

    /// Applies a change. Queues and messages that do not exist any more are skipped.
    pub(super) fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::NextNumber(number) => self.next_number = self.next_number.max(number),
            JournalRecord::Queue { name, attributes, at } => self.set_queue(name, attributes, at),
            JournalRecord::QueueDeleted { name } => {
                if let Some(queue) = self.queues.remove(&name) {
                    queue.changed.notify_waiters();
                }
            }
            JournalRecord::QueuePurged { name } => {
                if let Some(queue) = self.queues.get_mut(&name) {
                    queue.messages.clear();
                    queue.body_bytes = 0;
                    queue.received = 0;
                    queue.groups.clear();
                }
            }
            JournalRecord::Sent { queue, message } => {
                self.next_number = self.next_number.max(message.number + 1);
                self.insert(&queue, message);
            }
            JournalRecord::Received { queue, numbers, at, visible_at } => {
                for number in numbers {
                    self.update(&queue, number, |message| {
                        message.receives += 1;
                        message.first_received_at.get_or_insert(at);
                        message.visible_at = visible_at;
                    });
                }
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.groups.update_noisy(at, &queue.messages);
                }
            }
            JournalRecord::VisibilityChanged { queue, number, visible_at } => {
                self.update(&queue, number, |message| message.visible_at = visible_at);
            }
            JournalRecord::Released { queue, numbers, at } => {
                for number in numbers {
                    self.update(&queue, number, |message| {
                        message.released += 1;
                        message.visible_at = at;
                    });
                }
            }
            JournalRecord::Removed { queue, numbers } => {
                numbers.into_iter().for_each(|number| drop(self.remove(&queue, number)));
            }
            JournalRecord::DeadLettered { queue, to, numbers, at } => {
                for number in numbers {
                    if let Some(message) = self.remove(&queue, number) {
                        let source = Some(queue.clone());
                        self.insert(&to, QueueMessage { visible_at: at, source, ..message });
                    }
                }
            }
        }
    }

    /// Approximately the bytes that all messages need in the journal.
    pub(super) fn message_bytes(&self) -> u64 {
        let bytes = |queue: &StoredQueue| {
            queue.body_bytes + queue.messages.len() as u64 * MESSAGE_BYTES_BESIDE_BODY
        };
        self.queues.values().map(bytes).sum()
    }

    /// Records that produce this state when they are applied to an empty one.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = JournalRecord> {
        let queues = self.queues.iter().map(|(name, queue)| {
            let (name, attributes) = (name.clone(), queue.attributes.set().clone());
            JournalRecord::Queue { name, attributes, at: queue.modified_at }
        });
        let messages = self.queues.iter().flat_map(|(name, queue)| {
            queue.groups.numbers().filter_map(|number| {
                let message = queue.messages.get(&number)?.clone();
                Some(JournalRecord::Sent { queue: name.clone(), message })
            })
        });
        [JournalRecord::NextNumber(self.next_number)].into_iter().chain(queues).chain(messages)
    }

    fn set_queue(&mut self, name: String, attributes: BTreeMap<String, String>, at: Micros) {
        // Attributes are validated before they are recorded.
        let Ok(attributes) = QueueAttributes::parse(attributes) else { return };
        match self.queues.get_mut(&name) {
            Some(queue) => {
                (queue.attributes, queue.modified_at) = (attributes, at);
                queue.changed.notify_waiters();
            }
            None => drop(self.queues.insert(name, StoredQueue::new(attributes, at))),
        }
    }

    fn insert(&mut self, queue: &str, message: QueueMessage) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        queue.groups.insert(&message);
        queue.body_bytes += message.body.len() as u64;
        queue.received += usize::from(message.receives > 0);
        queue.messages.insert(message.number, message);
        queue.changed.notify_waiters();
    }

    fn remove(&mut self, queue: &str, number: u64) -> Option<QueueMessage> {
        let queue = self.queues.get_mut(queue)?;
        let message = queue.messages.remove(&number)?;
        queue.body_bytes = queue.body_bytes.saturating_sub(message.body.len() as u64);
        queue.received -= usize::from(message.receives > 0);
        queue.groups.remove(&message);
        Some(message)
    }

    fn update(&mut self, queue: &str, number: u64, change: impl FnOnce(&mut QueueMessage)) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        let Some(message) = queue.messages.get_mut(&number) else { return };
        queue.groups.remove(message);
        queue.received -= usize::from(message.receives > 0);
        change(message);
        queue.received += usize::from(message.receives > 0);
        queue.groups.insert(message);
        queue.changed.notify_waiters();
    }
}

impl StoredQueue {
    fn new(attributes: QueueAttributes, at: Micros) -> Self {
        Self {
            attributes,
            created_at: at,
            modified_at: at,
            messages: Messages::new(),
            body_bytes: 0,
            received: 0,
            groups: MessageGroups::default(),
            changed: Arc::default(),
        }
    }

    /// The notification that wakes waiting receives.
    pub(super) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// The message with a number.
    pub(super) fn message(&self, number: u64) -> Option<&QueueMessage> {
        self.messages.get(&number)
    }

    /// The message that a consumer holds with this receipt, unless it is deleted or was received again.
    fn held_by(&self, receipt: &ReceiptHandle) -> Option<&QueueMessage> {
        self.messages.get(&receipt.number).filter(|message| message.receives == receipt.receive)
    }

    /// The visible messages in the order of delivery: those of noisy groups come last, and of the others those that have
    /// been visible longest come first.
    fn visible(&self, now: Micros) -> impl Iterator<Item = &QueueMessage> {
        let numbers = self.groups.visible(now, &self.messages);
        numbers.filter_map(|number| self.messages.get(&number))
    }

    /// The hidden messages.
    fn hidden(&self, now: Micros) -> impl Iterator<Item = &QueueMessage> {
        let numbers = self.groups.hidden(now);
        numbers.filter_map(|number| self.messages.get(&number))
    }

    /// When the next hidden message becomes visible.
    pub(super) fn next_visible_at(&self, now: Micros) -> Option<Micros> {
        self.groups.next_visible_at(now)
    }

    pub(super) fn counts(&self, now: Micros) -> MessageCounts {
        let hidden = self.groups.hidden(now).count();
        let in_flight = match self.received {
            0 => 0,
            _ => self.hidden(now).filter(|message| message.receives > 0).count(),
        };
        let visible = self.messages.len() - hidden;
        MessageCounts { visible, in_flight, delayed: hidden - in_flight }
    }

    /// Whether the limit of messages in flight is reached.
    fn is_full(&self, now: Micros) -> bool {
        // The count visits every hidden message, so it is made only if enough messages were received at least once.
        self.received >= IN_FLIGHT_MAX && self.counts(now).in_flight >= IN_FLIGHT_MAX
    }
}
