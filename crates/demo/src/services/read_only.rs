//! Services without side effects: the status of an account, and whether a drone can fly a route.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::json;

use super::{
    fault::FaultKind,
    mock_service::{IncomingCall, MockService, Operation, ServiceState},
    request_fields::{is_id, json_object, package_of},
    responses::{ErrorResponse, bad_request, refusal},
    route::Route,
};

/// Accounts whose ids have this prefix are always suspended, so that users can try out the refusal.
const SUSPENDED_PREFIX: &str = "suspended";

/// `GET /accounts/{id}`: refuses suspended accounts.
pub(super) fn accounts() -> Router<Arc<MockService>> {
    let account = async |State(mock): State<Arc<MockService>>, Path(id): Path<String>| {
        if !is_id(&id) {
            return bad_request("id-length", "The id is empty or too long").into_response();
        }
        let key = format!("GET /accounts/{id}");
        let call = IncomingCall {
            operation: Operation::Do,
            key: &key,
            subject: &id,
            in_progress_status: None,
        };
        let (service, account) = (mock.service(), id.clone());
        let execute = move |state: &mut ServiceState| {
            if account.starts_with(SUSPENDED_PREFIX) {
                state.record(&account).count_fault(FaultKind::Refuse);
                return refusal(service).into_response();
            }
            Json(json!({ "account": account, "status": "active" })).into_response()
        };
        mock.serve(call, execute).await
    };
    Router::new().route("/accounts/{id}", get(account))
}

/// `POST /assessments`: returns whether the route of a package is too long for a drone.
pub(super) fn assessments() -> Router<Arc<MockService>> {
    let assess =
        async |State(mock): State<Arc<MockService>>, body: Bytes| match parse_assessment(&body) {
            Ok((package, route)) => assess(&mock, &package, route).await,
            Err(problem) => problem.into_response(),
        };
    Router::new().route("/assessments", post(assess))
}

async fn assess(mock: &Arc<MockService>, package: &str, route: Route) -> Response {
    let key = format!("POST /assessments of {package}");
    let call = IncomingCall {
        operation: Operation::Do,
        key: &key,
        subject: package,
        in_progress_status: None,
    };
    let assessment = json!({
        "third_party": route.needs_third_party(),
        "distance_km": route.distance_km().round(),
    });
    mock.serve(call, move |_| Json(assessment).into_response()).await
}

fn parse_assessment(body: &[u8]) -> Result<(String, Route), ErrorResponse> {
    let request = json_object(body)?;
    Ok((package_of(&request)?, Route::parse(&request)?))
}
