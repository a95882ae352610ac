//! What is known about each agent: its registration, the circuit breaker of its service, its queues, its last reply, and
//! the workflows that name it. For the console and the command.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::{StreamExt, TryStreamExt, future::join, stream, try_join};
use serde::de::DeserializeOwned;
use steward_core::{
    breaker::Breaker,
    definition::{plan::Plan, workflow::Workflow},
    model::{
        names::{AgentName, WorkflowName},
        registration::{AgentRegistration, AgentSighting},
    },
};
use steward_runtime::{
    agents::{self, RegisteredAgent},
    ports::{
        Channel, Definitions, PortError, Ports, Queue, SharedRecordKind, StateStore, error_chain,
    },
};

use crate::{
    AwsPorts,
    channel::QueueDepth,
    definitions::{DynamoDefinitions, VersionSummary},
};

/// The largest number of agents that are described.
pub const AGENTS_MAX: usize = 200;

/// The largest number of workflows whose definitions are read to find the agents that they name.
pub const WORKFLOWS_MAX: usize = 200;

/// The number of agents, and of definitions, that are read concurrently.
const READS_AT_ONCE: usize = 16;

/// What is known about an agent.
#[derive(Debug, Clone)]
pub struct AgentStatus {
    /// The name.
    pub name: AgentName,
    /// What it registered, if it did.
    pub registration: Option<AgentRegistration>,
    /// The circuit breaker of its service. It is closed if there is no record.
    pub breaker: Breaker,
    /// Its queue of requests.
    pub queue: AgentQueue,
    /// The approximate number of its dead letters. `None` if the agent is not registered or SQS did not answer.
    pub dead_letters: Option<u64>,
    /// Its last reply, if one was recorded.
    pub last_reply: Option<AgentSighting>,
    /// Who uses it.
    pub users: AgentUsers,
}

/// The users of an agent: the newest published versions of workflows.
#[derive(Debug, Clone, Default)]
pub struct AgentUsers {
    /// The workflows that name it.
    pub workflows: Vec<WorkflowName>,
    /// The version of the messages that their steps need. 0 if no workflow names it.
    pub contract: u32,
}

/// The queue of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentQueue {
    /// It exists, and holds these numbers of messages.
    Exists(QueueDepth),
    /// It does not exist.
    Missing,
    /// SQS did not answer.
    Unknown,
}

/// What is known about the agents of a deployment, ordered by name.
#[derive(Debug, Clone)]
pub struct AgentStatuses {
    /// The agents, at most [`AGENTS_MAX`].
    pub agents: Vec<AgentStatus>,
    /// How many further agents there are.
    pub omitted: usize,
    /// Whether there are more workflows than [`WORKFLOWS_MAX`], so that agents which only they name may be missing.
    pub are_workflows_omitted: bool,
}

/// Describes all agents that are registered, or that the newest published version of a workflow names.
///
/// # Errors
/// DynamoDB failed. A failure of SQS is logged.
pub async fn agent_statuses(ports: &AwsPorts) -> Result<AgentStatuses, PortError> {
    let store = ports.store();
    let (registered, breakers, replies, (mut users, are_workflows_omitted)) = try_join!(
        agents::registered(store),
        bodies::<Breaker>(store, SharedRecordKind::Breaker),
        bodies::<AgentSighting>(store, SharedRecordKind::AgentSeen),
        users(ports.definitions()),
    )?;
    let mut registered: BTreeMap<_, _> = registered
        .into_iter()
        .map(|RegisteredAgent { name, registration }| (name, registration))
        .collect();
    let names: BTreeSet<_> = registered.keys().chain(users.keys()).cloned().collect();
    let omitted = names.len().saturating_sub(AGENTS_MAX);
    let agents = names.into_iter().take(AGENTS_MAX).map(|name| {
        let registration = registered.remove(&name);
        let (breaker, last_reply) = (breakers.get(&name).cloned(), replies.get(&name).cloned());
        let users = users.remove(&name).unwrap_or_default();
        async move {
            let (queue, dead_letters) =
                join(queue(ports, &name), dead_letters(ports, registration.as_ref())).await;
            let breaker = breaker.unwrap_or_default();
            AgentStatus { name, registration, breaker, queue, dead_letters, last_reply, users }
        }
    });
    let agents: Vec<_> = agents.collect();
    let agents = stream::iter(agents).buffered(READS_AT_ONCE).collect().await;
    Ok(AgentStatuses { agents, omitted, are_workflows_omitted })
}

/// The shared records of a kind, by agent. Omits unreadable ones.
async fn bodies<T: DeserializeOwned>(
    store: &impl StateStore,
    kind: SharedRecordKind,
) -> Result<BTreeMap<AgentName, T>, PortError> {
    let records = store.shared_records(kind).await?.into_iter();
    let read = records.filter_map(|record| {
        Some((record.key.name.parse().ok()?, serde_json::from_value(record.body).ok()?))
    });
    Ok(read.collect())
}

/// The users of each agent, and whether there are more workflows.
async fn users(
    definitions: &DynamoDefinitions,
) -> Result<(BTreeMap<AgentName, AgentUsers>, bool), PortError> {
    let all = definitions.list().await?;
    let newest = all.chunk_by(|a, b| a.name == b.name);
    let newest = newest.filter_map(|versions| versions.iter().rfind(|one| one.is_published));
    let newest: Vec<&VersionSummary> = newest.collect();
    let is_omitted = newest.len() > WORKFLOWS_MAX;
    let plans = newest.into_iter().take(WORKFLOWS_MAX);
    let plans = plans.map(|listed| definitions.workflow(&listed.name, Some(listed.version)));
    let plans: Vec<_> = plans.collect();
    let plans: Vec<Option<Arc<Plan>>> =
        stream::iter(plans).buffered(READS_AT_ONCE).try_collect().await?;
    let mut users: BTreeMap<AgentName, AgentUsers> = BTreeMap::new();
    for plan in plans.into_iter().flatten() {
        let workflow: &Workflow = &plan;
        for (agent, contract) in workflow.agents() {
            let AgentUsers { workflows, contract: needed } =
                users.entry(agent.clone()).or_default();
            workflows.push(workflow.name.clone());
            *needed = contract.max(*needed);
        }
    }
    Ok((users, is_omitted))
}

async fn queue(ports: &AwsPorts, agent: &AgentName) -> AgentQueue {
    match ports.channel().depth(&Queue::Agent(agent.clone())).await {
        Ok(Some(depth)) => AgentQueue::Exists(depth),
        Ok(None) => AgentQueue::Missing,
        Err(error) => {
            tracing::warn!(%agent, error = error_chain(&error), "requests not counted");
            AgentQueue::Unknown
        }
    }
}

async fn dead_letters(ports: &AwsPorts, registration: Option<&AgentRegistration>) -> Option<u64> {
    let queue = registration?.dead_letter_queue.to_string();
    let counts = ports.channel().dead_letters(&[queue]).await;
    counts.into_iter().find_map(|(_, messages)| messages.ok())
}
