//! The situations into which the kit brings an agent. Each has a task of its own, so replies and calls are assigned to their
//! case by task id and idempotency key.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{limits, model::time::later};

/// In every payload of the kit. It must not reach a log.
pub const PAYLOAD_MARK: &str = "payload-of-the-conformance-kit";

/// How long the service asks a caller to wait in [`Case::Busy`].
pub const BUSY_FOR: Duration = Duration::from_secs(60);

/// A situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// One request, and a service that works.
    Plain,
    /// The undo of a step.
    Undo,
    /// One item of a step with `for_each`.
    Item,
    /// A request with a field of a later version.
    UnknownField,
    /// The first reply cannot be sent.
    LostReply,
    /// A request in one batch with unreadable messages.
    Batch,
    /// A request of the maximum size.
    LargeRequest,
    /// The same request in two messages.
    Duplicate,
    /// Two attempts with the same idempotency key.
    Retry,
    /// A request that arrives after its complete-by.
    Late,
    /// The response of the service is too large for a reply.
    LargeOutput,
    /// A request that must not be repeated, in two messages.
    Once,
    /// The service refuses the request.
    Refused,
    /// The service refuses a request that was delivered before.
    Redelivered,
    /// The service responds 429 with `Retry-After`.
    Busy,
    /// The service does not respond.
    Silent,
    /// The service responds 503.
    Unavailable,
}

impl Case {
    /// All cases in the order of the check. Those that may open a circuit breaker come last.
    pub const ALL: [Self; 17] = [
        Self::Plain,
        Self::LostReply,
        Self::Undo,
        Self::Item,
        Self::UnknownField,
        Self::Batch,
        Self::LargeRequest,
        Self::Duplicate,
        Self::Retry,
        Self::Late,
        Self::LargeOutput,
        Self::Once,
        Self::Refused,
        Self::Redelivered,
        Self::Busy,
        Self::Silent,
        Self::Unavailable,
    ];

    /// The name in task ids.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Undo => "undo",
            Self::Item => "item",
            Self::UnknownField => "unknown-field",
            Self::LostReply => "lost-reply",
            Self::Batch => "batch",
            Self::LargeRequest => "large-request",
            Self::Duplicate => "duplicate",
            Self::Retry => "retry",
            Self::Late => "late",
            Self::LargeOutput => "large-output",
            Self::Once => "once",
            Self::Refused => "refused",
            Self::Redelivered => "redelivered",
            Self::Busy => "busy",
            Self::Silent => "silent",
            Self::Unavailable => "unavailable",
        }
    }

    /// Whether the case needs a service that the kit plays.
    #[must_use]
    pub fn needs_service(self) -> bool {
        match self {
            Self::LargeOutput
            | Self::Refused
            | Self::Redelivered
            | Self::Busy
            | Self::Silent
            | Self::Unavailable => true,
            Self::Plain
            | Self::Undo
            | Self::Item
            | Self::UnknownField
            | Self::LostReply
            | Self::Batch
            | Self::LargeRequest
            | Self::Duplicate
            | Self::Retry
            | Self::Late
            | Self::Once => false,
        }
    }

    /// Whether an agent must reply to each attempt of the case.
    #[must_use]
    pub fn needs_reply(self) -> bool {
        !matches!(self, Self::Late | Self::Once | Self::Busy | Self::Silent | Self::Unavailable)
    }

    /// How long after the request its complete-by is.
    fn complete_within(self) -> Duration {
        match self {
            Self::Busy | Self::Silent | Self::Unavailable => Duration::from_secs(3),
            Self::LostReply => Duration::from_secs(60),
            Self::Plain
            | Self::Undo
            | Self::Item
            | Self::UnknownField
            | Self::Batch
            | Self::LargeRequest
            | Self::Duplicate
            | Self::Retry
            | Self::Late
            | Self::LargeOutput
            | Self::Once
            | Self::Refused
            | Self::Redelivered => Duration::from_secs(20),
        }
    }
}

/// What the requests of a check have in common.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    /// The agent's name.
    pub agent: String,
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body.
    pub body: Value,
}

impl RequestTemplate {
    /// A request that any agent of the kit's own service accepts.
    #[must_use]
    pub fn of_agent(agent: &str) -> Self {
        let body = json!({ "name": "Ada", "note": PAYLOAD_MARK });
        Self { agent: agent.to_owned(), method: "POST".to_owned(), path: "/check".to_owned(), body }
    }

    /// Replaces method, path and body by those in a JSON object.
    ///
    /// # Errors
    /// It is not an object, or `path` or `method` is not a text.
    pub fn replaced_by(mut self, request: &Value) -> Result<Self, String> {
        let object = request.as_object().ok_or("the request is not a JSON object")?;
        for (name, value) in object {
            let text = || {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(format!("`{name}` of the request: not a text"))
            };
            match name.as_str() {
                "method" => self.method = text()?,
                "path" => self.path = text()?,
                "body" => self.body = value.clone(),
                _ => {
                    return Err(format!("unknown key `{name}` of the request: method, path, body"));
                }
            }
        }
        Ok(self)
    }

    /// The request of one attempt. `run` distinguishes the tasks of several checks.
    #[must_use]
    pub fn request(&self, run: &str, case: Case, attempt: u32, now: Timestamp) -> Value {
        let action = if case == Case::Undo { "undo" } else { "do" };
        let step = if case == Case::Item { "greet[3]" } else { "greet" };
        let task_id = task_id(run, case);
        let complete_by = if case == Case::Late {
            now - Duration::from_secs(2)
        } else {
            later(now, case.complete_within())
        };
        let call_within_ms = if case == Case::Silent { 1_000 } else { 10_000 };
        let mut request = json!({
            "task_id": task_id, "step": step, "action": action, "attempt": attempt,
            "complete_by": complete_by, "idempotency_key": format!("{task_id}/{step}/{action}"),
            "call_within_ms": call_within_ms, "agent": self.agent,
            "method": self.method, "path": self.path, "body": self.body,
            "incarnation": now.as_millisecond(),
        });
        let mut set = |name: &str, value: Value| {
            if let Value::Object(fields) = &mut request {
                fields.insert(name.to_owned(), value);
            }
        };
        if case == Case::Once {
            set("idempotent", json!(false));
        } else if case == Case::UnknownField {
            set("field_of_a_later_version", json!({ "a": [1, null] }));
        } else if case == Case::LargeRequest {
            set("body", self.large_body());
        } else if case == Case::Retry && attempt > 1 {
            set("may_have_run", json!(true));
        }
        request
    }

    /// The body, filled up to the maximum size of path and body.
    fn large_body(&self) -> Value {
        let size = self.path.len() + self.body.to_string().len() + r#","padding":"""#.len();
        let padding = PAYLOAD_MARK.repeat(limits::DOCUMENT_BYTES_MAX / PAYLOAD_MARK.len());
        let padding = padding.get(..limits::DOCUMENT_BYTES_MAX.saturating_sub(size));
        let mut body = self.body.clone();
        if let Value::Object(fields) = &mut body {
            fields.insert("padding".to_owned(), json!(padding.unwrap_or_default()));
        }
        body
    }
}

/// The task of a case.
#[must_use]
pub fn task_id(run: &str, case: Case) -> String {
    format!("check-{run}-{}", case.name())
}

/// The case to which a call with this idempotency key belongs.
#[must_use]
pub fn case_of_key(key: &str) -> Option<Case> {
    let (task, _) = key.split_once('/')?;
    let (_, name) = task.strip_prefix("check-")?.split_once('-')?;
    Case::ALL.into_iter().find(|case| case.name() == name)
}

/// The unreadable messages of [`Case::Batch`]: no JSON, and a JSON object that is no request.
#[must_use]
pub fn poison(run: &str) -> [String; 2] {
    [
        format!("{{ no JSON: {PAYLOAD_MARK} {run}"),
        json!({ "poison": format!("{PAYLOAD_MARK} {run}") }).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_cases_obey_the_contract() {
        let template = RequestTemplate::of_agent("a");
        for case in Case::ALL {
            let request = template.request("r1", case, 1, Timestamp::UNIX_EPOCH);
            steward_core::contract::check_request(&request).unwrap();
            let parsed: steward_core::model::messages::StepRequest =
                serde_json::from_value(request.clone()).unwrap();
            assert_eq!(case_of_key(&parsed.idempotency_key), Some(case));
            let body = parsed.body.unwrap().sqs_bytes() + parsed.path.len();
            assert!(body <= limits::DOCUMENT_BYTES_MAX, "{body}");
            let is_large = body > limits::DOCUMENT_BYTES_MAX - 100;
            assert_eq!(is_large, case == Case::LargeRequest, "{body}");
        }
    }

    #[test]
    fn a_request_of_the_author_is_read_strictly() {
        let template = || RequestTemplate::of_agent("a");
        let given = template().replaced_by(&json!({ "path": "/x", "body": [1] })).unwrap();
        assert_eq!((given.path.as_str(), given.method.as_str()), ("/x", "POST"));
        for wrong in [json!([]), json!({ "path": 1 }), json!({ "paht": "/x" })] {
            template().replaced_by(&wrong).unwrap_err();
        }
    }
}
