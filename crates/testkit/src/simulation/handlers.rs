//! Calls the real handler of each role. Only this file knows the handlers' signatures.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::future::join;
use jiff::Timestamp;
use steward_agent::{
    attempt::{CircuitBreaker, RateLimiter},
    attempts_deadline,
};
use steward_aws::batch::progress::handle_until;
use steward_core::{
    breaker::BreakerSettings,
    model::{names::AgentName, time::later},
    submission::ReplyQueues,
};
use steward_runtime::ports::Ports;
use steward_scheduler::{CommandAuthority, SchedulerInstance};
use steward_submission::{IntakeView, events, handle_with_intake};
use steward_test_world::service::FakeService;
use tokio::time::Instant;

use super::{
    fault_injector::SimulatedPorts,
    network::EVENTS_QUEUE_ARN,
    plan::{InstanceRole, SimulationPlan},
    service::SimulatedService,
};

/// The queue for notifications to clients.
pub(super) const REPLY_QUEUE: &str = "https://queues.example/client";

/// Passes a batch to the handler of `role`. Returns the ids of the messages that failed.
pub(super) async fn handle(
    role: &InstanceRole,
    ports: &SimulatedPorts,
    memory: InstanceMemory,
    event: SqsEvent,
    limit: Duration,
) -> Vec<String> {
    let deadline = deadline(ports, limit);
    let stop = Instant::now() + limit.saturating_sub(MARGIN);
    let response: SqsBatchResponse = match role {
        InstanceRole::Submission => {
            let reply_queues = ReplyQueues::parse(REPLY_QUEUE);
            let (awaited, submissions) = divide(event);
            let (of_events, mut response) = join(
                handle_until(awaited, stop, |batch| events::handle(ports, batch)),
                handle_until(submissions, stop, |batch| {
                    handle_with_intake(ports, &memory.intake, &reply_queues, batch)
                }),
            )
            .await;
            response.batch_item_failures.extend(of_events.batch_item_failures);
            response
        }
        InstanceRole::Scheduler => {
            let commands = CommandAuthority::new("https://queues.example/commands", "");
            let instance = SchedulerInstance { commands, ..SchedulerInstance::default() };
            let handle = |batch| steward_scheduler::handle_with(ports, &instance, batch);
            handle_until(event, stop, handle).await
        }
        InstanceRole::Agent(name) => {
            let Some(memory) = memory.agent else { return Vec::new() };
            let agent = agent(ports, name, memory);
            let attempts = attempts_deadline(deadline);
            let handle = |batch| steward_agent::handle(ports, &agent, batch, attempts);
            handle_until(event, stop, handle).await
        }
        InstanceRole::Supervisor => SqsBatchResponse::default(),
    };
    response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

/// Divides a batch into the messages of the events queue and those of the submissions queue. On Lambda they come in batches
/// of their own.
fn divide(event: SqsEvent) -> (SqsEvent, SqsEvent) {
    let is_event =
        |message: &SqsMessage| message.event_source_arn.as_deref() == Some(EVENTS_QUEUE_ARN);
    let (mut awaited, mut submissions) = (SqsEvent::default(), SqsEvent::default());
    (awaited.records, submissions.records) = event.records.into_iter().partition(is_event);
    (awaited, submissions)
}

/// What an instance keeps between invocations.
#[derive(Clone)]
pub(super) struct InstanceMemory {
    /// An agent's views. The other roles have none.
    agent: Option<AgentMemory>,
    /// A submission function's view of the levels of intake control.
    intake: Arc<IntakeView>,
}

/// An agent's views of its circuit breaker and of its rate limit.
#[derive(Clone)]
struct AgentMemory {
    breaker: Arc<CircuitBreaker>,
    rate: Arc<RateLimiter>,
}

impl InstanceMemory {
    /// The memory of a new instance.
    pub(super) fn new(role: &InstanceRole, plan: &SimulationPlan) -> Self {
        let agent = match role {
            InstanceRole::Agent(name) => {
                let limit = plan.rate_limits.get(name).copied();
                let breaker = CircuitBreaker::new(name.clone(), BreakerSettings::default());
                let rate = RateLimiter::new(name.clone(), limit);
                Some(AgentMemory { breaker: Arc::new(breaker), rate: Arc::new(rate) })
            }
            InstanceRole::Submission | InstanceRole::Scheduler | InstanceRole::Supervisor => None,
        };
        Self { agent, intake: Arc::default() }
    }
}

fn agent(
    ports: &SimulatedPorts,
    name: &AgentName,
    AgentMemory { breaker, rate }: AgentMemory,
) -> steward_agent::Agent<FakeService<SimulatedService>> {
    let service = FakeService(SimulatedService::new(ports.store.interceptor.clone(), name.clone()));
    steward_agent::Agent { name: name.clone(), service, breaker, rate }
}

/// Runs one sweep of a supervisor.
pub(super) async fn sweep(ports: &SimulatedPorts, first_shard: u32, limit: Duration) {
    // The next sweep makes up for one that fails.
    let _: Result<_, _> =
        steward_supervisor::sweep(ports, first_shard, deadline(ports, limit)).await;
}

/// Runs the part of a supervisor that keeps tasks in Error.
pub(super) async fn keep_errors(ports: &SimulatedPorts, limit: Duration) {
    use steward_runtime::ports::Clock;
    let now = ports.clock().now();
    // The next pass makes up for one that fails.
    let _: (_, Result<_, _>) =
        steward_supervisor::errors::keep(ports, now, deadline(ports, limit)).await;
}

/// Runs the part of a supervisor that deletes payloads.
pub(super) async fn delete_orphans(ports: &SimulatedPorts, limit: Duration) {
    use steward_runtime::ports::Clock;
    // The next run makes up for one that fails.
    let _: Result<_, _> = steward_supervisor::payloads::delete_orphans(
        ports,
        ports.clock().now(),
        deadline(ports, limit),
    )
    .await;
}

/// How long before the function times out its handler stops. In production it is two seconds.
const MARGIN: Duration = Duration::from_secs(1);

/// The deadline for the handler.
fn deadline(ports: &SimulatedPorts, limit: Duration) -> Timestamp {
    use steward_runtime::ports::Clock;
    later(ports.clock().now(), limit.saturating_sub(MARGIN))
}
