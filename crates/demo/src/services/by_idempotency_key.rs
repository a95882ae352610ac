//! Services with `POST` requests and an `Idempotency-Key` header: inventory, payment, shipping, supplier. The functions of
//! the finance service have the same effects by the same rules, but another protocol.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    demo_service::DemoService,
    fault::FaultKind,
    ledger::{SideEffect, SubjectRecord},
    mock_service::{IncomingCall, MockService, Operation, ServiceState},
    request_fields::{is_id, json_object},
    responses::{ErrorResponse, NOTHING_TO_UNDO, bad_request, response_detail},
};

const KEY_BYTES_MAX: usize = 1024;

/// A well-formed request.
#[derive(Debug)]
pub(super) struct KeyedRequest {
    pub(super) key: String,
    /// The order or purchase that the request is about.
    pub(super) subject: String,
    pub(super) body: Map<String, Value>,
    /// The service's own refusal of this request, which does not depend on the fault plan.
    pub(super) refusal: Option<ErrorResponse>,
}

/// An endpoint: its operation, and the noun for its result. The noun is a field of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) operation: Operation,
    pub(super) noun: &'static str,
    /// The field of the request and of the response that names the subject.
    pub(super) subject_field: &'static str,
}

/// The routes of a service with one operation and its undo, for orders. The plural of a noun is the path.
pub(super) fn routes(do_noun: &'static str, undo_noun: &'static str) -> Router<Arc<MockService>> {
    let serve = |endpoint: Endpoint| {
        post(
            move |State(mock): State<Arc<MockService>>, headers: HeaderMap, body: Bytes| async move {
                match KeyedRequest::parse(&headers, &body, endpoint.subject_field) {
                    Ok(request) => serve(mock, endpoint, request, |_| ()).await,
                    Err(error) => error.into_response(),
                }
            },
        )
    };
    let endpoint = |operation, noun| Endpoint { operation, noun, subject_field: "order" };
    Router::new()
        .route(&format!("/{do_noun}s"), serve(endpoint(Operation::Do, do_noun)))
        .route(&format!("/{undo_noun}s"), serve(endpoint(Operation::Undo, undo_noun)))
}

/// Serves a request. `on_effect` gets its body when it takes effect, and not when it is repeated.
pub(super) async fn serve(
    mock: Arc<MockService>,
    endpoint: Endpoint,
    request: KeyedRequest,
    on_effect: impl FnOnce(&Map<String, Value>) + Send + 'static,
) -> Response {
    let KeyedRequest { key, subject, body, refusal } = request;
    let call = IncomingCall {
        operation: endpoint.operation,
        key: &key,
        subject: &subject,
        in_progress_status: Some(in_progress_status(mock.service())),
    };
    let reused = ErrorResponse {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        name: "idempotency-key-reused",
        title: "This Idempotency-Key was already used for another request",
    };
    let (service, digest, undo_not_found) =
        (mock.service(), mock.digest(&key), mock.undo_not_found());
    let (name, of) = (key.clone(), subject.clone());
    let execute = move |state: &mut ServiceState| {
        let is_repeated = state.has_result(&name);
        let record = state.record(&of);
        if let Some(refusal) = refusal {
            record.count_fault(FaultKind::Refuse);
            return refusal.into_response();
        }
        let is_undo = endpoint.operation == Operation::Undo;
        if is_undo && undo_not_found && !is_repeated && record.active_effects() == 0 {
            record.count_fault(FaultKind::NotFound);
            return NOTHING_TO_UNDO.into_response();
        }
        let content = (endpoint.operation, body);
        state.execute_once(&name, &of, content, reused, |record, (_, body)| {
            let ids = (name.as_str(), of.as_str(), digest);
            on_effect(body);
            Value::Object(take_effect(service, endpoint, ids, body, record))
        })
    };
    mock.serve(call, execute).await
}

/// The status while a request with the same key is in progress. The inventory uses 423, because its 409 means out of
/// stock, so that clients can treat 409 as "did not run". A function that works on the key already is throttled.
const fn in_progress_status(service: DemoService) -> StatusCode {
    match service {
        DemoService::Inventory => StatusCode::LOCKED,
        DemoService::Finance => StatusCode::TOO_MANY_REQUESTS,
        DemoService::Payment
        | DemoService::Shipping
        | DemoService::Account
        | DemoService::Package
        | DemoService::Transport
        | DemoService::DroneScheduler
        | DemoService::Delivery
        | DemoService::Mail
        | DemoService::Supplier
        | DemoService::Accounting => StatusCode::CONFLICT,
    }
}

/// Adds the side effect to the record, or undoes the record's side effects. Returns the response.
fn take_effect(
    service: DemoService,
    Endpoint { operation, noun, subject_field }: Endpoint,
    (key, subject, digest): (&str, &str, u64),
    body: &Map<String, Value>,
    record: &mut SubjectRecord,
) -> Map<String, Value> {
    let id = format!("{noun}-{digest:016x}");
    let mut response = Map::new();
    response.insert(noun.to_owned(), json!(id));
    response.insert(subject_field.to_owned(), json!(subject));
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
    /// Parses a request whose body names its subject in `subject_field`.
    ///
    /// # Errors
    /// The request is malformed. The error is the response.
    pub(super) fn parse(
        headers: &HeaderMap,
        body: &[u8],
        subject_field: &str,
    ) -> Result<Self, ErrorResponse> {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        let key = key
            .ok_or_else(|| bad_request("idempotency-key-missing", "Idempotency-Key is missing"))?;
        Self::with_key(key, body, subject_field)
    }

    /// Parses a request with this idempotency key.
    ///
    /// # Errors
    /// The request is malformed. The error is the response.
    pub(super) fn with_key(
        key: &str,
        body: &[u8],
        subject_field: &str,
    ) -> Result<Self, ErrorResponse> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let title = "Idempotency-Key is empty or too long";
            return Err(bad_request("idempotency-key-length", title));
        }
        let body = json_object(body)?;
        let subject = match body.get(subject_field).and_then(Value::as_str) {
            Some(subject) if is_id(subject) => subject.to_owned(),
            Some(_) => {
                return Err(bad_request("subject-length", "The subject is empty or too long"));
            }
            None => {
                let title = "The subject is missing or not a string";
                return Err(bad_request("subject-missing", title));
            }
        };
        Ok(Self { key: key.to_owned(), subject, body, refusal: None })
    }
}
