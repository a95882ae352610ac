//! How each role's real handler is called with one message.

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use jiff::Timestamp;
use steward_core::{model::time::later, submission::ReplyQueues};
use steward_runtime::ports::Outgoing;

use super::{
    demand,
    ledger::{Account, Function, Subject},
    ports::ForecastPorts,
    service::Service,
    world::{Role, World},
};

/// What an invocation computes, in milliseconds, beside waiting for others.
pub(super) const OVERHEAD_MS: u64 = 2;

/// Time kept back from an invocation, as in production.
const MARGIN: Duration = Duration::from_secs(2);

/// Hands a message to its role, on this account; whether it is done.
pub(super) async fn handle(
    world: &Arc<World>,
    role: &Role,
    account: &Account,
    message: &Outgoing,
    receives: u32,
) -> bool {
    let ports = ForecastPorts { world: world.clone(), account: account.clone() };
    let event = event(message, receives);
    let response = match role {
        Role::Submission => {
            Box::pin(steward_submission::handle(&ports, &ReplyQueues::parse(""), event)).await
        }
        Role::Scheduler => Box::pin(steward_scheduler::handle(&ports, event)).await,
        Role::Agent(name) => {
            let (service, guard) = (Service(world.clone()), world.guard(name));
            let agent = steward_agent::Agent { name: name.clone(), service, guard };
            let deadline = deadline(world, role.time_limit());
            Box::pin(steward_agent::handle(&ports, &agent, event, deadline)).await
        }
    };
    response.batch_item_failures.is_empty()
}

/// Lets a supervisor sweep once.
pub(super) async fn sweep(world: Arc<World>) {
    let subject = Subject::task(&world.plan.settings.workflow.name);
    let account = Account { function: Function::Supervisor, subject };
    let ports = ForecastPorts { world: world.clone(), account };
    let deadline = deadline(&world, Duration::from_secs(50));
    // The in-memory index can always be read, and what is not driven is due still.
    let swept = Box::pin(steward_supervisor::sweep(&ports, 0, deadline));
    let newest = world.state().visits.newest();
    let _: Result<_, _> = demand::handling(Role::Scheduler, newest, swept).await;
}

fn deadline(world: &World, limit: Duration) -> Timestamp {
    later(world.time(), limit.saturating_sub(MARGIN))
}

fn event(message: &Outgoing, receives: u32) -> SqsEvent {
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
