//! The scheduler: hears wakes, agents' replies and operators' commands, and drives each task one decision further.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use steward_aws::batch::{alert_corrupt, judge, received, response};
use steward_core::{
    drive::{Delivery, drive},
    messages::SchedulerMessage,
    ports::Ports,
    transition::Event,
};

/// Handles a batch of messages from the scheduler's queue.
pub async fn handle<P: Ports>(ports: &P, event: SqsEvent) -> SqsBatchResponse {
    let (mut messages, mut deliveries, mut corrupt) = (Vec::new(), Vec::new(), Vec::new());
    for message in received(event) {
        match message.parse() {
            Ok(content) => {
                deliveries.push(delivery(content, message.redelivered));
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

fn delivery(message: SchedulerMessage, redelivered: bool) -> Delivery {
    match message {
        SchedulerMessage::Wake(wake) => {
            Delivery { task_id: wake.task_id, event: Event::Wake, redelivered }
        }
        SchedulerMessage::Reply(reply) => {
            Delivery { task_id: reply.task_id.clone(), event: Event::Replied(reply), redelivered }
        }
        SchedulerMessage::Command(command) => Delivery {
            task_id: command.task_id.clone(),
            event: Event::Commanded(command),
            redelivered,
        },
    }
}
