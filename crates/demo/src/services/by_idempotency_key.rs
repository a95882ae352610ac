//! Services with `POST` requests and an `Idempotency-Key` header: inventory, payment, shipping.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::demo_service::DemoService;
use super::fault::FaultKind;
use super::ledger::{SideEffect, SubjectRecord};
use super::mock_service::{IncomingCall, MockService, Operation, ServiceState};
use super::request_fields::{is_id, json_object};
use super::responses::{ErrorResponse, NOTHING_TO_UNDO, bad_request, response_detail};

const KEY_BYTES_MAX: usize = 1024;

/// A well-formed request.
#[derive(Debug)]
struct KeyedRequest {
    key: String,
    order: String,
    body: Map<String, Value>,
}

/// An endpoint: its operation, and the noun for its result. The plural of the noun is the path, and the noun is a
/// field of the response.
#[derive(Debug, Clone, Copy)]
struct Endpoint {
    operation: Operation,
    noun: &'static str,
}

/// The routes of a service with one operation and its undo.
pub(super) fn routes(do_noun: &'static str, undo_noun: &'static str) -> Router<Arc<MockService>> {
    let serve = |endpoint: Endpoint| {
        post(
            move |State(mock): State<Arc<MockService>>, headers: HeaderMap, body: Bytes| async move {
                serve(mock, endpoint, &headers, &body).await
            },
        )
    };
    let (do_endpoint, undo_endpoint) = (
        Endpoint { operation: Operation::Do, noun: do_noun },
        Endpoint { operation: Operation::Undo, noun: undo_noun },
    );
    Router::new()
        .route(&format!("/{do_noun}s"), serve(do_endpoint))
        .route(&format!("/{undo_noun}s"), serve(undo_endpoint))
}

async fn serve(
    mock: Arc<MockService>,
    endpoint: Endpoint,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let KeyedRequest { key, order, body } = match KeyedRequest::parse(headers, body) {
        Ok(request) => request,
        Err(error) => return error.into_response(),
    };
    let call = IncomingCall {
        operation: endpoint.operation,
        key: &key,
        subject: &order,
        in_progress_status: Some(in_progress_status(mock.service())),
    };
    let reused = ErrorResponse {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        name: "idempotency-key-reused",
        title: "This Idempotency-Key was already used for another request",
    };
    let (service, digest, undo_not_found) =
        (mock.service(), mock.digest(&key), mock.undo_not_found());
    let (name, subject) = (key.clone(), order.clone());
    let execute = move |state: &mut ServiceState| {
        let is_repeated = state.has_result(&name);
        let record = state.record(&subject);
        let is_undo = endpoint.operation == Operation::Undo;
        if is_undo && undo_not_found && !is_repeated && record.active_effects() == 0 {
            record.count_fault(FaultKind::NotFound);
            return NOTHING_TO_UNDO.into_response();
        }
        let content = (endpoint.operation, body);
        state.execute_once(&name, &subject, content, reused, |record, (_, body)| {
            let ids = (name.as_str(), subject.as_str(), digest);
            Value::Object(take_effect(service, endpoint, ids, body, record))
        })
    };
    mock.serve(call, execute).await
}

/// The status while a request with the same key is in progress. The inventory uses 423, because its 409 means out of
/// stock, so that clients can treat 409 as "did not run".
const fn in_progress_status(service: DemoService) -> StatusCode {
    match service {
        DemoService::Inventory => StatusCode::LOCKED,
        DemoService::Payment
        | DemoService::Shipping
        | DemoService::Account
        | DemoService::Package
        | DemoService::Transport
        | DemoService::DroneScheduler
        | DemoService::Delivery => StatusCode::CONFLICT,
    }
}

/// Adds the side effect to the record, or undoes the record's side effects. Returns the response.
fn take_effect(
    service: DemoService,
    Endpoint { operation, noun }: Endpoint,
    (key, order, digest): (&str, &str, u64),
    body: &Map<String, Value>,
    record: &mut SubjectRecord,
) -> Map<String, Value> {
    let id = format!("{noun}-{digest:016x}");
    let mut response = Map::new();
    response.insert(noun.to_owned(), json!(id));
    response.insert("order".to_owned(), json!(order));
    match operation {
        Operation::Do => {
            response.extend(response_detail(service, body, digest));
            record.effects.push(SideEffect { id, done_by: key.to_owned(), undone_by: None });
        }
        Operation::Undo => {
            response.insert("undone".to_owned(), json!(record.undo(key, |_| true)));
        }
    }
    response
}

impl KeyedRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The request is malformed. The error is the response.
    fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, ErrorResponse> {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        let key = match key {
            Some(key) if !key.is_empty() && key.len() <= KEY_BYTES_MAX => key.to_owned(),
            Some(_) => {
                return Err(bad_request(
                    "idempotency-key-length",
                    "Idempotency-Key is empty or too long",
                ));
            }
            None => {
                return Err(bad_request("idempotency-key-missing", "Idempotency-Key is missing"));
            }
        };
        let body = json_object(body)?;
        let order = match body.get("order").and_then(Value::as_str) {
            Some(order) if is_id(order) => order.to_owned(),
            Some(_) => return Err(bad_request("order-length", "order is empty or too long")),
            None => return Err(bad_request("order-missing", "order is missing or not a string")),
        };
        Ok(Self { key, order, body })
    }
}
