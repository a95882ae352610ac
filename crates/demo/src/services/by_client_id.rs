//! Services with client-generated ids: packages, bookings, drones and deliveries. `PUT` creates a resource once: it
//! returns 201, and the same body again for a repeated `PUT`. `DELETE` deletes the resource, and succeeds if there is
//! none.
//!
//! The id of a deleted resource cannot be used again: a repeated `PUT` gets 410. Messages may arrive twice and late, so
//! a `PUT` may be repeated after the `DELETE`. It must not create a resource that no undo will delete.
//!
//! The subject of a resource is its package, so that two drones with different ids count as two side effects for one
//! package.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    demo_service::DemoService,
    fault::FaultKind,
    ledger::SideEffect,
    mock_service::{IncomingCall, MockService, Operation, ServiceState},
    request_fields::{is_id, json_object, package_of},
    responses::{ErrorResponse, NOTHING_TO_UNDO, bad_request, response_detail},
    route::Route,
};

/// A kind of resource: the plural is the path, and the noun is a field of the response.
#[derive(Debug, Clone, Copy)]
struct ResourceKind {
    plural: &'static str,
    noun: &'static str,
}

/// A well-formed request to create a resource.
#[derive(Debug)]
struct CreateRequest {
    id: String,
    package: String,
    body: Map<String, Value>,
    /// The service's own refusal of this request, which does not depend on the fault plan.
    refusal: Option<ErrorResponse>,
}

/// The routes of a service with one kind of resource.
pub(super) fn routes(plural: &'static str, noun: &'static str) -> Router<Arc<MockService>> {
    let kind = ResourceKind { plural, noun };
    let create =
        async move |State(mock): State<Arc<MockService>>, Path(id): Path<String>, body: Bytes| {
            match CreateRequest::parse(mock.service(), id, &body) {
                Ok(request) => create(mock, kind, request).await,
                Err(error) => error.into_response(),
            }
        };
    let delete = async move |State(mock): State<Arc<MockService>>, Path(id): Path<String>| {
        delete(mock, kind, id).await
    };
    Router::new().route(&format!("/{plural}/{{id}}"), put(create).delete(delete))
}

async fn create(
    mock: Arc<MockService>,
    ResourceKind { plural, noun }: ResourceKind,
    request: CreateRequest,
) -> Response {
    let CreateRequest { id, package, body, refusal } = request;
    let key = format!("PUT /{plural}/{id}");
    let call = IncomingCall {
        operation: Operation::Do,
        key: &key,
        subject: &package,
        in_progress_status: Some(StatusCode::LOCKED),
    };
    let (service, digest) = (mock.service(), mock.digest(&key));
    let (done_by, subject) = (key.clone(), package.clone());
    let execute = move |state: &mut ServiceState| {
        if let Some(refusal) = refusal {
            state.record(&subject).count_fault(FaultKind::Refuse);
            return refusal.into_response();
        }
        let content = (Operation::Do, body);
        state.execute_once(&id, &subject, content, ID_TAKEN, |record, (_, body)| {
            record.effects.push(SideEffect { id: id.clone(), done_by, undone_by: None });
            let mut response = Map::from_iter([(noun.to_owned(), json!(id))]);
            response.extend(response_detail(service, body, digest));
            Value::Object(response)
        })
    };
    mock.serve(call, execute).await
}

const ID_TAKEN: ErrorResponse = ErrorResponse {
    status: StatusCode::CONFLICT,
    name: "id-taken",
    title: "Another resource has this id",
};

async fn delete(
    mock: Arc<MockService>,
    ResourceKind { plural, .. }: ResourceKind,
    id: String,
) -> Response {
    let key = format!("DELETE /{plural}/{id}");
    let subject = mock.subject_of(&id).unwrap_or_else(|| id.clone());
    let call = IncomingCall {
        operation: Operation::Undo,
        key: &key,
        subject: &subject,
        in_progress_status: Some(StatusCode::LOCKED),
    };
    let (undone_by, undo_not_found) = (key.clone(), mock.undo_not_found());
    let fallback_subject = subject.clone();
    let execute = move |state: &mut ServiceState| {
        if undo_not_found && !state.has_result(&id) {
            state.record(&fallback_subject).count_fault(FaultKind::NotFound);
            return NOTHING_TO_UNDO.into_response();
        }
        state.delete(&id, &undone_by);
        StatusCode::NO_CONTENT.into_response()
    };
    mock.serve(call, execute).await
}

impl CreateRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The request is malformed. The error is the response.
    fn parse(service: DemoService, id: String, body: &[u8]) -> Result<Self, ErrorResponse> {
        if !is_id(&id) {
            return Err(bad_request("id-length", "The id is empty or too long"));
        }
        let body = json_object(body)?;
        let package = if service == DemoService::Package { id.clone() } else { package_of(&body)? };
        let is_too_far =
            service == DemoService::DroneScheduler && Route::parse(&body)?.needs_third_party();
        let refusal = is_too_far.then_some(TOO_FAR);
        Ok(Self { id, package, body, refusal })
    }
}

const TOO_FAR: ErrorResponse = ErrorResponse {
    status: StatusCode::UNPROCESSABLE_ENTITY,
    name: "too-far",
    title: "The route is too long for a drone",
};
