//! Calls the real handler of each role. Only this file knows the handlers' signatures.

use std::sync::Arc;

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::Timestamp;
use steward_agent::attempt::CircuitBreaker;
use steward_core::{
    breaker::BreakerSettings,
    model::{names::AgentName, time::later},
    submission::ReplyQueues,
};
use steward_runtime::ports::Ports;

use super::{fault_injector::SimulatedPorts, plan::InstanceRole, service::SimulatedService};

/// The queue for notifications to clients.
pub(super) const REPLY_QUEUE: &str = "https://queues.example/client";

/// Passes a batch to the handler of `role`. Returns the ids of the messages that failed.
pub(super) async fn handle(
    role: &InstanceRole,
    ports: &SimulatedPorts,
    breaker: Option<AgentBreaker>,
    event: SqsEvent,
    limit: std::time::Duration,
) -> Vec<String> {
    let deadline = deadline(ports, limit);
    let response: SqsBatchResponse = match role {
        InstanceRole::Submission => {
            steward_submission::handle(ports, &ReplyQueues::parse(REPLY_QUEUE), event).await
        }
        InstanceRole::Scheduler => steward_scheduler::handle(ports, event).await,
        InstanceRole::Agent(name) => {
            let Some(breaker) = breaker else { return Vec::new() };
            let agent = agent(ports, name, breaker);
            steward_agent::handle(ports, &agent, event, deadline).await
        }
        InstanceRole::Supervisor => SqsBatchResponse::default(),
    };
    response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

/// The circuit breaker view of an agent instance. It lives as long as the instance.
pub(super) type AgentBreaker = Arc<CircuitBreaker>;

/// A new circuit breaker view for an agent instance; `None` for the other roles.
pub(super) fn new_breaker(role: &InstanceRole) -> Option<AgentBreaker> {
    match role {
        InstanceRole::Agent(name) => {
            Some(Arc::new(CircuitBreaker::new(name.clone(), BreakerSettings::default())))
        }
        InstanceRole::Submission | InstanceRole::Scheduler | InstanceRole::Supervisor => None,
    }
}

fn agent(
    ports: &SimulatedPorts,
    name: &AgentName,
    breaker: AgentBreaker,
) -> steward_agent::Agent<SimulatedService> {
    let service = SimulatedService::new(ports.injector().clone(), name.clone());
    steward_agent::Agent { name: name.clone(), service, breaker }
}

/// Runs one sweep of a supervisor.
pub(super) async fn sweep(ports: &SimulatedPorts, first_shard: u32, limit: std::time::Duration) {
    // The next sweep makes up for one that fails.
    let _: Result<_, _> =
        steward_supervisor::sweep(ports, first_shard, deadline(ports, limit)).await;
}

/// The deadline for the handler: one second before the function times out. In production it is two seconds before.
fn deadline(ports: &SimulatedPorts, limit: std::time::Duration) -> Timestamp {
    use steward_runtime::ports::Clock;
    later(ports.clock().now(), limit.saturating_sub(std::time::Duration::from_secs(1)))
}
