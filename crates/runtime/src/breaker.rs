//! The circuit breaker record in the state store, and the events of its changes. An instance saves a change,
//! publishes its event, and then saves that the event is published.
//!
//! ```text
//! save (open, unpublished) ──► publish breaker_opened ──► save (open)
//!                          ╳ crash: the supervisor publishes the event
//! ```

use jiff::Timestamp;

use crate::ports::{
    Clock, EventBus, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
    SharedSaveOutcome, StateStore, error_chain,
};
use steward_core::{
    breaker::{Breaker, BreakerChange},
    limits,
    model::{events::BusEvent, json_text::to_json_value, names::AgentName, time::earlier},
};

/// A circuit breaker with the revision of its stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBreaker {
    /// The agent whose service the breaker protects.
    pub agent: AgentName,
    /// A number that grows with every save. It is 0 if there is no stored record.
    pub revision: u64,
    /// The breaker.
    pub breaker: Breaker,
}

/// The outcome of saving a breaker. Both variants contain the breaker as it is stored now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakerSaveOutcome {
    /// The breaker is saved.
    Saved(StoredBreaker),
    /// Another instance saved it first.
    Conflict(StoredBreaker),
}

impl StoredBreaker {
    /// The breaker of an agent without a stored record: closed.
    #[must_use]
    pub fn new(agent: AgentName) -> Self {
        Self { agent, revision: 0, breaker: Breaker::default() }
    }

    /// Reads the breaker of `agent`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read<P: Ports>(ports: &P, agent: &AgentName) -> Result<Self, PortError> {
        let shared = ports.store().shared_record(&key(agent)).await?;
        Ok(Self::of(agent.clone(), shared))
    }

    /// Replaces this breaker by `breaker`, on the condition that the stored revision has not changed.
    ///
    /// # Errors
    /// The save failed, or its outcome is unknown.
    pub async fn save<P: Ports>(
        &self,
        ports: &P,
        breaker: Breaker,
    ) -> Result<BreakerSaveOutcome, PortError> {
        let body = to_json_value(&breaker);
        let (key, revision) = (key(&self.agent), self.revision + 1);
        let agent = self.agent.clone();
        let shared = SharedRecord { key, revision, body, expires_at: None };
        Ok(match ports.store().save_shared_record(&shared).await? {
            SharedSaveOutcome::Saved => {
                BreakerSaveOutcome::Saved(Self { agent, revision, breaker })
            }
            SharedSaveOutcome::Conflict(now) => BreakerSaveOutcome::Conflict(Self::of(agent, now)),
        })
    }

    fn of(agent: AgentName, shared: Option<SharedRecord>) -> Self {
        let Some(SharedRecord { revision, body, .. }) = shared else { return Self::new(agent) };
        // An unreadable record must not block calls to a healthy service. The next change replaces it.
        let breaker = serde_json::from_value(body).unwrap_or_else(|error| {
            tracing::warn!(%agent, %error, "stored circuit breaker is unreadable; treated as closed");
            Breaker::default()
        });
        Self { agent, revision, breaker }
    }
}

fn key(agent: &AgentName) -> SharedRecordKey {
    SharedRecordKey { kind: SharedRecordKind::Breaker, name: agent.to_string() }
}

/// Publishes the events of all unpublished changes of `stored` up to `until`, and saves that they are published.
/// Returns the number of published events and the breaker as it is stored then. Logs failures;
/// [`publish_unpublished_changes`] publishes the remaining events.
pub async fn publish_changes<P: Ports>(
    ports: &P,
    stored: StoredBreaker,
    until: Timestamp,
) -> (u64, StoredBreaker) {
    let changes = stored.breaker.unpublished.iter().filter(|change| change.at <= until);
    let changes: Vec<BreakerChange> = changes.cloned().collect();
    if changes.is_empty() {
        return (0, stored);
    }
    let events: Vec<BusEvent> =
        changes.iter().map(|change| change.to_event(&stored.agent)).collect();
    let mut published = Vec::new();
    for (change, result) in changes.into_iter().zip(ports.bus().publish(events).await) {
        match result {
            Ok(()) => published.push(change),
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot publish a circuit breaker event yet"
                );
            }
        }
    }
    let count = u64::try_from(published.len()).unwrap_or(u64::MAX);
    (count, record_published(ports, stored, &published).await)
}

/// Saves that the events of these changes are published. If this save is lost, they are published again: at least
/// once.
async fn record_published<P: Ports>(
    ports: &P,
    mut stored: StoredBreaker,
    published: &[BreakerChange],
) -> StoredBreaker {
    for _ in 0..limits::SAVE_CONFLICTS_MAX {
        let Some(next) = stored.breaker.mark_published(published) else { return stored };
        match stored.save(ports, next).await {
            Ok(BreakerSaveOutcome::Saved(now)) => return now,
            Ok(BreakerSaveOutcome::Conflict(now)) => stored = now,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "circuit breaker event published, but not recorded as published"
                );
                return stored;
            }
        }
    }
    stored
}

/// Publishes the events that instances did not publish because they crashed after the save. The supervisor calls this on
/// each run. Changes younger than [`Timing::pickup_within`](steward_core::model::time::Timing) are skipped, because
/// the instance that made them may still publish them. Returns the number of published events.
///
/// # Errors
/// The breakers could not be read.
pub async fn publish_unpublished_changes<P: Ports>(ports: &P) -> Result<u64, PortError> {
    let timing = ports.timing();
    let grace = timing.pickup_within.saturating_add(timing.clock_skew);
    let until = earlier(ports.clock().now(), grace);
    let mut count = 0;
    for shared in ports.store().shared_records(SharedRecordKind::Breaker).await? {
        let Ok(agent) = shared.key.name.parse() else { continue };
        count += publish_changes(ports, StoredBreaker::of(agent, Some(shared)), until).await.0;
    }
    Ok(count)
}
