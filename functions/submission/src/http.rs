//! Single submissions over HTTP, and a task's status: what `steward local` serves, and the function
//! behind a function URL. `docs/http.md` is the contract.
//!
//! `POST /tasks` answers 202 with the task's address, `GET /tasks/{id}` the task; what went wrong is
//! a problem document (RFC 9457), with 503 if the same request again may succeed. A caller who is
//! refused hears it at once, so nothing is kept or alerted.

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
    submission::{Refusal, ReplyQueues, parse},
};
use steward_operator::view::{TaskView, reason_keys, result_of};
use steward_runtime::{
    dispatch::carry_out,
    ports::{PortError, Ports, StateStore, chain},
    trace::{Span, SpanKind},
};

use crate::{SPAN, receive};

/// Where submissions are posted.
const TASKS: &str = "/tasks";

/// When to come again if a port failed: most outages of a port are over within seconds.
const RETRY_AFTER_S: &str = "5";

/// A function's whole answer to HTTP: the routes, and a problem document for every other one.
pub fn service<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    routes(ports, reply_queues).fallback(no_such_route)
}

/// The routes, over these ports, for a host that has others beside them.
pub fn routes<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    Router::new()
        .route(TASKS, post(submit::<P>))
        .route("/tasks/{id}", get(status::<P>))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::MESSAGE_BYTES_MAX))
        .with_state((ports, reply_queues))
}

type Deps<P> = State<(Arc<P>, Arc<ReplyQueues>)>;

async fn submit<P: Ports>(
    State((ports, reply_queues)): Deps<P>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unread(&rejection),
    };
    let Ok(text) = std::str::from_utf8(&body) else {
        return MALFORMED.response("not a submission: not UTF-8");
    };
    // Only the scheduler submits for a step, and it uses the queue.
    let is_of_step = |submission: Submission| {
        let Submission { parent, undo, has_begun, keep, .. } = submission;
        parent.is_some() || undo || has_begun || keep.is_some()
    };
    if parse(text).is_ok_and(is_of_step) {
        let reason = "`parent`, `undo`, `has_begun` and `keep` are not for clients";
        return MALFORMED.response(&format!("not a submission: {reason}"));
    }
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let mut span = Span::begin(SPAN, SpanKind::Server, traceparent);
    span.set("http.request.method", "POST");
    span.set("http.route", TASKS);
    let traceparent = traceparent.map(str::to_owned);
    let receipt = match receive(&*ports, &reply_queues, text, traceparent, span).await {
        Ok(receipt) => receipt,
        Err(error) => return unavailable(&error),
    };
    match receipt.result {
        Ok(task_id) => {
            // The task is recorded: if a wake or notice is lost here, the supervisor finds the task.
            for error in carry_out(&*ports, receipt.sends).await.into_iter().filter_map(Result::err)
            {
                tracing::warn!(%task_id, error = chain(&error), "submitted, but not told");
            }
            let address = format!("/tasks/{task_id}");
            let answer = Json(json!({ "task_id": task_id, "href": address }));
            (StatusCode::ACCEPTED, [(header::LOCATION, address)], answer).into_response()
        }
        Err(refusal) => problem_of(&refusal).response(&refusal.to_string()),
    }
}

async fn status<P: Ports>(
    State((ports, _)): Deps<P>,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let id: TaskId = match id.map(|Path(id)| id.parse()) {
        Ok(Ok(id)) => id,
        Ok(Err(error)) => return MALFORMED_ID.response(&error.to_string()),
        Err(rejection) => return MALFORMED_ID.response(&rejection.body_text()),
    };
    match view(&*ports, &id).await {
        Ok(Some(view)) => Json(view).into_response(),
        Ok(None) => NO_SUCH_TASK.response(&format!("there is no task `{id}`")),
        Err(error) => unavailable(&error),
    }
}

/// The task, with what it returned, and why its steps failed or wait.
async fn view<P: Ports>(ports: &P, id: &TaskId) -> Result<Option<TaskView>, PortError> {
    let Some(task) = ports.store().load(id).await? else { return Ok(None) };
    let result = result_of(&task);
    let keys: Vec<_> = result.iter().cloned().chain(reason_keys(&task)).collect();
    let documents = if keys.is_empty() {
        Vec::new()
    } else {
        ports.store().documents(&task.owner(), &keys).await?
    };
    let output = documents.iter().find(|document| Some(&document.key) == result.as_ref());
    let output = output.map(|document| document.body.clone());
    Ok(Some(TaskView { output, ..TaskView::of(&task).with_reasons(&task, &documents) }))
}

async fn no_such_route(uri: Uri) -> Response {
    let detail = format!("there is no `{}`; there are `/tasks` and `/tasks/{{id}}`", uri.path());
    plain(StatusCode::NOT_FOUND, &detail)
}

/// The router adds which methods there are, in `Allow`.
async fn wrong_method(method: Method) -> Response {
    plain(StatusCode::METHOD_NOT_ALLOWED, &format!("{method} is not for this address"))
}

fn unavailable(error: &PortError) -> Response {
    tracing::warn!(error = chain(error), "request not served");
    let detail = "the state store did not answer; the same request again is safe";
    let problem = plain(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(header::RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
}

fn unread(rejection: &BytesRejection) -> Response {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let (most, limit) = (limits::MESSAGE_BYTES_MAX, limits::DOCUMENT_BYTES_MAX);
        let detail = format!("a submission of more than {most} bytes; the limit is {limit}");
        return TOO_LARGE.response(&detail);
    }
    plain(rejection.status(), &rejection.body_text())
}

/// A kind of problem: a program knows it by its name, a person by its title.
struct Problem {
    status: StatusCode,
    name: &'static str,
    title: &'static str,
}

impl Problem {
    const fn new(status: StatusCode, name: &'static str, title: &'static str) -> Self {
        Self { status, name, title }
    }

    fn response(&self, detail: &str) -> Response {
        document(self.status, &format!("urn:steward:{}", self.name), self.title, detail)
    }
}

const MALFORMED: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "malformed-submission", "Malformed submission");
const MALFORMED_ID: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "malformed-task-id", "Malformed task id");
const UNKNOWN_WORKFLOW: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "unknown-workflow", "Unknown workflow");
const INVALID_INPUT: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "invalid-input", "Invalid input");
const REPLY_QUEUE: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "reply-queue-not-allowed", "Reply queue not allowed");
const EVENT: Problem =
    Problem::new(StatusCode::BAD_REQUEST, "event-not-wanted", "Event not wanted");
const NO_SUCH_TASK: Problem = Problem::new(StatusCode::NOT_FOUND, "no-such-task", "No such task");
const ID_TAKEN: Problem = Problem::new(StatusCode::CONFLICT, "task-id-taken", "Task id taken");
const TOO_LARGE: Problem =
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "submission-too-large", "Submission too large");

fn problem_of(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::Malformed(_) => MALFORMED,
        Refusal::TooLarge(_) => TOO_LARGE,
        Refusal::UnknownWorkflow(_) => UNKNOWN_WORKFLOW,
        Refusal::InvalidInput(_) => INVALID_INPUT,
        Refusal::ReplyQueueNotAllowed => REPLY_QUEUE,
        Refusal::IdTaken(_) | Refusal::TooLate => ID_TAKEN,
        // Events come through the queue; none is read here.
        Refusal::NoTrigger { .. } | Refusal::Trigger { .. } => EVENT,
    }
}

/// A problem that its status says all about; its title is then the status's own (RFC 9457, 4.2.1).
fn plain(status: StatusCode, detail: &str) -> Response {
    document(status, "about:blank", status.canonical_reason().unwrap_or_default(), detail)
}

fn document(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let body = json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
