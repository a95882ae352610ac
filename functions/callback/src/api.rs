//! What all routes of callbacks do: verify the URL, check the answer, and send it to the scheduler.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{
        Path,
        rejection::{BytesRejection, PathRejection},
    },
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use steward_core::{
    callback_url::CallbackUrlRefusal,
    definition::plan::Plan,
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
use steward_http::{ProblemType, unavailable, untyped_problem};
use steward_runtime::{
    dispatch::callback_message,
    metrics,
    ports::{Channel, Clock, Definitions, PortError, Ports, StateStore},
};

use crate::{
    answer::Answer,
    keys::{CallbackKeySource, KeyRefresh},
    openapi::AcceptedCallback,
    problem::{INVALID_ANSWER, NO_SUCH_TASK, TOO_LARGE, of_refused_callback, of_refused_url},
};

/// The `Retry-After` for a key that may have been added a moment ago, in seconds: the keys are read again by then.
const KEY_RETRY_S: &str = "30";

/// What the routes share.
pub(crate) struct ApiState<P, K> {
    pub(crate) ports: Arc<P>,
    pub(crate) keys: Arc<K>,
}

pub(crate) type PathToken = Result<Path<String>, PathRejection>;
pub(crate) type Body = Result<Bytes, BytesRejection>;

/// Why a URL is not accepted.
enum UrlRefusal {
    Final(CallbackUrlRefusal),
    /// The key may have been added a moment ago.
    NotNow,
}

/// Why a request is refused.
pub(crate) enum Refused {
    Problem(ProblemType, String),
    /// The key of the URL may have been added a moment ago.
    KeyNotRead,
    Unavailable(PortError),
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        Self::Unavailable(error)
    }
}

impl From<&CallbackRefusal> for Refused {
    fn from(refusal: &CallbackRefusal) -> Self {
        Self::Problem(of_refused_callback(refusal), refusal.to_string())
    }
}

impl Refused {
    /// The response for programs: a problem document.
    pub(crate) fn problem(&self) -> Response {
        match self {
            Self::Problem(problem, detail) => problem.response(detail),
            Self::KeyNotRead => {
                let problem = untyped_problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the key of this URL is not known yet; send the same request again",
                );
                ([(header::RETRY_AFTER, KEY_RETRY_S)], problem).into_response()
            }
            Self::Unavailable(error) => unavailable(error),
        }
    }
}

impl<P: Ports, K: CallbackKeySource> ApiState<P, K> {
    /// Sends the answer in a body. The response is for programs.
    pub(crate) async fn answer(&self, token: PathToken, body: Body, read: Answer) -> Response {
        let now = self.ports.clock().now();
        let token = match self.verified(token, now).await {
            Ok(token) => token,
            Err(refused) => return refused.problem(),
        };
        let outcome = match body {
            Ok(body) => read(&body).map_err(|reason| Refused::Problem(INVALID_ANSWER, reason)),
            Err(rejection) => Err(unreadable_body(&rejection)),
        };
        match self.deliver(token, outcome, now).await {
            Ok(accepted) => (StatusCode::ACCEPTED, Json(accepted)).into_response(),
            Err(refused) => refused.problem(),
        }
    }

    /// The token in a URL. Without a valid signature, nothing is read and nothing about a task is told.
    pub(crate) async fn verified(
        &self,
        token: PathToken,
        now: Timestamp,
    ) -> Result<CallbackToken, Refused> {
        let token = token.map(|Path(token)| token).unwrap_or_default();
        self.verify(&token, now).await.map_err(|refusal| match refusal {
            UrlRefusal::NotNow => Refused::KeyNotRead,
            UrlRefusal::Final(refusal) => {
                let problem = of_refused_url(&refusal);
                let is_expired = matches!(refusal, CallbackUrlRefusal::Expired(_));
                metrics::callback_refused(if is_expired { "expired" } else { "forged" });
                tracing::warn!(reason = problem.name(), "callback refused");
                Refused::Problem(problem, refusal.to_string())
            }
        })
    }

    /// Sends an answer, and logs what became of it.
    pub(crate) async fn deliver(
        &self,
        token: CallbackToken,
        outcome: Result<CallbackOutcome, Refused>,
        now: Timestamp,
    ) -> Result<AcceptedCallback, Refused> {
        let (task_id, step) = (token.task_id.clone(), token.step.clone());
        let sent = match outcome {
            Ok(outcome) => self.send(token, outcome, now).await,
            Err(refused) => Err(refused),
        };
        match sent {
            Ok(answer) => {
                tracing::info!(%task_id, %step, answer, "callback sent");
                Ok(AcceptedCallback { task_id, step, answer })
            }
            Err(refused) => {
                if let Refused::Problem(problem, _) = &refused {
                    metrics::callback_refused("not_awaited_or_invalid");
                    tracing::warn!(%task_id, %step, reason = problem.name(), "callback refused");
                }
                Err(refused)
            }
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

    /// The task of a callback.
    pub(crate) async fn task(&self, token: &CallbackToken) -> Result<Task, Refused> {
        let detail = || "the task of this callback does not exist any more".to_owned();
        let task = self.ports.store().load(&token.task_id).await?;
        task.ok_or_else(|| Refused::Problem(NO_SUCH_TASK, detail()))
    }

    /// The definition of a task.
    pub(crate) async fn plan(&self, task: &Task) -> Result<Option<Arc<Plan>>, PortError> {
        self.ports.definitions().workflow(&task.workflow, Some(task.version)).await
    }

    /// Sends an answer that the step awaits. Returns its name.
    async fn send(
        &self,
        token: CallbackToken,
        outcome: CallbackOutcome,
        now: Timestamp,
    ) -> Result<&'static str, Refused> {
        let task = self.task(&token).await?;
        let refused = check_callback(&task, &token, now).err();
        if let Some(refusal) = &refused
            && !shows_an_effect(&task, &token, &outcome, refusal)
        {
            return Err(refusal.into());
        }
        if let (CallbackOutcome::Completed { output }, None) = (&outcome, &refused) {
            if let Some(reason) = size_error("answer", output) {
                return Err(Refused::Problem(TOO_LARGE, reason));
            }
            let plan = self.plan(&task).await?;
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
            Some(refusal) => Err((&refusal).into()),
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

/// The refusal of a body that could not be read.
pub(crate) fn unreadable_body(rejection: &BytesRejection) -> Refused {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("the answer has more than {} bytes", limits::DOCUMENT_BYTES_MAX);
        return Refused::Problem(TOO_LARGE, detail);
    }
    Refused::Problem(INVALID_ANSWER, rejection.body_text())
}
