//! The responses other than normal successes: refusals, failures, redirects and broken connections.

use std::future::ready;
use std::io;

use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value, json};
use steward_test_world::service::{Body, Reply};

use super::demo_service::DemoService;

/// An error response (RFC 9457).
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    /// The last part of the problem type. It is stable, because clients may depend on it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
}

/// The service's permanent refusal.
pub(super) const fn refusal(service: DemoService) -> ErrorResponse {
    match service {
        DemoService::Inventory => ErrorResponse {
            status: StatusCode::CONFLICT,
            name: "out-of-stock",
            title: "Out of stock",
        },
        DemoService::Payment => ErrorResponse {
            status: StatusCode::PAYMENT_REQUIRED,
            name: "card-declined",
            title: "The card was declined",
        },
        DemoService::Shipping => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "undeliverable-address",
            title: "No carrier delivers to this address",
        },
        DemoService::Account => ErrorResponse {
            status: StatusCode::FORBIDDEN,
            name: "account-suspended",
            title: "The account is suspended",
        },
        DemoService::Package => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "package-too-heavy",
            title: "The package is too heavy",
        },
        DemoService::Transport => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-carrier",
            title: "No carrier serves this destination",
        },
        DemoService::DroneScheduler => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-fly-zone",
            title: "The route crosses a no-fly zone",
        },
        DemoService::Delivery => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "no-dropoff",
            title: "Packages cannot be dropped off there",
        },
        DemoService::Finance => ErrorResponse {
            status: StatusCode::PAYMENT_REQUIRED,
            name: "BudgetExceeded",
            title: "The budget is used up",
        },
        DemoService::Mail => ErrorResponse {
            status: StatusCode::FORBIDDEN,
            name: "rejected",
            title: "The manager rejected the purchase",
        },
        DemoService::Supplier => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "article-discontinued",
            title: "The article is no longer sold",
        },
        DemoService::Accounting => ErrorResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            name: "period-closed",
            title: "The accounting period is closed",
        },
    }
}

/// The response to a malformed request.
pub(super) const fn bad_request(name: &'static str, title: &'static str) -> ErrorResponse {
    ErrorResponse { status: StatusCode::BAD_REQUEST, name, title }
}

/// A further field of the success response, as name and value. It is small, because the caller stores it.
pub(super) fn response_detail(
    service: DemoService,
    request: &Map<String, Value>,
    digest: u64,
) -> Option<(String, Value)> {
    let one_of = |[first, second, third]: [&str; 3]| match digest % 3 {
        0 => json!(first),
        1 => json!(second),
        _ => json!(third),
    };
    let (name, value) = match service {
        DemoService::Inventory => ("warehouse", one_of(["Rotterdam", "Genoa", "Gdansk"])),
        DemoService::Payment => ("amount", request.get("amount")?.clone()),
        DemoService::Shipping | DemoService::Transport => {
            ("carrier", one_of(["Swift Parcel", "Blue Van", "Night Mail"]))
        }
        DemoService::DroneScheduler => ("drone", json!(format!("drone-{}", digest % 1_000))),
        DemoService::Delivery => ("minutes", json!(15 + digest % 30)),
        DemoService::Account
        | DemoService::Package
        | DemoService::Finance
        | DemoService::Mail
        | DemoService::Supplier
        | DemoService::Accounting => return None,
    };
    Some((name.to_owned(), value))
}

/// A temporary failure, optionally with `Retry-After: 1`.
pub(super) fn failure(status: u16, retry_after: bool) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem =
        ErrorResponse { status, name: "try-again", title: "Temporary failure, try again" };
    let reply = Reply::from(problem);
    if retry_after { reply.retry_after(1) } else { reply }
}

/// A request to come back after this many seconds.
pub(super) fn long_pause(seconds: u64) -> Reply {
    failure(429, false).retry_after(seconds)
}

/// The response while another call with the same key is in progress. The IETF draft specifies 409.
pub(super) const fn in_progress(status: StatusCode) -> ErrorResponse {
    ErrorResponse {
        status,
        name: "in-progress",
        title: "A request with the same key is in progress",
    }
}

/// A redirect in place of a success.
pub(super) fn redirect(status: u16) -> Reply {
    reply(status, (LOCATION, "/done"), "")
}

/// A success with an empty body.
pub(super) fn empty_body() -> Reply {
    Reply::success(Body::Bytes(Vec::new()))
}

/// A success whose body is not JSON.
pub(super) fn not_json() -> Reply {
    reply(200, (CONTENT_TYPE, "text/html"), "<p>Thank you!</p>")
}

/// A 200 that says that the service is too busy to begin the call.
pub(super) fn busy_body() -> Reply {
    let body = json!({ "error": "busy" }).to_string();
    Reply::success(Body::NotBegun(body.into_bytes()))
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Stands for a success with a byte order mark before its body.
pub(super) fn byte_order_mark() -> Reply {
    Reply::success(Body::Bytes(BYTE_ORDER_MARK.to_vec()))
}

/// The response with a byte order mark before its body.
pub(super) async fn with_byte_order_mark(response: Response) -> Response {
    let (head, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => Response::from_parts(head, [BYTE_ORDER_MARK, &body].concat().into()),
        Err(_) => broken_connection(),
    }
}

fn reply(status: u16, (name, value): (HeaderName, &'static str), body: &str) -> Reply {
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
    Reply::Http { status, headers, body: Body::Bytes(body.as_bytes().to_vec()) }
}

/// The HTTP response of a reply.
pub(super) fn response(reply: Reply) -> Response {
    let Reply::Http { status, headers, body } = reply else { return broken_connection() };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match body {
        Body::Bytes(bytes) | Body::NotBegun(bytes) => bytes,
        Body::Output => Vec::new(),
    };
    (status, headers, body).into_response()
}

/// The response to an undo that found nothing.
pub(super) const NOTHING_TO_UNDO: ErrorResponse = ErrorResponse {
    status: StatusCode::NOT_FOUND,
    name: "nothing-to-undo",
    title: "There is nothing to undo",
};

impl From<ErrorResponse> for Reply {
    fn from(ErrorResponse { status, name, title }: ErrorResponse) -> Self {
        let status = status.as_u16();
        let body =
            json!({ "type": format!("urn:problem-type:{name}"), "title": title, "status": status });
        reply(status, (CONTENT_TYPE, "application/problem+json"), &body.to_string())
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        response(self.into())
    }
}

/// Breaks the connection without a response: hyper drops the connection when a body fails, before it has sent the
/// head. A test checks that no bytes are sent.
pub(super) fn broken_connection() -> Response {
    let error = io::Error::from(io::ErrorKind::ConnectionAborted);
    Response::new(axum::body::Body::from_stream(stream::once(ready(Err::<Bytes, _>(error)))))
}
