//! The queues between the roles, with the guarantees of SQS: delivery at least once and in any order. A received
//! message is invisible for a while. Unless it is deleted, it becomes visible again with a higher receive count. A
//! message that was received too often becomes a dead letter.

use std::collections::BTreeMap;

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use steward_core::model::names::AgentName;
use steward_runtime::ports::{OutgoingMessage, Queue};
use steward_test_world::sent_record;

use super::{
    late_message_plan::is_late,
    plan::InstanceRole,
    virtual_time::{Millis, epoch_millis},
};

/// How often a message is received before it becomes a dead letter, unless the plan sets another number. Faults stop
/// before any message is received that often.
const RECEIVES_MAX: u32 = 100;

/// How often a late message is received before it becomes a dead letter.
const LATE_RECEIVES_MAX: u32 = 3;

/// The ARN of the commands queue.
pub(super) const COMMANDS_QUEUE_ARN: &str = "arn:aws:sqs:us-east-1:000000000000:commands";

/// The ARN of the events queue.
pub(super) const EVENTS_QUEUE_ARN: &str = "arn:aws:sqs:eu-west-1:1:events";

/// A queue that invokes functions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FunctionQueue {
    Submissions,
    /// The scheduler's queue and the commands queue, whose messages it marks.
    Scheduler,
    Agent(AgentName),
}

impl FunctionQueue {
    /// The queue that invokes this role; `None` for the supervisor.
    pub(super) fn of(role: &InstanceRole) -> Option<Self> {
        match role {
            InstanceRole::Submission => Some(Self::Submissions),
            InstanceRole::Scheduler => Some(Self::Scheduler),
            InstanceRole::Agent(name) => Some(Self::Agent(name.clone())),
            InstanceRole::Supervisor => None,
        }
    }
}

#[derive(Debug, Clone)]
struct QueuedMessage {
    sent: OutgoingMessage,
    sent_at: Millis,
    receives: u32,
    received_at: Millis,
}

/// A message that was received too often.
#[derive(Debug)]
pub(super) struct DeadLetter {
    pub(super) source: FunctionQueue,
    pub(super) message: OutgoingMessage,
    /// When a function received it for the last time.
    pub(super) received_at: Millis,
}

/// Messages by the time at which they become visible, then by number.
type MessagesByTime = BTreeMap<(Millis, u64), QueuedMessage>;

/// All queues.
#[derive(Debug, Default)]
pub(super) struct Network {
    queues: BTreeMap<FunctionQueue, MessagesByTime>,
    /// The queue and the time of visibility of each message, by message number.
    locations: BTreeMap<u64, (FunctionQueue, Millis)>,
    last: u64,
    pub(super) delivered: u64,
    /// How often a message is received before it becomes a dead letter.
    receives_max: u32,
    pub(super) dead: Vec<DeadLetter>,
}

impl Network {
    pub(super) fn new(receives_max: Option<u32>) -> Self {
        Self { receives_max: receives_max.unwrap_or(RECEIVES_MAX), ..Self::default() }
    }

    /// Adds a message that was sent at `sent_at` and becomes visible at `at`.
    pub(super) fn put(
        &mut self,
        source: FunctionQueue,
        sent_at: Millis,
        at: Millis,
        message: &OutgoingMessage,
    ) {
        self.last += 1;
        self.locations.insert(self.last, (source.clone(), at));
        let sent = message.clone();
        let message = QueuedMessage { sent, sent_at, receives: 0, received_at: 0 };
        self.queues.entry(source).or_default().insert((at, self.last), message);
    }

    /// When the next message of a queue becomes visible.
    pub(super) fn next(&self, source: &FunctionQueue) -> Option<Millis> {
        self.queues.get(source)?.keys().next().map(|(at, _)| *at)
    }

    /// Whether all queues are empty, also of invisible messages.
    pub(super) fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    /// Receives up to `count` messages. Unless they are deleted, they become visible again at `again_at`.
    pub(super) fn receive(
        &mut self,
        source: &FunctionQueue,
        count: u64,
        now: Millis,
        visible_again_at: Millis,
    ) -> (SqsEvent, Vec<u64>) {
        let (mut event, mut numbers) = (SqsEvent::default(), Vec::new());
        let Some(queue) = self.queues.get_mut(source) else { return (event, numbers) };
        while (numbers.len() as u64) < count {
            let Some(entry) = queue.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let (_, number) = *entry.key();
            let mut message = entry.remove();
            message.receives += 1;
            if message.receives > receives_max(self.receives_max, &message.sent) {
                self.locations.remove(&number);
                let QueuedMessage { sent: message, received_at, .. } = message;
                self.dead.push(DeadLetter { source: source.clone(), message, received_at });
                continue;
            }
            message.received_at = now;
            event.records.push(record(number, &message));
            numbers.push(number);
            self.locations.insert(number, (source.clone(), visible_again_at));
            queue.insert((visible_again_at, number), message);
        }
        self.delivered += numbers.len() as u64;
        (event, numbers)
    }

    /// Deletes a message, and returns it.
    pub(super) fn delete(&mut self, number: u64) -> Option<OutgoingMessage> {
        let (source, at) = self.locations.remove(&number)?;
        let message = self.queues.get_mut(&source)?.remove(&(at, number))?;
        Some(message.sent)
    }
}

fn record(number: u64, message: &QueuedMessage) -> SqsMessage {
    let mut record = sent_record(number.to_string(), &message.sent, message.receives);
    let sent_at = ("SentTimestamp".to_owned(), epoch_millis(message.sent_at).to_string());
    let tenant = message.sent.tenant.as_ref();
    let group = tenant.map(|tenant| ("MessageGroupId".to_owned(), tenant.to_string()));
    record.attributes.extend(std::iter::once(sent_at).chain(group));
    if message.sent.queue == Queue::Events {
        record.event_source_arn = Some(EVENTS_QUEUE_ARN.to_owned());
    }
    if message.sent.queue == Queue::Commands {
        record.event_source_arn = Some(COMMANDS_QUEUE_ARN.to_owned());
        record.attributes.insert("SenderId".to_owned(), "AIDAOPERATOR".to_owned());
    }
    record
}

/// The receive limit of a message. A late message may be for a task that no longer exists, so it has a lower limit.
fn receives_max(usual: u32, message: &OutgoingMessage) -> u32 {
    if is_late(message) { usual.min(LATE_RECEIVES_MAX) } else { usual }
}
