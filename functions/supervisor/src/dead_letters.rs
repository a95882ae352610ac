//! Dead letters: when a queue of them holds more than it did, the operator is told.
//!
//! Told first, and then recorded as told: a supervisor that dies in between has the next one tell
//! again.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    engine::effect::Effect,
    model::events::{BusEvent, Happened},
};
use steward_runtime::{
    dispatch::{Send, carry_out},
    ports::{
        Channel, Clock, PortError, Ports, Shared, SharedKey, SharedKind, SharedSaved, StateStore,
    },
};

const KIND: SharedKind = SharedKind::DeadLetters;

/// Tells of each queue that holds more dead letters than were told of.
pub(crate) async fn tell_new<P: Ports>(ports: &P) -> Result<(), PortError> {
    let held = ports.channel().dead_letters().await?;
    if held.is_empty() {
        return Ok(());
    }
    let known = ports.store().all_shared(KIND).await?;
    let changed: Vec<_> = held.into_iter().filter_map(|held| Seen::of(held, &known)).collect();
    let more: Vec<_> = changed.iter().filter(|seen| seen.messages > seen.told).collect();
    let alerts = more.iter().map(|seen| seen.alert(ports.clock().now()));
    let mut untold = BTreeSet::new();
    let mut failed = Ok(());
    for (seen, sent) in more.iter().zip(carry_out(ports, alerts.collect()).await) {
        if sent.is_err() {
            untold.insert(seen.queue.clone());
            failed = failed.and(sent);
        }
    }
    let told = changed.into_iter().filter(|seen| !untold.contains(&seen.queue));
    let recorded = join_all(told.map(|seen| async move { seen.record(ports).await })).await;
    recorded.into_iter().fold(failed, Result::and)
}

/// A queue of dead letters that holds another number of them than was told.
struct Seen {
    queue: String,
    messages: u64,
    told: u64,
    revision: u64,
}

impl Seen {
    fn of((queue, messages): (String, u64), known: &[Shared]) -> Option<Self> {
        let record = known.iter().find(|record| record.key.name == queue);
        let told = record.and_then(|record| record.body.get("told")?.as_u64()).unwrap_or_default();
        let revision = record.map_or(0, |record| record.revision);
        (messages != told).then_some(Self { queue, messages, told, revision })
    }

    fn alert(&self, now: Timestamp) -> Send {
        let Self { queue, messages, .. } = self;
        let data = Happened::DeadLetterSeen { queue: queue.clone(), messages: *messages };
        tracing::error!(queue, messages, "dead letters");
        let effect = Effect::Publish(BusEvent::new(queue, now, data));
        Send { effect, traceparent: None }
    }

    async fn record<P: Ports>(&self, ports: &P) -> Result<(), PortError> {
        let key = SharedKey { kind: KIND, name: self.queue.clone() };
        let revision = self.revision + 1;
        let body = json!({ "told": self.messages });
        let told = Shared { key, revision, body, expires_at: None };
        // Another supervisor was quicker: what it saw is as good.
        let (SharedSaved::Saved | SharedSaved::Conflict(_)) =
            ports.store().save_shared(&told).await?;
        Ok(())
    }
}
