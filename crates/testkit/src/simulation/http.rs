//! What the HTTP agent makes of a service's response: the table of the agent's own client, for services
//! that are not reached over HTTP here.

use std::{fmt, time::Duration};

use serde_json::Value;
use steward_agent::attempt::Fault;
use steward_core::{
    limits,
    model::responses::{ResponseMeaning, Responses},
};

use super::large;

/// What comes back from a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Response {
    Success(Body),
    /// A status that is no success.
    Status(u16),
    /// The connection broke after the request was sent.
    #[default]
    Broken,
    /// The client's own time for a response was up.
    TimedOut,
    /// The service was not reached.
    NoConnection,
}

/// What is in the response to a call that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Output,
    Empty,
    NotJson,
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success(Body::Output) => f.write_str("2xx"),
            Self::Success(Body::Empty) => f.write_str("2xx without a body"),
            Self::Success(Body::NotJson) => f.write_str("2xx with HTML"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Broken => f.write_str("the connection broke"),
            Self::TimedOut => f.write_str("the call timed out"),
            Self::NoConnection => f.write_str("no connection"),
        }
    }
}

/// What the agent is told. `output` is what the service returns, if the call took effect.
pub(super) fn answer(
    response: Response,
    responses: &Responses,
    output: Option<Value>,
    retry_after: Option<Duration>,
    reason_chars: usize,
) -> Result<Value, Fault> {
    let transient = |may_have_run, retry_after| {
        Err(Fault::Transient { reason: response.to_string(), retry_after, may_have_run })
    };
    let reason = || {
        // Titles of problems are as long as a service makes them, and in any language.
        let title = large::words(reason_chars);
        limits::shorten(&format!("{response}{title}"), limits::REASON_CHARS_MAX)
    };
    let permanent = |may_have_run| Err(Fault::Permanent { reason: reason(), may_have_run });
    match response {
        Response::Success(Body::Output | Body::Empty) => Ok(output.unwrap_or_default()),
        Response::Success(Body::NotJson) => permanent(true),
        Response::NoConnection => transient(false, None),
        Response::Broken => transient(true, None),
        Response::TimedOut => Err(Fault::Cut { reason: reason() }),
        Response::Status(status) => match responses.meaning(status) {
            ResponseMeaning::Completed => Ok(output.unwrap_or_default()),
            ResponseMeaning::Retry { may_have_run } if status < 500 => {
                transient(may_have_run, Some(retry_after.unwrap_or_default()))
            }
            ResponseMeaning::Retry { may_have_run } => transient(may_have_run, retry_after),
            ResponseMeaning::Conflict => Err(Fault::Conflict { reason: reason() }),
            ResponseMeaning::Failed => permanent(false),
            ResponseMeaning::Unknown => permanent(true),
        },
    }
}
