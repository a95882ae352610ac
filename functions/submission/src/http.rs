//! Single submissions over HTTP, and a task's status: what `steward local` serves, and what a
//! function URL will.
//!
//! `POST /tasks` answers 202 with the task's address, `GET /tasks/{id}` the task; what went wrong is
//! a problem document (RFC 9457), with 503 if the same request again may succeed. A caller who is
//! refused hears it at once, so nothing is kept or alerted.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use steward_core::{
    effects::carry_out,
    limits,
    names::TaskId,
    ports::{PortError, Ports, StateStore, chain},
    submission::{Refusal, ReplyQueues},
    trace::{Span, SpanKind},
    view::{TaskView, result_of},
};

use crate::{SPAN, receive};

/// Where submissions are posted.
const TASKS: &str = "/tasks";

/// The routes, over these ports.
pub fn routes<P: Ports + 'static>(ports: Arc<P>, reply_queues: Arc<ReplyQueues>) -> Router {
    Router::new()
        .route(TASKS, post(submit::<P>))
        .route("/tasks/{id}", get(status::<P>))
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
        Err(rejection) => {
            return problem(rejection.status(), "Body not read", &rejection.body_text());
        }
    };
    let Ok(text) = std::str::from_utf8(&body) else {
        let detail = "not a submission: not UTF-8";
        return problem(StatusCode::BAD_REQUEST, "Malformed submission", detail);
    };
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
        Err(refusal) => {
            let (status, title) = match &refusal {
                Refusal::IdTaken(_) => (StatusCode::CONFLICT, "Task id taken"),
                Refusal::TooLarge(_) => (StatusCode::BAD_REQUEST, "Submission too large"),
                Refusal::Malformed(_) => (StatusCode::BAD_REQUEST, "Malformed submission"),
                Refusal::UnknownWorkflow(_) => (StatusCode::BAD_REQUEST, "Unknown workflow"),
                Refusal::InvalidInput(_) => (StatusCode::BAD_REQUEST, "Invalid input"),
                // Events come through the queue; none is read here.
                Refusal::NoTrigger { .. } | Refusal::Trigger { .. } => {
                    (StatusCode::BAD_REQUEST, "Event not wanted")
                }
                Refusal::ReplyQueueNotAllowed => {
                    (StatusCode::BAD_REQUEST, "Reply queue not allowed")
                }
            };
            problem(status, title, &refusal.to_string())
        }
    }
}

async fn status<P: Ports>(State((ports, _)): Deps<P>, Path(id): Path<String>) -> Response {
    let id: TaskId = match id.parse() {
        Ok(id) => id,
        Err(error) => {
            let detail = format!("{error}");
            return problem(StatusCode::BAD_REQUEST, "Malformed task id", &detail);
        }
    };
    match view(&*ports, &id).await {
        Ok(Some(view)) => Json(view).into_response(),
        Ok(None) => {
            problem(StatusCode::NOT_FOUND, "No such task", &format!("there is no task `{id}`"))
        }
        Err(error) => unavailable(&error),
    }
}

/// The task, with what it returned.
async fn view<P: Ports>(ports: &P, id: &TaskId) -> Result<Option<TaskView>, PortError> {
    let Some(task) = ports.store().load(id).await? else { return Ok(None) };
    let keys: Vec<_> = result_of(&task).into_iter().collect();
    let result =
        if keys.is_empty() { Vec::new() } else { ports.store().documents(id, &keys).await? };
    let output = result.into_iter().next().map(|document| document.body);
    Ok(Some(TaskView { output, ..TaskView::of(&task) }))
}

fn unavailable(error: &PortError) -> Response {
    tracing::warn!(error = chain(error), "request not served");
    let detail = "the state store did not answer; the same request again is safe";
    problem(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", detail)
}

fn problem(status: StatusCode, title: &str, detail: &str) -> Response {
    let body: Value = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
