//! The HTTP API: single submissions, and the status of a task. `steward local` and the function behind a function URL serve
//! it. `docs/http.md` specifies it.
//!
//! `POST /tasks` responds with 202 and the task's URL, `GET /tasks/{id}` with the task. Errors are problem documents (RFC
//! 9457); the status is 503 if a retry may succeed, also while a queue is too long for new tasks. The caller gets a
//! refusal in the response, so it is neither kept in the rejected queue nor alerted.
//!
//! `POST /payloads` responds with a signed request, with which the client uploads what is too large for a submission.
//!
//! The first two wait for the end of the task if the caller asks for it. The function runs meanwhile.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, State,
        rejection::{BytesRejection, PathRejection},
    },
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use steward_core::{
    limits,
    model::{messages::Submission, names::TaskId, task::Task},
    submission::{ReplyQueues, parse},
};
use steward_http::{RETRY_AFTER_S, unavailable, untyped_problem, wrong_method};
use steward_operator::view::{TaskView, failure_reason_keys, result_key_of};
use steward_runtime::{
    dispatch::send_effects,
    ports::{Clock, PortError, Ports, StateStore, error_chain},
    trace::{SpanKind, TraceSpan},
    waiting::{Missing, wait_for_end},
};

use crate::{SPAN, process_submission};

mod api_state;
pub mod openapi;
mod payloads;
mod problem;
mod wait;

use api_state::ApiState;
use openapi::SubmittedTask;
use problem::{
    INVALID_WAIT, MALFORMED, MALFORMED_ID, NO_SUCH_TASK, OVERLOADED, problem_type, unreadable_body,
};
use wait::requested_wait;

/// The path for submissions.
const TASKS: &str = "/tasks";

/// The path for payloads.
const PAYLOADS: &str = "/payloads";

/// The router of the function: the routes of the API, and a problem document for every other path.
pub fn service<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    routes(ports, reply_queues).fallback(no_such_route)
}

/// The routes of the API, for a host that adds them to its own.
pub fn routes<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    Router::new()
        .route(TASKS, post(submit::<P>))
        .route("/tasks/{id}", get(status::<P>))
        .route(PAYLOADS, post(payloads::prepare::<P>))
        .route("/openapi.json", get(async || Json(openapi::description())))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::MESSAGE_BYTES_MAX))
        .with_state((ports, reply_queues, Arc::default()))
}

async fn submit<P: Ports>(
    State((ports, reply_queues, intake)): ApiState<P>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let begun = Instant::now();
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreadable_body(&rejection),
    };
    let Ok(text) = std::str::from_utf8(&body) else {
        return MALFORMED.response("not a submission: not UTF-8");
    };
    let wait = match requested_wait(&uri, &headers) {
        Ok(wait) => wait,
        Err(reason) => return INVALID_WAIT.response(&reason),
    };
    // Only the scheduler submits child tasks and reruns, and it uses the queue.
    let is_internal = |submission: &Submission| {
        let Submission { parent, undo, has_begun, retention, rerun, .. } = submission;
        parent.is_some() || *undo || *has_begun || retention.is_some() || rerun.is_some()
    };
    let task_id = match parse(text) {
        Ok(submission) if is_internal(&submission) => {
            let reason = "clients must not set `parent`, `undo`, `has_begun`, `keep` or `rerun`";
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
                send_effects(&*ports, receipt.effects).await.into_iter().filter_map(Result::err)
            {
                tracing::warn!(%task_id, error = error_chain(&error), "task recorded, but a wake or notification was not sent");
            }
            let left = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
            accepted(&*ports, &task_id, left).await
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

/// The response to an accepted submission. If the caller waits: 200 with the task if it has ended, else 202 with the task.
async fn accepted<P: Ports>(ports: &P, task_id: &TaskId, wait: Option<Duration>) -> Response {
    let url = format!("/tasks/{task_id}");
    let reference = Json(SubmittedTask { task_id, href: &url });
    let location = [(header::LOCATION, &url)];
    let view = match wait {
        Some(wait) => waited_view(ports, task_id, wait).await,
        None => Ok(None),
    };
    match view {
        Ok(Some((view, true))) => (StatusCode::OK, location, Json(view)).into_response(),
        Ok(Some((view, false))) => (StatusCode::ACCEPTED, location, Json(view)).into_response(),
        Ok(None) => (StatusCode::ACCEPTED, location, reference).into_response(),
        Err(error) => {
            // The task is recorded, so this is no failure of the submission.
            tracing::warn!(%task_id, error = error_chain(&error), "task recorded, but the wait for its end failed");
            (StatusCode::ACCEPTED, location, reference).into_response()
        }
    }
}

async fn status<P: Ports>(
    State((ports, ..)): ApiState<P>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let id: TaskId = match id.map(|Path(id)| id.parse()) {
        Ok(Ok(id)) => id,
        Ok(Err(error)) => return MALFORMED_ID.response(&error.to_string()),
        Err(rejection) => return MALFORMED_ID.response(&rejection.body_text()),
    };
    let wait = match requested_wait(&uri, &headers) {
        Ok(wait) => wait,
        Err(reason) => return INVALID_WAIT.response(&reason),
    };
    match waited_view(&*ports, &id, wait.unwrap_or_default()).await {
        Ok(Some((view, _))) => Json(view).into_response(),
        Ok(None) => NO_SUCH_TASK.response(&format!("there is no task `{id}`")),
        Err(error) => unavailable(&error),
    }
}

/// The task as soon as it has ended, or after `wait`, and whether it has ended.
async fn waited_view<P: Ports>(
    ports: &P,
    id: &TaskId,
    wait: Duration,
) -> Result<Option<(TaskView, bool)>, PortError> {
    let Some(task) = wait_for_end(ports.store(), ports.clock(), id, wait, Missing::Return).await?
    else {
        return Ok(None);
    };
    let view = task_view(ports, &task).await?;
    Ok(Some((view, task.process_state.has_stopped())))
}

/// A task with its output, and the reasons why its steps failed or wait.
async fn task_view<P: Ports>(ports: &P, task: &Task) -> Result<TaskView, PortError> {
    let result = result_key_of(task);
    let keys: Vec<_> = result.iter().cloned().chain(failure_reason_keys(task)).collect();
    let documents = ports.store().documents_of(task, &keys).await?;
    let output = documents.iter().find(|document| Some(&document.key) == result.as_ref());
    let output = output.map(|document| document.body.clone());
    Ok(TaskView { output, ..TaskView::of(task).with_reasons(task, &documents) })
}

async fn no_such_route(uri: Uri) -> Response {
    let routes = "`/tasks`, `/tasks/{id}`, `/payloads` and `/openapi.json`";
    let detail = format!("there is no route `{}`; the routes are {routes}", uri.path());
    untyped_problem(StatusCode::NOT_FOUND, &detail)
}
