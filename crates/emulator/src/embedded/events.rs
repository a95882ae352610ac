//! EventBridge in the process: `PutEvents`, delivering to subscribers and to queues, and
//! [rules](super::rules).
//!
//! Each accepted entry becomes an event in the standard envelope. Rules match a bus and, if given,
//! an exact source and detail-type, and have queues as targets. As on AWS, any bus name is
//! accepted, and the publisher does not learn whether an event was delivered.

use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::answer::Answer;
use super::queues::Queues;
use super::rules::{Rules, bus};
use super::{ACCOUNT, REGION};

/// Entries a request may carry; AWS's limit.
const ENTRIES_MAX: usize = 10;

/// The size of a request's entries together, in bytes; AWS's limit, and that of an SQS target.
const ENTRIES_BYTES_MAX: usize = 256 * 1024;

/// Events a slow subscriber may fall behind before it misses some.
const BACKLOG_MAX: usize = 1024;

/// Where events that match go, as the host says it: not through the service's own door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRule {
    /// The event bus's name; `default` for the account's own.
    pub bus: String,
    /// The event's exact source, or any.
    pub source: Option<String>,
    /// The event's exact detail-type, or any.
    pub detail_type: Option<String>,
    /// The queue that gets the event's envelope as message body.
    pub queue_url: String,
}

/// The embedded event buses.
pub(super) struct Events {
    rules: RwLock<Vec<EventRule>>,
    made: RwLock<Rules>,
    subscribers: broadcast::Sender<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEventsRequest {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    source: Option<String>,
    detail_type: Option<String>,
    detail: Option<String>,
    event_bus_name: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    /// Seconds since 1970.
    time: Option<f64>,
}

/// An accepted event and the bus it was put on.
struct Event {
    id: String,
    bus: String,
    source: String,
    detail_type: String,
    envelope: Value,
}

/// Why an entry was refused: EventBridge's code and message.
type Refusal = (&'static str, &'static str);

impl Events {
    /// No rules and no subscribers.
    pub(super) fn new() -> Self {
        let subscribers = broadcast::Sender::new(BACKLOG_MAX);
        Self { rules: RwLock::default(), made: RwLock::default(), subscribers }
    }

    /// See [`super::EmbeddedAws::subscribe_events`].
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Value> {
        self.subscribers.subscribe()
    }

    /// See [`super::EmbeddedAws::add_rule`].
    pub(super) fn add_rule(&self, rule: EventRule) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    /// Answer one request.
    pub(super) fn answer(&self, operation: &str, body: &Bytes, queues: &Queues) -> Answer {
        if operation == "PutEvents" {
            return self.put(body, queues);
        }
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        let answer = made.answer(operation, body);
        answer.unwrap_or_else(|| Answer::unknown_operation(&format!("AWSEvents.{operation}")))
    }

    /// Answer one `PutEvents` request.
    fn put(&self, body: &Bytes, queues: &Queues) -> Answer {
        let entries = match serde_json::from_slice::<PutEventsRequest>(body) {
            Ok(request) => request.entries,
            Err(error) => {
                return Answer::refused(400, "SerializationException", &error.to_string());
            }
        };
        if entries.is_empty() || entries.len() > ENTRIES_MAX {
            let message = format!(
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: \
                 Member must have length between 1 and {ENTRIES_MAX}"
            );
            return Answer::refused(400, "ValidationException", &message);
        }
        if entries.iter().map(Entry::size).sum::<usize>() > ENTRIES_BYTES_MAX {
            let message = "Total size of the entries in the request is over the limit.";
            return Answer::refused(400, "ValidationException", message);
        }
        let mut failed = 0;
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry.accept() {
                Ok(event) => {
                    results.push(json!({ "EventId": event.id }));
                    self.deliver(event, queues);
                }
                Err((code, message)) => {
                    failed += 1;
                    results.push(json!({ "ErrorCode": code, "ErrorMessage": message }));
                }
            }
        }
        let answer = json!({ "FailedEntryCount": failed, "Entries": results });
        Answer::ok(answer.to_string())
    }

    /// The queues that get an event.
    fn targets(&self, event: &Event) -> Vec<String> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let matching = rules.iter().filter(|rule| rule.matches(event));
        let targets = matching.map(|rule| rule.queue_url.clone());
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
        targets.chain(made.targets(&event.bus, &event.source, &event.detail_type)).collect()
    }

    fn deliver(&self, event: Event, queues: &Queues) {
        let message = event.envelope.to_string();
        for queue_url in self.targets(&event) {
            if let Err(error) = queues.send(&queue_url, message.clone()) {
                tracing::warn!(event_id = event.id, queue_url, error, "event not delivered");
            }
        }
        // An error only says that nobody subscribed.
        let _ = self.subscribers.send(event.envelope);
    }
}

impl EventRule {
    fn matches(&self, event: &Event) -> bool {
        self.bus == event.bus
            && self.source.as_ref().is_none_or(|source| *source == event.source)
            && self.detail_type.as_ref().is_none_or(|wanted| *wanted == event.detail_type)
    }
}

impl Entry {
    /// The entry's size in bytes, counted as EventBridge's user guide does.
    fn size(&self) -> usize {
        let texts = [&self.source, &self.detail_type, &self.detail];
        let texts = texts.into_iter().flatten().chain(&self.resources).map(String::len);
        texts.sum::<usize>() + self.time.map_or(0, |_| 14)
    }

    fn accept(self) -> Result<Event, Refusal> {
        let missing = |message| ("InvalidArgument", message);
        let source = self.source.filter(|source| !source.is_empty()).ok_or_else(|| {
            missing("Parameter Source is not valid. Reason: Source is a required argument.")
        })?;
        let detail_type = self.detail_type.filter(|name| !name.is_empty()).ok_or_else(|| {
            missing("Parameter DetailType is not valid. Reason: DetailType is a required argument.")
        })?;
        let detail = self.detail.ok_or_else(|| {
            missing("Parameter Detail is not valid. Reason: Detail is a required argument.")
        })?;
        let detail: Map<String, Value> = serde_json::from_str(&detail)
            .map_err(|_| ("MalformedDetail", "Detail is malformed."))?;
        let bus = bus(self.event_bus_name);
        let id = Uuid::new_v4().to_string();
        let envelope = json!({
            "version": "0",
            "id": id,
            "detail-type": detail_type,
            "source": source,
            "account": ACCOUNT,
            "time": whole_second(self.time).to_string(),
            "region": REGION,
            "resources": self.resources,
            "detail": detail,
        });
        Ok(Event { id, bus, source, detail_type, envelope })
    }
}

/// The given time, or now, without the fraction: EventBridge's envelope has seconds only.
fn whole_second(seconds: Option<f64>) -> Timestamp {
    let seconds = seconds.map_or_else(|| Timestamp::now().as_second(), |seconds| seconds as i64);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
