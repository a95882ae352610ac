//! The scheduler: receives wakes, replies of agents, callbacks, operators' commands and reports of child tasks, and makes the
//! next decision for each task. It accepts commands only from their own queue (`commands`).
//!
//! A reply of an agent whose clock is wrong denies no effect (`agent_clocks`).
//!
//! The scheduler prefers tasks in progress to new ones. If the replies of a batch waited for long, the first wakes of new
//! tasks return to the queue once, with a delay, and fewer new tasks start ([`intake`](steward_core::intake)).

use std::sync::Arc;

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::future::{join, join5};
use jiff::Timestamp;
use steward_aws::batch::{
    Batch, BatchProgress, CorruptMessage, ReceivedMessage, alert_corrupt, judge, received_messages,
};
use steward_core::{
    engine::{effect::Effect, event::Event},
    intake::{BatchWait, SCHEDULER_TIME, pause_before_next_turn},
    model::{
        command::ReceivedCommand,
        messages::{CallbackMessage, ChildEnded, SchedulerMessage, Wake, WakeCause},
        names::CallbackToken,
    },
};
use steward_runtime::{
    dispatch::{OutgoingEffect, send_effects},
    drive::{Delivery, DriveError, drive, extend_for_parent},
    intake::report_wait,
    ports::{Clock, Ports, error_chain},
};

mod agent_clocks;
mod commands;
mod sightings;

pub use commands::CommandAuthority;
pub use sightings::AgentSightings;

/// What an instance keeps between invocations.
#[derive(Debug, Default)]
pub struct SchedulerInstance {
    /// The agents whose last reply it has recorded.
    pub sightings: AgentSightings,
    /// From which queue, and from whom, it accepts commands.
    pub commands: CommandAuthority,
}

/// The role in alerts.
const ROLE: &str = "scheduler";

/// If the replies of a batch waited for longer than this share of [`SCHEDULER_TIME`], tasks in progress come before new
/// ones.
const PREFER_PROGRESS_FROM: f64 = 0.2;

/// Handles a batch as [`handle_with`] does. Records no last replies, and refuses all commands.
pub async fn handle<P: Ports>(ports: &P, batch: impl Into<Batch>) -> SqsBatchResponse {
    handle_with(ports, &SchedulerInstance::default(), batch).await
}

/// Handles a batch of messages from the scheduler's queue or from the commands queue. Returns the messages that SQS has to
/// deliver again.
pub async fn handle_with<P: Ports>(
    ports: &P,
    SchedulerInstance { sightings, commands }: &SchedulerInstance,
    batch: impl Into<Batch>,
) -> SqsBatchResponse {
    let Batch { event, progress } = batch.into();
    let (mut messages, mut deliveries, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keep_requests, mut postponed) = (Vec::new(), Vec::new());
    let received = received_messages(event).map(|message| (read(commands, &message), message));
    let mut received: Vec<_> = received.collect();
    let wrong_clocks = agent_clocks::doubt_wrong(received.iter_mut(), ports.timing());
    let now = ports.clock().now();
    let waits = Waits::of(&received, now);
    let replies = received.iter().filter_map(|(content, _)| match content {
        Ok(SchedulerMessage::Reply(reply)) => Some(reply),
        Ok(_) | Err(_) => None,
    });
    let seen = sightings.to_record(replies, now);
    for (content, message) in received {
        match content {
            Ok(SchedulerMessage::ExtendRetention(request)) => {
                keep_requests.push((message, request))
            }
            Ok(SchedulerMessage::Wake(wake))
                if waits.postpones(&message) && is_first_wake(&wake, &message) =>
            {
                postponed.push((message, wake));
            }
            Ok(content) => match delivery(commands, content, &message) {
                Ok(Some(delivery)) => {
                    deliveries.push(delivery);
                    messages.push(message);
                }
                Ok(None) => {}
                Err(reason) => unreadable.push(reason),
            },
            Err(reason) => unreadable.push(reason),
        }
    }
    let driving = async {
        let driven = drive(ports, deliveries, progress.last_start()).await;
        let driven = messages.into_iter().zip(driven);
        let corrupt = driven.filter_map(|(message, result)| conclude(&progress, message, result));
        corrupt.collect::<Vec<_>>()
    };
    let agents = join(sightings::record(ports, seen), agent_clocks::alert(ports, wrong_clocks));
    let (illegal, (), (), (), ((), ())) = join5(
        driving,
        alert_corrupt(ports, ROLE, &unreadable),
        Box::pin(postpone(ports, postponed, &progress)),
        Box::pin(report_wait(ports, None, &waits.of_all)),
        Box::pin(agents),
    )
    .await;
    // Before anything else may run into the timeout: only a first delivery is alerted.
    alert_corrupt(ports, ROLE, &illegal).await;
    let mut illegal = Vec::new();
    for (message, request) in keep_requests {
        let extended = Box::pin(extend_for_parent(ports, &request)).await.map_err(Arc::new);
        illegal.extend(conclude(&progress, message, extended));
    }
    alert_corrupt(ports, ROLE, &illegal).await;
    progress.response()
}

/// Records that a message is done. Returns it as corrupt if a redelivery cannot succeed.
fn conclude(
    progress: &BatchProgress,
    message: ReceivedMessage,
    result: Result<(), Arc<DriveError>>,
) -> Option<CorruptMessage> {
    match result {
        Ok(()) => {
            progress.done(message.message_id);
            None
        }
        Err(error) => judge(&message, &error),
    }
}

/// Reads a message, and checks that it came from a queue that may deliver it.
fn read(
    commands: &CommandAuthority,
    message: &ReceivedMessage,
) -> Result<SchedulerMessage, CorruptMessage> {
    let content = message.parse()?;
    commands.check_queue(&content, message)?;
    Ok(content)
}

/// How long the messages of a batch waited, as a share of [`SCHEDULER_TIME`].
struct Waits {
    of_replies: BatchWait,
    /// Of replies and first wakes.
    of_all: BatchWait,
}

impl Waits {
    /// Only messages that were sent without a delay and are delivered for the first time show how long the queue is.
    fn of(
        received: &[(Result<SchedulerMessage, CorruptMessage>, ReceivedMessage)],
        now: Timestamp,
    ) -> Self {
        let (mut replies, mut first_wakes) = (Vec::new(), Vec::new());
        for (content, message) in received {
            let Some(sent_at) = message.sent_at.filter(|_| !message.redelivered) else { continue };
            let used = now.duration_since(sent_at).as_secs_f64() / SCHEDULER_TIME.as_secs_f64();
            let wait = (message.tenant.as_ref(), used);
            match content {
                Ok(SchedulerMessage::Reply(_)) => replies.push(wait),
                Ok(SchedulerMessage::Wake(wake)) if is_first_wake(wake, message) => {
                    first_wakes.push(wait);
                }
                Ok(
                    SchedulerMessage::Wake(_)
                    | SchedulerMessage::Command(_)
                    | SchedulerMessage::Callback(_)
                    | SchedulerMessage::ParentRequest(_)
                    | SchedulerMessage::ChildEnded(_)
                    | SchedulerMessage::ExtendRetention(_),
                )
                | Err(_) => {}
            }
        }
        first_wakes.extend(&replies);
        Self { of_replies: BatchWait::of(replies), of_all: BatchWait::of(first_wakes) }
    }

    /// Whether new tasks of the tenant of this message come after those in progress.
    fn postpones(&self, message: &ReceivedMessage) -> bool {
        self.of_replies.used > PREFER_PROGRESS_FROM
            && self.of_replies.counts_for(message.tenant.as_ref())
    }
}

/// Whether the message is the first wake of a new task, delivered for the first time.
fn is_first_wake(wake: &Wake, message: &ReceivedMessage) -> bool {
    wake.cause == WakeCause::Submitted && !message.redelivered
}

/// Puts the first wakes of new tasks back into the queue, with a delay. Each is put back once at most, because it is no
/// first wake then.
async fn postpone<P: Ports>(
    ports: &P,
    wakes: Vec<(ReceivedMessage, Wake)>,
    progress: &BatchProgress,
) {
    let (mut message_ids, mut effects) = (Vec::new(), Vec::new());
    for (ReceivedMessage { message_id, traceparent, tenant, .. }, wake) in wakes {
        let after = pause_before_next_turn(wake.task_id.as_str(), 0);
        let wake = Wake { cause: WakeCause::Waited, ..wake };
        message_ids.push(message_id);
        effects.push(OutgoingEffect { effect: Effect::Wake { wake, after }, traceparent, tenant });
    }
    for (message_id, sent) in message_ids.into_iter().zip(send_effects(ports, effects).await) {
        match sent {
            Ok(()) => progress.done(message_id),
            Err(error) => {
                tracing::warn!(message_id, error = error_chain(&error), "first wake not postponed");
            }
        }
    }
}

/// The event that a message delivers to its task; `None` for a request to keep the task longer, which is no event.
///
/// # Errors
/// The sender of a command is not known.
fn delivery(
    commands: &CommandAuthority,
    content: SchedulerMessage,
    message: &ReceivedMessage,
) -> Result<Option<Delivery>, CorruptMessage> {
    let (task_id, incarnation, event) = match content {
        SchedulerMessage::ExtendRetention(_) => return Ok(None),
        SchedulerMessage::Wake(Wake { task_id, call: Some(call), .. }) => {
            let incarnation = call.incarnation;
            (task_id.clone(), Some(incarnation), Event::ReplyReceived(call.into_reply(task_id)))
        }
        SchedulerMessage::Wake(Wake { task_id, cause, call: None }) => {
            let event = match cause {
                WakeCause::Overdue => Event::Swept,
                WakeCause::Submitted | WakeCause::Recovery | WakeCause::Waited => Event::Wake,
            };
            (task_id, None, event)
        }
        SchedulerMessage::Reply(reply) => {
            (reply.task_id.clone(), Some(reply.incarnation), Event::ReplyReceived(reply))
        }
        SchedulerMessage::Command(command) => {
            let received = ReceivedCommand { command, caller: commands.caller(message)? };
            (received.command.task_id.clone(), None, Event::CommandReceived(received))
        }
        SchedulerMessage::Callback(CallbackMessage { token, outcome }) => {
            let CallbackToken { task_id, step, incarnation, edit } = token;
            (task_id, Some(incarnation), Event::CallbackReceived { step, edit, outcome })
        }
        SchedulerMessage::ParentRequest(ask) => {
            (ask.task_id, Some(ask.incarnation), Event::ParentRequested(ask.action))
        }
        SchedulerMessage::ChildEnded(ended) => {
            let ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation } =
                ended;
            let event = Event::ChildEnded { step, outcome, attempt, child, revision };
            (task_id, Some(incarnation), event)
        }
    };
    let ReceivedMessage { redelivered, traceparent, .. } = message;
    let traceparent = traceparent.clone();
    Ok(Some(Delivery { task_id, incarnation, event, redelivered: *redelivered, traceparent }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &str = r#"{ "type": "reply", "task_id": "t", "step": "s", "attempt": 1, "incarnation": 7,
        "outcome": { "status": "completed", "output": null } }"#;

    const FIRST_WAKE: &str = r#"{ "type": "wake", "task_id": "t", "cause": "submitted" }"#;

    /// A message that waited for this many seconds.
    fn received(
        body: &str,
        waited_s: i64,
    ) -> (Result<SchedulerMessage, CorruptMessage>, ReceivedMessage) {
        let message = ReceivedMessage {
            message_id: "m".to_owned(),
            body: body.to_owned(),
            redelivered: false,
            redelivered_again: false,
            first_delivery: true,
            traceparent: None,
            sent_at: Some(Timestamp::from_second(1_000 - waited_s).unwrap()),
            first_received_at: None,
            queue: None,
            sender_id: None,
            redriven: false,
            authenticated: false,
            tenant: None,
        };
        (message.parse(), message)
    }

    #[test]
    fn one_late_message_does_not_count_for_its_batch() {
        let waits = |replies: &[i64], wakes: &[i64]| {
            let replies = replies.iter().map(|waited_s| received(REPLY, *waited_s));
            let all = replies.chain(wakes.iter().map(|waited_s| received(FIRST_WAKE, *waited_s)));
            let all: Vec<_> = all.collect();
            assert!(all.iter().all(|(content, _)| content.is_ok()), "{all:?}");
            let waits = Waits::of(&all, Timestamp::from_second(1_000).unwrap());
            (waits.of_replies.used, waits.of_all.used)
        };
        assert_eq!(waits(&[0, 9, 1], &[]), (0.1, 0.1));
        assert_eq!(waits(&[9], &[1, 1]), (0.9, 0.1));
        assert_eq!(waits(&[5, 6, 7], &[8, 9]), (0.6, 0.7));
        assert_eq!(waits(&[], &[]), (0.0, 0.0));
    }
}
