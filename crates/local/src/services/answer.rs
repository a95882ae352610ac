//! The answers that are not a success: refusals, failures, and none at all.

use std::future::ready;
use std::io;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::Service;

/// An error answer (RFC 9457).
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// The end of the problem's type, and never reworded: clients may go by it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
}

/// The service's permanent no.
pub(super) const fn refusal(service: Service) -> Problem {
    match service {
        Service::Inventory => {
            Problem { status: StatusCode::CONFLICT, name: "out-of-stock", title: "Out of stock" }
        }
        Service::Payment => Problem {
            status: StatusCode::PAYMENT_REQUIRED,
            name: "card-declined",
            title: "The card was declined",
        },
        Service::Shipping => Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "undeliverable-address",
            title: "Nobody delivers to this address",
        },
    }
}

/// A failure that may pass, asking or not to be left alone for a second.
pub(super) fn failure(status: u16, retry_after: bool) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = Problem { status, name: "try-again", title: "Not now, try again" };
    let retry_after = retry_after.then_some([(RETRY_AFTER, HeaderValue::from_static("1"))]);
    (retry_after, problem).into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": format!("urn:problem-type:{}", self.name),
            "title": self.title,
            "status": self.status.as_u16(),
        });
        let content_type = HeaderValue::from_static("application/problem+json");
        (self.status, [(CONTENT_TYPE, content_type)], body.to_string()).into_response()
    }
}

/// A response that is never seen: hyper drops the connection when a body fails, and it has not
/// flushed the head by then (a test looks at the bytes on the wire).
pub(super) fn broken_connection() -> Response {
    let broken = io::Error::from(io::ErrorKind::ConnectionAborted);
    Response::new(Body::from_stream(stream::once(ready(Err::<Bytes, _>(broken)))))
}
