//! The record of an agent's rate limit in the state store.

use steward_core::{
    model::{json_text::to_json_value, names::AgentName},
    rate::RateRecord,
};

use crate::ports::{
    PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore,
};

/// The record of a rate limit with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRate {
    /// The agent whose calls are limited.
    pub agent: AgentName,
    /// A number that grows with every save. It is 0 if there is no stored record.
    pub revision: u64,
    /// The record.
    pub record: RateRecord,
}

/// The outcome of saving a record. Both variants contain the record as it is stored now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RateSaveOutcome {
    /// The record is saved.
    Saved(StoredRate),
    /// Another instance saved it first.
    Conflict(StoredRate),
}

impl StoredRate {
    /// The record of an agent that has made no calls.
    #[must_use]
    pub fn new(agent: AgentName) -> Self {
        Self { agent, revision: 0, record: RateRecord::default() }
    }

    /// Reads the record of `agent`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read<P: Ports>(ports: &P, agent: &AgentName) -> Result<Self, PortError> {
        let shared = ports.store().shared_record(&key(agent)).await?;
        Ok(Self::of(agent.clone(), shared))
    }

    /// Replaces this record by `record`, on the condition that the stored revision has not changed.
    ///
    /// # Errors
    /// The save failed, or its outcome is unknown.
    pub async fn save<P: Ports>(
        &self,
        ports: &P,
        record: RateRecord,
    ) -> Result<RateSaveOutcome, PortError> {
        let body = to_json_value(&record);
        let (key, revision) = (key(&self.agent), self.revision + 1);
        let agent = self.agent.clone();
        let shared = SharedRecord { key, revision, body, expires_at: None };
        Ok(match ports.store().save_shared_record(&shared).await? {
            SharedSaveOutcome::Saved => RateSaveOutcome::Saved(Self { agent, revision, record }),
            SharedSaveOutcome::Conflict(now) => RateSaveOutcome::Conflict(Self::of(agent, now)),
        })
    }

    fn of(agent: AgentName, shared: Option<SharedRecord>) -> Self {
        let Some(SharedRecord { revision, body, .. }) = shared else { return Self::new(agent) };
        // An unreadable record must not stop the agent for ever. The next lease replaces it.
        let record = serde_json::from_value(body).unwrap_or_else(|error| {
            tracing::warn!(%agent, %error, "stored rate limit is unreadable; treated as unused");
            RateRecord::default()
        });
        Self { agent, revision, record }
    }
}

fn key(agent: &AgentName) -> SharedRecordKey {
    SharedRecordKey { kind: SharedRecordKind::Rate, name: agent.to_string() }
}
