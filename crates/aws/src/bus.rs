//! Alerts and lifecycle events on EventBridge, ten at a time.

use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};
use futures_util::{StreamExt, stream};
use steward_core::model::events::BusEvent;
pub use steward_core::model::events::SOURCE;
use steward_runtime::ports::{EventBus, PortError};

use crate::errors::{failed, for_each};

/// Entries in one call, by EventBridge's limit.
const ENTRIES_MAX: usize = 10;

/// Bytes of entries in one call, below EventBridge's limit of 256 KiB. One entry is smaller: what an alert
/// names is bounded.
const BYTES_MAX: usize = 250 * 1024;

/// Calls under way at once.
const CALLS_AT_ONCE: usize = 16;

/// The event bus.
#[derive(Debug, Clone)]
pub struct EventBridgeBus {
    client: Client,
    bus: String,
}

impl EventBridgeBus {
    /// The bus of this name.
    #[must_use]
    pub fn new(client: Client, bus: String) -> Self {
        Self { client, bus }
    }

    async fn put(&self, events: Vec<(&BusEvent, String)>) -> Vec<Result<(), PortError>> {
        let operation = || format!("publish on {}", self.bus);
        let count = events.len();
        let entries = events.into_iter().map(|(event, detail)| {
            PutEventsRequestEntry::builder()
                .event_bus_name(&self.bus)
                .source(SOURCE)
                .detail_type(event.data.detail_type())
                .detail(detail)
                .build()
        });
        let request = self.client.put_events().set_entries(Some(entries.collect()));
        match request.send().await {
            Ok(answer) => {
                let entries = answer.entries();
                let each = |place: usize| match entries.get(place) {
                    Some(entry) if entry.error_code().is_none() => Ok(()),
                    Some(_) | None => {
                        let code = entries.get(place).and_then(|entry| entry.error_code());
                        let source = code.unwrap_or("no answer for this entry").to_owned().into();
                        Err(PortError { operation: operation(), retryable: true, source })
                    }
                };
                (0..count).map(each).collect()
            }
            Err(error) => for_each(&failed(operation())(error), count).map(Err).collect(),
        }
    }
}

impl EventBus for EventBridgeBus {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        let calls: Vec<_> = calls(&events).into_iter().map(|events| self.put(events)).collect();
        let answers: Vec<_> = stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await;
        answers.into_iter().flatten().collect()
    }
}

/// The events with their details, divided into calls.
fn calls(events: &[BusEvent]) -> Vec<Vec<(&BusEvent, String)>> {
    let (mut calls, mut bytes) = (Vec::<Vec<_>>::new(), 0);
    for event in events {
        // Our own events always serialise: texts for keys, and no type that can refuse.
        let detail = serde_json::to_string(event).unwrap_or_default();
        let size = detail.len() + SOURCE.len() + event.data.detail_type().len();
        match calls.last_mut().filter(|call| call.len() < ENTRIES_MAX && bytes + size <= BYTES_MAX)
        {
            Some(call) => call.push((event, detail)),
            None => {
                bytes = 0;
                calls.push(vec![(event, detail)]);
            }
        }
        bytes += size;
    }
    calls
}
