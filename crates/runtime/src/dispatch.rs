//! Sends the effects of decisions, in batches.
//!
//! Store first, send second. Any effect may be lost or repeated. The supervisor replaces a lost request or wake after
//! the due time. The receiver of a repeated request or reply recognises it by the attempt number.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::join;
use jiff::Timestamp;
use serde::Serialize;
use steward_core::{
    engine::effect::Effect,
    limits,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::Command,
        events::{BusEvent, EventData},
        json_text::{JsonText, escape_for_sqs, to_json_text},
        messages::{CallbackMessage, ExtendRetention, ReplyOutcome, SchedulerMessage, StepReply},
        names::{AgentName, Incarnation, Part, TaskId, Tenant},
    },
};

use crate::{
    agents::registration,
    claims::{ClaimKey, OtherClaim, Refusal, claim},
    ports::{Channel, Clock, EventBus, OutgoingMessage, PortError, Ports, Queue, error_chain},
};

/// How long a step waits if the last of its agents has no queue, in milliseconds.
const MISSING_AGENT_RETRY_MS: u64 = 60_000;

/// An effect to send, with the envelope of its message.
#[derive(Debug, Clone, PartialEq)]
pub struct OutgoingEffect {
    /// The effect.
    pub effect: Effect,
    /// The W3C `traceparent`.
    pub traceparent: Option<String>,
    /// The tenant of the task.
    pub tenant: Option<Tenant>,
}

impl OutgoingEffect {
    /// The end time of the task, if this effect is the alert that a task in Error stays due for.
    fn alerted_end(&self) -> Option<Timestamp> {
        let Effect::Publish(event) = &self.effect else { return None };
        event.alerted_end()
    }
}

/// An effect whose message is serialised already, so that the data it was built from can be freed before it is sent.
pub(crate) struct PreparedEffect {
    message: PreparedMessage,
    request: Option<Box<RequestSummary>>,
    is_notification: bool,
    alerted_end: Option<Timestamp>,
}

impl PreparedEffect {
    pub(crate) fn new(effect: OutgoingEffect) -> Self {
        let alerted_end = effect.alerted_end();
        let is_notification = matches!(effect.effect, Effect::Notification { .. });
        let request = RequestSummary::of(&effect).map(Box::new);
        let message = prepare(effect);
        Self { message, request, is_notification, alerted_end }
    }

    /// Marks the effect as possibly sent before: an earlier request may have reached its agent before the agent's queue
    /// was deleted.
    pub(crate) fn mark_resent(mut self) -> Self {
        if let Some(request) = &mut self.request {
            request.may_have_run = true;
        }
        self
    }

    /// The end time of the task, if this effect is the alert that a task in Error stays due for.
    pub(crate) fn alerted_end(&self) -> Option<Timestamp> {
        self.alerted_end
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.message {
            PreparedMessage::Queue(message) => message.body.len(),
            PreparedMessage::Bus(_) => size_of::<BusEvent>(),
        }
    }
}

/// The attribute of a rejected submission that says why it was refused.
pub const REFUSAL_ATTRIBUTE: &str = "reason";

/// Sends messages to queues and publishes events on the bus, each in batches and both concurrently. Returns a result
/// for each effect, in the order given.
pub async fn send_effects<P: Ports>(
    ports: &P,
    effects: Vec<OutgoingEffect>,
) -> Vec<Result<(), PortError>> {
    send_prepared(ports, effects.into_iter().map(PreparedEffect::new).collect()).await
}

/// Like [`send_effects`], for effects whose messages are serialised already.
pub(crate) async fn send_prepared<P: Ports>(
    ports: &P,
    effects: Vec<PreparedEffect>,
) -> Vec<Result<(), PortError>> {
    let (mut message_positions, mut messages) = (Vec::new(), Vec::new());
    let (mut event_positions, mut events) = (Vec::new(), Vec::new());
    let mut results: Vec<Result<(), PortError>> = effects.iter().map(|_| Ok(())).collect();
    let notifications: Vec<_> = effects.iter().map(|effect| effect.is_notification).collect();
    let mut requests = BTreeMap::new();
    for (position, PreparedEffect { message, request, .. }) in effects.into_iter().enumerate() {
        requests.extend(request.map(|request| (position, request)));
        match message {
            PreparedMessage::Queue(message) => {
                message_positions.push(position);
                messages.push(message);
            }
            PreparedMessage::Bus(event) => {
                event_positions.push(position);
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
    let positions = message_positions.into_iter().chain(event_positions);
    let mut without_queue = Vec::new();
    for (position, result) in positions.zip(sent.into_iter().chain(published)) {
        if result.as_ref().is_err_and(PortError::is_no_such_queue)
            && let Some(request) = requests.remove(&position)
        {
            without_queue.push((position, request));
            continue;
        }
        let is_notification = notifications.get(position).copied().unwrap_or_default();
        if let Some(slot) = results.get_mut(position) {
            *slot = result.or_else(|error| ignore_refused_notification(is_notification, error));
        }
    }
    if !without_queue.is_empty() {
        reply_for_missing_agents(ports, without_queue, &mut results).await;
    }
    results
}

/// The fields of a request that are needed to reply in place of its agent, if the agent has no queue.
struct RequestSummary {
    task_id: TaskId,
    step: Part,
    action: Action,
    attempt: u32,
    agent: AgentName,
    incarnation: Incarnation,
    may_have_run: bool,
    /// Until when a claim is needed, if the request is exclusive.
    exclusive_until: Option<Timestamp>,
    traceparent: Option<String>,
    tenant: Option<Tenant>,
}

impl RequestSummary {
    fn of(OutgoingEffect { effect, traceparent, tenant }: &OutgoingEffect) -> Option<Self> {
        let Effect::Request(request) = effect else { return None };
        Some(Self {
            task_id: request.task_id.clone(),
            step: request.step.clone(),
            action: request.action,
            attempt: request.attempt,
            agent: request.agent.clone(),
            incarnation: request.incarnation,
            may_have_run: false,
            exclusive_until: request.exclusive.then_some(request.complete_by),
            traceparent: traceparent.clone(),
            tenant: tenant.clone(),
        })
    }

    /// Refuses an exclusive request for certain, so that the step may use another agent. The claim prevents a call by the
    /// agent, if its queue is created now and the request is sent again. `None` if the request is not exclusive, or if
    /// the agent may have received it and has not refused it; then the claim prevents that it refuses it later.
    async fn refuse<P: Ports>(
        &mut self,
        ports: &P,
        reason: &str,
    ) -> Result<Option<Refusal>, PortError> {
        let Some(complete_by) = self.exclusive_until else { return Ok(None) };
        let Self { task_id, step, action, attempt, incarnation, .. } = self;
        let number = *attempt;
        let attempt = AttemptId { step: step.clone(), action: *action, number };
        let (task_id, incarnation) = (task_id.clone(), *incarnation);
        let key = ClaimKey { task_id, incarnation, attempt, complete_by };
        let retry_after_ms = MISSING_AGENT_RETRY_MS;
        let refusal = Refusal { reason: reason.to_owned(), retry_after_ms };
        let refusal = (!self.may_have_run).then_some(refusal);
        let other = claim(ports, &key, self.agent.as_str(), refusal.as_ref()).await?;
        Ok(match other {
            None => refusal,
            Some(OtherClaim::Refused(earlier)) => Some(earlier),
            Some(OtherClaim::Call) => {
                self.may_have_run = true;
                None
            }
        })
    }

    /// The reason why the request was not sent. `deleted_at` is the time at which the agent was deleted, if it is known.
    fn reason(&self, deleted_at: Option<Timestamp>) -> String {
        let deleted = deleted_at.map(|at| format!(": it was deleted at {}", at.strftime("%FT%TZ")));
        format!("agent `{}` has no queue{}", self.agent, deleted.unwrap_or_default())
    }

    /// The reply in place of the agent, and the alert.
    fn answered(
        self,
        now: Timestamp,
        reason: String,
        refusal: Option<Refusal>,
    ) -> (OutgoingMessage, BusEvent) {
        let Self { task_id, step, action, attempt, agent, incarnation, may_have_run, .. } = self;
        let (traceparent, tenant) = (self.traceparent, self.tenant);
        tracing::error!(%task_id, %step, action = action.name(), attempt, %agent, "agent has no queue");
        let data = EventData::AgentMissing { task_id: task_id.clone(), step: step.clone(), agent };
        let alert = BusEvent::new(&format!("{task_id}/{step}"), now, data);
        let failed =
            || ReplyOutcome::Failed { reason, may_have_run, call_in_doubt: false, detail: None };
        let outcome = refusal.map_or_else(failed, Refusal::into_outcome);
        let (times, agent) = (AttemptTimes::default(), None);
        let reply =
            StepReply { task_id, step, action, attempt, outcome, incarnation, times, agent };
        let message =
            outgoing(Queue::Scheduler, &SchedulerMessage::Reply(reply), traceparent, tenant);
        (message, alert)
    }
}

/// Answers the requests whose agents have no queue: sends the reply *failed* to the scheduler's queue in place of the
/// agent, or *deferred* if another agent may do the step, and publishes an alert.
async fn reply_for_missing_agents<P: Ports>(
    ports: &P,
    requests: Vec<(usize, Box<RequestSummary>)>,
    results: &mut [Result<(), PortError>],
) {
    let now = ports.clock().now();
    let agents: BTreeSet<_> = requests.iter().map(|(_, request)| request.agent.clone()).collect();
    let deleted = deletions(ports, agents).await;
    let (mut positions, mut replies, mut alerts) = (Vec::new(), Vec::new(), Vec::new());
    for (position, mut request) in requests {
        let reason = request.reason(deleted.get(&request.agent).copied());
        match Box::pin(request.refuse(ports, &reason)).await {
            Ok(refusal) => {
                let (reply, alert) = request.answered(now, reason, refusal);
                positions.push(position);
                replies.push(reply);
                alerts.push(alert);
            }
            // The message that caused the request is redelivered, and the request is sent again.
            Err(error) => {
                if let Some(slot) = results.get_mut(position) {
                    *slot = Err(error);
                }
            }
        }
    }
    let (sent, published) = join(ports.channel().send(replies), ports.bus().publish(alerts)).await;
    for ((position, sent), published) in positions.into_iter().zip(sent).zip(published) {
        if let Some(slot) = results.get_mut(position) {
            *slot = sent.and(published);
        }
    }
}

/// When these agents were deleted, as far as their registrations say.
async fn deletions<P: Ports>(
    ports: &P,
    agents: BTreeSet<AgentName>,
) -> BTreeMap<AgentName, Timestamp> {
    let mut deletions = BTreeMap::new();
    for agent in agents {
        match Box::pin(registration(ports.store(), &agent)).await {
            Ok(registration) => {
                let deleted_at = registration.and_then(|registration| registration.deleted_at);
                deletions.extend(deleted_at.map(|at| (agent, at)));
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(%agent, error, "registration of a missing agent not read");
            }
        }
    }
    deletions
}

/// Ignores a permanent error of a notification: the client's queue was deleted, or Steward may not send to it.
/// Otherwise the message of the task would be redelivered until it becomes a dead letter.
fn ignore_refused_notification(is_notification: bool, error: PortError) -> Result<(), PortError> {
    if !is_notification || error.retryable {
        return Err(error);
    }
    tracing::error!(
        error = error_chain(&error),
        "notification lost: the client's queue refused it"
    );
    Ok(())
}

enum PreparedMessage {
    Queue(OutgoingMessage),
    Bus(BusEvent),
}

fn prepare(OutgoingEffect { effect, traceparent, tenant }: OutgoingEffect) -> PreparedMessage {
    PreparedMessage::Queue(match effect {
        Effect::Publish(event) => return PreparedMessage::Bus(event),
        Effect::Request(mut request) => {
            let body = request.body.take();
            let queue = Queue::Agent(request.agent.clone());
            let mut message = outgoing(queue, &request, traceparent, tenant);
            if let Some(body) = body {
                put_in_body(&mut message.body, body);
            }
            message
        }
        Effect::Submit(submission) => {
            outgoing(Queue::Submissions, &submission, traceparent, tenant)
        }
        Effect::AwaitEvent(subscription) => {
            outgoing(Queue::Events, &subscription, traceparent, tenant)
        }
        Effect::ParentRequest(ask) => {
            to_scheduler(&SchedulerMessage::ParentRequest(ask), traceparent, tenant)
        }
        Effect::ChildEnded(ended) => {
            to_scheduler(&SchedulerMessage::ChildEnded(ended), traceparent, tenant)
        }
        Effect::Reply(reply) => to_scheduler(&SchedulerMessage::Reply(reply), traceparent, tenant),
        Effect::Wake { wake, after } => OutgoingMessage {
            delay: after,
            ..to_scheduler(&SchedulerMessage::Wake(wake), traceparent, tenant)
        },
        Effect::Notification { queue, notice } => {
            outgoing(Queue::Client(queue), &notice, traceparent, tenant)
        }
        Effect::Reject { submission, reason } => {
            let line = limits::short_line(&reason, limits::REASON_CHARS_MAX);
            let reason = limits::truncate_bytes(line, limits::REASON_CHARS_MAX);
            let attributes = std::iter::once((REFUSAL_ATTRIBUTE, reason))
                .chain(traceparent.map(|traceparent| ("traceparent", traceparent)))
                .collect();
            // Attributes count towards the limit too. What exceeds the limit is cut off.
            let body =
                limits::truncate_bytes(escape_for_sqs(submission), limits::MESSAGE_BYTES_MAX);
            OutgoingMessage {
                queue: Queue::Rejected,
                body,
                attributes,
                tenant,
                delay: Duration::ZERO,
            }
        }
    })
}

/// The attribute with which the console marks a command whose `by` names the person whom it authenticated. It counts only
/// in a message of the console's role, and is removed when a dead letter is sent back.
pub const AUTHENTICATED_ATTRIBUTE: &str = "authenticated";

/// The message that sends an operator's command to the scheduler. It states that the sender has authenticated the operator,
/// which the scheduler believes only of the console.
#[must_use]
pub fn command_message(command: Command, tenant: Option<Tenant>) -> OutgoingMessage {
    let command = SchedulerMessage::Command(command);
    let mut message = outgoing(Queue::Commands, &command, None, tenant);
    message.attributes.push((AUTHENTICATED_ATTRIBUTE, "true".to_owned()));
    message
}

/// The message that sends a callback to the scheduler.
#[must_use]
pub fn callback_message(callback: CallbackMessage, tenant: Option<Tenant>) -> OutgoingMessage {
    to_scheduler(&SchedulerMessage::Callback(callback), None, tenant)
}

/// The message that extends the expiry of a child task.
#[must_use]
pub fn extend_retention_message(
    request: ExtendRetention,
    tenant: Option<Tenant>,
) -> OutgoingMessage {
    to_scheduler(&SchedulerMessage::ExtendRetention(request), None, tenant)
}

fn to_scheduler(
    message: &SchedulerMessage,
    traceparent: Option<String>,
    tenant: Option<Tenant>,
) -> OutgoingMessage {
    outgoing(Queue::Scheduler, message, traceparent, tenant)
}

/// A message as compact JSON, with its `traceparent` as an attribute.
fn outgoing<T: Serialize>(
    queue: Queue,
    message: &T,
    traceparent: Option<String>,
    tenant: Option<Tenant>,
) -> OutgoingMessage {
    let body = escape_for_sqs(to_json_text(message));
    OutgoingMessage {
        queue,
        body,
        attributes: traceparent.map(|t| ("traceparent", t)).into_iter().collect(),
        tenant,
        delay: Duration::ZERO,
    }
}

/// Inserts the serialised body of a request into its message, without parsing and serialising it again.
fn put_in_body(message: &mut String, body: JsonText) {
    let body = escape_for_sqs(body.to_string());
    if message.pop().is_some() {
        message.reserve_exact(",\"body\":}".len() + body.len());
        message.push_str(",\"body\":");
        message.push_str(&body);
        message.push('}');
    }
}

#[cfg(test)]
mod sizes;
#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steward_core::model::messages::StepRequest;

    #[test]
    fn a_request_with_any_body_is_serialised_as_serde_does_it() {
        for body in [None, Some(json!({ "a": ["\u{ffff}\"", 1.5, null] })), Some(json!("}"))] {
            let request: StepRequest = serde_json::from_value(json!({
                "task_id": "t", "step": "s[3]", "attempt": 1, "complete_by": "2026-11-20T12:00:00Z",
                "idempotency_key": "t/s[3]/do", "incarnation": 7, "call_within_ms": 9, "agent": "a", "method": "POST", "path": "/x", "body": body,
            }))
            .unwrap();
            let plain = serde_json::to_value(&request).unwrap();
            let effect = OutgoingEffect {
                effect: Effect::Request(request),
                traceparent: None,
                tenant: None,
            };
            let PreparedMessage::Queue(sent) = prepare(effect) else {
                panic!("a request goes to a queue")
            };
            assert_eq!(serde_json::from_str::<Value>(&sent.body).unwrap(), plain);
            assert!(!sent.body.contains('\u{ffff}'));
        }
    }
}
