//! The agent: receives step requests from its queue, calls its remote service, and sends replies to the scheduler's queue.
//! The remote service is an HTTP service, or an AWS service ([`kind`]).
//!
//! The requests of a batch run concurrently. The agent sends a reply as soon as it is ready, batched with others that are
//! ready within 20 ms, so that a slow call does not delay the other replies. A request that the circuit breaker defers
//! gets a reply too, and is acknowledged. If requests waited for too long, the agent reports that, and fewer new tasks
//! start ([`intake`](steward_core::intake)).
//!
//! For a service of your own, implement [`RemoteService`] and pass it to [`runner::run`]:
//! `examples/rust-agent`.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::{FutureExt, StreamExt, future::join, stream};
use jiff::Timestamp;
use steward_aws::batch::{
    Batch, BatchProgress, CorruptMessage, ReceivedMessage, alert_corrupt, progress::SENDS_WITHIN,
    received_messages,
};
use steward_core::{
    breaker::BreakerSettings,
    engine::effect::Effect,
    intake::{BatchWait, used_share},
    model::{
        messages::{OverdueCall, ReplyOutcome, StepReply, Wake, WakeCause},
        names::AgentName,
        time::{Timing, earlier},
    },
    rate::RateLimit,
};
use steward_runtime::{
    dispatch::{OutgoingEffect, send_effects},
    intake::report_wait,
    ports::{Clock, Ports, error_chain},
    trace::{SpanKind, TraceSpan},
};

pub use crate::config::AgentConfig;
/// What an agent of one's own needs beside this crate.
pub use {lambda_runtime::Error, serde_json, steward_core::model::messages::StepRequest};

use crate::attempt::{
    AttemptResult, CircuitBreaker, DeliveredRequest, RateLimiter, RemoteService, run_attempt,
};

pub mod arn;
pub mod attempt;
mod aws_action;
mod aws_api;
mod aws_query;
mod call_fault;
pub mod call_role;
pub mod config;
mod connection_fault;
pub mod credentials;
mod events;
mod headers;
pub mod http;
pub mod kind;
mod lambda;
pub mod oauth;
pub mod payloads;
pub mod response;
mod response_body;
mod retry_after;
pub mod runner;
#[cfg(feature = "secrets")]
pub mod secret;
pub mod signed;
mod sqs;
mod transport;

/// How long a reply waits for others, so that they share a request to SQS.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// The largest number of replies in one request: the limit of SQS.
const BATCH_SIZE_MAX: usize = 10;

/// The largest number of concurrent calls, independent of the batch size.
const CALLS_AT_ONCE: usize = 100;

/// The largest number of concurrent requests to SQS.
const SENDS_AT_ONCE: usize = 16;

/// An instance of an agent, and the service that it calls.
#[derive(Debug, Clone)]
pub struct Agent<S> {
    /// The agent's name. A request for another agent is corrupt.
    pub name: AgentName,
    /// The remote service.
    pub service: S,
    /// The circuit breaker that all instances of the agent share, as this instance knows it.
    pub breaker: Arc<CircuitBreaker>,
    /// The rate limit that all instances of the agent share, as this instance knows it.
    pub rate: Arc<RateLimiter>,
}

impl<S> Agent<S> {
    /// A new instance of the agent `name`, which has called nothing yet. Its calls have no rate limit.
    #[must_use]
    pub fn new(name: AgentName, service: S, breaker: BreakerSettings) -> Self {
        let breaker = Arc::new(CircuitBreaker::new(name.clone(), breaker));
        let rate = Arc::new(RateLimiter::new(name.clone(), None));
        Self { name, service, breaker, rate }
    }

    /// The same with a rate limit, if there is one.
    #[must_use]
    pub fn with_rate_limit(self, limit: Option<RateLimit>) -> Self {
        let rate = Arc::new(RateLimiter::new(self.name.clone(), limit));
        Self { rate, ..self }
    }
}

/// The result of handling one message.
enum MessageResult {
    /// The reply to the scheduler.
    Reply(ReceivedMessage, Box<StepReply>),
    /// The outcome of a call of this request is not known.
    Overdue(ReceivedMessage, Box<StepRequest>),
    /// Nothing is sent for the message with this id.
    Silent(String),
    /// SQS has to deliver the message again.
    Requeued,
    Corrupt(CorruptMessage),
    Panicked,
}

/// Handles a batch of step requests. Returns the messages that SQS has to deliver again. All attempts end before `deadline`:
/// [`attempts_deadline`].
pub async fn handle<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    batch: impl Into<Batch>,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let Batch { event, progress } = batch.into();
    let progress = &progress;
    let received: Vec<_> = received_messages(event)
        .map(|message| (parse_request(&message, &agent.name), message))
        .collect();
    let wait = wait_of_batch(&received, ports.clock().now());
    let results = stream::iter(received)
        .map(|(request, message)| async move {
            let result = AssertUnwindSafe(handle_message(ports, agent, request, message, deadline));
            result.catch_unwind().await.unwrap_or(MessageResult::Panicked)
        })
        .buffer_unordered(CALLS_AT_ONCE);
    let batches = tokio_stream::StreamExt::chunks_timeout(results, BATCH_SIZE_MAX, BATCH_DELAY);
    // Calls continue while replies are being sent.
    let sends = batches.map(|results| async move {
        send_replies(ports, agent.name.as_str(), results, progress).await;
    });
    let sending = sends.buffer_unordered(SENDS_AT_ONCE).collect::<()>();
    join(sending, Box::pin(report_wait(ports, Some(&agent.name), &wait))).await;
    progress.response()
}

/// The time at which all attempts of an invocation have to end, so that their replies can be sent before `deadline`, the time
/// at which the function has to stop.
#[must_use]
pub fn attempts_deadline(deadline: Timestamp) -> Timestamp {
    earlier(deadline, SENDS_WITHIN)
}

/// A received message, and the request that it contains.
type ReceivedRequest = (Result<Box<StepRequest>, CorruptMessage>, ReceivedMessage);

/// The request for this agent in a message.
fn parse_request(
    message: &ReceivedMessage,
    agent: &AgentName,
) -> Result<Box<StepRequest>, CorruptMessage> {
    let request: Box<StepRequest> = message.parse()?;
    if request.agent == *agent {
        return Ok(request);
    }
    let reason = format!("request for agent `{}` on the queue of agent `{agent}`", request.agent);
    Err(message.corrupt(reason))
}

/// How long the requests of the batch waited in the queue. A request that was delivered before also waited for its
/// redelivery, so it does not count.
fn wait_of_batch(received: &[ReceivedRequest], now: Timestamp) -> BatchWait {
    let first = received.iter().filter(|(_, message)| !message.redelivered);
    let waits = first.filter_map(|(request, message)| {
        let request = request.as_ref().ok()?;
        let used = used_share(message.sent_at?, request.complete_by, now);
        Some((request.tenant.as_ref(), used))
    });
    BatchWait::of(waits.collect())
}

/// Sends replies, and an alert for each corrupt message. Records which messages are done.
async fn send_replies<P: Ports>(
    ports: &P,
    role: &str,
    results: Vec<MessageResult>,
    progress: &BatchProgress,
) {
    let (mut owners, mut effects, mut corrupt) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        match result {
            MessageResult::Reply(message, reply) => {
                owners.push(message.message_id);
                let ReceivedMessage { traceparent, tenant, .. } = message;
                effects.push(OutgoingEffect { effect: Effect::Reply(*reply), traceparent, tenant });
            }
            MessageResult::Overdue(message, request) => {
                owners.push(message.message_id);
                let effect = overdue_wake(*request, ports.timing());
                effects.push(OutgoingEffect {
                    effect,
                    traceparent: message.traceparent,
                    tenant: message.tenant,
                });
            }
            MessageResult::Silent(message_id) => progress.done(message_id),
            MessageResult::Requeued | MessageResult::Panicked => {}
            MessageResult::Corrupt(message) => corrupt.push(message),
        }
    }
    let (sent, ()) = join(send_effects(ports, effects), alert_corrupt(ports, role, &corrupt)).await;
    for (message_id, sent) in owners.into_iter().zip(sent) {
        match sent {
            Ok(()) => progress.done(message_id),
            Err(error) => tracing::warn!(
                message_id,
                error = error_chain(&error),
                "reply or wake not sent; the request will be redelivered"
            ),
        }
    }
}

async fn handle_message<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    request: Result<Box<StepRequest>, CorruptMessage>,
    mut message: ReceivedMessage,
    deadline: Timestamp,
) -> MessageResult {
    let request = match request {
        Ok(request) => request,
        Err(corrupt) => return MessageResult::Corrupt(corrupt),
    };
    let mut span = TraceSpan::begin("attempt", SpanKind::Consumer, message.traceparent.as_deref());
    span.set_request(&request);
    span.set("messaging.system", "aws_sqs");
    span.set("messaging.operation.type", "process");
    span.set("messaging.message.id", &message.message_id);
    // SQS and its emulators report the message group id; the request has the tenant in any case.
    message.tenant = request.tenant.clone();
    // The calls and the reply continue this span's trace.
    message.traceparent = span.traceparent().or(message.traceparent);
    let delivered = DeliveredRequest {
        request: &request,
        traceparent: message.traceparent.as_deref(),
        redelivered: message.redelivered,
        redelivered_again: message.redelivered_again,
        sent_at: message.sent_at,
        first_received_at: message.first_received_at,
    };
    let Agent { service, breaker, rate, .. } = agent;
    let result = run_attempt(ports, breaker, rate, service, delivered, deadline).await;
    span.end(outcome_name(&result));
    match result {
        AttemptResult::Reply(reply) => MessageResult::Reply(message, reply),
        AttemptResult::Overdue => MessageResult::Overdue(message, request),
        AttemptResult::Silent => MessageResult::Silent(message.message_id),
        AttemptResult::Requeued => MessageResult::Requeued,
    }
}

/// Wakes the scheduler when the attempt is past due by every clock: the agent's clock may be ahead of the scheduler's by
/// the clock skew, and the scheduler waits for as long again.
fn overdue_wake(request: StepRequest, timing: Timing) -> Effect {
    let StepRequest { task_id, step, action, attempt, incarnation, agent, .. } = request;
    let call = OverdueCall { step, action, attempt, incarnation, agent: Some(agent) };
    let wake = Wake { task_id, cause: WakeCause::Overdue, call: Some(call) };
    Effect::Wake { wake, after: timing.clock_skew * 2 }
}

/// The outcome of an attempt, as an attribute of its span.
fn outcome_name(result: &AttemptResult) -> &'static str {
    match result {
        AttemptResult::Overdue => "overdue",
        AttemptResult::Silent => "silent",
        AttemptResult::Requeued => "requeued",
        AttemptResult::Reply(reply) => match reply.outcome {
            ReplyOutcome::Completed { .. } => "completed",
            ReplyOutcome::Failed { .. } => "failed",
            ReplyOutcome::Deferred { .. } => "deferred",
            ReplyOutcome::Unknown { .. } => "unknown",
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// A message with a request to `agent` of which this share of its ten seconds has passed.
    fn received(agent: &str, used: f64) -> ReceivedRequest {
        let sent_at = NOW - (used * 10.0).round() as i64;
        let body = json!({
            "task_id": "t", "step": "s", "attempt": 1, "complete_by": at(sent_at + 10),
            "idempotency_key": "k", "incarnation": 7, "call_within_ms": 100_000, "agent": agent, "method": "POST", "path": "/",
        });
        message(body.to_string(), sent_at)
    }

    fn message(body: String, sent_at: i64) -> ReceivedRequest {
        let message = ReceivedMessage {
            message_id: "m".to_owned(),
            body,
            redelivered: false,
            redelivered_again: false,
            first_delivery: true,
            traceparent: None,
            sent_at: Some(at(sent_at)),
            first_received_at: None,
            queue: None,
            sender_id: None,
            redriven: false,
            authenticated: false,
            tenant: None,
        };
        (parse_request(&message, &"a".parse().unwrap()), message)
    }

    fn used(received: &[ReceivedRequest]) -> f64 {
        wait_of_batch(received, at(NOW)).used
    }

    #[test]
    fn one_late_request_does_not_count_for_its_batch() {
        let mut batch: Vec<_> = (0..9).map(|_| received("a", 0.2)).collect();
        batch.push(received("a", 1.0));
        assert_eq!(used(&batch), 0.2);
        assert_eq!(used(&[received("a", 0.0), received("a", 1.0)]), 0.0);
        assert_eq!(used(&[received("a", 1.0), received("a", 0.2), received("a", 0.8)]), 0.8);
    }

    #[test]
    fn only_valid_requests_that_are_delivered_for_the_first_time_count() {
        let mut redelivered = received("a", 1.0);
        redelivered.1.redelivered = true;
        let no_request = message(json!({ "complete_by": at(NOW) }).to_string(), 0);
        let others = [redelivered, no_request, received("other", 1.0)];
        assert_eq!(used(&others), 0.0);
        assert_eq!(used(&[]), 0.0);
    }
}
