//! Registers the agents of the local host, as the stack of an agent does on AWS.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use steward_aws::AwsPorts;
use steward_core::{
    model::{
        names::{AgentName, StackId},
        registration::{AGENT_CONTRACT, AgentRegistration, RegistrationOwner},
    },
    rate::RateLimit,
};
use steward_runtime::{
    agents::{self as registry, RegisterOutcome},
    ports::{Clock, Ports},
};

use crate::resources::{AGENT_QUEUE, DEAD_LETTERS};

/// What stands for the stack in the registrations of a local host.
const LOCAL: &str = "local";

/// The kind of an agent in another process.
pub const OTHER_PROCESS: &str = "queue";

/// What a local host registers about an agent.
#[derive(Debug, Clone, Copy)]
pub struct LocalAgent<'a> {
    /// Its kind, such as `http`.
    pub kind: &'a str,
    /// The limit of its calls.
    pub rate_limit: Option<RateLimit>,
}

/// Registers the agents by name. Marks the agents of earlier local hosts as deleted. Agents that a stack registered
/// stay.
///
/// # Errors
/// The store fails, or a stack has registered an agent of one of these names.
pub async fn register_agents(
    ports: &AwsPorts,
    agents: &BTreeMap<AgentName, LocalAgent<'_>>,
) -> Result<()> {
    let stack: StackId = LOCAL.parse()?;
    let owner = RegistrationOwner { stack, resource: None };
    for (name, LocalAgent { kind, rate_limit }) in agents {
        let is_own = *kind != OTHER_PROCESS;
        let queue = AGENT_QUEUE.replace("{agent}", name.as_str());
        let registration = AgentRegistration {
            kind: kind.parse()?,
            dead_letter_queue: format!("{queue}{DEAD_LETTERS}").parse()?,
            queue: queue.parse()?,
            contract: AGENT_CONTRACT,
            version: is_own.then(|| env!("CARGO_PKG_VERSION").parse()).transpose()?,
            owner: owner.clone(),
            calls_at_once: None,
            rate_per_second: rate_limit.map(|limit| limit.per_second),
            burst: rate_limit.map(|limit| limit.burst),
            at: ports.clock().now(),
            deleted_at: None,
        };
        if let RegisterOutcome::OwnedBy(stack) =
            registry::register(ports.store(), name, &registration).await?
        {
            bail!("stack {stack} has registered an agent `{name}`");
        }
    }
    for agent in registry::registered(ports.store()).await? {
        if !agents.contains_key(&agent.name) {
            registry::deregister(ports.store(), &agent.name, &owner, ports.clock().now()).await?;
        }
    }
    Ok(())
}
