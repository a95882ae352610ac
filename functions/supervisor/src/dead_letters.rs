//! Dead letters: when a queue of them holds more than it did, the operator is told.
//!
//! Told first, and then recorded as told: a supervisor that dies in between has the next one tell
//! again.

use serde_json::json;
use steward_core::{
    effects::{Effect, Send, carry_out},
    events::{BusEvent, Happened},
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
    for (queue, messages) in held {
        let record = known.iter().find(|record| record.key.name == queue);
        let told = record.and_then(|record| record.body.get("told")?.as_u64()).unwrap_or_default();
        if messages > told {
            tell(ports, &queue, messages).await?;
        }
        if messages != told {
            let key = SharedKey { kind: KIND, name: queue };
            let revision = record.map_or(0, |record| record.revision) + 1;
            let told = Shared { key, revision, body: json!({ "told": messages }) };
            // Another supervisor was quicker: what it saw is as good.
            let (SharedSaved::Saved | SharedSaved::Conflict(_)) =
                ports.store().save_shared(&told).await?;
        }
    }
    Ok(())
}

async fn tell<P: Ports>(ports: &P, queue: &str, messages: u64) -> Result<(), PortError> {
    let data = Happened::DeadLetterSeen { queue: queue.to_owned(), messages };
    let event = BusEvent::new(queue, ports.clock().now(), data);
    tracing::error!(queue, messages, "dead letters");
    let send = Send { effect: Effect::Publish(event), traceparent: None };
    carry_out(ports, vec![send]).await.into_iter().collect()
}
