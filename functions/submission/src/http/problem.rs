//! The types of problems of the HTTP API.

use axum::{extract::rejection::BytesRejection, http::StatusCode, response::Response};
use steward_core::{limits, submission::SubmissionRefusal};
use steward_http::{ProblemType, untyped_problem};

/// The problem of a body that could not be read.
pub(super) fn unreadable_body(rejection: &BytesRejection) -> Response {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let (most, limit) = (limits::MESSAGE_BYTES_MAX, limits::DOCUMENT_BYTES_MAX);
        let detail = format!("a submission of more than {most} bytes; the limit is {limit}");
        return TOO_LARGE.response(&detail);
    }
    untyped_problem(rejection.status(), &rejection.body_text())
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

pub(super) const MALFORMED_PAYLOAD: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-payload", "Malformed payload");
const INVALID_PAYLOAD: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-payload", "Invalid payload");
pub(super) const PAYLOAD_TOO_LARGE: ProblemType =
    ProblemType::new(StatusCode::PAYLOAD_TOO_LARGE, "payload-too-large", "Payload too large");
pub(super) const NO_PAYLOADS: ProblemType =
    ProblemType::new(StatusCode::NOT_IMPLEMENTED, "no-payloads", "No payloads");

/// All types of problems.
pub(super) const PROBLEMS: [ProblemType; 15] = [
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
    MALFORMED_PAYLOAD,
    INVALID_PAYLOAD,
    PAYLOAD_TOO_LARGE,
    NO_PAYLOADS,
];

/// The type of the problem of a refusal.
pub(super) fn problem_type(refusal: &SubmissionRefusal) -> ProblemType {
    match refusal {
        SubmissionRefusal::Malformed(_) => MALFORMED,
        SubmissionRefusal::TooLarge(_) => TOO_LARGE,
        SubmissionRefusal::UnknownWorkflow(_) => UNKNOWN_WORKFLOW,
        SubmissionRefusal::InvalidInput(_) | SubmissionRefusal::Label { .. } => INVALID_INPUT,
        SubmissionRefusal::InvalidPayload { .. } => INVALID_PAYLOAD,
        SubmissionRefusal::ReplyQueueNotAllowed => REPLY_QUEUE,
        SubmissionRefusal::IdTaken(_) | SubmissionRefusal::TooLate => ID_TAKEN,
        // Events and reruns arrive on the queue only.
        SubmissionRefusal::NoTrigger { .. }
        | SubmissionRefusal::Trigger { .. }
        | SubmissionRefusal::Rerun(_) => EVENT,
    }
}
