//! The messages and events of a drill. Every message that a function sends is recorded here, with the time of its delivery
//! by the test's clock, and delivered from here: the queues of the embedded AWS are never read. So a drill can copy, lose and
//! repeat messages, and takes the same course on every machine.

use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::BeforeTransmitInterceptorContextRef},
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use steward_runtime::ports::Clock;

use steward_test_world::WorldClock;

/// How long a message that was not handled is hidden, in milliseconds.
const REDELIVERED_AFTER_MS: i64 = 60_000;

/// The operations that write into tables.
const WRITES: [&str; 5] =
    ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchExecuteStatement"];

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingMessage {
    /// The name of the queue.
    pub(super) queue: String,
    pub(super) body: String,
    /// The time of its delivery, in milliseconds since the epoch.
    pub(super) at: i64,
    /// The number of earlier deliveries.
    #[serde(default)]
    pub(super) failed: u32,
}

/// What the functions sent and published.
#[derive(Debug, Clone)]
pub(super) struct Network {
    state: Arc<Mutex<NetworkState>>,
    clock: WorldClock,
}

#[derive(Debug, Default)]
struct NetworkState {
    pending: Vec<PendingMessage>,
    /// All events of the bus.
    events: Vec<Value>,
    /// All messages that were sent.
    sent: Vec<(String, Value)>,
    /// All requests that write into tables: the operation, and the body.
    writes: Vec<(String, Value)>,
}

impl Network {
    pub(super) fn new(clock: WorldClock) -> Self {
        Self { state: Arc::default(), clock }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Sends a message that no function sent: of a client, an operator, a service.
    pub(super) fn send(&self, queue: &str, body: String) {
        self.record(queue, &body, 0);
    }

    fn record(&self, queue: &str, body: &str, delay_ms: i64) {
        let at = self.now_ms() + delay_ms;
        let mut state = self.state.lock().unwrap();
        state.sent.push((queue.to_owned(), serde_json::from_str(body).unwrap()));
        let (queue, body) = (queue.to_owned(), body.to_owned());
        state.pending.push(PendingMessage { queue, body, at, failed: 0 });
    }

    /// Takes the next message whose time has come.
    pub(super) fn take(&self) -> Option<PendingMessage> {
        let now = self.now_ms();
        let mut state = self.state.lock().unwrap();
        let next = state.pending.iter().position(|message| message.at <= now)?;
        Some(state.pending.remove(next))
    }

    /// Puts a message back that was not handled.
    pub(super) fn put_back(&self, message: PendingMessage) {
        let (at, failed) = (self.now_ms() + REDELIVERED_AFTER_MS, message.failed + 1);
        self.state.lock().unwrap().pending.push(PendingMessage { at, failed, ..message });
    }

    /// All messages that wait.
    pub(super) fn pending(&self) -> Vec<PendingMessage> {
        self.state.lock().unwrap().pending.clone()
    }

    /// Replaces all messages that wait.
    pub(super) fn set_pending(&self, pending: Vec<PendingMessage>) {
        self.state.lock().unwrap().pending = pending;
    }

    /// All events that were published.
    pub(super) fn events(&self) -> Vec<Value> {
        self.state.lock().unwrap().events.clone()
    }

    /// All requests that wrote into tables, with their operations.
    pub(super) fn writes(&self) -> Vec<(String, Value)> {
        self.state.lock().unwrap().writes.clone()
    }

    /// All messages that were sent, with their queues.
    pub(super) fn sent(&self) -> Vec<(String, Value)> {
        self.state.lock().unwrap().sent.clone()
    }
}

impl Intercept for Network {
    fn name(&self) -> &'static str {
        "network of a drill"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let operation = bag.load::<Metadata>().map_or("", |metadata| metadata.name());
        let is_send = matches!(operation, "SendMessage" | "SendMessageBatch" | "PutEvents");
        if !is_send && !WRITES.contains(&operation) {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(context.request().body().bytes().unwrap())?;
        if !is_send {
            self.state.lock().unwrap().writes.push((operation.to_owned(), body));
            return Ok(());
        }
        if operation == "PutEvents" {
            let mut state = self.state.lock().unwrap();
            for entry in body["Entries"].as_array().unwrap() {
                state.events.push(serde_json::from_str(entry["Detail"].as_str().unwrap())?);
            }
            return Ok(());
        }
        let queue = body["QueueUrl"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let one = std::slice::from_ref(&body);
        for entry in body["Entries"].as_array().map_or(one, Vec::as_slice) {
            let delay_ms = entry["DelaySeconds"].as_i64().unwrap_or_default() * 1_000;
            self.record(&queue, entry["MessageBody"].as_str().unwrap(), delay_ms);
        }
        Ok(())
    }
}
