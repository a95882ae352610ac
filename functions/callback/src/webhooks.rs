//! Accepts signed webhooks of other services, and publishes each as an event on the event bus. Triggers and steps that wait
//! for an event do the rest.
//!
//! ```text
//! service ── POST /webhooks/NAME ──► signature ──► receipt ──► event bus ──► rules
//!                                       └ wrong: 403      └ published before: 200
//! ```
//!
//! The signature is verified before any I/O. The receipt prevents that a repeated webhook becomes a second event: it is
//! claimed before the event is published, and marked as published after that.

use std::{future::Future, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, State,
        rejection::{BytesRejection, PathRejection},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use steward_aws::bus::EventBridgeBus;
use steward_core::{
    limits,
    model::json_text::to_json_value,
    webhook::{
        SignatureRefusal, Webhook, WebhookClaim, WebhookEvent, WebhookReceipt, WebhookSecrets,
        Webhooks,
    },
};
use steward_http::{ProblemType, unavailable, untyped_problem, wrong_method};
use steward_runtime::{
    metrics,
    ports::{
        Clock, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore, error_chain,
    },
};

use crate::problem::{INVALID_WEBHOOK, NO_SUCH_WEBHOOK, WEBHOOK_TOO_LARGE, of_refused_signature};

/// The `Retry-After` while another delivery of the same webhook is published, in seconds.
const BUSY_RETRY_S: &str = "30";

/// The secrets that verify webhooks.
pub trait WebhookSecretSource: Send + Sync {
    /// The current secrets.
    fn current(&self) -> Arc<WebhookSecrets>;

    /// Reads the secrets again, because a signature is wrong. Returns whether they were read.
    fn refresh_after_wrong_signature(&self, now: Timestamp) -> impl Future<Output = bool> + Send;
}

/// Secrets that do not change.
impl WebhookSecretSource for Arc<WebhookSecrets> {
    fn current(&self) -> Arc<WebhookSecrets> {
        self.clone()
    }

    async fn refresh_after_wrong_signature(&self, _: Timestamp) -> bool {
        false
    }
}

#[cfg(feature = "secrets")]
impl WebhookSecretSource for steward_aws::webhook_secrets::StoredWebhookSecrets {
    fn current(&self) -> Arc<WebhookSecrets> {
        self.shared().current()
    }

    async fn refresh_after_wrong_signature(&self, now: Timestamp) -> bool {
        self.refresh_early(now).await
    }
}

/// An event bus for events with sources of others.
pub trait WebhookBus: Send + Sync {
    /// Publishes the event of a webhook.
    fn publish(&self, event: &WebhookEvent) -> impl Future<Output = Result<(), PortError>> + Send;
}

impl WebhookBus for EventBridgeBus {
    async fn publish(&self, event: &WebhookEvent) -> Result<(), PortError> {
        self.publish_webhook(event).await
    }
}

/// The response to a webhook whose event is on the event bus.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AcceptedWebhook {
    /// The name of the webhook.
    webhook: String,
    /// Whether its event was published before, so that this request changed nothing.
    duplicate: bool,
}

struct ApiState<P, S> {
    ports: Arc<P>,
    webhooks: Webhooks,
    secrets: Arc<S>,
}

/// The route of webhooks.
pub fn routes<P, S>(ports: Arc<P>, webhooks: Webhooks, secrets: Arc<S>) -> Router
where
    P: Ports + 'static,
    P::Bus: WebhookBus,
    S: WebhookSecretSource + 'static,
{
    Router::new()
        .route("/webhooks/{name}", post(receive::<P, S>))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::DOCUMENT_BYTES_MAX))
        .with_state(Arc::new(ApiState { ports, webhooks, secrets }))
}

async fn receive<P, S>(
    State(api): State<Arc<ApiState<P, S>>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response
where
    P: Ports,
    P::Bus: WebhookBus,
    S: WebhookSecretSource,
{
    let name = name.map(|Path(name)| name).unwrap_or_default();
    let Some(webhook) = api.webhooks.get(&name) else {
        let detail = "this deployment is not configured for a webhook with this name";
        return NO_SUCH_WEBHOOK.response(detail);
    };
    match api.accept(&name, webhook, &headers, body).await {
        Ok(duplicate) => {
            tracing::info!(webhook = name, duplicate, "webhook accepted");
            let status = if duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
            (status, Json(AcceptedWebhook { webhook: name, duplicate })).into_response()
        }
        Err(Refused::Problem(reason, problem, detail)) => {
            metrics::callback_refused(reason);
            tracing::warn!(webhook = name, reason = problem.name(), "webhook refused");
            problem.response(&detail)
        }
        Err(Refused::Busy) => {
            let detail = "the same webhook is being handled; send it again later";
            let problem = untyped_problem(StatusCode::SERVICE_UNAVAILABLE, detail);
            ([(header::RETRY_AFTER, BUSY_RETRY_S)], problem).into_response()
        }
        Err(Refused::Unavailable(error)) => unavailable(&error),
    }
}

/// Why a webhook is refused.
enum Refused {
    /// With the reason for the metric.
    Problem(&'static str, ProblemType, String),
    /// Another delivery of the same webhook is being published.
    Busy,
    Unavailable(PortError),
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        Self::Unavailable(error)
    }
}

impl<P, S> ApiState<P, S>
where
    P: Ports,
    P::Bus: WebhookBus,
    S: WebhookSecretSource,
{
    /// Publishes the event of a webhook. Returns whether it was published before.
    async fn accept(
        &self,
        name: &str,
        webhook: &Webhook,
        headers: &HeaderMap,
        body: Result<Bytes, BytesRejection>,
    ) -> Result<bool, Refused> {
        let now = self.ports.clock().now();
        let body = body.map_err(|rejection| unreadable(&rejection))?;
        self.verify(name, webhook, headers, &body, now).await.map_err(|refusal| {
            let is_old = matches!(refusal, SignatureRefusal::OutsideTolerance(_));
            let reason = if is_old { "expired" } else { "forged" };
            Refused::Problem(reason, of_refused_signature(&refusal), refusal.to_string())
        })?;
        let event = webhook.event(&body).map_err(|reason| {
            Refused::Problem("not_awaited_or_invalid", INVALID_WEBHOOK, reason)
        })?;
        let key = SharedRecordKey {
            kind: SharedRecordKind::Webhook,
            name: format!("{name}/{}", event.id_hash),
        };
        let Some((receipt, revision)) = self.claim(&key, now).await? else { return Ok(true) };
        let published = self.ports.bus().publish(&event).await;
        let after = receipt.after(published.is_ok(), self.ports.clock().now());
        let saved = self.ports.store().save_shared_record(&record(&key, revision + 1, after)).await;
        if let Err(error) = saved {
            // The lease ends by itself. If the service repeats the webhook after that, there is a second event.
            tracing::warn!(webhook = name, error = error_chain(&error), "receipt not saved");
        }
        published?;
        Ok(false)
    }

    async fn verify(
        &self,
        name: &str,
        webhook: &Webhook,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), SignatureRefusal> {
        let values = headers.get_all(webhook.header()).iter();
        // A value that is not text is a signature too: a malformed one.
        let signatures: Vec<_> = values.map(|value| value.to_str().unwrap_or_default()).collect();
        let verify =
            |secrets: &WebhookSecrets| webhook.verify(secrets, name, &signatures, body, now);
        match verify(&self.secrets.current()) {
            // The secret may have been added a moment ago.
            Err(SignatureRefusal::Wrong)
                if self.secrets.refresh_after_wrong_signature(now).await =>
            {
                verify(&self.secrets.current())
            }
            verified => verified,
        }
    }

    /// Claims the receipt of a webhook. Returns it with its revision; `None` if the event was published before.
    async fn claim(
        &self,
        key: &SharedRecordKey,
        now: Timestamp,
    ) -> Result<Option<(WebhookReceipt, u64)>, Refused> {
        let stored = self.ports.store().shared_record(key).await?;
        let (revision, body) = stored.map_or((0, Value::Null), |of| (of.revision, of.body));
        let receipt: Option<WebhookReceipt> =
            serde_json::from_value(body).map_err(|error| PortError {
                operation: "read the receipt of a webhook".to_owned(),
                retryable: false,
                source: error.into(),
            })?;
        match WebhookReceipt::claim(receipt, now) {
            WebhookClaim::Duplicate => Ok(None),
            WebhookClaim::Busy => Err(Refused::Busy),
            WebhookClaim::Publish(receipt) => {
                let claimed = record(key, revision + 1, receipt);
                match self.ports.store().save_shared_record(&claimed).await? {
                    SharedSaveOutcome::Saved => Ok(Some((receipt, revision + 1))),
                    SharedSaveOutcome::Conflict(_) => Err(Refused::Busy),
                }
            }
        }
    }
}

fn record(key: &SharedRecordKey, revision: u64, receipt: WebhookReceipt) -> SharedRecord {
    let (body, expires_at) = (to_json_value(&receipt), Some(receipt.expires_at()));
    SharedRecord { key: key.clone(), revision, body, expires_at }
}

fn unreadable(rejection: &BytesRejection) -> Refused {
    let reason = "not_awaited_or_invalid";
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("the webhook has more than {} bytes", limits::DOCUMENT_BYTES_MAX);
        return Refused::Problem(reason, WEBHOOK_TOO_LARGE, detail);
    }
    Refused::Problem(reason, INVALID_WEBHOOK, "the body could not be read".to_owned())
}
