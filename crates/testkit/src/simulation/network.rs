//! The queues between the roles, as SQS promises them: at least once, in any order. A message that was
//! received is invisible for a while, and comes back with a higher receive count unless it was
//! deleted; received too often, it is a dead letter.

use std::collections::BTreeMap;

use aws_lambda_events::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use steward_core::model::names::AgentName;
use steward_runtime::ports::Outgoing;

use super::{
    late,
    plan::{Millis, Role},
};

/// How often a message is received before it is a dead letter, unless said. No storm lasts that long.
const RECEIVES_MAX: u32 = 100;

/// The same, of a message that comes late.
const LATE_RECEIVES_MAX: u32 = 3;

/// A queue that functions are fed from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feed {
    Submissions,
    Scheduler,
    Agent(AgentName),
}

impl Feed {
    /// The queue that feeds this role; the supervisor has none.
    pub(super) fn of(role: &Role) -> Option<Self> {
        match role {
            Role::Submission => Some(Self::Submissions),
            Role::Scheduler => Some(Self::Scheduler),
            Role::Agent(name) => Some(Self::Agent(name.clone())),
            Role::Supervisor => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Message {
    sent: Outgoing,
    receives: u32,
}

/// By when they can be seen, then by number.
type Waiting = BTreeMap<(Millis, u64), Message>;

/// All queues.
#[derive(Debug, Default)]
pub(super) struct Network {
    queues: BTreeMap<Feed, Waiting>,
    /// Where each message is, by its number.
    places: BTreeMap<u64, (Feed, Millis)>,
    last: u64,
    pub(super) delivered: u64,
    /// How often a message is received before it is a dead letter.
    receives_max: u32,
    /// What was received too often.
    pub(super) dead: Vec<(Feed, Outgoing)>,
}

impl Network {
    pub(super) fn new(receives_max: Option<u32>) -> Self {
        Self { receives_max: receives_max.unwrap_or(RECEIVES_MAX), ..Self::default() }
    }

    /// A message that can be received from `at` on.
    pub(super) fn put(&mut self, feed: Feed, at: Millis, message: &Outgoing) {
        self.last += 1;
        self.places.insert(self.last, (feed.clone(), at));
        let message = Message { sent: message.clone(), receives: 0 };
        self.queues.entry(feed).or_default().insert((at, self.last), message);
    }

    /// When the next message of a queue can be seen.
    pub(super) fn next(&self, feed: &Feed) -> Option<Millis> {
        self.queues.get(feed)?.keys().next().map(|(at, _)| *at)
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Receives up to `count` messages; unless deleted they come back at `again_at`.
    pub(super) fn receive(
        &mut self,
        feed: &Feed,
        count: u64,
        now: Millis,
        again_at: Millis,
    ) -> (SqsEvent, Vec<u64>) {
        let (mut event, mut numbers) = (SqsEvent::default(), Vec::new());
        let Some(queue) = self.queues.get_mut(feed) else { return (event, numbers) };
        while (numbers.len() as u64) < count {
            let Some(entry) = queue.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let (_, number) = *entry.key();
            let mut message = entry.remove();
            message.receives += 1;
            if message.receives > receives_max(self.receives_max, &message.sent) {
                self.places.remove(&number);
                self.dead.push((feed.clone(), message.sent));
                continue;
            }
            event.records.push(record(number, &message));
            numbers.push(number);
            self.places.insert(number, (feed.clone(), again_at));
            queue.insert((again_at, number), message);
        }
        self.delivered += numbers.len() as u64;
        (event, numbers)
    }

    /// The message is done.
    pub(super) fn delete(&mut self, number: u64) {
        let Some((feed, at)) = self.places.remove(&number) else { return };
        if let Some(queue) = self.queues.get_mut(&feed) {
            queue.remove(&(at, number));
        }
    }
}

fn record(number: u64, message: &Message) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.message_id = Some(number.to_string());
    record.body = Some(message.sent.body.clone());
    let receives = ("ApproximateReceiveCount".to_owned(), message.receives.to_string());
    record.attributes = std::iter::once(receives).collect();
    let attribute = |(name, value): &(&'static str, String)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = Some(value.clone());
        attribute.data_type = Some("String".to_owned());
        ((*name).to_owned(), attribute)
    };
    record.message_attributes = message.sent.attributes.iter().map(attribute).collect();
    record
}

/// What comes late may be about a task that is gone, so that it is soon a dead letter again.
fn receives_max(usual: u32, message: &Outgoing) -> u32 {
    if late::is_late(message) { usual.min(LATE_RECEIVES_MAX) } else { usual }
}
