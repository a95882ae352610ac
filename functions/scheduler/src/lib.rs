//! The scheduler: hears wakes, answers, operators' commands and what the tasks of steps say, and drives
//! each task one decision further.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::future::join;
use steward_aws::batch::{Received, alert_corrupt, judge, received, response};
use steward_core::{
    drive::{Delivery, drive},
    messages::{CallbackAnswer, ChildEnded, SchedulerMessage},
    names::CallbackToken,
    ports::Ports,
    transition::Event,
};

/// Who alerts.
const ROLE: &str = "scheduler";

/// Handles a batch of messages from the scheduler's queue.
pub async fn handle<P: Ports>(ports: &P, event: SqsEvent) -> SqsBatchResponse {
    let (mut messages, mut deliveries, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for message in received(event) {
        match message.parse() {
            Ok(content) => {
                deliveries.push(delivery(content, &message));
                messages.push(message);
            }
            Err(reason) => unreadable.push(reason),
        }
    }
    let alerted = alert_corrupt(ports, ROLE, &unreadable);
    let (driven, ()) = join(drive(ports, deliveries), alerted).await;
    let (mut failed, mut illegal) = (Vec::new(), Vec::new());
    for (message, result) in messages.iter().zip(driven) {
        let Err(error) = result else { continue };
        match judge(message, &error) {
            Some(reason) => illegal.push(reason),
            None => failed.push(message.message_id.clone()),
        }
    }
    alert_corrupt(ports, ROLE, &illegal).await;
    let corrupt = unreadable.into_iter().chain(illegal).map(|message| message.message_id);
    response(failed.into_iter().chain(corrupt))
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
