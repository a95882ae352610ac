//! What calls and answers are made of, and the answers that are not a success: refusals, failures,
//! and none at all.

use std::future::ready;
use std::io;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::Service;
use super::desk::is_id;

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
        Service::Account => Problem {
            status: StatusCode::FORBIDDEN,
            name: "account-suspended",
            title: "The account is suspended",
        },
        Service::Package => Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "package-too-heavy",
            title: "The package is too heavy",
        },
        Service::Transport => Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-carrier",
            title: "Nobody carries packages there",
        },
        Service::DroneScheduler => Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-fly-zone",
            title: "Drones may not fly there",
        },
        Service::Delivery => Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-dropoff",
            title: "Nothing can be dropped off there",
        },
    }
}

/// The answer to a call that is not well formed.
pub(super) const fn bad(name: &'static str, title: &'static str) -> Problem {
    Problem { status: StatusCode::BAD_REQUEST, name, title }
}

/// The body, which must be a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    serde_json::from_slice(body)
        .map_err(|_| bad("body-not-an-object", "The body is not a JSON object"))
}

/// The package that a request is about.
pub(super) fn package_of(request: &Map<String, Value>) -> Result<String, Problem> {
    match request.get("package").and_then(Value::as_str) {
        Some(package) if is_id(package) => Ok(package.to_owned()),
        Some(_) => Err(bad("package-length", "package is empty or too long")),
        None => Err(bad("package-missing", "package is missing or not a string")),
    }
}

/// What else the service says of what it did; small, since the caller will store it.
pub(super) fn particulars(
    service: Service,
    request: &Map<String, Value>,
    digest: u64,
) -> Option<(String, Value)> {
    let one_of = |[first, second, third]: [&str; 3]| match digest % 3 {
        0 => json!(first),
        1 => json!(second),
        _ => json!(third),
    };
    let (name, value) = match service {
        Service::Inventory => ("warehouse", one_of(["Rotterdam", "Genoa", "Gdansk"])),
        Service::Payment => ("amount", request.get("amount")?.clone()),
        Service::Shipping | Service::Transport => {
            ("carrier", one_of(["Swift Parcel", "Blue Van", "Night Mail"]))
        }
        Service::DroneScheduler => ("drone", json!(format!("drone-{}", digest % 1_000))),
        Service::Delivery => ("minutes", json!(15 + digest % 30)),
        Service::Account | Service::Package => return None,
    };
    Some((name.to_owned(), value))
}

/// A failure that may pass, asking or not to be left alone for a second.
pub(super) fn failure(status: u16, retry_after: bool) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = Problem { status, name: "try-again", title: "Not now, try again" };
    let retry_after = retry_after.then_some([(RETRY_AFTER, HeaderValue::from_static("1"))]);
    (retry_after, problem).into_response()
}

/// The answer while another call with the same key is in progress (the IETF's draft says 409).
pub(super) const fn busy(status: StatusCode) -> Problem {
    Problem { status, name: "in-progress", title: "A request with the same key is in progress" }
}

/// What the service did, or will do, can be read elsewhere.
pub(super) fn redirect(status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SEE_OTHER);
    (status, [(LOCATION, HeaderValue::from_static("/done"))]).into_response()
}

/// A success that says nothing.
pub(super) fn empty_answer() -> Response {
    StatusCode::OK.into_response()
}

/// A success that no JSON parser reads.
pub(super) fn not_json() -> Response {
    let content_type = HeaderValue::from_static("text/html");
    (StatusCode::OK, [(CONTENT_TYPE, content_type)], "<p>Thank you!</p>").into_response()
}

/// The answer of an undo that found nothing.
pub(super) const NOTHING_TO_UNDO: Problem = Problem {
    status: StatusCode::NOT_FOUND,
    name: "nothing-to-undo",
    title: "There is nothing to undo",
};

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
