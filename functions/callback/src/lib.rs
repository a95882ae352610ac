//! The public endpoint: callbacks, and signed [webhooks] of other services.
//!
//! Accepts callbacks over HTTP: a service outside the account completes, fails or keeps alive the step that called it. The
//! signed URL (`${ callback.url }`) is its only credential. `steward local` and the function behind a public function URL
//! serve this API. `docs/callbacks.md` specifies it.
//!
//! ```text
//! service ── POST /callbacks/SIGNED ──► signature ──► task, definition ──► scheduler's queue ──► scheduler
//!                                          └ wrong: 403, nothing is read    └ not awaited: 409, 410
//! person  ── GET  /callbacks/SIGNED ──► a page with a form, which posts to the same URL
//! ```
//!
//! This function decides nothing. It verifies the signature before any I/O, and tells the caller why an answer would be
//! refused. The scheduler decides on the message, and refuses an answer that came too late in between.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use steward_core::{limits, model::messages::CallbackOutcome};
use steward_http::{untyped_problem, wrong_method};
use steward_runtime::ports::Ports;

mod answer;
mod api;
mod keys;
pub mod openapi;
mod page;
mod problem;
mod question;
pub mod webhooks;

use answer::{Answer, read_failure, read_output};
use api::{ApiState, Body, PathToken};
pub use keys::{CallbackKeySource, KeyRefresh};

/// The router of the function: the routes of the API, and a problem document for every other path.
pub fn service<P: Ports + 'static, K: CallbackKeySource + 'static>(
    ports: Arc<P>,
    keys: Arc<K>,
) -> Router {
    routes(ports, keys)
        .route("/openapi.json", get(async || Json(openapi::description())))
        .fallback(no_such_route)
}

/// The routes of the API, for a host that adds them to its own.
pub fn routes<P: Ports + 'static, K: CallbackKeySource + 'static>(
    ports: Arc<P>,
    keys: Arc<K>,
) -> Router {
    let answer = |read: Answer| {
        post(
            move |State(api): State<Arc<ApiState<P, K>>>, token: PathToken, body: Body| async move {
                api.answer(token, body, read).await
            },
        )
    };
    Router::new()
        .route("/callbacks/{token}", get(show::<P, K>).post(complete::<P, K>))
        .route("/callbacks/{token}/fail", answer(read_failure))
        .route("/callbacks/{token}/heartbeat", answer(|_| Ok(CallbackOutcome::Heartbeat)))
        .method_not_allowed_fallback(wrong_method)
        // A form needs up to three bytes for one. The answer in it has the limit of a document.
        .layer(DefaultBodyLimit::max(3 * limits::DOCUMENT_BYTES_MAX + 4_096))
        .with_state(Arc::new(ApiState { ports, keys }))
}

/// Shows a person what the step asks. For programs, the route has no such method: they could take the page for an answer.
async fn show<P: Ports + 'static, K: CallbackKeySource + 'static>(
    State(api): State<Arc<ApiState<P, K>>>,
    token: PathToken,
    method: Method,
    headers: HeaderMap,
) -> Response {
    if question::prefers_html(&headers) {
        return question::show(&api, token).await;
    }
    let allowed = [(header::ALLOW, HeaderValue::from_static("POST"))];
    (allowed, wrong_method(method).await).into_response()
}

/// Completes the step, with the output that a program or the form of the page sends.
async fn complete<P: Ports + 'static, K: CallbackKeySource + 'static>(
    State(api): State<Arc<ApiState<P, K>>>,
    token: PathToken,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if question::is_form(&headers, body.as_deref().unwrap_or_default()) {
        return question::submit(&api, token, body).await;
    }
    api.answer(token, body, read_output).await
}

async fn no_such_route(_: Uri) -> Response {
    // The path may contain a valid token, so it is not repeated.
    let detail = "there is no such route; the routes are `/callbacks/{token}`, `/callbacks/{token}/fail`, \
        `/callbacks/{token}/heartbeat`, `/webhooks/{name}` if there are webhooks, and `/openapi.json`";
    untyped_problem(StatusCode::NOT_FOUND, detail)
}
