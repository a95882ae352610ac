//! The scheduler: hears wakes, answers, operators' commands and what the tasks of steps say, and drives
//! each task one decision further.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use steward_aws::batch::{Received, alert_corrupt, judge, received, response};
use steward_core::{
    drive::{Delivery, drive},
    messages::{CallbackAnswer, ChildEnded, SchedulerMessage},
    names::CallbackToken,
    ports::Ports,
    transition::Event,
};

/// Handles a batch of messages from the scheduler's queue.
pub async fn handle<P: Ports>(ports: &P, event: SqsEvent) -> SqsBatchResponse {
    let (mut messages, mut deliveries, mut corrupt) = (Vec::new(), Vec::new(), Vec::new());
    for message in received(event) {
        match message.parse() {
            Ok(content) => {
                deliveries.push(delivery(content, &message));
                messages.push(message);
            }
            Err(reason) => corrupt.push(reason),
        }
    }
    let mut failed = Vec::new();
    for (message, result) in messages.iter().zip(drive(ports, deliveries).await) {
        let Err(error) = result else { continue };
        match judge(message, &error) {
            Some(reason) => corrupt.push(reason),
            None => failed.push(message.message_id.clone()),
        }
    }
    alert_corrupt(ports, "scheduler", &corrupt).await;
    response(failed.into_iter().chain(corrupt.into_iter().map(|message| message.message_id)))
}

fn delivery(content: SchedulerMessage, message: &Received) -> Delivery {
    let (task_id, event) = match content {
        SchedulerMessage::Wake(wake) => (wake.task_id, Event::Wake),
        SchedulerMessage::Reply(reply) => (reply.task_id.clone(), Event::Replied(reply)),
        SchedulerMessage::Command(command) => (command.task_id.clone(), Event::Commanded(command)),
        SchedulerMessage::Callback(CallbackAnswer { token, answer }) => {
            let CallbackToken { task_id, step, attempt } = token;
            (task_id, Event::Answered { step, attempt, answer })
        }
        SchedulerMessage::Ask(ask) => (ask.task_id, Event::Asked(ask.action)),
        SchedulerMessage::ChildEnded(ChildEnded { task_id, step, outcome }) => {
            (task_id, Event::ChildEnded { step, outcome })
        }
    };
    let Received { redelivered, traceparent, .. } = message;
    Delivery { task_id, event, redelivered: *redelivered, traceparent: traceparent.clone() }
}
