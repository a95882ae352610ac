//! The registry of agents in the state store. The name of an agent is its address: the scheduler derives the queue from
//! it and reads no registration. The registry tells the supervisor which dead-letter queues to watch, and people which
//! agents there are.
//!
//! ```text
//! registrar, or `steward local` ──► #agent       kind, queues, limits, owner ──► supervisor, console, `steward agents`
//! scheduler                     ──► #agent-seen  the last reply              ──► console, `steward agents`
//! ```

use std::time::Duration;

use jiff::Timestamp;
use steward_core::{
    limits,
    model::{
        json_text::to_json_value,
        names::{AgentName, StackId},
        registration::{
            self, AgentRegistration, AgentSighting, RegistrationChange, RegistrationOwner,
        },
        time::later,
    },
};

use crate::ports::{
    Channel, PortError, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore,
};

const KIND: SharedRecordKind = SharedRecordKind::Agent;

/// An agent with its registration.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredAgent {
    /// The name.
    pub name: AgentName,
    /// What it registered.
    pub registration: AgentRegistration,
}

impl RegisteredAgent {
    /// Whether its stack was deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.registration.deleted_at.is_some()
    }
}

/// The outcome of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// The agent is registered.
    Registered,
    /// Another stack has registered an agent of this name. Nothing has changed.
    OwnedBy(StackId),
}

/// All registered agents, ordered by name, including deleted ones for as long as their records are kept. Logs and omits
/// registrations that it cannot read.
///
/// # Errors
/// The store cannot be read.
pub async fn registered<S: StateStore>(store: &S) -> Result<Vec<RegisteredAgent>, PortError> {
    let records = store.shared_records(KIND).await?;
    let mut agents: Vec<_> = records.iter().filter_map(read).collect();
    agents.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(agents)
}

/// The registration of one agent.
///
/// # Errors
/// The store cannot be read.
pub async fn registration<S: StateStore>(
    store: &S,
    name: &AgentName,
) -> Result<Option<AgentRegistration>, PortError> {
    let record = store.shared_record(&key(name)).await?;
    Ok(record.as_ref().and_then(read).map(|agent| agent.registration))
}

/// Registers an agent, or replaces its registration if it has the same owner or the agent was deleted.
///
/// # Errors
/// The store cannot be read or written, other instances changed the registration again and again, or it is unreadable.
pub async fn register<S: StateStore>(
    store: &S,
    name: &AgentName,
    new: &AgentRegistration,
) -> Result<RegisterOutcome, PortError> {
    let decide = |stored: Option<&AgentRegistration>| registration::register(stored, new.clone());
    match change(store, name, decide).await? {
        Some(RegistrationChange::Store(_) | RegistrationChange::Keep) => {
            Ok(RegisterOutcome::Registered)
        }
        Some(RegistrationChange::OwnedBy(owner)) => Ok(RegisterOutcome::OwnedBy(owner)),
        // It may be that of another stack, written by a newer release.
        None => {
            let source = format!(
                "the stored registration is unreadable (documents table, task_id `#agent`, document `{name}`): update \
                 Steward, which may be older than the registration, or delete the item"
            );
            let source = source.into();
            Err(PortError { operation: format!("register agent {name}"), retryable: false, source })
        }
    }
}

/// Marks an agent as deleted if `owner` registered it. Returns whether it did. The registration is kept for
/// [`DELETED_REGISTRATION_RETENTION`](limits::DELETED_REGISTRATION_RETENTION), because tasks may still name the agent.
///
/// # Errors
/// As for [`register`].
pub async fn deregister<S: StateStore>(
    store: &S,
    name: &AgentName,
    owner: &RegistrationOwner,
    now: Timestamp,
) -> Result<bool, PortError> {
    let decide = |stored: Option<&AgentRegistration>| registration::deregister(stored, owner, now);
    let change = change(store, name, decide).await?;
    Ok(matches!(change, Some(RegistrationChange::Store(_))))
}

/// Records the last reply of an agent, if the stored one is older than `max_age`. If another instance saves a record first,
/// nothing is retried: its reply is as recent.
///
/// # Errors
/// The store cannot be read or written.
pub async fn record_sighting<S: StateStore>(
    store: &S,
    name: &AgentName,
    sighting: &AgentSighting,
    max_age: Duration,
) -> Result<(), PortError> {
    let key = SharedRecordKey { kind: SharedRecordKind::AgentSeen, name: name.to_string() };
    let stored = store.shared_record(&key).await?;
    let earlier: Option<AgentSighting> =
        stored.as_ref().and_then(|record| serde_json::from_value(record.body.clone()).ok());
    if earlier.is_some_and(|earlier| later(earlier.at, max_age) > sighting.at) {
        return Ok(());
    }
    let record = SharedRecord {
        key,
        revision: stored.map_or(0, |record| record.revision) + 1,
        body: to_json_value(sighting),
        expires_at: Some(later(sighting.at, limits::DELETED_REGISTRATION_RETENTION)),
    };
    let (SharedSaveOutcome::Saved | SharedSaveOutcome::Conflict(_)) =
        store.save_shared_record(&record).await?;
    Ok(())
}

/// The dead-letter queues of the deployment, by name or URL: those of the configuration and those of `agents`, each
/// once. Deleted agents are included, because their queues may exist for longer than their registrations.
#[must_use]
pub fn dead_letter_queues<C: Channel>(channel: &C, agents: &[RegisteredAgent]) -> Vec<String> {
    let mut queues = channel.configured_dead_letter_queues();
    for agent in agents {
        let queue = agent.registration.dead_letter_queue.as_str();
        let is_known = |known: &String| known.rsplit('/').next() == Some(queue);
        if !queues.iter().any(is_known) {
            queues.push(queue.to_owned());
        }
    }
    queues
}

/// Saves what `decide` makes of the stored registration. Decides again if another instance was faster. `None` if the stored
/// registration is unreadable; it stays.
async fn change<S: StateStore>(
    store: &S,
    name: &AgentName,
    decide: impl Fn(Option<&AgentRegistration>) -> RegistrationChange,
) -> Result<Option<RegistrationChange>, PortError> {
    let key = key(name);
    let mut record = store.shared_record(&key).await?;
    for _ in 0..limits::SAVE_CONFLICTS_MAX {
        let stored = record.as_ref().map(read);
        if matches!(stored, Some(None)) {
            return Ok(None);
        }
        let stored = stored.flatten().map(|agent| agent.registration);
        let change = decide(stored.as_ref());
        let RegistrationChange::Store(next) = &change else { return Ok(Some(change)) };
        let saved = SharedRecord {
            key: key.clone(),
            revision: record.map_or(0, |record| record.revision) + 1,
            body: to_json_value(next),
            expires_at: next.deleted_at.map(expiry),
        };
        match store.save_shared_record(&saved).await? {
            SharedSaveOutcome::Saved => return Ok(Some(change)),
            SharedSaveOutcome::Conflict(now) => record = now,
        }
    }
    let operation = format!("save the registration of agent {name}");
    let source = "other instances changed it again and again".into();
    Err(PortError { operation, retryable: true, source })
}

fn expiry(deleted_at: Timestamp) -> Timestamp {
    later(deleted_at, limits::DELETED_REGISTRATION_RETENTION)
}

fn key(name: &AgentName) -> SharedRecordKey {
    SharedRecordKey { kind: KIND, name: name.to_string() }
}

fn read(record: &SharedRecord) -> Option<RegisteredAgent> {
    let name = &record.key.name;
    let registration = serde_json::from_value(record.body.clone())
        .inspect_err(|error| tracing::warn!(agent = name, %error, "registration is unreadable"))
        .ok()?;
    Some(RegisteredAgent { name: name.parse().ok()?, registration })
}
