//! Effects: what is told to whom once a decision is saved, and how it goes out in batches.
//!
//! Store first, send second. Any effect may be lost or repeated: a lost request or wake is made good
//! by the supervisor after the due time, a repeated one is fenced by its attempt.

use std::time::Duration;

use futures_util::future::join;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    command::Command,
    events::BusEvent,
    limits,
    messages::{
        Ask, ChildEnded, SchedulerMessage, StatusNotice, StepReply, StepRequest, Submission, Wake,
    },
    ports::{Channel, EventBus, Outgoing, PortError, Ports, Queue, chain},
};

/// What must be told to whom.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a step to its agent.
    Request(StepRequest),
    /// Submit the task of a step, or ask for it.
    Submit(Submission),
    /// Ask the scheduler for the task of a step.
    Ask(Ask),
    /// Tell a task how the task of its step ended.
    ChildEnded(ChildEnded),
    /// Send an agent's answer to the scheduler.
    Reply(StepReply),
    /// Ask the scheduler to look at a task.
    Wake {
        /// The task, and why.
        wake: Wake,
        /// When, from now.
        after: Duration,
    },
    /// Tell a client, on the queue named.
    Notice {
        /// The queue's URL.
        queue: String,
        /// What to tell.
        notice: StatusNotice,
    },
    /// Keep a refused submission.
    Reject {
        /// What was submitted, as it came.
        submission: String,
        /// Why it was refused.
        reason: String,
    },
    /// Publish on the bus.
    Publish(BusEvent),
}

/// An effect with the W3C `traceparent` it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    /// What is told to whom.
    pub effect: Effect,
    /// The trace.
    pub traceparent: Option<String>,
}

impl Send {
    /// If this is the alert that a task in Error stays due for: when that task ended.
    fn alerted_end(&self) -> Option<Timestamp> {
        match &self.effect {
            Effect::Publish(event) => event.is_task_alert().then_some(event.metadata.at),
            Effect::Request(_)
            | Effect::Submit(_)
            | Effect::Ask(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Notice { .. }
            | Effect::Reject { .. } => None,
        }
    }
}

/// An effect as it goes out: written, so that what it was made of is not kept until then.
pub(crate) struct Ready {
    message: Message,
    is_notice: bool,
    alerted_end: Option<Timestamp>,
}

impl Ready {
    pub(crate) fn of(send: Send) -> Self {
        let alerted_end = send.alerted_end();
        let is_notice = matches!(send.effect, Effect::Notice { .. });
        Self { message: message(send.effect, send.traceparent), is_notice, alerted_end }
    }

    /// If this is the alert that a task in Error stays due for: when that task ended.
    pub(crate) fn alerted_end(&self) -> Option<Timestamp> {
        self.alerted_end
    }

    /// About how much room it takes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.message {
            Message::OnQueue(message) => message.body.len(),
            Message::OnBus(_) => size_of::<BusEvent>(),
        }
    }
}

/// Sends messages and publishes events, each kind in batches, both side by side. Answers for each
/// effect, in the order given.
pub async fn carry_out<P: Ports>(ports: &P, sends: Vec<Send>) -> Vec<Result<(), PortError>> {
    send_out(ports, sends.into_iter().map(Ready::of).collect()).await
}

/// The same, of what is written already.
pub(crate) async fn send_out<P: Ports>(ports: &P, ready: Vec<Ready>) -> Vec<Result<(), PortError>> {
    let (mut message_places, mut messages) = (Vec::new(), Vec::new());
    let (mut event_places, mut events) = (Vec::new(), Vec::new());
    let mut answers: Vec<Result<(), PortError>> = ready.iter().map(|_| Ok(())).collect();
    let notices: Vec<_> = ready.iter().map(|ready| ready.is_notice).collect();
    for (place, Ready { message, .. }) in ready.into_iter().enumerate() {
        match message {
            Message::OnQueue(message) => {
                message_places.push(place);
                messages.push(message);
            }
            Message::OnBus(event) => {
                event_places.push(place);
                events.push(event);
            }
        }
    }
    let sending = async {
        if messages.is_empty() { Vec::new() } else { ports.channel().send(messages).await }
    };
    let publishing =
        async { if events.is_empty() { Vec::new() } else { ports.bus().publish(events).await } };
    let (sent, published) = join(sending, publishing).await;
    let places = message_places.into_iter().chain(event_places);
    for (place, answer) in places.zip(sent.into_iter().chain(published)) {
        let is_notice = notices.get(place).copied().unwrap_or_default();
        if let Some(slot) = answers.get_mut(place) {
            *slot = answer.or_else(|error| give_up_on_notice(is_notice, error));
        }
    }
    answers
}

/// A client whose own queue is gone, or closed to us, is not told. That must not keep its task's
/// message coming back until it is a dead letter.
fn give_up_on_notice(is_notice: bool, error: PortError) -> Result<(), PortError> {
    if !is_notice || error.retryable {
        return Err(error);
    }
    tracing::error!(error = chain(&error), "a client cannot be told: its queue refuses");
    Ok(())
}

enum Message {
    OnQueue(Outgoing),
    OnBus(BusEvent),
}

fn message(effect: Effect, traceparent: Option<String>) -> Message {
    Message::OnQueue(match effect {
        Effect::Publish(event) => return Message::OnBus(event),
        Effect::Request(request) => {
            outgoing(Queue::Agent(request.agent.clone()), &request, traceparent)
        }
        Effect::Submit(submission) => outgoing(Queue::Submissions, &submission, traceparent),
        Effect::Ask(ask) => outgoing(Queue::Scheduler, &SchedulerMessage::Ask(ask), traceparent),
        Effect::ChildEnded(ended) => {
            outgoing(Queue::Scheduler, &SchedulerMessage::ChildEnded(ended), traceparent)
        }
        Effect::Reply(reply) => {
            outgoing(Queue::Scheduler, &SchedulerMessage::Reply(reply), traceparent)
        }
        Effect::Wake { wake, after } => {
            let message = outgoing(Queue::Scheduler, &SchedulerMessage::Wake(wake), traceparent);
            Outgoing { delay: after, ..message }
        }
        Effect::Notice { queue, notice } => outgoing(Queue::Client(queue), &notice, traceparent),
        Effect::Reject { submission, reason } => {
            let reason = ("reason", limits::shorten(&reason, limits::REASON_CHARS_MAX));
            let attributes = std::iter::once(reason)
                .chain(traceparent.map(|traceparent| ("traceparent", traceparent)))
                .collect();
            Outgoing { queue: Queue::Rejected, body: submission, attributes, delay: Duration::ZERO }
        }
    })
}

/// An operator's command on its way to the scheduler.
#[must_use]
pub fn commanded(command: Command) -> Outgoing {
    outgoing(Queue::Scheduler, &SchedulerMessage::Command(command), None)
}

/// A message as it goes out: compact JSON, its trace beside it.
fn outgoing<T: Serialize>(queue: Queue, message: &T, traceparent: Option<String>) -> Outgoing {
    // Our own messages always serialise: their keys are texts and no type of theirs can refuse.
    let body = serde_json::to_string(message).unwrap_or_default();
    // SQS refuses these two characters; JSON can say them otherwise.
    let body = body.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff");
    Outgoing {
        queue,
        body,
        attributes: traceparent.map(|t| ("traceparent", t)).into_iter().collect(),
        delay: Duration::ZERO,
    }
}
