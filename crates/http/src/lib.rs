//! Problem documents ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)), the errors of Steward's HTTP APIs. Programs
//! evaluate `type` and `status`; `title` and `detail` are for people. No `detail` contains a value of a payload.
//!
//! And the [form](answer_form) for the answer to a callback, which the console and the callback's own page show.

pub mod answer_form;

use axum::{
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use steward_runtime::{
    metrics,
    ports::{PortError, error_chain},
};

/// The `Retry-After` after a failure of a port, in seconds. Most outages end within seconds.
pub const RETRY_AFTER_S: &str = "5";

/// A type of problem document: `name` is for programs, `title` for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemType {
    status: StatusCode,
    name: &'static str,
    title: &'static str,
}

impl ProblemType {
    /// A type of problem. `name` follows `urn:steward:`.
    #[must_use]
    pub const fn new(status: StatusCode, name: &'static str, title: &'static str) -> Self {
        Self { status, name, title }
    }

    /// The name of the type, for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The title, for people.
    #[must_use]
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// The status of a response with a problem of this type.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The `type` in the document.
    #[must_use]
    pub fn urn(&self) -> String {
        format!("urn:steward:{}", self.name)
    }

    /// A response with a problem of this type.
    #[must_use]
    pub fn response(&self, detail: &str) -> Response {
        problem_response(self.status, &self.urn(), self.title, detail)
    }
}

/// A problem without a type of its own; its title is the reason phrase of the status (RFC 9457, 4.2.1).
#[must_use]
pub fn untyped_problem(status: StatusCode, detail: &str) -> Response {
    problem_response(status, "about:blank", status.canonical_reason().unwrap_or_default(), detail)
}

/// The problem of a failed port.
#[must_use]
pub fn unavailable(error: &PortError) -> Response {
    tracing::warn!(error = error_chain(error), "HTTP request failed");
    metrics::messages_failed(1);
    let detail = "the state store did not respond; the same request can be safely repeated";
    let problem = untyped_problem(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
}

/// The problem of a request that was not answered before the function had to stop.
#[must_use]
pub fn out_of_time() -> Response {
    tracing::warn!("HTTP request not answered: the function's time was up");
    metrics::messages_failed(1);
    let detail = "the request was not answered in time; the same request can be safely repeated";
    let problem = untyped_problem(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
}

/// The problem of a method that a route does not support. The router adds the supported ones in `Allow`.
pub async fn wrong_method(method: Method) -> Response {
    untyped_problem(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("this route does not support {method}"),
    )
}

/// Writes the named enumerations of an API's description as lists of values, with the meaning of each in the text: generators of
/// clients do not read a choice of constants.
pub fn list_enum_values(schemas: &mut Map<String, Value>) {
    for schema in schemas.values_mut() {
        let choices = schema["oneOf"].as_array().map_or(&[][..], Vec::as_slice);
        let values: Vec<_> = choices.iter().filter_map(|choice| choice["const"].as_str()).collect();
        if values.is_empty() || values.len() < choices.len() {
            continue;
        }
        let meaning = |choice: &Value| {
            Some(format!("- `{}`: {}", choice["const"].as_str()?, choice["description"].as_str()?))
        };
        let text = schema["description"].as_str().map(str::to_owned);
        let lines: Vec<_> = text.into_iter().chain(choices.iter().filter_map(meaning)).collect();
        *schema = json!({ "type": "string", "enum": values, "description": lines.join("\n") });
    }
}

/// The JSON Schema of a problem document of an API with these types of problems.
#[must_use]
pub fn problem_schema(types: &[ProblemType]) -> Value {
    let types = types.iter().map(ProblemType::urn);
    let types: Vec<_> = types.chain(["about:blank".to_owned()]).collect();
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457).",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "enum": types, "description": "For programs." },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "For people. Contains no value of the input." },
        },
    })
}

fn problem_response(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let body = json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
