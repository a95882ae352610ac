//! Services that are only asked, and change nothing: whether an account is good, and whether a drone
//! can fly from one place to another.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::json;

use super::FaultKind;
use super::answer::{Problem, bad, object, package_of, refusal};
use super::desk::{Arrival, Book, Desk, Operation, is_id};
use super::route::Route;

/// Accounts whose ids start like this are suspended whatever the plan says, so that a person can see
/// what becomes of their deliveries.
const SUSPENDED: &str = "suspended";

/// `GET /accounts/{id}`: a suspended one is refused.
pub(super) fn accounts() -> Router<Arc<Desk>> {
    let account = async |State(desk): State<Arc<Desk>>, Path(id): Path<String>| {
        if !is_id(&id) {
            return bad("id-length", "The id is empty or too long").into_response();
        }
        let key = format!("GET /accounts/{id}");
        let arrival = Arrival { operation: Operation::Do, key: &key, page: &id, busy: None };
        let (service, account) = (desk.service(), id.clone());
        let act = move |book: &mut Book| {
            if account.starts_with(SUSPENDED) {
                book.page(&account).meets(FaultKind::Refuse);
                return refusal(service).into_response();
            }
            Json(json!({ "account": account, "status": "active" })).into_response()
        };
        desk.serve(arrival, act).await
    };
    Router::new().route("/accounts/{id}", get(account))
}

/// `POST /assessments` of a package, from its pickup to its dropoff: is it too far for a drone?
pub(super) fn assessments() -> Router<Arc<Desk>> {
    let assess = async |State(desk): State<Arc<Desk>>, body: Bytes| match question(&body) {
        Ok((package, route)) => assess(&desk, &package, route).await,
        Err(problem) => problem.into_response(),
    };
    Router::new().route("/assessments", post(assess))
}

async fn assess(desk: &Arc<Desk>, package: &str, route: Route) -> Response {
    let key = format!("POST /assessments of {package}");
    let arrival = Arrival { operation: Operation::Do, key: &key, page: package, busy: None };
    let answer = json!({
        "third_party": route.needs_third_party(),
        "distance_km": route.distance_km().round(),
    });
    desk.serve(arrival, move |_| Json(answer).into_response()).await
}

fn question(body: &[u8]) -> Result<(String, Route), Problem> {
    let request = object(body)?;
    Ok((package_of(&request)?, Route::of(&request)?))
}
