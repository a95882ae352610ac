//! Alerts about dead letters: counted and published when the number of messages in a dead-letter queue has grown.
//!
//! The supervisor publishes the alert first, and then records the number. If it dies in between, the next run publishes the
//! alert again.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    engine::effect::Effect,
    model::events::{BusEvent, EventData},
};
use steward_runtime::{
    agents::{self, RegisteredAgent},
    dispatch::{OutgoingEffect, send_effects},
    metrics,
    ports::{
        Channel, Clock, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore, error_chain,
    },
};

const KIND: SharedRecordKind = SharedRecordKind::DeadLetters;

/// Counts the new messages in each watched dead-letter queue, and publishes an alert for each queue with more messages than
/// recorded. A queue that cannot be read does not prevent the alerts of the others.
pub(crate) async fn check<P: Ports>(ports: &P, agents: &[RegisteredAgent]) -> QueueCheck {
    let watched = WatchedQueues::of(ports, agents);
    let (counts, known) =
        join(ports.channel().dead_letters(&watched.queues), ports.store().shared_records(KIND))
            .await;
    let mut complete = true;
    let counts = counts.into_iter().filter_map(|(name, count)| match count {
        Ok(messages) => Some((name, messages)),
        Err(error) => {
            // A queue that does not exist has no dead letters.
            complete &= error.is_no_such_queue();
            if !(error.is_no_such_queue() && watched.of_deleted_agents.contains(&name)) {
                let error = error_chain(&error);
                tracing::warn!(queue = name, error, "dead letters not counted");
            }
            None
        }
    });
    let counts: Vec<_> = counts.collect();
    match known {
        Ok(known) => QueueCheck { complete, alerts: publish_new(ports, counts, &known).await },
        Err(error) => QueueCheck { complete: false, alerts: Err(error) },
    }
}

/// The result of a check of the queues.
pub(crate) struct QueueCheck {
    /// Whether all queues that exist were read.
    pub(crate) complete: bool,
    /// Whether all alerts were published.
    pub(crate) alerts: Result<(), PortError>,
}

/// Publishes and records what has changed in these queues.
async fn publish_new<P: Ports>(
    ports: &P,
    counts: Vec<(String, u64)>,
    known: &[SharedRecord],
) -> Result<(), PortError> {
    let changed = counts.into_iter().filter_map(|count| ChangedQueue::of(count, known));
    let changed: Vec<_> = changed.collect();
    let grown: Vec<_> = changed.iter().filter(|queue| queue.messages > queue.published).collect();
    // CloudWatch charges for a metric while it has data, even zeros.
    let new: u64 = grown.iter().map(|queue| queue.messages - queue.published).sum();
    if new > 0 {
        metrics::dead_letters(new);
    }
    let alerts = grown.iter().map(|queue| queue.alert(ports.clock().now()));
    let mut unpublished = BTreeSet::new();
    let mut failed = Ok(());
    for (queue, sent) in grown.iter().zip(send_effects(ports, alerts.collect()).await) {
        if sent.is_err() {
            unpublished.insert(queue.name.clone());
            failed = failed.and(sent);
        }
    }
    let published = changed.into_iter().filter(|queue| !unpublished.contains(&queue.name));
    let recorded = join_all(published.map(|queue| async move { queue.record(ports).await })).await;
    recorded.into_iter().fold(failed, Result::and)
}

/// The dead-letter queues that the supervisor watches.
struct WatchedQueues {
    /// All of them, by name or URL.
    queues: Vec<String>,
    /// The names of those that need not exist any more.
    of_deleted_agents: BTreeSet<String>,
}

impl WatchedQueues {
    /// The dead-letter queues of the deployment and of these agents.
    fn of<P: Ports>(ports: &P, agents: &[RegisteredAgent]) -> Self {
        let deleted = agents.iter().filter(|agent| agent.is_deleted());
        Self {
            queues: agents::dead_letter_queues(ports.channel(), agents),
            of_deleted_agents: deleted
                .map(|agent| agent.registration.dead_letter_queue.to_string())
                .collect(),
        }
    }
}

/// A dead-letter queue whose number of messages differs from the recorded number.
struct ChangedQueue {
    name: String,
    messages: u64,
    /// The recorded number: that of the last alert, or lower if messages were removed since.
    published: u64,
    /// The revision of the record; 0 if there is none.
    revision: u64,
}

impl ChangedQueue {
    /// `None` if the number has not changed.
    fn of((name, messages): (String, u64), known: &[SharedRecord]) -> Option<Self> {
        let record = known.iter().find(|record| record.key.name == name);
        let published =
            record.and_then(|record| record.body.get("published")?.as_u64()).unwrap_or_default();
        let revision = record.map_or(0, |record| record.revision);
        (messages != published).then_some(Self { name, messages, published, revision })
    }

    fn alert(&self, now: Timestamp) -> OutgoingEffect {
        let Self { name, messages, .. } = self;
        let data = EventData::DeadLetterSeen { queue: name.clone(), messages: *messages };
        tracing::error!(queue = name, messages, "messages in a dead-letter queue");
        let effect = Effect::Publish(BusEvent::new(name, now, data));
        OutgoingEffect { effect, traceparent: None, tenant: None }
    }

    async fn record<P: Ports>(&self, ports: &P) -> Result<(), PortError> {
        let key = SharedRecordKey { kind: KIND, name: self.name.clone() };
        let revision = self.revision + 1;
        let body = json!({ "published": self.messages });
        let record = SharedRecord { key, revision, body, expires_at: None };
        // A conflict means that another supervisor recorded a number, which is as recent.
        let (SharedSaveOutcome::Saved | SharedSaveOutcome::Conflict(_)) =
            ports.store().save_shared_record(&record).await?;
        Ok(())
    }
}
