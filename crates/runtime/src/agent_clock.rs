//! The alert about an agent whose clock is wrong: one a day for each agent, however many instances see it. They share a record
//! of the instance that publishes it. If that instance dies first, the next one publishes the alert, with the same id.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use steward_core::model::{
    clock_error::ClockError,
    events::{BusEvent, EventData},
    json_text::to_json_value,
    names::AgentName,
    time::later,
};

use crate::ports::{
    Clock, EventBus, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
    SharedSaveOutcome, StateStore, error_chain,
};

/// The time between two alerts about an agent.
const ALERT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The time that an instance has to publish the alert.
const PUBLISH_WITHIN: Duration = Duration::from_secs(60);

/// The alert about an agent, as it is recorded.
#[derive(Serialize, Deserialize)]
struct ClockAlert {
    at: Timestamp,
    published: bool,
}

impl ClockAlert {
    /// Whether no other alert is needed yet.
    fn is_enough(&self, now: Timestamp) -> bool {
        let lasts = if self.published { ALERT_EVERY } else { PUBLISH_WITHIN };
        later(self.at, lasts) > now
    }
}

/// Alerts that the clock of `agent` is wrong, unless that was done within a day. A failure is logged: a later message of the agent
/// shows the error again.
pub async fn alert<P: Ports>(ports: &P, agent: &AgentName, wrong: ClockError) {
    tracing::error!(%agent, reason = %wrong, "clock of agent is wrong");
    if let Err(error) = alert_once(ports, agent, wrong).await {
        tracing::warn!(%agent, error = error_chain(&error), "alert about the clock of an agent not published");
    }
}

async fn alert_once<P: Ports>(
    ports: &P,
    agent: &AgentName,
    wrong: ClockError,
) -> Result<(), PortError> {
    let key = SharedRecordKey { kind: SharedRecordKind::AgentClock, name: agent.to_string() };
    let (stored, at) = (ports.store().shared_record(&key).await?, ports.clock().now());
    let earlier: Option<ClockAlert> =
        stored.as_ref().and_then(|record| serde_json::from_value(record.body.clone()).ok());
    if earlier.is_some_and(|alert| alert.is_enough(at)) {
        return Ok(());
    }
    let revision = stored.map_or(0, |record| record.revision);
    let record = |revision, published| SharedRecord {
        key: key.clone(),
        revision,
        body: to_json_value(&ClockAlert { at, published }),
        expires_at: Some(later(at, ALERT_EVERY * 2)),
    };
    match ports.store().save_shared_record(&record(revision + 1, false)).await? {
        SharedSaveOutcome::Saved => {}
        SharedSaveOutcome::Conflict(_) => return Ok(()),
    }
    let data = EventData::AgentClockWrong { agent: agent.clone(), reason: wrong.to_string() };
    let event = BusEvent::of_day(agent.as_str(), at, data);
    ports.bus().publish(vec![event]).await.into_iter().collect::<Result<(), _>>()?;
    let (SharedSaveOutcome::Saved | SharedSaveOutcome::Conflict(_)) =
        ports.store().save_shared_record(&record(revision + 2, true)).await?;
    Ok(())
}
