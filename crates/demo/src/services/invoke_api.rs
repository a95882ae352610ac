//! The finance service: two functions behind Lambda's `Invoke` API, at the service's base URL.
//!
//! | outcome of the function or fault | response of Lambda |
//! | --- | --- |
//! | success | 200 with the result |
//! | the budget is exceeded, or another error | 200 with `X-Amz-Function-Error` and the error |
//! | the function works on the same key already, or too many calls | 429 `TooManyRequestsException` |
//! | the service fails | 500 `ServiceException` |
//! | the function is being updated | 409 `ResourceConflictException` |
//! | unknown function | 404 `ResourceNotFoundException` |
//!
//! The idempotency key is `custom.idempotency_key` in the client context of the invocation. Signatures must be present,
//! but are not verified. <https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html>

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    by_idempotency_key::{Endpoint, KeyedRequest, serve},
    demo_service::{DemoService, FUNCTIONS},
    mock_service::{MockService, Operation},
    responses::refusal,
};

/// The largest purchase that the budget allows, in cents.
const BUDGET_CENTS: u64 = 1_000_000;

/// The field of the event that names the purchase.
const SUBJECT: &str = "purchase";

/// The header with which Lambda marks the result of a function that ended with an error.
const FUNCTION_ERROR: HeaderName = HeaderName::from_static("x-amz-function-error");

/// The header with the name of an error of Lambda.
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// The route of the API.
pub(super) fn routes() -> Router<Arc<MockService>> {
    Router::new().route("/2015-03-31/functions/{function}/invocations", post(invoke))
}

async fn invoke(
    State(mock): State<Arc<MockService>>,
    Path(function): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(endpoint) = endpoint(&function) else {
        return error(StatusCode::NOT_FOUND, "ResourceNotFoundException");
    };
    if !is_signed(&headers) {
        return error(StatusCode::FORBIDDEN, "MissingAuthenticationTokenException");
    }
    let Some(key) = idempotency_key(&headers) else {
        return function_error("KeyMissing", "the client context has no idempotency_key");
    };
    let request = match KeyedRequest::with_key(&key, &body, SUBJECT) {
        Ok(request) => request,
        Err(problem) => return function_error("MalformedEvent", problem.title),
    };
    let amount = request.body.get("amount").and_then(Value::as_u64);
    let is_over = amount.is_none_or(|amount| amount > BUDGET_CENTS);
    let is_refused = endpoint.operation == Operation::Do && is_over;
    let request =
        KeyedRequest { refusal: is_refused.then_some(refusal(DemoService::Finance)), ..request };
    of_lambda(serve(mock, endpoint, request, |_| ()).await)
}

/// The function with this name or ARN, with or without a qualifier.
fn endpoint(function: &str) -> Option<Endpoint> {
    let name = function.rsplit_once(":function:").map_or(function, |(_, name)| name);
    let name = name.split(':').next().unwrap_or(name);
    let [commit, release] = FUNCTIONS;
    let (operation, noun) = match name {
        _ if name == commit => (Operation::Do, "commitment"),
        _ if name == release => (Operation::Undo, "release"),
        _ => return None,
    };
    Some(Endpoint { operation, noun, subject_field: SUBJECT })
}

fn is_signed(headers: &HeaderMap) -> bool {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    authorization.is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 "))
}

/// The key in the client context.
fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    let context = STANDARD.decode(headers.get("x-amz-client-context")?).ok()?;
    let context: Value = serde_json::from_slice(&context).ok()?;
    Some(context.pointer("/custom/idempotency_key")?.as_str()?.to_owned())
}

/// The service's response, as Lambda gives it.
fn of_lambda(mut response: Response) -> Response {
    match response.status() {
        StatusCode::CREATED => {
            *response.status_mut() = StatusCode::OK;
            response
        }
        StatusCode::TOO_MANY_REQUESTS => error(response.status(), "TooManyRequestsException"),
        StatusCode::PAYMENT_REQUIRED => budget_exceeded(),
        StatusCode::UNPROCESSABLE_ENTITY => {
            function_error("KeyReused", "the key was used for another event")
        }
        StatusCode::SERVICE_UNAVAILABLE => error(StatusCode::CONFLICT, "ResourceConflictException"),
        status if status.is_server_error() => error(status, "ServiceException"),
        // A result, also one of a broken connection, and a redirect, which Lambda never sends.
        _ => response,
    }
}

fn budget_exceeded() -> Response {
    let refusal = refusal(DemoService::Finance);
    function_error(refusal.name, refusal.title)
}

/// The result of a function that ended with an error.
fn function_error(kind: &str, message: &str) -> Response {
    let body = json!({ "errorType": kind, "errorMessage": message });
    ([(FUNCTION_ERROR, "Unhandled")], Json(body)).into_response()
}

/// An error of Lambda itself.
fn error(status: StatusCode, name: &'static str) -> Response {
    let body = json!({ "Type": "Service", "message": "injected by the demo" });
    (status, [(ERROR_TYPE, name)], Json(body)).into_response()
}
