//! The HTTP agent: receives step requests from its queue, calls its remote service, and sends replies to the scheduler's
//! queue.
//!
//! The requests of a batch run concurrently. The agent sends a reply as soon as it is ready, batched with others that are
//! ready within 20 ms, so that a slow call does not delay the other replies. A request that the circuit breaker defers
//! gets a reply too, and is acknowledged.

use std::{num::NonZeroU32, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use envconfig::Envconfig;
use futures_util::{FutureExt, StreamExt, future::join, stream};
use jiff::Timestamp;
use steward_aws::{
    batch::{CorruptMessage, ReceivedMessage, alert_corrupt, received_messages, response},
    config::HumanDuration,
};
use steward_core::{
    breaker::BreakerSettings,
    engine::effect::Effect,
    model::{
        messages::{ReplyOutcome, StepReply, StepRequest, Wake, WakeCause},
        names::{AgentName, TaskId},
        time::Timing,
    },
};
use steward_runtime::{
    dispatch::{Send, send_effects},
    ports::{Ports, error_chain},
    trace::{SpanKind, TraceSpan},
};

use crate::attempt::{AttemptResult, CircuitBreaker, DeliveredRequest, RemoteService, run_attempt};

pub mod attempt;
pub mod http;
#[cfg(feature = "secrets")]
pub mod secret;

/// How long a reply waits for others, so that they share a request to SQS.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// The largest number of replies in one request: the limit of SQS.
const BATCH_SIZE_MAX: usize = 10;

/// The largest number of concurrent calls, independent of the batch size.
const CALLS_AT_ONCE: usize = 100;

/// The largest number of concurrent requests to SQS.
const SENDS_AT_ONCE: usize = 16;

/// The configuration of an agent, beside the configuration that all functions share.
#[derive(Debug, Clone, Envconfig)]
pub struct AgentConfig {
    /// The agent's name, as in the `agent` of a step.
    #[envconfig(from = "STEWARD_AGENT_NAME")]
    pub name: AgentName,
    /// The URL of the remote service.
    #[envconfig(from = "STEWARD_AGENT_BASE_URL")]
    pub base_url: http::BaseUrl,
    /// Headers of every call, as a JSON object. Their values may be secrets.
    #[envconfig(from = "STEWARD_AGENT_HEADERS", default = "{}")]
    pub headers: http::Headers,
    /// The ARN of a secret in AWS Secrets Manager whose text is a JSON object of headers. They are added to every call
    /// and override `headers`. Empty if there is no secret.
    #[envconfig(from = "STEWARD_AGENT_SECRET_ARN", default = "")]
    pub secret_arn: String,
    /// The time limit of a call, independent of its step. The agent aborts a call that takes longer; its outcome is then
    /// unknown.
    #[envconfig(from = "STEWARD_AGENT_CALL_TIMEOUT", default = "100s")]
    pub call_timeout: HumanDuration,
    /// The number of consecutive calls of one instance that find the service unavailable before the agent's circuit
    /// breaker opens.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_FAILURES", default = "5")]
    pub breaker_failures: NonZeroU32,
    /// How long the breaker stays open at first, as `10s`. The time doubles with each failed probe, up to five minutes.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_OPEN_FOR", default = "10s")]
    pub breaker_open_for: HumanDuration,
}

impl AgentConfig {
    /// The circuit breaker's settings. A probe has the same time limit as any call.
    #[must_use]
    pub fn breaker(&self) -> BreakerSettings {
        BreakerSettings {
            failures: self.breaker_failures,
            open_for: self.breaker_open_for.0,
            probe_within: self.call_timeout.0,
        }
    }
}

/// An instance of an agent, and the service that it calls.
#[derive(Debug, Clone)]
pub struct Agent<S> {
    /// The agent's name. A request for another agent is corrupt.
    pub name: AgentName,
    /// The remote service.
    pub service: S,
    /// The circuit breaker that all instances of the agent share, as this instance knows it.
    pub breaker: Arc<CircuitBreaker>,
}

impl<S> Agent<S> {
    /// A new instance of the agent `name`, which has called nothing yet.
    #[must_use]
    pub fn new(name: AgentName, service: S, breaker: BreakerSettings) -> Self {
        let breaker = Arc::new(CircuitBreaker::new(name.clone(), breaker));
        Self { name, service, breaker }
    }
}

/// The result of handling one message.
enum MessageResult {
    /// The reply to the scheduler.
    Reply(ReceivedMessage, Box<StepReply>),
    /// The scheduler has to recover the task.
    Overdue(ReceivedMessage, TaskId),
    /// Nothing is sent.
    Silent,
    /// SQS has to deliver the message with this id again.
    Requeued(String),
    Corrupt(CorruptMessage),
    Panicked(String),
}

/// Handles a batch of step requests. Returns the messages that SQS has to deliver again. `deadline` is the time at which
/// Lambda stops the function.
pub async fn handle<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    event: SqsEvent,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let results = stream::iter(received_messages(event))
        .map(|message| async move {
            let message_id = message.message_id.clone();
            let result = AssertUnwindSafe(handle_message(ports, agent, message, deadline));
            result.catch_unwind().await.unwrap_or(MessageResult::Panicked(message_id))
        })
        .buffer_unordered(CALLS_AT_ONCE);
    let batches = tokio_stream::StreamExt::chunks_timeout(results, BATCH_SIZE_MAX, BATCH_DELAY);
    // Calls continue while replies are being sent.
    let sends = batches
        .map(|results| async move { send_replies(ports, agent.name.as_str(), results).await });
    let failed: Vec<Vec<String>> = sends.buffer_unordered(SENDS_AT_ONCE).collect().await;
    response(failed.into_iter().flatten())
}

/// Sends replies, and an alert for each corrupt message. Returns the ids of the messages that have to be delivered again.
async fn send_replies<P: Ports>(ports: &P, role: &str, results: Vec<MessageResult>) -> Vec<String> {
    let (mut owners, mut sends) = (Vec::new(), Vec::new());
    let (mut failed, mut corrupt) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            MessageResult::Reply(message, reply) => {
                owners.push(message.message_id);
                let effect = Effect::Reply(*reply);
                sends.push(Send { effect, traceparent: message.traceparent });
            }
            MessageResult::Overdue(message, task_id) => {
                owners.push(message.message_id);
                let effect = overdue_wake(task_id, ports.timing());
                sends.push(Send { effect, traceparent: message.traceparent });
            }
            MessageResult::Silent => {}
            MessageResult::Requeued(message_id) | MessageResult::Panicked(message_id) => {
                failed.push(message_id)
            }
            MessageResult::Corrupt(message) => corrupt.push(message),
        }
    }
    let (sent, ()) = join(send_effects(ports, sends), alert_corrupt(ports, role, &corrupt)).await;
    for (message_id, sent) in owners.into_iter().zip(sent) {
        if let Err(error) = sent {
            tracing::warn!(
                message_id,
                error = error_chain(&error),
                "reply or wake not sent; the request will be redelivered"
            );
            failed.push(message_id);
        }
    }
    failed.extend(corrupt.into_iter().map(|message| message.message_id));
    failed
}

async fn handle_message<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    mut message: ReceivedMessage,
    deadline: Timestamp,
) -> MessageResult {
    let request: StepRequest = match message.parse() {
        Ok(request) => request,
        Err(corrupt) => return MessageResult::Corrupt(corrupt),
    };
    if request.agent != agent.name {
        let reason =
            format!("request for agent `{}` on the queue of agent `{}`", request.agent, agent.name);
        return MessageResult::Corrupt(message.corrupt(reason));
    }
    let mut span = TraceSpan::begin("attempt", SpanKind::Consumer, message.traceparent.as_deref());
    span.set_request(&request);
    span.set("messaging.system", "aws_sqs");
    span.set("messaging.operation.type", "process");
    span.set("messaging.message.id", &message.message_id);
    // The calls and the reply continue this span's trace.
    message.traceparent = span.traceparent().or(message.traceparent);
    let delivered = DeliveredRequest {
        request: &request,
        traceparent: message.traceparent.as_deref(),
        redelivered: message.redelivered,
        sent_at: message.sent_at,
    };
    let result = run_attempt(ports, &agent.breaker, &agent.service, delivered, deadline).await;
    span.end(outcome_name(&result));
    match result {
        AttemptResult::Reply(reply) => MessageResult::Reply(message, reply),
        AttemptResult::Overdue => MessageResult::Overdue(message, request.task_id),
        AttemptResult::Silent => MessageResult::Silent,
        AttemptResult::Requeued => MessageResult::Requeued(message.message_id),
    }
}

/// Wakes the scheduler when the attempt is past due by every clock: the agent's clock may be ahead of the scheduler's by
/// the clock skew, and the scheduler waits for as long again.
fn overdue_wake(task_id: TaskId, timing: Timing) -> Effect {
    let wake = Wake { task_id, cause: WakeCause::Overdue };
    Effect::Wake { wake, after: timing.clock_skew * 2 }
}

/// The outcome of an attempt, as an attribute of its span.
fn outcome_name(result: &AttemptResult) -> &'static str {
    match result {
        AttemptResult::Overdue => "overdue",
        AttemptResult::Silent => "silent",
        AttemptResult::Requeued => "given back",
        AttemptResult::Reply(reply) => match reply.outcome {
            ReplyOutcome::Completed { .. } => "completed",
            ReplyOutcome::Failed { .. } => "failed",
            ReplyOutcome::Deferred { .. } => "deferred",
            ReplyOutcome::Unknown { .. } => "unknown",
        },
    }
}
