//! What the kit observed of an agent, in order.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use crate::case::Case;

/// An observation, and when it was made.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The time by the kit's clock.
    pub at: Timestamp,
    /// What was observed.
    pub event: ObservedEvent,
}

/// What the kit can observe.
#[derive(Debug, Clone)]
pub enum ObservedEvent {
    /// The kit sent a message of a case. Unreadable messages are not recorded.
    Requested(SentRequest),
    /// A message arrived in the queue of replies.
    Replied(ReceivedReply),
    /// The agent asked its queue for messages for the first time.
    Polled,
    /// SQS delivered a message to the agent.
    Delivered {
        /// The body.
        body: String,
    },
    /// The agent called the service.
    Called(ObservedServiceCall),
    /// A call ended: the service responded, or the agent closed the connection.
    CallEnded {
        /// The header `Idempotency-Key`.
        key: Option<String>,
        /// How long the call took.
        lasted: Duration,
    },
    /// SQS accepted a message of the agent.
    Sent {
        /// The body.
        body: String,
    },
    /// The agent deleted a message.
    Deleted {
        /// The body of the deleted message.
        body: String,
    },
}

/// A request that the kit sent.
#[derive(Debug, Clone)]
pub struct SentRequest {
    /// Its case.
    pub case: Case,
    /// The message.
    pub message: Value,
    /// The message attribute `traceparent`.
    pub traceparent: String,
}

/// A message in the queue of replies.
#[derive(Debug, Clone)]
pub struct ReceivedReply {
    /// The body.
    pub body: String,
    /// The message attribute `traceparent`.
    pub traceparent: Option<String>,
}

/// A call of the service.
#[derive(Debug, Clone)]
pub struct ObservedServiceCall {
    /// The header `Idempotency-Key`.
    pub key: Option<String>,
    /// Whether it has a signature of AWS.
    pub is_signed: bool,
}

/// All observations of a check.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// In order.
    pub observations: Vec<Observation>,
    /// What the kit was able to observe.
    pub capabilities: Capabilities,
    /// What the agent wrote to its standard output and error.
    pub log: Option<String>,
    /// What the agent's delay added to the time limits of the cases.
    pub slack: Duration,
    /// Why a case was not tried, although the kit can.
    pub skipped: Vec<(Case, &'static str)>,
}

/// What the kit is able to observe.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capabilities {
    /// The agent calls the service that the kit plays.
    pub plays_service: bool,
    /// The agent's requests to SQS pass the kit.
    pub sees_sqs: bool,
}

/// Records observations, and lets others wait for them. Clones share the record.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    observations: Arc<Mutex<Vec<Observation>>>,
    changed: Arc<Notify>,
}

impl Recorder {
    /// Records an observation that is made now.
    pub fn record(&self, event: ObservedEvent) {
        self.lock().push(Observation { at: Timestamp::now(), event });
        self.changed.notify_waiters();
    }

    /// All observations up to now.
    #[must_use]
    pub fn observations(&self) -> Vec<Observation> {
        self.lock().clone()
    }

    /// Whether an event with this property was observed.
    pub fn any(&self, property: impl Fn(&ObservedEvent) -> bool) -> bool {
        self.lock().iter().any(|observation| property(&observation.event))
    }

    /// Waits until the observations satisfy a condition, at most for `within`. Returns whether they do.
    pub async fn wait_for(
        &self,
        within: Duration,
        condition: impl Fn(&[Observation]) -> bool,
    ) -> bool {
        let end = Instant::now() + within;
        loop {
            // From here on, the notification covers every change.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&self.lock()) {
                return true;
            }
            if tokio::time::timeout_at(end, changed).await.is_err() {
                return condition(&self.lock());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Observation>> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often SQS delivered a request.
#[must_use]
pub fn delivery_count(observations: &[Observation], request: &SentRequest) -> usize {
    let delivered = observations.iter().filter(|observation| {
        matches!(&observation.event, ObservedEvent::Delivered { body } if is_message(body, request))
    });
    delivered.count()
}

/// The requests of which the agent has not deleted each message, although SQS accepted a reply to them or the agent may be
/// silent.
#[must_use]
pub fn undeleted(observations: &[Observation]) -> Vec<&SentRequest> {
    let (mut requests, mut replies, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    for observation in observations {
        match &observation.event {
            ObservedEvent::Requested(request) => requests.push(request),
            ObservedEvent::Sent { body } => replies.push(parsed(body)),
            ObservedEvent::Deleted { body } => deleted.push(body),
            ObservedEvent::Polled
            | ObservedEvent::Delivered { .. }
            | ObservedEvent::Replied(_)
            | ObservedEvent::Called(_)
            | ObservedEvent::CallEnded { .. } => {}
        }
    }
    let messages: Vec<_> = requests.iter().map(|request| &request.message).collect();
    requests.retain(|request| {
        let is_replied = replies.iter().any(|reply| is_same_attempt(reply, &request.message));
        let sent = messages.iter().filter(|message| is_same_attempt(message, &request.message));
        let deletions = deleted.iter().filter(|body| is_message(body, request)).count();
        (is_replied || !request.case.needs_reply()) && deletions < sent.count()
    });
    requests
}

/// Whether a message in the agent's queue is this request.
fn is_message(body: &str, request: &SentRequest) -> bool {
    is_same_attempt(&parsed(body), &request.message)
}

fn is_same_attempt(message: &Value, other: &Value) -> bool {
    let has_same = |name: &&str| message.get(name) == other.get(name);
    message.get("task_id").is_some() && ["task_id", "attempt"].iter().all(has_same)
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_default()
}
