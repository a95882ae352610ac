//! The HTTP service that the kit plays. A call is assigned to its case by the header `Idempotency-Key`, so the path and the
//! body are the agent's own affair.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use steward_core::limits;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    case::{BUSY_FOR, Case, PAYLOAD_MARK, case_of_key},
    evidence::{Event, Recorder, ServiceCall},
};

/// How long the service holds a call to which it does not respond.
const SILENT_FOR: Duration = Duration::from_secs(20);

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

async fn respond(
    State((response, recorder)): State<(Value, Recorder)>,
    request: Request,
) -> Response {
    let key = request.headers().get("idempotency-key");
    let key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
    let case = key.as_deref().and_then(case_of_key);
    recorder.record(Event::Called(ServiceCall { key }));
    let refusal = |status: StatusCode| (status, Json(json!({ "title": PAYLOAD_MARK })));
    match case {
        Some(Case::Refused | Case::Redelivered) => {
            refusal(StatusCode::UNPROCESSABLE_ENTITY).into_response()
        }
        Some(Case::Busy) => {
            let mut response = refusal(StatusCode::TOO_MANY_REQUESTS).into_response();
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(BUSY_FOR.as_secs()));
            response
        }
        Some(Case::Silent) => {
            tokio::time::sleep(SILENT_FOR).await;
            refusal(StatusCode::SERVICE_UNAVAILABLE).into_response()
        }
        Some(Case::Unavailable) => refusal(StatusCode::SERVICE_UNAVAILABLE).into_response(),
        Some(Case::LargeOutput) => {
            let mut response = response;
            if let Value::Object(fields) = &mut response {
                let padding = "x".repeat(limits::DOCUMENT_BYTES_MAX + 1);
                fields.insert("padding".to_owned(), Value::from(padding));
            }
            Json(response).into_response()
        }
        Some(
            Case::Plain
            | Case::Undo
            | Case::Item
            | Case::UnknownField
            | Case::LostReply
            | Case::Batch
            | Case::LargeRequest
            | Case::Duplicate
            | Case::Retry
            | Case::Late
            | Case::Once,
        )
        | None => Json(response).into_response(),
    }
}
