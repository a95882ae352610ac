//! Publishes alerts and lifecycle events on EventBridge. Ten events share a request, also of several tasks.

use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};
use futures_util::{StreamExt, stream};
pub use steward_core::model::events::EVENT_SOURCE;
use steward_core::{
    model::{events::BusEvent, json_text::to_json_text},
    webhook::WebhookEvent,
};
use steward_runtime::ports::{EventBus, PortError};

use crate::errors::{failed, for_each};

/// Entries in one request, by EventBridge's limit.
const ENTRIES_MAX: usize = 10;

/// Bytes of entries in one request, below EventBridge's limit of 256 KiB. A single entry is smaller, because the content
/// of an alert is bounded, and a lifecycle event has only ids.
const BYTES_MAX: usize = 250 * 1024;

/// The number of concurrent requests to EventBridge.
const REQUESTS_AT_ONCE: usize = 16;

/// The event bus.
#[derive(Debug, Clone)]
pub struct EventBridgeBus {
    client: Client,
    bus: String,
}

impl EventBridgeBus {
    /// The event bus with this name.
    #[must_use]
    pub fn new(client: Client, bus: String) -> Self {
        Self { client, bus }
    }

    /// Publishes the event of a webhook.
    ///
    /// # Errors
    /// EventBridge cannot be reached, or refuses the event.
    pub async fn publish_webhook(&self, event: &WebhookEvent) -> Result<(), PortError> {
        let entry = PutEventsRequestEntry::builder()
            .source(&event.source)
            .detail_type(&event.detail_type)
            .detail(&event.detail);
        let entry = entry.event_bus_name(&self.bus).build();
        self.put_entries(vec![entry]).await.into_iter().collect()
    }

    async fn put(&self, events: Vec<(&BusEvent, String)>) -> Vec<Result<(), PortError>> {
        let entries = events.into_iter().map(|(event, detail)| {
            PutEventsRequestEntry::builder()
                .event_bus_name(&self.bus)
                .source(EVENT_SOURCE)
                .detail_type(event.detail_type())
                .detail(detail)
                .build()
        });
        self.put_entries(entries.collect()).await
    }

    async fn put_entries(&self, entries: Vec<PutEventsRequestEntry>) -> Vec<Result<(), PortError>> {
        let operation = || format!("publish on {}", self.bus);
        let count = entries.len();
        let request = self.client.put_events().set_entries(Some(entries));
        match request.send().await {
            Ok(output) => {
                let entries = output.entries();
                let result = |position: usize| match entries.get(position) {
                    Some(entry) if entry.error_code().is_none() => Ok(()),
                    Some(_) | None => {
                        let code = entries.get(position).and_then(|entry| entry.error_code());
                        let source = code.unwrap_or("no response for this entry").to_owned().into();
                        Err(PortError { operation: operation(), retryable: true, source })
                    }
                };
                (0..count).map(result).collect()
            }
            Err(error) => for_each(failed(operation())(error), count).map(Err).collect(),
        }
    }
}

impl EventBus for EventBridgeBus {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        let requests: Vec<_> = batches(&events).into_iter().map(|batch| self.put(batch)).collect();
        let results: Vec<_> = stream::iter(requests).buffered(REQUESTS_AT_ONCE).collect().await;
        results.into_iter().flatten().collect()
    }
}

/// The events with their serialised details, divided into batches for one request each.
fn batches(events: &[BusEvent]) -> Vec<Vec<(&BusEvent, String)>> {
    let (mut batches, mut bytes) = (Vec::<Vec<_>>::new(), 0);
    for event in events {
        let detail = to_json_text(event);
        let size = detail.len() + EVENT_SOURCE.len() + event.detail_type().len();
        let has_room = |batch: &&mut Vec<_>| batch.len() < ENTRIES_MAX && bytes + size <= BYTES_MAX;
        match batches.last_mut().filter(has_room) {
            Some(batch) => batch.push((event, detail)),
            None => {
                bytes = 0;
                batches.push(vec![(event, detail)]);
            }
        }
        bytes += size;
    }
    batches
}
