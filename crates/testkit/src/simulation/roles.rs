//! How each role's real handler is called: the one place that knows their signatures.

use std::sync::Arc;

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::Timestamp;
use steward_agent::attempt::Guard;
use steward_core::{
    breaker::Settings,
    model::{names::AgentName, time::later},
    submission::ReplyQueues,
};
use steward_runtime::ports::Ports;

use super::{plan::Role, ports::SimPorts, service::SimService};

/// Where clients hear from us.
pub(super) const REPLY_QUEUE: &str = "https://queues.example/client";

/// Hands a batch to the handler of `role`; answers the ids of the messages that are not done.
pub(super) async fn handle(
    role: &Role,
    ports: &SimPorts,
    kept: Option<Kept>,
    event: SqsEvent,
    limit: std::time::Duration,
) -> Vec<String> {
    let deadline = deadline(ports, limit);
    let response: SqsBatchResponse = match role {
        Role::Submission => {
            steward_submission::handle(ports, &ReplyQueues::parse(REPLY_QUEUE), event).await
        }
        Role::Scheduler => steward_scheduler::handle(ports, event).await,
        Role::Agent(name) => {
            let Some(kept) = kept else { return Vec::new() };
            let agent = agent(ports, name, kept);
            steward_agent::handle(ports, &agent, event, deadline).await
        }
        Role::Supervisor => SqsBatchResponse::default(),
    };
    response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

/// What an agent instance keeps from one invocation to the next, for as long as it lives.
pub(super) type Kept = Arc<Guard>;

/// What an instance begins its life with.
pub(super) fn kept(role: &Role) -> Option<Kept> {
    match role {
        Role::Agent(name) => Some(Arc::new(Guard::new(name.clone(), Settings::default()))),
        Role::Submission | Role::Scheduler | Role::Supervisor => None,
    }
}

fn agent(ports: &SimPorts, name: &AgentName, kept: Kept) -> steward_agent::Agent<SimService> {
    let service = SimService::new(ports.seam(), name.clone());
    steward_agent::Agent { name: name.clone(), service, guard: kept }
}

/// Lets a supervisor sweep once.
pub(super) async fn sweep(ports: &SimPorts, first_shard: u32, limit: std::time::Duration) {
    // A sweep that fails is made good by the next.
    let _: Result<_, _> =
        steward_supervisor::sweep(ports, first_shard, deadline(ports, limit)).await;
}

/// A little before the function is stopped, as in production.
fn deadline(ports: &SimPorts, limit: std::time::Duration) -> Timestamp {
    use steward_runtime::ports::Clock;
    later(ports.clock().now(), limit.saturating_sub(std::time::Duration::from_secs(1)))
}
