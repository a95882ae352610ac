//! `POST /payloads`: a signed request with which a client uploads a payload.

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steward_core::{
    limits::{self, PAYLOAD_BYTES_MAX},
    model::{
        messages::mistake,
        payload::{ContentType, PayloadKey, PayloadReference, ReferenceValue, Sha256Hex},
        time::later,
    },
};
use steward_http::unavailable;
use steward_runtime::ports::{Clock, Ports};

use super::{
    api_state::ApiState,
    problem::{MALFORMED_PAYLOAD, NO_PAYLOADS, PAYLOAD_TOO_LARGE, unreadable_body},
};

/// What a client is going to upload.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPayload {
    /// The bytes of the payload, at most 64 MiB.
    #[schemars(range(max = 67_108_864_u64))]
    bytes: u64,
    /// The SHA-256 digest of the payload, in 64 lower-case hexadecimal digits.
    sha256: Sha256Hex,
    /// The media type of the payload, `application/octet-stream` if absent.
    #[serde(default)]
    content_type: ContentType,
}

/// How the client uploads the payload, and the reference to submit then.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PreparedUpload {
    /// The reference, for any place in the `input` of a submission. It can be submitted for a day.
    payload: ReferenceValue,
    /// The request that uploads the payload, once.
    upload: UploadInstructions,
}

/// A request to S3. Its body is the payload.
#[derive(Debug, Serialize, JsonSchema)]
struct UploadInstructions {
    /// The method: `PUT`.
    method: &'static str,
    /// The URL. It contains a signature: whoever has it may upload this content.
    url: String,
    /// The headers that the request must have.
    headers: serde_json::Map<String, serde_json::Value>,
    /// When the URL expires.
    #[schemars(with = "String", extend("format" = "date-time"))]
    expires_at: Timestamp,
}

pub(super) async fn prepare<P: Ports>(
    State((ports, ..)): ApiState<P>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreadable_body(&rejection),
    };
    let NewPayload { bytes, sha256, content_type } = match serde_json::from_slice(&body) {
        Ok(payload) => payload,
        Err(error) => {
            let detail = format!("not a payload to upload: {}", mistake(&error));
            return MALFORMED_PAYLOAD.response(&detail);
        }
    };
    if bytes > PAYLOAD_BYTES_MAX {
        let detail = format!("a payload of {bytes} bytes; the limit is {PAYLOAD_BYTES_MAX}");
        return PAYLOAD_TOO_LARGE.response(&detail);
    }
    let Some(store) = ports.payloads() else {
        return NO_PAYLOADS.response("this deployment has no bucket of payloads");
    };
    let key = PayloadKey::upload(random());
    let reference = PayloadReference::new(key, bytes, sha256, content_type);
    let valid_for = limits::UPLOAD_URL_LIFETIME;
    let expires_at = later(ports.clock().now(), valid_for);
    let request = match store.upload_request(&reference, valid_for).await {
        Ok(request) => request,
        Err(error) => return unavailable(&error),
    };
    let headers = request.headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    let upload = UploadInstructions { method: "PUT", url: request.url, headers, expires_at };
    let payload = ReferenceValue { payload: reference };
    (StatusCode::CREATED, Json(PreparedUpload { payload, upload })).into_response()
}

/// A number that nobody can guess: whoever knows the key of an upload may submit it.
fn random() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}
