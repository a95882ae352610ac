//! The events that steps wait for. The forecast knows no events: each step with `wait.event` gets one a while after it
//! began to wait.

use std::sync::Arc;

use aws_lambda_events::sqs::SqsEvent;
use steward_core::{correlation::EventSubscription, model::messages::ReplyOutcome};
use steward_runtime::{
    dispatch::send_effects,
    ports::{OutgoingMessage, Queue},
};

use super::{
    attempt_outcome::random_duration, function_role::FunctionRole, ports::ForecastPorts,
    task_simulation::TaskSimulation,
};

/// The attribute of a message that stands for the event of its subscription.
const EVENT: &str = "event";

/// Handles a message of the events queue with the real handler of subscriptions, or of events. Returns whether it succeeded.
pub(super) async fn handle(
    simulation: &Arc<TaskSimulation>,
    ports: &ForecastPorts,
    message: &OutgoingMessage,
    batch: SqsEvent,
) -> bool {
    let Ok(subscription) = serde_json::from_str::<EventSubscription>(&message.body) else {
        // An event of a script.
        let response = steward_submission::events::handle(ports, batch).await;
        return response.batch_item_failures.is_empty();
    };
    if message.attributes.iter().any(|(name, _)| *name == EVENT) {
        return receive_event(simulation, ports, &subscription).await;
    }
    let response = steward_submission::events::handle(ports, batch).await;
    send_event(simulation, &subscription, message);
    response.batch_item_failures.is_empty()
}

/// Schedules the event that completes the step.
fn send_event(
    simulation: &TaskSimulation,
    EventSubscription { waiter, .. }: &EventSubscription,
    message: &OutgoingMessage,
) {
    let assumptions = simulation.assumptions(&waiter.task_id, &waiter.step.step);
    let Some((key, assumptions)) = assumptions else { return };
    let after = match &simulation.scripted {
        Some(scripted) => scripted.event_after(&key, &waiter.step, simulation.now()),
        None => Some(random_duration(assumptions.answer, &mut simulation.state().draw)),
    };
    let Some(after) = after else { return };
    let attributes = vec![(EVENT, "true".to_owned())];
    let event = OutgoingMessage { queue: Queue::Events, attributes, ..message.clone() };
    simulation.deliver(FunctionRole::Submission, event, after);
}

async fn receive_event(
    simulation: &TaskSimulation,
    ports: &ForecastPorts,
    EventSubscription { key, waiter }: &EventSubscription,
) -> bool {
    let assumptions = simulation.assumptions(&waiter.task_id, &waiter.step.step);
    let Some((_, assumptions)) = assumptions else { return true };
    let step = waiter.step.step.as_str();
    let output = assumptions.output.value(step, &mut simulation.state().draw);
    let outcome = ReplyOutcome::Completed { output, may_continue: false };
    let id = format!("{}/{}", waiter.task_id, waiter.step);
    match steward_submission::events::record_event(ports, key, &id, &outcome).await {
        Ok(reply) => {
            let sent = send_effects(ports, reply.into_iter().collect()).await;
            sent.iter().all(Result::is_ok)
        }
        Err(_) => false,
    }
}
