//! The public endpoint: callbacks, and signed [webhooks] of other services.
//!
//! Accepts callbacks over HTTP: a service outside the account completes, fails or keeps alive the step that called it. The
//! signed URL (`${ callback.url }`) is its only credential. `steward local` and the function behind a public function URL
//! serve this API. `docs/callbacks.md` specifies it.
//!
//! ```text
//! service ── POST /callbacks/SIGNED ──► signature ──► task, definition ──► scheduler's queue ──► scheduler
//!                                          └ wrong: 403, nothing is read    └ not awaited: 409, 410
//! ```
//!
//! This function decides nothing. It verifies the signature before any I/O, and tells the caller why an answer would be
//! refused. The scheduler decides on the message, and refuses an answer that came too late in between.

use std::{future::Future, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, State,
        rejection::{BytesRejection, PathRejection},
    },
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use jiff::Timestamp;
use steward_aws::ports::SharedCallbackUrls;
use steward_core::{
    callback_url::CallbackUrlRefusal,
    engine::{
        callback_check::{CallbackRefusal, check_callback},
        request::size_error,
    },
    limits,
    model::{
        attempt::Action,
        messages::{CallbackMessage, CallbackOutcome},
        names::CallbackToken,
        task::Task,
    },
};
use steward_http::{ProblemType, unavailable, untyped_problem, wrong_method};
use steward_runtime::{
    dispatch::callback_message,
    metrics,
    ports::{Channel, Clock, Definitions, PortError, Ports, StateStore},
};

mod answer;
pub mod openapi;
mod problem;
pub mod webhooks;

use answer::{Answer, read_failure, read_output};
use openapi::AcceptedCallback;
use problem::{INVALID_ANSWER, NO_SUCH_TASK, TOO_LARGE, of_refused_callback, of_refused_url};

/// The `Retry-After` for a key that may have been added a moment ago, in seconds: the keys are read again by then.
const KEY_RETRY_S: &str = "30";

/// The keys that verify URLs.
pub trait CallbackKeySource: Send + Sync {
    /// The current keys.
    fn urls(&self) -> &SharedCallbackUrls;

    /// Reads the keys again, because a URL names an unknown one.
    fn refresh_for_unknown_key(&self, now: Timestamp) -> impl Future<Output = KeyRefresh> + Send;
}

/// The result of reading the keys again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRefresh {
    /// They were read.
    Done,
    /// They could not be read, or were read a moment ago. A key that was added since may be missing.
    NotNow,
    /// They never change.
    Fixed,
}

/// Keys that do not change.
impl CallbackKeySource for SharedCallbackUrls {
    fn urls(&self) -> &SharedCallbackUrls {
        self
    }

    async fn refresh_for_unknown_key(&self, _: Timestamp) -> KeyRefresh {
        KeyRefresh::Fixed
    }
}

#[cfg(feature = "secrets")]
impl CallbackKeySource for steward_aws::callback_keys::CallbackKeyring {
    fn urls(&self) -> &SharedCallbackUrls {
        self.shared()
    }

    async fn refresh_for_unknown_key(&self, now: Timestamp) -> KeyRefresh {
        match self.refresh_early(now).await {
            true => KeyRefresh::Done,
            false => KeyRefresh::NotNow,
        }
    }
}

/// What the routes share.
struct ApiState<P, K> {
    ports: Arc<P>,
    keys: Arc<K>,
}

type PathToken = Result<Path<String>, PathRejection>;
type Body = Result<Bytes, BytesRejection>;

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
        .route("/callbacks/{token}", answer(read_output))
        .route("/callbacks/{token}/fail", answer(read_failure))
        .route("/callbacks/{token}/heartbeat", answer(|_| Ok(CallbackOutcome::Heartbeat)))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::DOCUMENT_BYTES_MAX))
        .with_state(Arc::new(ApiState { ports, keys }))
}

/// Why a URL is not accepted.
enum UrlRefusal {
    Final(CallbackUrlRefusal),
    /// The key may have been added a moment ago.
    NotNow,
}

/// Why an answer is refused.
enum Refused {
    Problem(ProblemType, String),
    Unavailable(PortError),
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        Self::Unavailable(error)
    }
}

impl<P: Ports, K: CallbackKeySource> ApiState<P, K> {
    async fn answer(&self, token: PathToken, body: Body, read: Answer) -> Response {
        let now = self.ports.clock().now();
        let token = token.map(|Path(token)| token).unwrap_or_default();
        // Without a valid signature, nothing is read and nothing about a task is told.
        let token = match self.verify(&token, now).await {
            Ok(token) => token,
            Err(UrlRefusal::NotNow) => {
                let problem = untyped_problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the key of this URL is not known yet; send the same request again",
                );
                return ([(header::RETRY_AFTER, KEY_RETRY_S)], problem).into_response();
            }
            Err(UrlRefusal::Final(refusal)) => {
                let problem = of_refused_url(&refusal);
                let is_expired = matches!(refusal, CallbackUrlRefusal::Expired(_));
                metrics::callback_refused(if is_expired { "expired" } else { "forged" });
                tracing::warn!(reason = problem.name(), "callback refused");
                return problem.response(&refusal.to_string());
            }
        };
        let (task_id, step) = (token.task_id.clone(), token.step.clone());
        let answered = match body {
            Ok(body) => self.send(token, &body, read, now).await,
            Err(rejection) => Err(unreadable_body(&rejection)),
        };
        match answered {
            Ok(answer) => {
                tracing::info!(%task_id, %step, answer, "callback sent");
                let accepted = AcceptedCallback { task_id: &task_id, step: &step, answer };
                (StatusCode::ACCEPTED, Json(accepted)).into_response()
            }
            Err(Refused::Problem(problem, detail)) => {
                metrics::callback_refused("not_awaited_or_invalid");
                tracing::warn!(%task_id, %step, reason = problem.name(), "callback refused");
                problem.response(&detail)
            }
            Err(Refused::Unavailable(error)) => unavailable(&error),
        }
    }

    async fn verify(&self, text: &str, now: Timestamp) -> Result<CallbackToken, UrlRefusal> {
        let verify = || self.keys.urls().current().keys().verify(text, now);
        match verify() {
            Err(CallbackUrlRefusal::UnknownKey) => {
                match self.keys.refresh_for_unknown_key(now).await {
                    KeyRefresh::Done => verify().map_err(UrlRefusal::Final),
                    KeyRefresh::NotNow => Err(UrlRefusal::NotNow),
                    KeyRefresh::Fixed => Err(UrlRefusal::Final(CallbackUrlRefusal::UnknownKey)),
                }
            }
            verified => verified.map_err(UrlRefusal::Final),
        }
    }

    /// Sends an answer that the step awaits. Returns its name.
    async fn send(
        &self,
        token: CallbackToken,
        body: &[u8],
        read: Answer,
        now: Timestamp,
    ) -> Result<&'static str, Refused> {
        let outcome = read(body).map_err(|reason| Refused::Problem(INVALID_ANSWER, reason))?;
        let Some(task) = self.ports.store().load(&token.task_id).await? else {
            let detail = "the task of this callback does not exist any more".to_owned();
            return Err(Refused::Problem(NO_SUCH_TASK, detail));
        };
        let refused = check_callback(&task, &token, now).err();
        if let Some(refusal) = &refused
            && !shows_an_effect(&task, &token, &outcome, refusal)
        {
            let problem = of_refused_callback(refusal);
            return Err(Refused::Problem(problem, refusal.to_string()));
        }
        if let (CallbackOutcome::Completed { output }, None) = (&outcome, &refused) {
            if let Some(reason) = size_error("answer", output) {
                return Err(Refused::Problem(TOO_LARGE, reason));
            }
            let plan =
                self.ports.definitions().workflow(&task.workflow, Some(task.version)).await?;
            let step = plan.as_deref().and_then(|plan| plan.find(&token.step.step));
            let callback = step.and_then(|step| step.callback());
            callback
                .map_or(Ok(()), |callback| callback.check_answer(output))
                .map_err(|reason| Refused::Problem(INVALID_ANSWER, reason))?;
        }
        let name = outcome.name();
        let message = callback_message(CallbackMessage { token, outcome }, task.tenant);
        self.ports.channel().send(vec![message]).await.into_iter().collect::<Result<(), _>>()?;
        match refused {
            None => Ok(name),
            Some(refusal) => {
                Err(Refused::Problem(of_refused_callback(&refusal), refusal.to_string()))
            }
        }
    }
}

/// Whether an answer that is refused shows that the step ran, although it is recorded as one that did not. The scheduler
/// then undoes the step.
fn shows_an_effect(
    task: &Task,
    token: &CallbackToken,
    outcome: &CallbackOutcome,
    refusal: &CallbackRefusal,
) -> bool {
    let has_ended = matches!(
        refusal,
        CallbackRefusal::Ended { completed: false, .. } | CallbackRefusal::BetweenAttempts { .. }
    );
    let progress = task.progress(&token.step, Action::Do);
    has_ended
        && *outcome != CallbackOutcome::Heartbeat
        && progress.is_some_and(|progress| !progress.may_have_run)
}

fn unreadable_body(rejection: &BytesRejection) -> Refused {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("the answer has more than {} bytes", limits::DOCUMENT_BYTES_MAX);
        return Refused::Problem(TOO_LARGE, detail);
    }
    Refused::Problem(INVALID_ANSWER, rejection.body_text())
}

async fn no_such_route(_: Uri) -> Response {
    // The path may contain a valid token, so it is not repeated.
    let detail = "there is no such route; the routes are `/callbacks/{token}`, `/callbacks/{token}/fail`, \
        `/callbacks/{token}/heartbeat`, `/webhooks/{name}` if there are webhooks, and `/openapi.json`";
    untyped_problem(StatusCode::NOT_FOUND, detail)
}
