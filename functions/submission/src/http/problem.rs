//! Problem documents (RFC 9457).

use axum::{
    extract::rejection::BytesRejection,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use steward_core::{limits, submission::SubmissionRefusal};
use steward_runtime::ports::{PortError, error_chain};

/// The `Retry-After` after a failure of a port, in seconds. Most outages end within seconds.
pub(super) const RETRY_AFTER_S: &str = "5";

/// The problem of a failed port.
pub(super) fn unavailable(error: &PortError) -> Response {
    tracing::warn!(error = error_chain(error), "HTTP request failed");
    let detail = "the state store did not respond; the same request can be safely repeated";
    let problem = untyped_problem(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
}

/// The problem of a body that could not be read.
pub(super) fn unreadable_body(rejection: &BytesRejection) -> Response {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let (most, limit) = (limits::MESSAGE_BYTES_MAX, limits::DOCUMENT_BYTES_MAX);
        let detail = format!("a submission of more than {most} bytes; the limit is {limit}");
        return TOO_LARGE.response(&detail);
    }
    untyped_problem(rejection.status(), &rejection.body_text())
}

/// A type of problem document: `name` is for programs, `title` for people.
pub(super) struct ProblemType {
    status: StatusCode,
    name: &'static str,
    title: &'static str,
}

impl ProblemType {
    const fn new(status: StatusCode, name: &'static str, title: &'static str) -> Self {
        Self { status, name, title }
    }

    pub(super) fn urn(&self) -> String {
        format!("urn:steward:{}", self.name)
    }

    pub(super) fn response(&self, detail: &str) -> Response {
        problem_response(self.status, &self.urn(), self.title, detail)
    }
}

pub(super) const MALFORMED: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-submission", "Malformed submission");
pub(super) const MALFORMED_ID: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-task-id", "Malformed task id");
pub(super) const INVALID_WAIT: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-wait", "Invalid wait");
const UNKNOWN_WORKFLOW: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "unknown-workflow", "Unknown workflow");
const INVALID_INPUT: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-input", "Invalid input");
const REPLY_QUEUE: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "reply-queue-not-allowed", "Reply queue not allowed");
const EVENT: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "event-not-wanted", "Event not wanted");
pub(super) const NO_SUCH_TASK: ProblemType =
    ProblemType::new(StatusCode::NOT_FOUND, "no-such-task", "No such task");
const ID_TAKEN: ProblemType =
    ProblemType::new(StatusCode::CONFLICT, "task-id-taken", "Task id taken");
pub(super) const OVERLOADED: ProblemType =
    ProblemType::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded");
const TOO_LARGE: ProblemType =
    ProblemType::new(StatusCode::PAYLOAD_TOO_LARGE, "submission-too-large", "Submission too large");

/// All types of problems.
pub(super) const PROBLEMS: [ProblemType; 11] = [
    MALFORMED,
    MALFORMED_ID,
    INVALID_WAIT,
    UNKNOWN_WORKFLOW,
    INVALID_INPUT,
    REPLY_QUEUE,
    EVENT,
    NO_SUCH_TASK,
    ID_TAKEN,
    OVERLOADED,
    TOO_LARGE,
];

/// The type of the problem of a refusal.
pub(super) fn problem_type(refusal: &SubmissionRefusal) -> ProblemType {
    match refusal {
        SubmissionRefusal::Malformed(_) => MALFORMED,
        SubmissionRefusal::TooLarge(_) => TOO_LARGE,
        SubmissionRefusal::UnknownWorkflow(_) => UNKNOWN_WORKFLOW,
        SubmissionRefusal::InvalidInput(_) => INVALID_INPUT,
        SubmissionRefusal::ReplyQueueNotAllowed => REPLY_QUEUE,
        SubmissionRefusal::IdTaken(_) | SubmissionRefusal::TooLate => ID_TAKEN,
        // Events arrive on the queue only.
        SubmissionRefusal::NoTrigger { .. } | SubmissionRefusal::Trigger { .. } => EVENT,
    }
}

/// A problem without a type of its own; its title is the reason phrase of the status (RFC 9457, 4.2.1).
pub(super) fn untyped_problem(status: StatusCode, detail: &str) -> Response {
    problem_response(status, "about:blank", status.canonical_reason().unwrap_or_default(), detail)
}

/// A response with a problem document.
fn problem_response(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let body = json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
