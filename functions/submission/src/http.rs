//! The HTTP API: single submissions, and the status of a task. `steward local` and the function behind a function URL serve
//! it. `docs/http.md` specifies it.
//!
//! `POST /tasks` responds with 202 and the task's URL, `GET /tasks/{id}` with the task. Errors are problem documents (RFC
//! 9457); the status is 503 if a retry may succeed, also while a queue is too long for new tasks. The caller gets a
//! refusal in the response, so it is neither kept in the rejected queue nor alerted.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, State,
        rejection::{BytesRejection, PathRejection},
    },
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::json;
use steward_core::{
    limits,
    model::{messages::Submission, names::TaskId},
    submission::{ReplyQueues, SubmissionRefusal, parse},
};
use steward_operator::view::{TaskView, failure_reason_keys, result_key_of};
use steward_runtime::{
    dispatch::send_effects,
    ports::{Clock, PortError, Ports, StateStore, error_chain},
    trace::{SpanKind, TraceSpan},
};

use crate::{IntakeView, SPAN, process_submission};

/// The path for submissions.
const TASKS: &str = "/tasks";

/// The `Retry-After` after a failure of a port, in seconds. Most outages end within seconds.
const RETRY_AFTER_S: &str = "5";

/// The router of the function: the routes of the API, and a problem document for every other path.
pub fn service<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    routes(ports, reply_queues).fallback(no_such_route)
}

/// The routes of the API, for a host that adds them to its own.
pub fn routes<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    Router::new()
        .route(TASKS, post(submit::<P>))
        .route("/tasks/{id}", get(status::<P>))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::MESSAGE_BYTES_MAX))
        .with_state((ports, reply_queues, Arc::default()))
}

/// The state of the routes.
type ApiState<P> = State<(Arc<P>, Arc<ReplyQueues>, Arc<IntakeView>)>;

async fn submit<P: Ports>(
    State((ports, reply_queues, intake)): ApiState<P>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreadable_body(&rejection),
    };
    let Ok(text) = std::str::from_utf8(&body) else {
        return MALFORMED.response("not a submission: not UTF-8");
    };
    // Only the scheduler submits child tasks, and it uses the queue.
    let is_child = |submission: &Submission| {
        let Submission { parent, undo, has_begun, retention, .. } = submission;
        parent.is_some() || *undo || *has_begun || retention.is_some()
    };
    let task_id = match parse(text) {
        Ok(submission) if is_child(&submission) => {
            let reason = "clients must not set `parent`, `undo`, `has_begun` or `keep`";
            return MALFORMED.response(&format!("not a submission: {reason}"));
        }
        Ok(submission) => Some(submission.task_id),
        Err(_) => None,
    };
    // Each second decides anew.
    let turn = ports.clock().now().as_second().unsigned_abs() as u32;
    let may_start = intake.may_start(&*ports, text, turn).await;
    if !may_start && !has_task(&*ports, task_id.as_ref()).await {
        let problem =
            OVERLOADED.response("a queue is too long; send the same submission again later");
        return ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response();
    }
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let mut span = TraceSpan::begin(SPAN, SpanKind::Server, traceparent);
    span.set("http.request.method", "POST");
    span.set("http.route", TASKS);
    let traceparent = traceparent.map(str::to_owned);
    let receipt = match process_submission(&*ports, &reply_queues, text, traceparent, span).await {
        Ok(receipt) => receipt,
        Err(error) => return unavailable(&error),
    };
    match receipt.result {
        Ok(task_id) => {
            // The task is recorded. If a wake is lost here, the supervisor finds the task.
            for error in
                send_effects(&*ports, receipt.sends).await.into_iter().filter_map(Result::err)
            {
                tracing::warn!(%task_id, error = error_chain(&error), "task recorded, but a wake or notification was not sent");
            }
            let url = format!("/tasks/{task_id}");
            let body = Json(json!({ "task_id": task_id, "href": url }));
            (StatusCode::ACCEPTED, [(header::LOCATION, url)], body).into_response()
        }
        Err(refusal) => problem_type(&refusal).response(&refusal.to_string()),
    }
}

/// Whether the task of a submission exists. A repeated submission starts nothing, so its result does not depend on the
/// load. If the store cannot be read, the client repeats the submission later.
async fn has_task<P: Ports>(ports: &P, task_id: Option<&TaskId>) -> bool {
    let Some(task_id) = task_id else { return false };
    ports.store().load(task_id).await.is_ok_and(|task| task.is_some())
}

async fn status<P: Ports>(
    State((ports, ..)): ApiState<P>,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let id: TaskId = match id.map(|Path(id)| id.parse()) {
        Ok(Ok(id)) => id,
        Ok(Err(error)) => return MALFORMED_ID.response(&error.to_string()),
        Err(rejection) => return MALFORMED_ID.response(&rejection.body_text()),
    };
    match task_view(&*ports, &id).await {
        Ok(Some(view)) => Json(view).into_response(),
        Ok(None) => NO_SUCH_TASK.response(&format!("there is no task `{id}`")),
        Err(error) => unavailable(&error),
    }
}

/// The task with its output, and the reasons why its steps failed or wait.
async fn task_view<P: Ports>(ports: &P, id: &TaskId) -> Result<Option<TaskView>, PortError> {
    let Some(task) = ports.store().load(id).await? else { return Ok(None) };
    let result = result_key_of(&task);
    let keys: Vec<_> = result.iter().cloned().chain(failure_reason_keys(&task)).collect();
    let documents = ports.store().documents_of(&task, &keys).await?;
    let output = documents.iter().find(|document| Some(&document.key) == result.as_ref());
    let output = output.map(|document| document.body.clone());
    Ok(Some(TaskView { output, ..TaskView::of(&task).with_reasons(&task, &documents) }))
}

async fn no_such_route(uri: Uri) -> Response {
    let detail =
        format!("there is no route `{}`; the routes are `/tasks` and `/tasks/{{id}}`", uri.path());
    untyped_problem(StatusCode::NOT_FOUND, &detail)
}

/// The router adds the supported methods in `Allow`.
async fn wrong_method(method: Method) -> Response {
    untyped_problem(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("this route does not support {method}"),
    )
}

fn unavailable(error: &PortError) -> Response {
    tracing::warn!(error = error_chain(error), "HTTP request failed");
    let detail = "the state store did not respond; the same request can be safely repeated";
    let problem = untyped_problem(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
}

/// The problem of a body that could not be read.
fn unreadable_body(rejection: &BytesRejection) -> Response {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let (most, limit) = (limits::MESSAGE_BYTES_MAX, limits::DOCUMENT_BYTES_MAX);
        let detail = format!("a submission of more than {most} bytes; the limit is {limit}");
        return TOO_LARGE.response(&detail);
    }
    untyped_problem(rejection.status(), &rejection.body_text())
}

/// A type of problem document: `name` is for programs, `title` for people.
struct ProblemType {
    status: StatusCode,
    name: &'static str,
    title: &'static str,
}

impl ProblemType {
    const fn new(status: StatusCode, name: &'static str, title: &'static str) -> Self {
        Self { status, name, title }
    }

    fn response(&self, detail: &str) -> Response {
        problem_response(self.status, &format!("urn:steward:{}", self.name), self.title, detail)
    }
}

const MALFORMED: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-submission", "Malformed submission");
const MALFORMED_ID: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-task-id", "Malformed task id");
const UNKNOWN_WORKFLOW: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "unknown-workflow", "Unknown workflow");
const INVALID_INPUT: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-input", "Invalid input");
const REPLY_QUEUE: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "reply-queue-not-allowed", "Reply queue not allowed");
const EVENT: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "event-not-wanted", "Event not wanted");
const NO_SUCH_TASK: ProblemType =
    ProblemType::new(StatusCode::NOT_FOUND, "no-such-task", "No such task");
const ID_TAKEN: ProblemType =
    ProblemType::new(StatusCode::CONFLICT, "task-id-taken", "Task id taken");
const OVERLOADED: ProblemType =
    ProblemType::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded");
const TOO_LARGE: ProblemType =
    ProblemType::new(StatusCode::PAYLOAD_TOO_LARGE, "submission-too-large", "Submission too large");

fn problem_type(refusal: &SubmissionRefusal) -> ProblemType {
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
fn untyped_problem(status: StatusCode, detail: &str) -> Response {
    problem_response(status, "about:blank", status.canonical_reason().unwrap_or_default(), detail)
}

/// A response with a problem document.
fn problem_response(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let body = json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
