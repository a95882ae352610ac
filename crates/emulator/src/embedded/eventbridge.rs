//! EventBridge in the process: `PutEvents`, the delivery to subscribers and queues, and [rules](super::rules).
//!
//! Each accepted entry becomes an event in the standard envelope. A rule belongs to a bus; its targets are queues. As on
//! AWS, any bus name is accepted, and the publisher does not learn whether an event was delivered.

use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::{
    account::{ACCOUNT, REGION},
    response::ServiceResponse,
    rules::{Rules, bus},
    sqs::SqsQueues,
};

/// The most entries in a request; AWS's limit.
const ENTRIES_MAX: usize = 10;

/// The largest total size of a request's entries, in bytes; AWS's limit, and the limit of an SQS target.
const ENTRIES_BYTES_MAX: usize = 256 * 1024;

/// How many events a slow subscriber may fall behind before it misses some.
const BACKLOG_MAX: usize = 1024;

/// A rule that the host adds directly, without a request to EventBridge: matching events go to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRule {
    /// The name of the event bus; `default` is the account's default bus.
    pub bus: String,
    /// The event's exact source, or any.
    pub source: Option<String>,
    /// The event's exact detail-type, or any.
    pub detail_type: Option<String>,
    /// The queue that receives the event's envelope as message body.
    pub queue_url: String,
}

/// The embedded event buses.
pub(super) struct EventBuses {
    /// Rules that the host added.
    host_rules: RwLock<Vec<EventRule>>,
    /// Rules that were created by requests.
    rules: RwLock<Rules>,
    subscribers: broadcast::Sender<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEventsRequest {
    entries: Vec<PutEventsEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEventsEntry {
    source: Option<String>,
    detail_type: Option<String>,
    detail: Option<String>,
    event_bus_name: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    /// Seconds since 1970.
    time: Option<f64>,
}

/// An accepted event with its bus.
struct BusEvent {
    id: String,
    bus: String,
    source: String,
    detail_type: String,
    envelope: Value,
}

/// Why an entry is invalid: EventBridge's error code and message.
type EntryError = (&'static str, &'static str);

impl EventBuses {
    /// Event buses without rules and subscribers.
    pub(super) fn new() -> Self {
        let subscribers = broadcast::Sender::new(BACKLOG_MAX);
        Self { host_rules: RwLock::default(), rules: RwLock::default(), subscribers }
    }

    /// See [`super::EmbeddedAws::subscribe_events`].
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Value> {
        self.subscribers.subscribe()
    }

    /// See [`super::EmbeddedAws::add_rule`].
    pub(super) fn add_rule(&self, rule: EventRule) {
        self.host_rules.write().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    /// Responds to one request.
    pub(super) fn respond(
        &self,
        operation: &str,
        body: &Bytes,
        queues: &SqsQueues,
    ) -> ServiceResponse {
        if operation == "PutEvents" {
            return self.put(body, queues);
        }
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.respond(operation, body).unwrap_or_else(|| {
            ServiceResponse::unknown_operation(&format!("AWSEvents.{operation}"))
        })
    }

    /// Responds to a `PutEvents` request.
    fn put(&self, body: &Bytes, queues: &SqsQueues) -> ServiceResponse {
        let entries = match serde_json::from_slice::<PutEventsRequest>(body) {
            Ok(request) => request.entries,
            Err(error) => {
                return ServiceResponse::client_error(
                    400,
                    "SerializationException",
                    &error.to_string(),
                );
            }
        };
        if entries.is_empty() || entries.len() > ENTRIES_MAX {
            let message = format!(
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: \
                 Member must have length between 1 and {ENTRIES_MAX}"
            );
            return ServiceResponse::client_error(400, "ValidationException", &message);
        }
        if entries.iter().map(PutEventsEntry::size).sum::<usize>() > ENTRIES_BYTES_MAX {
            let message = "Total size of the entries in the request is over the limit.";
            return ServiceResponse::client_error(400, "ValidationException", message);
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
        let response = json!({ "FailedEntryCount": failed, "Entries": results });
        ServiceResponse::ok(response.to_string())
    }

    /// The queues to which an event is delivered.
    fn targets(&self, event: &BusEvent) -> Vec<String> {
        let host_rules = self.host_rules.read().unwrap_or_else(PoisonError::into_inner);
        let matching = host_rules.iter().filter(|rule| rule.matches(event));
        let targets = matching.map(|rule| rule.queue_url.clone());
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        targets.chain(rules.targets(&event.bus, &event.envelope)).collect()
    }

    fn deliver(&self, event: BusEvent, queues: &SqsQueues) {
        let message = event.envelope.to_string();
        for queue_url in self.targets(&event) {
            if let Err(error) = queues.send(&queue_url, message.clone()) {
                tracing::warn!(event_id = event.id, queue_url, error, "event not delivered");
            }
        }
        // An error only means that there are no subscribers.
        let _ = self.subscribers.send(event.envelope);
    }
}

impl EventRule {
    fn matches(&self, event: &BusEvent) -> bool {
        self.bus == event.bus
            && self.source.as_ref().is_none_or(|source| *source == event.source)
            && self.detail_type.as_ref().is_none_or(|wanted| *wanted == event.detail_type)
    }
}

impl PutEventsEntry {
    /// The entry's size in bytes, by the rule in EventBridge's user guide.
    fn size(&self) -> usize {
        let texts = [&self.source, &self.detail_type, &self.detail];
        let texts = texts.into_iter().flatten().chain(&self.resources).map(String::len);
        texts.sum::<usize>() + self.time.map_or(0, |_| 14)
    }

    fn accept(self) -> Result<BusEvent, EntryError> {
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
        Ok(BusEvent { id, bus, source, detail_type, envelope })
    }
}

/// The given time, or the current time, in whole seconds: EventBridge's envelope has no fraction.
fn whole_second(seconds: Option<f64>) -> Timestamp {
    let seconds = seconds.map_or_else(|| Timestamp::now().as_second(), |seconds| seconds as i64);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
