//! The HTTP service that the kit plays. A call is assigned to its case by the header `Idempotency-Key`, so the path and the
//! body are the agent's own affair.

use std::{
    convert::Infallible,
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::{Value, json};
use steward_core::limits;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    case::{BUSY_FOR, Case, PAYLOAD_MARK, ServiceBehaviour, case_of_key},
    evidence::{ObservedEvent, ObservedServiceCall, Recorder},
};

/// How long the service holds a call to which it does not respond.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// The pause between two bytes of a response without end.
const DRIP_EVERY: Duration = Duration::from_millis(100);

/// How the header `Authorization` of a signed call begins.
const SIGNATURE: &[u8] = b"AWS4-HMAC-SHA256 ";

/// The response of a service that works, unless the author of the agent gives another one.
#[must_use]
pub fn default_response() -> Value {
    json!({ "id": "c-1", "note": PAYLOAD_MARK })
}

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct PlayedService {
    /// Where it listens.
    pub address: SocketAddr,
    _server: JoinSet<()>,
}

impl PlayedService {
    /// Starts the service. It records each call, and responds with `response` if it works.
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn start(address: SocketAddr, response: Value, recorder: Recorder) -> Result<Self> {
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(respond).with_state((response, recorder));
        let mut server = JoinSet::new();
        // It ends with an error only if the listener fails; then calls fail, and the check says so.
        server.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
        Ok(Self { address, _server: server })
    }

    /// The base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A call in progress. It is dropped when the service responds, and when the agent closes the connection.
struct OpenCall {
    recorder: Recorder,
    key: Option<String>,
    begun: Instant,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let lasted = self.begun.elapsed();
        self.recorder.record(ObservedEvent::CallEnded { key: self.key.take(), lasted });
    }
}

/// The largest request that the service reads. Requests of a step have at most 128 KiB.
const REQUEST_BYTES_MAX: usize = 1 << 20;

async fn respond(
    State((response, recorder)): State<(Value, Recorder)>,
    request: Request,
) -> Response {
    let key = request.headers().get("idempotency-key");
    let key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
    let case = key.as_deref().and_then(case_of_key);
    let authorization = request.headers().get(AUTHORIZATION);
    let is_signed = authorization.is_some_and(|text| text.as_bytes().starts_with(SIGNATURE));
    recorder.record(ObservedEvent::Called(ObservedServiceCall { key: key.clone(), is_signed }));
    let open = OpenCall { recorder: recorder.clone(), key, begun: Instant::now() };
    // A connection that is closed while a part of the request is unread is reset, and the agent may lose the response.
    drop(axum::body::to_bytes(request.into_body(), REQUEST_BYTES_MAX).await);
    match case.map_or(ServiceBehaviour::Works, Case::service) {
        ServiceBehaviour::Works => Json(response).into_response(),
        ServiceBehaviour::LargeOutput => Json(enlarged(response)).into_response(),
        // Of type `text/plain`.
        ServiceBehaviour::Text => PAYLOAD_MARK.into_response(),
        ServiceBehaviour::Refuses => error(StatusCode::UNPROCESSABLE_ENTITY),
        ServiceBehaviour::Busy => busy(HeaderValue::from(BUSY_FOR.as_secs())),
        ServiceBehaviour::BusyUntilDate => {
            let date = httpdate::fmt_http_date(SystemTime::now() + BUSY_FOR);
            busy(HeaderValue::try_from(date).unwrap_or(HeaderValue::from(BUSY_FOR.as_secs())))
        }
        ServiceBehaviour::BusyUntilRetry => {
            let is_retry = |event: &ObservedEvent| {
                let ObservedEvent::Requested(request) = event else { return false };
                Some(request.case) == case && request.message.get("attempt") == Some(&json!(2))
            };
            if recorder.any(is_retry) {
                Json(response).into_response()
            } else {
                busy(HeaderValue::from(BUSY_FOR.as_secs()))
            }
        }
        ServiceBehaviour::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE),
        ServiceBehaviour::Silent => {
            tokio::time::sleep(SILENT_FOR).await;
            error(StatusCode::SERVICE_UNAVAILABLE)
        }
        ServiceBehaviour::Drips => drips(open),
    }
}

/// A response whose body does not end. The call ends with it.
fn drips(open: OpenCall) -> Response {
    let begun = Instant::now();
    let bytes = stream::unfold(open, move |open| async move {
        tokio::time::sleep(DRIP_EVERY).await;
        (begun.elapsed() < SILENT_FOR).then_some((Ok::<_, Infallible>("["), open))
    });
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(bytes)).into_response()
}

/// A response with an error status. Its body is payload.
fn error(status: StatusCode) -> Response {
    (status, Json(json!({ "title": PAYLOAD_MARK }))).into_response()
}

fn busy(retry_after: HeaderValue) -> Response {
    let mut response = error(StatusCode::TOO_MANY_REQUESTS);
    response.headers_mut().insert(RETRY_AFTER, retry_after);
    response
}

/// A response that is too large for a reply.
fn enlarged(mut response: Value) -> Value {
    if let Value::Object(fields) = &mut response {
        let padding = "x".repeat(limits::DOCUMENT_BYTES_MAX + 1);
        fields.insert("padding".to_owned(), Value::from(padding));
    }
    response
}
