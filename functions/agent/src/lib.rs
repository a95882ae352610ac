//! The HTTP agent: takes step requests from its queue, calls its remote service, and sends the
//! answers to the scheduler's queue.
//!
//! All requests of a batch are carried out side by side. Answers leave as soon as they are there,
//! together with those that come within 20 ms, so that one slow call holds nobody up. A request that
//! the circuit breaker defers is answered too, and so acknowledged.

use std::{num::NonZeroU32, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use envconfig::Envconfig;
use futures_util::{FutureExt, StreamExt, future::join, stream};
use jiff::Timestamp;
use steward_aws::{
    batch::{Corrupt, Received, alert_corrupt, received, response},
    config::HumanDuration,
};
use steward_core::{
    breaker::Settings,
    engine::effect::Effect,
    model::{
        messages::{Outcome, StepRequest},
        names::AgentName,
    },
};
use steward_runtime::{
    dispatch::{Send, carry_out},
    ports::{Ports, chain},
    trace::{Span, SpanKind},
};

use crate::attempt::{Attempted, Delivered, Guard, RemoteService, attempt};

pub mod attempt;
pub mod http;
pub mod secret;

/// How long an answer waits for others to share its request to SQS.
const LINGER: Duration = Duration::from_millis(20);

/// Answers that share a request, by SQS's limit.
const REPLIES_AT_ONCE: usize = 10;

/// Calls under way at once, whatever the size of the batch.
const CALLS_AT_ONCE: usize = 100;

/// Requests to SQS under way at once.
const SENDS_AT_ONCE: usize = 16;

/// What one agent's deployment adds to the shared configuration.
#[derive(Debug, Clone, Envconfig)]
pub struct AgentConfig {
    /// The logical agent's name, as steps say it.
    #[envconfig(from = "STEWARD_AGENT_NAME")]
    pub name: AgentName,
    /// The remote service.
    #[envconfig(from = "STEWARD_AGENT_BASE_URL")]
    pub base_url: http::BaseUrl,
    /// Headers of every call, as a JSON object; may hold secrets.
    #[envconfig(from = "STEWARD_AGENT_HEADERS", default = "{}")]
    pub headers: http::Headers,
    /// A secret in AWS Secrets Manager whose text is a JSON object of headers, added to every call
    /// over those above. Empty: none.
    #[envconfig(from = "STEWARD_AGENT_SECRET_ARN", default = "")]
    pub secret_arn: String,
    /// How long one call may take at most, whatever its step says; one that takes longer is cut off, and its outcome
    /// is unknown.
    #[envconfig(from = "STEWARD_AGENT_CALL_TIMEOUT", default = "100s")]
    pub call_timeout: HumanDuration,
    /// How many calls in a row, as one instance sees them, find the service unavailable before the
    /// agent's circuit breaker opens.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_FAILURES", default = "5")]
    pub breaker_failures: NonZeroU32,
    /// How long the breaker stays open at first, as `10s`. It doubles with each failed probe, up to
    /// five minutes.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_OPEN_FOR", default = "10s")]
    pub breaker_open_for: HumanDuration,
}

impl AgentConfig {
    /// The circuit breaker's settings. A probe may take as long as any call.
    #[must_use]
    pub fn breaker(&self) -> Settings {
        Settings {
            failures: self.breaker_failures,
            open_for: self.breaker_open_for.0,
            probe_within: self.call_timeout.0,
        }
    }
}

/// A logical agent and the service it wraps.
#[derive(Debug, Clone)]
pub struct Agent<S> {
    /// Its name; requests for another are corrupt.
    pub name: AgentName,
    /// Its service.
    pub service: S,
    /// This instance's view of the circuit breaker that all of the agent's instances share.
    pub guard: Arc<Guard>,
}

impl<S> Agent<S> {
    /// An instance of the agent `name`.
    #[must_use]
    pub fn new(name: AgentName, service: S, breaker: Settings) -> Self {
        let guard = Arc::new(Guard::new(name.clone(), breaker));
        Self { name, service, guard }
    }
}

/// What became of one message.
enum Answer {
    Attempted(Received, Attempted),
    Corrupt(Corrupt),
    Panicked(String),
}

/// Handles a batch of step requests. `deadline` is when the function itself is stopped.
pub async fn handle<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    event: SqsEvent,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let answers = stream::iter(received(event))
        .map(|message| async move {
            let message_id = message.message_id.clone();
            let answer = AssertUnwindSafe(answer(ports, agent, message, deadline));
            answer.catch_unwind().await.unwrap_or(Answer::Panicked(message_id))
        })
        .buffer_unordered(CALLS_AT_ONCE);
    let answers = tokio_stream::StreamExt::chunks_timeout(answers, REPLIES_AT_ONCE, LINGER);
    // While answers are on their way, calls go on.
    let told =
        answers.map(|answers| async move { tell(ports, agent.name.as_str(), answers).await });
    let failed: Vec<Vec<String>> = told.buffer_unordered(SENDS_AT_ONCE).collect().await;
    response(failed.into_iter().flatten())
}

/// Sends answers, and alerts what is corrupt. The ids of the messages that are not done.
async fn tell<P: Ports>(ports: &P, role: &str, answers: Vec<Answer>) -> Vec<String> {
    let (mut owners, mut replies) = (Vec::new(), Vec::new());
    let (mut failed, mut corrupt) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Answer::Attempted(message, Attempted::Reply(reply)) => {
                owners.push(message.message_id);
                let effect = Effect::Reply(*reply);
                replies.push(Send { effect, traceparent: message.traceparent });
            }
            Answer::Attempted(_, Attempted::Silent) => {}
            Answer::Attempted(message, Attempted::GivenBack) => failed.push(message.message_id),
            Answer::Corrupt(message) => corrupt.push(message),
            Answer::Panicked(message_id) => failed.push(message_id),
        }
    }
    let (sent, ()) = join(carry_out(ports, replies), alert_corrupt(ports, role, &corrupt)).await;
    for (message_id, sent) in owners.into_iter().zip(sent) {
        if let Err(error) = sent {
            tracing::warn!(
                message_id,
                error = chain(&error),
                "reply not sent; the call will be repeated"
            );
            failed.push(message_id);
        }
    }
    failed.extend(corrupt.into_iter().map(|message| message.message_id));
    failed
}

async fn answer<P: Ports, S: RemoteService>(
    ports: &P,
    agent: &Agent<S>,
    mut message: Received,
    deadline: Timestamp,
) -> Answer {
    let request: StepRequest = match message.parse() {
        Ok(request) => request,
        Err(corrupt) => return Answer::Corrupt(corrupt),
    };
    if request.agent != agent.name {
        let reason =
            format!("a request for agent `{}`, on the queue of `{}`", request.agent, agent.name);
        return Answer::Corrupt(message.corrupt(reason));
    }
    let mut span = Span::begin("attempt", SpanKind::Consumer, message.traceparent.as_deref());
    span.set_request(&request);
    span.set("messaging.system", "aws_sqs");
    span.set("messaging.operation.type", "process");
    span.set("messaging.message.id", &message.message_id);
    // The calls and the reply follow from it.
    message.traceparent = span.traceparent().or(message.traceparent);
    let delivered = Delivered {
        request: &request,
        traceparent: message.traceparent.as_deref(),
        redelivered: message.redelivered,
        sent_at: message.sent_at,
    };
    let attempted = attempt(ports, &agent.guard, &agent.service, delivered, deadline).await;
    span.end(outcome(&attempted));
    Answer::Attempted(message, attempted)
}

/// In a word.
fn outcome(attempted: &Attempted) -> &'static str {
    match attempted {
        Attempted::Silent => "silent",
        Attempted::GivenBack => "given back",
        Attempted::Reply(reply) => match reply.outcome {
            Outcome::Completed { .. } => "completed",
            Outcome::Failed { .. } => "failed",
            Outcome::Deferred { .. } => "deferred",
            Outcome::Unknown { .. } => "unknown",
        },
    }
}
