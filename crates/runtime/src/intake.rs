//! The record of intake control in the state store, which all functions share: see [`steward_core::intake`]. The
//! scheduler and the agents lower a level when they receive messages that waited for too long; submission reads it.
//!
//! The record is advice. If it cannot be read or saved, or if another instance saves it first, nothing is retried: the
//! next batch of messages shows the same wait again.

use jiff::Timestamp;
use steward_core::{
    intake::{BatchWait, Intake},
    model::{
        json_text::to_json_value,
        names::{AgentName, Tenant},
    },
};

use crate::ports::{
    Clock, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore, error_chain,
};

fn key() -> SharedRecordKey {
    SharedRecordKey { kind: SharedRecordKind::Intake, name: "levels".to_owned() }
}

/// Reads the levels of all queues.
///
/// # Errors
/// The store cannot be read.
pub async fn read_intake<P: Ports>(ports: &P) -> Result<Intake, PortError> {
    Ok(of(ports.store().shared_record(&key()).await?.as_ref()))
}

/// Reports how long a batch of messages of a queue waited, and lowers the level of the queue if that is too long. `agent`
/// is `None` for the scheduler's queue. Reads and writes nothing if the wait is short.
pub async fn report_wait<P: Ports>(ports: &P, agent: Option<&AgentName>, wait: &BatchWait) {
    let now = ports.clock().now();
    // Without a record, the same wait would set a level: otherwise no record matters.
    if Intake::default().after_wait(agent, wait, now).is_none() {
        return;
    }
    match lower_level(ports, agent, wait, now).await {
        Ok(Some(SharedSaveOutcome::Saved)) => {
            let agent = agent.map(AgentName::as_str);
            let (tenant, used) = (wait.tenant.as_ref().map(Tenant::as_str), wait.used);
            tracing::info!(
                agent,
                tenant,
                used,
                "messages waited for too long; fewer new tasks start"
            );
        }
        Ok(Some(SharedSaveOutcome::Conflict(_)) | None) => {}
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "intake level not read or saved");
        }
    }
}

async fn lower_level<P: Ports>(
    ports: &P,
    agent: Option<&AgentName>,
    wait: &BatchWait,
    now: Timestamp,
) -> Result<Option<SharedSaveOutcome>, PortError> {
    let stored = ports.store().shared_record(&key()).await?;
    let Some(next) = of(stored.as_ref()).after_wait(agent, wait, now) else { return Ok(None) };
    let revision = stored.map_or(0, |stored| stored.revision) + 1;
    let body = to_json_value(&next);
    let record = SharedRecord { key: key(), revision, body, expires_at: None };
    ports.store().save_shared_record(&record).await.map(Some)
}

fn of(stored: Option<&SharedRecord>) -> Intake {
    let Some(SharedRecord { body, .. }) = stored else { return Intake::default() };
    // An unreadable record must not stop new tasks. The next change replaces it.
    serde_json::from_value(body.clone()).unwrap_or_else(|error| {
        tracing::warn!(%error, "stored intake levels are unreadable; all new tasks start");
        Intake::default()
    })
}
