//! Services that keep things under ids which their callers choose: packages, bookings, drones and
//! deliveries. `PUT` makes the thing, once: 201, and for a repeat the same answer again. `DELETE`
//! takes it back, and where there is none it has succeeded too.
//!
//! An id is used up once its thing was taken back: then a repeat of the `PUT` gets 410. Messages may
//! come twice and late, so a `PUT` that has long been answered can come again after the `DELETE`, and
//! must not make a thing that nobody will take back.
//!
//! A thing's page in the book is that of its package, whatever its own id: two drones under two ids
//! are still two drones for one package.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{NOTHING_TO_UNDO, Problem, bad, object, package_of, particulars};
use super::desk::{Arrival, Book, Desk, Operation, is_id};
use super::route::Route;
use super::{Effect, FaultKind, Service};

/// What a service keeps: the plural is the path, the noun a field of the answer.
#[derive(Debug, Clone, Copy)]
struct Things {
    plural: &'static str,
    noun: &'static str,
}

/// A well-formed wish for a thing.
#[derive(Debug)]
struct Wish {
    id: String,
    package: String,
    request: Map<String, Value>,
    /// What the service itself has against it, whatever the plan says.
    objection: Option<Problem>,
}

/// The routes of a service that keeps such things.
pub(super) fn routes(plural: &'static str, noun: &'static str) -> Router<Arc<Desk>> {
    let things = Things { plural, noun };
    let make = async move |State(desk): State<Arc<Desk>>, Path(id): Path<String>, body: Bytes| {
        match Wish::parse(desk.service(), id, &body) {
            Ok(wish) => make(desk, things, wish).await,
            Err(problem) => problem.into_response(),
        }
    };
    let take_back = async move |State(desk): State<Arc<Desk>>, Path(id): Path<String>| {
        take_back(desk, things, id).await
    };
    Router::new().route(&format!("/{plural}/{{id}}"), put(make).delete(take_back))
}

async fn make(desk: Arc<Desk>, Things { plural, noun }: Things, wish: Wish) -> Response {
    let Wish { id, package, request, objection } = wish;
    let key = format!("PUT /{plural}/{id}");
    let busy = Some(StatusCode::LOCKED);
    let arrival = Arrival { operation: Operation::Do, key: &key, page: &package, busy };
    let (service, digest) = (desk.service(), desk.digest(&key));
    let (done_by, page_name) = (key.clone(), package.clone());
    let act = move |book: &mut Book| {
        if let Some(problem) = objection {
            book.page(&page_name).meets(FaultKind::Refuse);
            return problem.into_response();
        }
        let asked = (Operation::Do, request);
        book.once(&id, &page_name, asked, TAKEN, |page, (_, request)| {
            page.effects.push(Effect { id: id.clone(), done_by, undone_by: None });
            let mut answer = Map::from_iter([(noun.to_owned(), json!(id))]);
            answer.extend(particulars(service, request, digest));
            Value::Object(answer)
        })
    };
    desk.serve(arrival, act).await
}

const TAKEN: Problem = Problem {
    status: StatusCode::CONFLICT,
    name: "id-taken",
    title: "There is something else under this id",
};

async fn take_back(desk: Arc<Desk>, Things { plural, .. }: Things, id: String) -> Response {
    let key = format!("DELETE /{plural}/{id}");
    let page = desk.page_of(&id).unwrap_or_else(|| id.clone());
    let busy = Some(StatusCode::LOCKED);
    let arrival = Arrival { operation: Operation::Undo, key: &key, page: &page, busy };
    let (by, page_name, says_not_found) = (key.clone(), page.clone(), desk.says_not_found());
    let act = move |book: &mut Book| {
        if says_not_found && !book.knows(&id) {
            book.page(&page_name).meets(FaultKind::NotFound);
            return NOTHING_TO_UNDO.into_response();
        }
        book.take_back(&id, &by);
        StatusCode::NO_CONTENT.into_response()
    };
    desk.serve(arrival, act).await
}

impl Wish {
    /// Reads a wish; the error is the answer to one that is not well formed.
    fn parse(service: Service, id: String, body: &[u8]) -> Result<Self, Problem> {
        if !is_id(&id) {
            return Err(bad("id-length", "The id is empty or too long"));
        }
        let request = object(body)?;
        let package = if service == Service::Package { id.clone() } else { package_of(&request)? };
        let is_too_far =
            service == Service::DroneScheduler && Route::of(&request)?.needs_third_party();
        let objection = is_too_far.then_some(TOO_FAR);
        Ok(Self { id, package, request, objection })
    }
}

const TOO_FAR: Problem = Problem {
    status: StatusCode::UNPROCESSABLE_ENTITY,
    name: "too-far",
    title: "No drone flies that far",
};
