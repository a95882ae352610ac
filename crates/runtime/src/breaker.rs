//! The breaker in the state store, and its alerts: saved first, told second, then noted as told.
//!
//! ```text
//! save (open, untold) ──► publish breaker_opened ──► save (open)
//!                     ╳ dies: the supervisor publishes what stays untold
//! ```

use jiff::Timestamp;

use crate::ports::{
    Clock, EventBus, PortError, Ports, Shared, SharedKey, SharedKind, SharedSaved, StateStore,
    chain,
};
use steward_core::breaker::{Breaker, Turn};
use steward_core::{
    limits,
    model::{events::BusEvent, names::AgentName, time::earlier},
};

/// A breaker as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The agent whose service it guards.
    pub agent: AgentName,
    /// Grows with every save; none has been made if it is 0.
    pub revision: u64,
    /// The breaker.
    pub breaker: Breaker,
}

/// What came of a save; either way, the breaker as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredSaved {
    /// It is saved.
    Saved(Stored),
    /// Another was quicker.
    Conflict(Stored),
}

impl Stored {
    /// The breaker of an agent that never had one: closed.
    #[must_use]
    pub fn new(agent: AgentName) -> Self {
        Self { agent, revision: 0, breaker: Breaker::default() }
    }

    /// Reads the breaker of `agent`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read<P: Ports>(ports: &P, agent: &AgentName) -> Result<Self, PortError> {
        let shared = ports.store().shared(&key(agent)).await?;
        Ok(Self::of(agent.clone(), shared))
    }

    /// Saves `breaker` in the place of this one, if this is what is stored still.
    ///
    /// # Errors
    /// The save failed, or may have.
    pub async fn save<P: Ports>(
        &self,
        ports: &P,
        breaker: Breaker,
    ) -> Result<StoredSaved, PortError> {
        // Our own record always serialises.
        let body = serde_json::to_value(&breaker).unwrap_or_default();
        let (key, revision) = (key(&self.agent), self.revision + 1);
        let agent = self.agent.clone();
        let shared = Shared { key, revision, body, expires_at: None };
        Ok(match ports.store().save_shared(&shared).await? {
            SharedSaved::Saved => StoredSaved::Saved(Self { agent, revision, breaker }),
            SharedSaved::Conflict(now) => StoredSaved::Conflict(Self::of(agent, now)),
        })
    }

    fn of(agent: AgentName, shared: Option<Shared>) -> Self {
        let Some(Shared { revision, body, .. }) = shared else { return Self::new(agent) };
        // One that cannot be read must not keep a healthy service from being called: the next turn
        // writes it anew.
        let breaker = serde_json::from_value(body).unwrap_or_else(|error| {
            tracing::warn!(%agent, %error, "stored breaker is not readable; taken as closed");
            Breaker::default()
        });
        Self { agent, revision, breaker }
    }
}

fn key(agent: &AgentName) -> SharedKey {
    SharedKey { kind: SharedKind::Breaker, name: agent.to_string() }
}

/// Publishes every turn of `stored` that is untold and not after `until`, then notes that it is told.
/// Returns how many were told, and the breaker as it is then. What fails is logged, and left to
/// [`tell_untold`].
pub async fn tell<P: Ports>(ports: &P, stored: Stored, until: Timestamp) -> (u64, Stored) {
    let turns = stored.breaker.untold.iter().filter(|turn| turn.at <= until);
    let turns: Vec<Turn> = turns.cloned().collect();
    if turns.is_empty() {
        return (0, stored);
    }
    let events: Vec<BusEvent> = turns.iter().map(|turn| turn.event(&stored.agent)).collect();
    let mut told = Vec::new();
    for (turn, published) in turns.into_iter().zip(ports.bus().publish(events).await) {
        match published {
            Ok(()) => told.push(turn),
            Err(error) => tracing::warn!(error = chain(&error), "a breaker's turn is not told yet"),
        }
    }
    let count = u64::try_from(told.len()).unwrap_or(u64::MAX);
    (count, note_told(ports, stored, &told).await)
}

/// If this is lost, it is told again: at least once.
async fn note_told<P: Ports>(ports: &P, mut stored: Stored, told: &[Turn]) -> Stored {
    for _ in 0..limits::CONFLICTS_MAX {
        let Some(next) = stored.breaker.told(told) else { return stored };
        match stored.save(ports, next).await {
            Ok(StoredSaved::Saved(now)) => return now,
            Ok(StoredSaved::Conflict(now)) => stored = now,
            Err(error) => {
                tracing::warn!(error = chain(&error), "told, but not recorded as told");
                return stored;
            }
        }
    }
    stored
}

/// Publishes what instances left untold because they died after the save: for the supervisor, on each
/// of its runs. Turns younger than [`Timing::pickup_within`](steward_core::model::time::Timing) are left to the
/// instance that made them. Returns how many were told.
///
/// # Errors
/// The breakers could not be read.
pub async fn tell_untold<P: Ports>(ports: &P) -> Result<u64, PortError> {
    let timing = ports.timing();
    let patience = timing.pickup_within.saturating_add(timing.clock_skew);
    let until = earlier(ports.clock().now(), patience);
    let mut count = 0;
    for shared in ports.store().all_shared(SharedKind::Breaker).await? {
        let Ok(agent) = shared.key.name.parse() else { continue };
        count += tell(ports, Stored::of(agent, Some(shared)), until).await.0;
    }
    Ok(count)
}
