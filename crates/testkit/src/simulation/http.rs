//! How the HTTP agent interprets the response of a service. The simulated services have no HTTP, so this file repeats
//! the table of the agent's HTTP client.

use std::{fmt, time::Duration};

use serde_json::Value;
use steward_agent::{attempt::CallFault, response::CallResponse};
use steward_core::{
    limits,
    model::responses::{ClassifiedResponse, ResponseOverrides},
};

use super::large_tasks;

/// The response to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ServiceResponse {
    Success(ResponseBody),
    /// An unsuccessful status code.
    Status(u16),
    /// The connection broke after the request was sent.
    #[default]
    Broken,
    /// The client's timeout passed.
    TimedOut,
    /// The service was not reached.
    NoConnection,
}

/// The body of a successful response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseBody {
    Output,
    Empty,
    NotJson,
}

impl fmt::Display for ServiceResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success(ResponseBody::Output) => f.write_str("2xx"),
            Self::Success(ResponseBody::Empty) => f.write_str("2xx without a body"),
            Self::Success(ResponseBody::NotJson) => f.write_str("2xx with HTML"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Broken => f.write_str("the connection broke"),
            Self::TimedOut => f.write_str("the call timed out"),
            Self::NoConnection => f.write_str("no connection"),
        }
    }
}

/// The result for the agent. `output` is the service's answer, if the call took effect.
pub(super) fn answer(
    response: ServiceResponse,
    responses: &ResponseOverrides,
    output: Option<Value>,
    retry_after: Option<Duration>,
    reason_chars: usize,
) -> Result<CallResponse, CallFault> {
    let transient = |may_have_run, retry_after| {
        let reason = response.to_string();
        Err(CallFault::Transient { reason, retry_after, may_have_run, detail: None })
    };
    let reason = || {
        // The titles of problem details may have any length and language.
        let title = large_tasks::words(reason_chars);
        limits::short_line(&format!("{response}{title}"), limits::REASON_CHARS_MAX)
    };
    let permanent =
        |may_have_run| Err(CallFault::Permanent { reason: reason(), may_have_run, detail: None });
    match response {
        ServiceResponse::Success(ResponseBody::Output | ResponseBody::Empty) => {
            Ok(output.unwrap_or_default().into())
        }
        ServiceResponse::Success(ResponseBody::NotJson) => permanent(true),
        ServiceResponse::NoConnection => transient(false, None),
        ServiceResponse::Broken => transient(true, None),
        ServiceResponse::TimedOut => Err(CallFault::TimedOut { reason: reason() }),
        ServiceResponse::Status(status) => match responses.classify(status) {
            ClassifiedResponse::Completed => Ok(output.unwrap_or_default().into()),
            ClassifiedResponse::Retry { may_have_run } if status < 500 => {
                transient(may_have_run, Some(retry_after.unwrap_or_default()))
            }
            ClassifiedResponse::Retry { may_have_run } => transient(may_have_run, retry_after),
            ClassifiedResponse::Conflict => {
                Err(CallFault::Conflict { reason: reason(), detail: None })
            }
            ClassifiedResponse::Failed => permanent(false),
            ClassifiedResponse::Unknown => permanent(true),
        },
    }
}
