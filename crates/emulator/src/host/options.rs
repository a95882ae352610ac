//! The options of a host.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use steward_agent::credentials::Credentials;
use steward_core::{
    definition::workflow::Workflow,
    model::{names::AgentName, time::Timing},
    rate::RateLimit,
    webhook::{WebhookSecrets, Webhooks},
};

use crate::{agent_target::AgentTarget, embedded::ExternalEndpoints};

/// Options of a [`Host`](super::Host).
#[derive(Debug)]
pub struct HostOptions {
    /// The data directory. Without it, all state is in memory.
    pub data: Option<PathBuf>,
    /// The address of the AWS-compatible endpoint, `POST /tasks` and the console. Without it, they are not served.
    pub listen: Option<SocketAddr>,
    /// AWS services at external endpoints instead of in this process.
    pub external: Option<ExternalEndpoints>,
    /// The signed webhooks of other services that are accepted, if the host listens.
    pub webhooks: Option<(Webhooks, WebhookSecrets)>,
    /// Definitions that the host publishes when it starts.
    pub workflows: Vec<Workflow>,
    /// The agents by name, each with its remote service.
    pub agents: Vec<(AgentName, AgentTarget)>,
    /// Agents of other processes, in any language: the host creates and registers their queues, and starts nothing.
    pub queue_agents: Vec<AgentName>,
    /// The credentials of agents for their HTTP services, for those that have some.
    pub agent_credentials: BTreeMap<AgentName, Credentials>,
    /// The limits of the agents' calls, for those that have one.
    pub rate_limits: BTreeMap<AgentName, RateLimit>,
    /// How often the supervisor runs. Without it, the supervisor never runs.
    pub supervise_every: Option<Duration>,
    /// The time between two sweeps of the due index, if it is shorter than the time between two runs of the supervisor:
    /// whole seconds. As on AWS, each run sends delayed ticks to the supervisor's own queue.
    pub sweep_every: Option<Duration>,
    /// Time settings instead of those of [`resources::create`](crate::resources::create), which assume one clock.
    pub timing: Option<Timing>,
    /// Instances of each function and of each agent. The default is one.
    pub instances: NonZeroU32,
    /// Interceptors for the AWS calls of the functions, but not for those of the host itself.
    pub interceptors: Vec<SharedInterceptor>,
    /// Whether the most frequent DynamoDB requests are served without dynoxide, for speed. Tests do without.
    pub fast_path: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            data: None,
            listen: None,
            external: None,
            webhooks: None,
            workflows: Vec::new(),
            agents: Vec::new(),
            queue_agents: Vec::new(),
            agent_credentials: BTreeMap::new(),
            rate_limits: BTreeMap::new(),
            supervise_every: None,
            sweep_every: None,
            timing: None,
            instances: NonZeroU32::MIN,
            interceptors: Vec::new(),
            fast_path: false,
        }
    }
}
