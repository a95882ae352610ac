//! What a fake service does with a call, and what its caller gets.

use std::{fmt, future::Future, pin::Pin};

use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};
use steward_agent::{attempt::CallFault, kind::interpret_answer, response::CallResponse};
use steward_core::model::{
    messages::StepRequest,
    responses::{ClassifiedResponse, ResponseOverrides},
};

/// Milliseconds, in a world since the start of the run.
pub type Millis = u64;

/// What a service does with a call. Times are in milliseconds from its start.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPlan {
    /// When the call takes effect, if it does.
    pub commits_after: Option<Millis>,
    /// When the service is done with it.
    pub ends_after: Millis,
    /// When the caller gets the reply, if it does.
    pub replies_after: Option<Millis>,
    /// What the caller gets.
    pub reply: Reply,
    /// What the call returns if it takes effect.
    pub output: Value,
    /// How long the caller waits. Without it, the caller waits for ever.
    pub caller_waits: Option<Millis>,
    /// What the service does when its caller disconnects before the call takes effect.
    pub after_disconnect: AfterDisconnect,
    /// The longest time that a call may take by the service's contract.
    pub longest: Millis,
    /// What the service does if it got the idempotency key before.
    pub key_memory: KeyMemory,
}

/// What a service does with an idempotency key that it got before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMemory {
    /// The call has no new effect, and returns what the first one returned.
    Kept,
    /// It ignores keys: each call takes effect.
    Ignored,
    /// It forgets a key this long after the call took effect. A later call takes effect again.
    ForgottenAfter(Millis),
    /// It stores the first reply, also an error, and sends it again for ever. No later call takes effect.
    ReplyStored,
}

/// What a service does when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AfterDisconnect {
    /// It notices nothing.
    Continues,
    /// It stops: the call has no effect.
    Stops,
    /// The call takes effect after this share of its remaining time.
    TakesEffect {
        /// From 0 to 1.
        share: f64,
    },
}

/// What the caller of a service gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A response.
    Http {
        /// The status.
        status: u16,
        /// The headers.
        headers: HeaderMap,
        /// The body.
        body: Body,
    },
    /// The connection breaks: the service may have carried out the call.
    BrokenConnection,
    /// No connection: the service did not get the call.
    NoConnection,
}

/// The body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// What the call returned when it took effect, where the agent reads it.
    Output,
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, which say that the service did not begin the call, whatever the status.
    NotBegun(Vec<u8>),
}

/// The status with which a service says that the call took effect. A step that polls, or judges a success by what it says, would
/// not take the generated output for one.
fn status_of_success(request: &StepRequest, status: u16, output: &Value) -> u16 {
    let response = json!({ "status": status, "headers": {}, "body": output });
    let meaning = request.responses.meaning(status, &response, Timestamp::UNIX_EPOCH);
    let is_taken = meaning.class == ClassifiedResponse::Completed;
    if (200..300).contains(&status) && request.responses.is_conditional(status) && !is_taken {
        return 203;
    }
    status
}

impl Reply {
    /// A successful response.
    #[must_use]
    pub fn success(body: Body) -> Self {
        Self::Http { status: 200, headers: HeaderMap::new(), body }
    }

    /// A response with this status. Its body is the output if the step's `responses` call the status a success.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Http { status, headers: HeaderMap::new(), body: Body::Output }
    }

    /// A response with the first of these statuses that has this meaning for the step.
    #[must_use]
    pub fn classified(
        responses: &ResponseOverrides,
        statuses: &[u16],
        meaning: &ClassifiedResponse,
    ) -> Option<Self> {
        let mut statuses = statuses.iter().copied();
        statuses.find(|status| responses.classify(*status) == *meaning).map(Self::status)
    }

    /// A refusal for good, unless the step's `responses` leave no status for it.
    #[must_use]
    pub fn refusal(responses: &ResponseOverrides) -> Option<Self> {
        let statuses = [422, 400, 403, 404, 409, 410];
        Self::classified(responses, &statuses, &ClassifiedResponse::Failed)
    }

    /// The same response, which asks for a pause before the next call.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        match self {
            Self::Http { status, mut headers, body } => {
                headers.insert(RETRY_AFTER, seconds.into());
                Self::Http { status, headers, body }
            }
            Self::BrokenConnection | Self::NoConnection => self,
        }
    }

    /// Whether the service says that it did not look at the call.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        matches!(
            self,
            Self::Http { status: 425 | 429, .. } | Self::Http { body: Body::NotBegun(_), .. }
        )
    }

    /// Whether it is a successful response with the output.
    #[must_use]
    pub fn is_plain_success(&self) -> bool {
        matches!(self, Self::Http { status: 200, body: Body::Output, .. })
    }

    /// What the agent makes of this reply to `request`. `output` is what the call returned, if it took effect.
    ///
    /// # Errors
    /// The fault that the reply stands for.
    pub(super) async fn interpret(
        &self,
        request: &StepRequest,
        output: Option<Value>,
        now: Timestamp,
    ) -> Result<CallResponse, CallFault> {
        let (status, headers, body) = match self {
            Self::NoConnection => return transient("no connection", false),
            Self::BrokenConnection => return transient("the connection broke", true),
            Self::Http { status, headers, body } => (*status, headers.clone(), body),
        };
        let status = match (body, &output) {
            (Body::Output, Some(output)) => status_of_success(request, status, output),
            _ => status,
        };
        let is_read = request.responses.is_conditional(status)
            || request.responses.classify(status) == ClassifiedResponse::Completed;
        let body = match (body, output) {
            (Body::Bytes(bytes) | Body::NotBegun(bytes), _) => bytes.clone(),
            (Body::Output, Some(output)) if is_read => output.to_string().into_bytes(),
            (Body::Output, _) => Vec::new(),
        };
        // Boxed, since the compiler cannot see through all of the agent's types.
        let answer: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(interpret_answer(status, headers, body, request, now));
        answer.await
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replies_after {
            Some(_) => self.reply.fmt(f),
            None => f.write_str("no answer"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, .. } => write!(f, "{status}"),
            Self::NoConnection => f.write_str("no connection"),
            Self::BrokenConnection => f.write_str("broken connection"),
        }
    }
}

impl CallPlan {
    /// A call that takes effect at once, and returns this output after a while.
    #[must_use]
    pub fn success(after: Millis, output: Value) -> Self {
        Self::without_effect(after, Reply::success(Body::Output)).with_effect(output)
    }

    /// A reply without any execution.
    #[must_use]
    pub fn without_effect(after: Millis, reply: Reply) -> Self {
        Self {
            commits_after: None,
            ends_after: after,
            replies_after: Some(after),
            reply,
            output: Value::Null,
            caller_waits: None,
            after_disconnect: AfterDisconnect::Continues,
            longest: Millis::MAX,
            key_memory: KeyMemory::Kept,
        }
    }

    /// The same reply, before which the call takes effect.
    #[must_use]
    pub fn with_effect(self, output: Value) -> Self {
        Self { commits_after: Some(0), output, ..self }
    }

    /// The same execution, whose caller never gets a reply.
    #[must_use]
    pub fn silent(self) -> Self {
        Self { replies_after: None, ..self }
    }
}

fn transient(reason: &str, may_have_run: bool) -> Result<CallResponse, CallFault> {
    let reason = reason.to_owned();
    Err(CallFault::Transient { reason, retry_after: None, may_have_run, detail: None })
}
