//! Calls the real handler of each function with one message.

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use jiff::Timestamp;
use steward_core::{model::time::later, submission::ReplyQueues};
use steward_runtime::ports::OutgoingMessage;

use super::{
    demand,
    ledger::{BilledFunction, CostAccount, CostSubject},
    ports::ForecastPorts,
    service::ForecastService,
    task_simulation::{FunctionRole, TaskSimulation},
};

/// The computing time of an invocation in milliseconds, without waiting for other services.
pub(super) const OVERHEAD_MS: u64 = 2;

/// The time reserved at the end of an invocation, as in production.
const MARGIN: Duration = Duration::from_secs(2);

/// Passes a message to the handler of its function, and charges `account`. Returns whether it succeeded.
pub(super) async fn handle(
    simulation: &Arc<TaskSimulation>,
    role: &FunctionRole,
    account: &CostAccount,
    message: &OutgoingMessage,
    receives: u32,
) -> bool {
    let ports = ForecastPorts { simulation: simulation.clone(), account: account.clone() };
    let event = event(message, receives);
    let response = match role {
        FunctionRole::Submission => {
            Box::pin(steward_submission::handle(&ports, &ReplyQueues::parse(""), event)).await
        }
        FunctionRole::Scheduler => Box::pin(steward_scheduler::handle(&ports, event)).await,
        FunctionRole::Agent(name) => {
            let (service, guard) = (ForecastService(simulation.clone()), simulation.guard(name));
            let agent = steward_agent::Agent { name: name.clone(), service, guard };
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
    let ports = ForecastPorts { simulation: simulation.clone(), account };
    let deadline = deadline(&simulation, Duration::from_secs(50));
    // Errors need no handling: the in-memory index can always be read, and unhandled tasks stay due.
    let swept = Box::pin(steward_supervisor::sweep(&ports, 0, deadline));
    let newest = simulation.state().demand_counts.newest();
    let _: Result<_, _> = demand::handling(FunctionRole::Scheduler, newest, swept).await;
}

fn deadline(simulation: &TaskSimulation, limit: Duration) -> Timestamp {
    later(simulation.time(), limit.saturating_sub(MARGIN))
}

fn event(message: &OutgoingMessage, receives: u32) -> SqsEvent {
    let mut record = SqsMessage::default();
    record.message_id = Some("1".to_owned());
    record.body = Some(message.body.clone());
    let receives = ("ApproximateReceiveCount".to_owned(), receives.to_string());
    record.attributes = std::iter::once(receives).collect();
    let attribute = |(name, value): &(&'static str, String)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = Some(value.clone());
        attribute.data_type = Some("String".to_owned());
        ((*name).to_owned(), attribute)
    };
    record.message_attributes = message.attributes.iter().map(attribute).collect();
    let mut event = SqsEvent::default();
    event.records.push(record);
    event
}
