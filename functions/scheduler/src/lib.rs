//! The scheduler: receives wakes, replies of agents, callbacks, operators' commands and reports of child tasks, and makes the
//! next decision for each task.

use std::sync::Arc;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::future::join;
use steward_aws::batch::{ReceivedMessage, alert_corrupt, judge, received_messages, response};
use steward_core::{
    engine::event::Event,
    model::{
        messages::{CallbackMessage, ChildEnded, SchedulerMessage, Wake, WakeCause},
        names::CallbackToken,
    },
};
use steward_runtime::{
    drive::{Delivery, drive, extend_for_parent},
    ports::Ports,
};

/// The role in alerts.
const ROLE: &str = "scheduler";

/// Handles a batch of messages from the scheduler's queue. Returns the messages that SQS has to deliver again.
pub async fn handle<P: Ports>(ports: &P, event: SqsEvent) -> SqsBatchResponse {
    let (mut messages, mut deliveries, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    let mut keep_requests = Vec::new();
    for message in received_messages(event) {
        match message.parse() {
            Ok(SchedulerMessage::ExtendRetention(request)) => {
                keep_requests.push((message, request))
            }
            Ok(content) => {
                if let Some(delivery) = delivery(content, &message) {
                    deliveries.push(delivery);
                    messages.push(message);
                }
            }
            Err(reason) => unreadable.push(reason),
        }
    }
    let alerted = alert_corrupt(ports, ROLE, &unreadable);
    let (mut driven, ()) = join(drive(ports, deliveries), alerted).await;
    let (mut failed, mut illegal) = (Vec::new(), Vec::new());
    for (message, request) in keep_requests {
        driven.push(Box::pin(extend_for_parent(ports, &request)).await.map_err(Arc::new));
        messages.push(message);
    }
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

/// The event that a message delivers to its task; `None` for a request to keep the task longer, which is no event.
fn delivery(content: SchedulerMessage, message: &ReceivedMessage) -> Option<Delivery> {
    let (task_id, incarnation, event) = match content {
        SchedulerMessage::ExtendRetention(_) => return None,
        SchedulerMessage::Wake(Wake { task_id, cause }) => {
            let event = match cause {
                WakeCause::Overdue => Event::Swept,
                WakeCause::Submitted | WakeCause::Recovery | WakeCause::Waited => Event::Wake,
            };
            (task_id, None, event)
        }
        SchedulerMessage::Reply(reply) => {
            (reply.task_id.clone(), reply.incarnation, Event::ReplyReceived(reply))
        }
        SchedulerMessage::Command(command) => {
            (command.task_id.clone(), None, Event::CommandReceived(command))
        }
        SchedulerMessage::Callback(CallbackMessage { token, outcome }) => {
            let CallbackToken { task_id, step, incarnation, fence } = token;
            (task_id, incarnation, Event::CallbackReceived { step, fence, outcome })
        }
        SchedulerMessage::ParentRequest(ask) => {
            (ask.task_id, ask.incarnation, Event::ParentRequested(ask.action))
        }
        SchedulerMessage::ChildEnded(ended) => {
            let ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation } =
                ended;
            let event = Event::ChildEnded { step, outcome, attempt, child, revision };
            (task_id, incarnation, event)
        }
    };
    let ReceivedMessage { redelivered, traceparent, .. } = message;
    let traceparent = traceparent.clone();
    Some(Delivery { task_id, incarnation, event, redelivered: *redelivered, traceparent })
}
