//! Sends the effects of decisions, in batches.
//!
//! Store first, send second. Any effect may be lost or repeated: a lost request or wake is made good
//! by the supervisor after the due time, a repeated one is fenced by its attempt.

use crate::ports::{Channel, Clock, EventBus};
use futures_util::future::join;
use steward_core::limits;
use steward_core::model::names::AgentName;
use steward_core::model::names::TaskId;

use crate::ports::Outgoing;
use crate::ports::PortError;
use crate::ports::Ports;
use crate::ports::Queue;
use crate::ports::chain;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use steward_core::engine::effect::Effect;
use steward_core::model::attempt::Action;
use steward_core::model::attempt::AttemptTimes;
use steward_core::model::command::Command;
use steward_core::model::events::BusEvent;
use steward_core::model::events::Happened;
use steward_core::model::json_text::JsonText;
use steward_core::model::json_text::for_message;
use steward_core::model::messages::Keep;
use steward_core::model::messages::Outcome;
use steward_core::model::messages::SchedulerMessage;
use steward_core::model::messages::StepReply;
use steward_core::model::names::Incarnation;
use steward_core::model::names::Part;

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
    request: Option<Box<Requested>>,
    is_notice: bool,
    alerted_end: Option<Timestamp>,
}

impl Ready {
    pub(crate) fn of(send: Send) -> Self {
        let alerted_end = send.alerted_end();
        let is_notice = matches!(send.effect, Effect::Notice { .. });
        let request = Requested::of(&send).map(Box::new);
        Self { message: message(send.effect, send.traceparent), request, is_notice, alerted_end }
    }

    /// The same as something that may have been sent before: a request may have reached its agent while
    /// that still had a queue.
    pub(crate) fn sent_again(mut self) -> Self {
        if let Some(request) = &mut self.request {
            request.may_have_run = true;
        }
        self
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
    let mut requests = BTreeMap::new();
    for (place, Ready { message, request, .. }) in ready.into_iter().enumerate() {
        requests.extend(request.map(|request| (place, request)));
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
    let mut unreachable = Vec::new();
    for (place, answer) in places.zip(sent.into_iter().chain(published)) {
        if answer.as_ref().is_err_and(PortError::is_no_such_queue)
            && let Some(request) = requests.remove(&place)
        {
            unreachable.push((place, request));
            continue;
        }
        let is_notice = notices.get(place).copied().unwrap_or_default();
        if let Some(slot) = answers.get_mut(place) {
            *slot = answer.or_else(|error| give_up_on_notice(is_notice, error));
        }
    }
    if !unreachable.is_empty() {
        answer_for_missing_agents(ports, unreachable, &mut answers).await;
    }
    answers
}

/// A request on its way to an agent: what is needed to answer it if the agent has no queue.
struct Requested {
    task_id: TaskId,
    step: Part,
    action: Action,
    attempt: u32,
    agent: AgentName,
    incarnation: Option<Incarnation>,
    may_have_run: bool,
    traceparent: Option<String>,
}

impl Requested {
    fn of(Send { effect, traceparent }: &Send) -> Option<Self> {
        let Effect::Request(request) = effect else { return None };
        Some(Self {
            task_id: request.task_id.clone(),
            step: request.step.clone(),
            action: request.action,
            attempt: request.attempt,
            agent: request.agent.clone(),
            incarnation: request.incarnation,
            may_have_run: false,
            traceparent: traceparent.clone(),
        })
    }

    /// The answer, and the alert.
    fn failed(self, now: Timestamp) -> (Outgoing, BusEvent) {
        let Self { task_id, step, action, attempt, agent, incarnation, may_have_run, traceparent } =
            self;
        let reason = format!("agent `{agent}` has no queue");
        tracing::error!(%task_id, %step, action = action.name(), attempt, %agent, "agent has no queue");
        let data = Happened::AgentMissing { task_id: task_id.clone(), step: step.clone(), agent };
        let alert = BusEvent::new(&format!("{task_id}/{step}"), now, data);
        let outcome = Outcome::Failed { reason, may_have_run };
        let times = AttemptTimes::default();
        let reply = StepReply { task_id, step, action, attempt, outcome, incarnation, times };
        (outgoing(Queue::Scheduler, &SchedulerMessage::Reply(reply), traceparent), alert)
    }
}

/// These requests could not be sent, as their queues do not exist, so the steps fail at once:
/// each is answered on the scheduler's queue, as its agent would answer it, and alerted.
async fn answer_for_missing_agents<P: Ports>(
    ports: &P,
    requests: Vec<(usize, Box<Requested>)>,
    answers: &mut [Result<(), PortError>],
) {
    let now = ports.clock().now();
    let (places, failed): (Vec<_>, Vec<_>) =
        requests.into_iter().map(|(place, request)| (place, request.failed(now))).unzip();
    let (replies, alerts) = failed.into_iter().unzip();
    let (sent, published) = join(ports.channel().send(replies), ports.bus().publish(alerts)).await;
    for ((place, sent), published) in places.into_iter().zip(sent).zip(published) {
        if let Some(slot) = answers.get_mut(place) {
            *slot = sent.and(published);
        }
    }
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
        Effect::Request(mut request) => {
            let body = request.body.take();
            let mut message = outgoing(Queue::Agent(request.agent.clone()), &request, traceparent);
            if let Some(body) = body {
                put_in_body(&mut message.body, body);
            }
            message
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
            // Attributes count as well. What does not fit beside them is cut off.
            let body = for_message(limits::shorten_bytes(submission, limits::MESSAGE_BYTES_MAX));
            Outgoing { queue: Queue::Rejected, body, attributes, delay: Duration::ZERO }
        }
    })
}

/// An operator's command on its way to the scheduler.
#[must_use]
pub fn commanded(command: Command) -> Outgoing {
    outgoing(Queue::Scheduler, &SchedulerMessage::Command(command), None)
}

/// The message to a task that runs for a step of another, which needs it for longer.
#[must_use]
pub fn kept(keep: Keep) -> Outgoing {
    outgoing(Queue::Scheduler, &SchedulerMessage::Keep(keep), None)
}

/// A message as it goes out: compact JSON, its trace beside it.
fn outgoing<T: Serialize>(queue: Queue, message: &T, traceparent: Option<String>) -> Outgoing {
    // Our own messages always serialise: their keys are texts and no type of theirs can refuse.
    let body = for_message(serde_json::to_string(message).unwrap_or_default());
    Outgoing {
        queue,
        body,
        attributes: traceparent.map(|t| ("traceparent", t)).into_iter().collect(),
        delay: Duration::ZERO,
    }
}

/// Puts the body of a request into its message as it is written: it is neither read nor written anew.
fn put_in_body(message: &mut String, body: JsonText) {
    let body = for_message(body.to_string());
    if message.pop().is_some() {
        message.reserve_exact(",\"body\":}".len() + body.len());
        message.push_str(",\"body\":");
        message.push_str(&body);
        message.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steward_core::model::messages::StepRequest;

    #[test]
    fn a_request_is_written_as_serde_writes_it_whatever_its_body() {
        for body in [None, Some(json!({ "a": ["\u{ffff}\"", 1.5, null] })), Some(json!("}"))] {
            let request: StepRequest = serde_json::from_value(json!({
                "task_id": "t", "step": "s[3]", "attempt": 1, "complete_by": "2026-11-20T12:00:00Z",
                "idempotency_key": "t/s[3]/do", "agent": "a", "method": "POST", "path": "/x", "body": body,
            }))
            .unwrap();
            let plain = serde_json::to_value(&request).unwrap();
            let Message::OnQueue(sent) = message(Effect::Request(request), None) else {
                panic!("a request goes to a queue")
            };
            assert_eq!(serde_json::from_str::<Value>(&sent.body).unwrap(), plain);
            assert!(!sent.body.contains('\u{ffff}'));
        }
    }
}
