//! What the queues hold. Every change is a [`Record`]: a request is decided from the state and the time,
//! the journal keeps the records, and then they are applied. Applied again, after a restart, they give the
//! same state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::attributes::Attributes;
use super::message::Message;
use super::receipt::Receipt;
use super::refusal::Refusal;
use super::time::Micros;

/// Messages of a queue that consumers may have at once.
const IN_FLIGHT_MAX: usize = 120_000;

/// A change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// The number of the next message: those below were used, if only by messages that are gone.
    NextNumber(u64),
    /// A queue is created, or its attributes are set.
    Queue { name: String, attributes: BTreeMap<String, String>, at: Micros },
    /// A queue is deleted with its messages.
    QueueDeleted { name: String },
    /// The messages of a queue are deleted.
    QueuePurged { name: String },
    /// A message enters a queue.
    Sent { queue: String, message: Message },
    /// A consumer gets messages.
    Received { queue: String, numbers: Vec<u64>, at: Micros, visible_at: Micros },
    /// A consumer keeps a message for longer, or gives it back.
    VisibilityChanged { queue: String, number: u64, visible_at: Micros },
    /// Those that had messages have ended with their process.
    GivenBack { queue: String, numbers: Vec<u64>, at: Micros },
    /// Messages are deleted, or were kept for long enough.
    Removed { queue: String, numbers: Vec<u64> },
    /// Messages go to the queue of dead letters.
    DeadLettered { queue: String, to: String, numbers: Vec<u64>, at: Micros },
}

/// All queues.
#[derive(Default)]
pub(super) struct State {
    queues: BTreeMap<String, Queue>,
    next_number: u64,
}

/// A queue with its messages.
pub(super) struct Queue {
    pub(super) attributes: Attributes,
    pub(super) created_at: Micros,
    pub(super) modified_at: Micros,
    messages: HashMap<u64, Message>,
    /// The messages by when they are visible; those that have been visible for longest come first.
    by_visibility: BTreeSet<(Micros, u64)>,
    /// Wakes the receives that wait when a message comes, or its visibility changes.
    changed: Arc<Notify>,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) visible: usize,
    pub(super) in_flight: usize,
    pub(super) delayed: usize,
}

/// What a receive finds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The messages for the consumer.
    pub(super) received: Vec<u64>,
    /// All that changes by it.
    pub(super) records: Vec<Record>,
}

impl State {
    pub(super) fn queue(&self, name: &str) -> Result<&Queue, Refusal> {
        self.queues.get(name).ok_or_else(Refusal::no_queue)
    }

    /// All queues, by name.
    pub(super) fn queues(&self) -> impl Iterator<Item = (&String, &Queue)> {
        self.queues.iter()
    }

    /// The number for the `n`th message of a request.
    pub(super) fn number(&self, n: u64) -> u64 {
        self.next_number + n
    }

    /// What a consumer gets who asks for `max` messages now and keeps them until `visible_at`.
    pub(super) fn receive(
        &self,
        name: &str,
        max: usize,
        now: Micros,
        visible_at: Micros,
    ) -> Result<Found, Refusal> {
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
            return Err(Refusal::too_many_in_flight(IN_FLIGHT_MAX));
        }
        let mut records = Vec::new();
        let queue = || name.to_owned();
        if !expired.is_empty() {
            records.push(Record::Removed { queue: queue(), numbers: expired });
        }
        if let Some(redrive) = redrive
            && !dead.is_empty()
        {
            let to = redrive.to.clone();
            records.push(Record::DeadLettered { queue: queue(), to, numbers: dead, at: now });
        }
        if !received.is_empty() {
            let numbers = received.clone();
            records.push(Record::Received { queue: queue(), numbers, at: now, visible_at });
        }
        Ok(Found { received, records })
    }

    /// The deletion of what was received, unless it is gone or was received again since.
    pub(super) fn delete(&self, name: &str, receipts: &[Receipt]) -> Result<Vec<Record>, Refusal> {
        let queue = self.queue(name)?;
        let held = receipts.iter().filter(|receipt| queue.of(receipt).is_some());
        let numbers: Vec<_> = held.map(|receipt| receipt.number).collect();
        let is_any = !numbers.is_empty();
        let removed = Record::Removed { queue: name.to_owned(), numbers };
        Ok(is_any.then_some(removed).into_iter().collect())
    }

    /// Hides what was received until another time.
    pub(super) fn change_visibility(
        &self,
        name: &str,
        receipt: &Receipt,
        now: Micros,
        visible_at: Micros,
    ) -> Result<Record, Refusal> {
        let message = self.queue(name)?.of(receipt);
        let message = message.ok_or_else(|| {
            let reason = "Message does not exist or is not available for visibility timeout change";
            Refusal::parameter("ReceiptHandle", receipt, reason)
        })?;
        if message.visible_at <= now {
            return Err(Refusal::not_in_flight());
        }
        let (queue, number) = (name.to_owned(), message.number);
        Ok(Record::VisibilityChanged { queue, number, visible_at })
    }

    /// Shows what was received and is hidden still. That receive does not count towards the dead letters.
    pub(super) fn give_back(&self, name: &str, now: Micros) -> Result<Record, Refusal> {
        let received = self.queue(name)?.hidden(now).filter(|message| message.receives > 0);
        let numbers = received.map(|message| message.number).collect();
        Ok(Record::GivenBack { queue: name.to_owned(), numbers, at: now })
    }

    /// Applies a change. What it names and is not there is left out: it was deleted.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::NextNumber(number) => self.next_number = self.next_number.max(number),
            Record::Queue { name, attributes, at } => self.set_queue(name, attributes, at),
            Record::QueueDeleted { name } => {
                if let Some(queue) = self.queues.remove(&name) {
                    queue.changed.notify_waiters();
                }
            }
            Record::QueuePurged { name } => {
                if let Some(queue) = self.queues.get_mut(&name) {
                    queue.messages.clear();
                    queue.by_visibility.clear();
                }
            }
            Record::Sent { queue, message } => {
                self.next_number = self.next_number.max(message.number + 1);
                self.insert(&queue, message);
            }
            Record::Received { queue, numbers, at, visible_at } => {
                for number in numbers {
                    self.update(&queue, number, |message| {
                        message.receives += 1;
                        message.first_received_at.get_or_insert(at);
                        message.visible_at = visible_at;
                    });
                }
            }
            Record::VisibilityChanged { queue, number, visible_at } => {
                self.update(&queue, number, |message| message.visible_at = visible_at);
            }
            Record::GivenBack { queue, numbers, at } => {
                for number in numbers {
                    self.update(&queue, number, |message| {
                        message.given_back += 1;
                        message.visible_at = at;
                    });
                }
            }
            Record::Removed { queue, numbers } => {
                numbers.into_iter().for_each(|number| drop(self.remove(&queue, number)));
            }
            Record::DeadLettered { queue, to, numbers, at } => {
                for number in numbers {
                    if let Some(message) = self.remove(&queue, number) {
                        let source = Some(queue.clone());
                        self.insert(&to, Message { visible_at: at, source, ..message });
                    }
                }
            }
        }
    }

    /// Records that give this state, applied to an empty one.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Record> {
        let queues = self.queues.iter().map(|(name, queue)| {
            let (name, attributes) = (name.clone(), queue.attributes.set().clone());
            Record::Queue { name, attributes, at: queue.modified_at }
        });
        let messages = self.queues.iter().flat_map(|(name, queue)| {
            queue.by_visibility.iter().filter_map(|(_, number)| {
                let message = queue.messages.get(number)?.clone();
                Some(Record::Sent { queue: name.clone(), message })
            })
        });
        [Record::NextNumber(self.next_number)].into_iter().chain(queues).chain(messages)
    }

    fn set_queue(&mut self, name: String, attributes: BTreeMap<String, String>, at: Micros) {
        // They were checked before they were recorded.
        let Ok(attributes) = Attributes::parse(attributes) else { return };
        match self.queues.get_mut(&name) {
            Some(queue) => {
                (queue.attributes, queue.modified_at) = (attributes, at);
                queue.changed.notify_waiters();
            }
            None => drop(self.queues.insert(name, Queue::new(attributes, at))),
        }
    }

    fn insert(&mut self, queue: &str, message: Message) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        queue.by_visibility.insert((message.visible_at, message.number));
        queue.messages.insert(message.number, message);
        queue.changed.notify_waiters();
    }

    fn remove(&mut self, queue: &str, number: u64) -> Option<Message> {
        let queue = self.queues.get_mut(queue)?;
        let message = queue.messages.remove(&number)?;
        queue.by_visibility.remove(&(message.visible_at, number));
        Some(message)
    }

    fn update(&mut self, queue: &str, number: u64, change: impl FnOnce(&mut Message)) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        let Some(message) = queue.messages.get_mut(&number) else { return };
        queue.by_visibility.remove(&(message.visible_at, number));
        change(message);
        queue.by_visibility.insert((message.visible_at, number));
        queue.changed.notify_waiters();
    }
}

impl Queue {
    fn new(attributes: Attributes, at: Micros) -> Self {
        Self {
            attributes,
            created_at: at,
            modified_at: at,
            messages: HashMap::new(),
            by_visibility: BTreeSet::new(),
            changed: Arc::default(),
        }
    }

    /// What wakes the receives that wait.
    pub(super) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// The message of a number.
    pub(super) fn message(&self, number: u64) -> Option<&Message> {
        self.messages.get(&number)
    }

    /// The message that a consumer has by this receipt, unless it is gone or was received again since.
    fn of(&self, receipt: &Receipt) -> Option<&Message> {
        self.messages.get(&receipt.number).filter(|message| message.receives == receipt.receive)
    }

    /// Messages that can be received, first those that could be for longest.
    fn visible(&self, now: Micros) -> impl Iterator<Item = &Message> {
        let numbers = self.by_visibility.range(..=(now, u64::MAX));
        numbers.filter_map(|(_, number)| self.messages.get(number))
    }

    fn hidden(&self, now: Micros) -> impl Iterator<Item = &Message> {
        let numbers = self.by_visibility.range((now.saturating_add(1), 0)..);
        numbers.filter_map(|(_, number)| self.messages.get(number))
    }

    /// When the next hidden message is visible.
    pub(super) fn next_visible_at(&self, now: Micros) -> Option<Micros> {
        self.hidden(now).next().map(|message| message.visible_at)
    }

    pub(super) fn counts(&self, now: Micros) -> Counts {
        let (in_flight, delayed): (Vec<_>, Vec<_>) =
            self.hidden(now).partition(|message| message.receives > 0);
        let (in_flight, delayed) = (in_flight.len(), delayed.len());
        Counts { visible: self.messages.len() - in_flight - delayed, in_flight, delayed }
    }

    /// Whether consumers have as many messages as they may.
    fn is_full(&self, now: Micros) -> bool {
        self.messages.len() > IN_FLIGHT_MAX && self.counts(now).in_flight >= IN_FLIGHT_MAX
    }
}
