//! Delivers each message to the real handler of its function, and again if the handler fails. Runs the sweeps of the
//! supervisor. All deliveries run concurrently on the virtual clock.

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::SqsEvent;
use jiff::Timestamp;
use steward_agent::attempt::RateLimiter;
use steward_aws::channel::redelivery;
use steward_core::{model::time::later, submission::ReplyQueues};
use steward_runtime::ports::{OutgoingMessage, Queue};
use steward_scheduler::{CommandAuthority, SchedulerInstance};
use steward_test_world::{event_of, sent_record, service::FakeService};
use tokio::time::Instant;

use super::{
    awaited_events, demand,
    function_role::FunctionRole,
    ledger::{BilledFunction, CostAccount, CostSubject},
    ports,
    service::ForecastService,
    task_simulation::{DELIVERY_LATENCY, QueuedMessage, TaskSimulation},
};

/// The assumed CPU time of an invocation in milliseconds. It is added because the virtual clock stands still while code runs.
const HANDLER_CPU_MS: u64 = 2;

/// The time before the timeout of the function at which a handler returns, as in production.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);

/// The queue for notifications to clients.
pub(super) const REPLY_QUEUE: &str = "https://queues.example/client";

/// The name of the queue for commands.
const COMMANDS_QUEUE: &str = "commands";

/// The sender of all commands, as SQS states it.
const OPERATOR: &str = "AIDAOPERATOR";

/// Delivers a message until its handler succeeds, or until its queue would move it to the dead-letter queue.
pub(super) async fn deliver(simulation: Arc<TaskSimulation>, queued: QueuedMessage) {
    let QueuedMessage { role, message, delay, hop } = queued;
    tokio::time::sleep(delay + DELIVERY_LATENCY).await;
    let subject = simulation.subject_of(&message);
    let account = CostAccount { function: role.function(), subject };
    for receive_count in 1..=role.receives_max() {
        let started = Instant::now();
        simulation.state().meter.received(&account, &message, &simulation.plan);
        let handled = handle(&simulation, &role, &account, &message, receive_count);
        let done = demand::attribute_to(role.clone(), hop, handled).await;
        let millis = started.elapsed().as_millis() as u64 + HANDLER_CPU_MS;
        simulation.record_invocation(&role, &account, millis);
        if done {
            return;
        }
        let random = simulation.state().draw.f64();
        tokio::time::sleep(redelivery::delay(receive_count, random)).await;
    }
}

/// Passes a message to the handler of its function, through ports that record its AWS usage for `account`. Returns whether
/// it succeeded.
async fn handle(
    simulation: &Arc<TaskSimulation>,
    role: &FunctionRole,
    account: &CostAccount,
    message: &OutgoingMessage,
    receive_count: u32,
) -> bool {
    let ports = ports::ports(simulation.clone(), account.clone());
    let event = event(message, receive_count);
    let response = match role {
        FunctionRole::Submission if message.queue == Queue::Events => {
            return Box::pin(awaited_events::handle(simulation, &ports, message, event)).await;
        }
        FunctionRole::Submission => {
            let reply_queues = ReplyQueues::parse(REPLY_QUEUE);
            Box::pin(steward_submission::handle(&ports, &reply_queues, event)).await
        }
        FunctionRole::Scheduler => {
            let commands = CommandAuthority::new(COMMANDS_QUEUE, "");
            let instance = SchedulerInstance { commands, ..SchedulerInstance::default() };
            Box::pin(steward_scheduler::handle_with(&ports, &instance, event)).await
        }
        FunctionRole::Agent(name) => {
            let (service, breaker) =
                (FakeService(ForecastService(simulation.clone())), simulation.breaker(name));
            let rate = Arc::new(RateLimiter::new(name.clone(), None));
            let agent = steward_agent::Agent { name: name.clone(), service, breaker, rate };
            let deadline = deadline(simulation, role.timeout());
            Box::pin(steward_agent::handle(&ports, &agent, event, deadline)).await
        }
    };
    response.batch_item_failures.is_empty()
}

/// Runs one sweep of the supervisor.
pub(super) async fn sweep(simulation: Arc<TaskSimulation>) {
    let subject = CostSubject::task(&simulation.plan.settings.workflow.name);
    let account = CostAccount { function: BilledFunction::Supervisor, subject };
    let ports = ports::ports(simulation.clone(), account);
    let deadline = deadline(&simulation, Duration::from_secs(50));
    // Errors need no handling: the in-memory index can always be read, and unhandled tasks stay due.
    let swept = Box::pin(steward_supervisor::sweep(&ports, 0, deadline));
    // The messages of a sweep count as the hop after the last one.
    let last_hop = simulation.state().demand_counts.last_hop();
    let _: Result<_, _> = demand::attribute_to(FunctionRole::Scheduler, last_hop, swept).await;
}

fn deadline(simulation: &TaskSimulation, limit: Duration) -> Timestamp {
    later(simulation.time(), limit.saturating_sub(SHUTDOWN_MARGIN))
}

fn event(message: &OutgoingMessage, receive_count: u32) -> SqsEvent {
    let mut record = sent_record("1".to_owned(), message, receive_count);
    if message.queue == Queue::Commands {
        record.event_source_arn =
            Some(format!("arn:aws:sqs:us-east-1:000000000000:{COMMANDS_QUEUE}"));
        record.attributes.insert("SenderId".to_owned(), OPERATOR.to_owned());
    }
    event_of([record])
}
