//! Services that are asked by `POST` under an `Idempotency-Key`: inventory, payment, shipping.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{NOTHING_TO_UNDO, Problem, bad, object, particulars};
use super::desk::{Arrival, Book, Desk, Operation, is_id};
use super::{Effect, FaultKind, Page, Service};

const KEY_BYTES_MAX: usize = 1024;

/// A call that is well formed.
#[derive(Debug)]
struct Call {
    key: String,
    order: String,
    request: Map<String, Value>,
}

/// What an operation is, and what it brings into being: its plural is the path, itself the field of
/// the answer.
#[derive(Debug, Clone, Copy)]
struct Trade {
    operation: Operation,
    noun: &'static str,
}

/// The routes of a service that does one thing and undoes it.
pub(super) fn routes(done: &'static str, undone: &'static str) -> Router<Arc<Desk>> {
    let serve = |trade: Trade| {
        post(move |State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes| async move {
            serve(desk, trade, &headers, &body).await
        })
    };
    let (done, undone) = (
        Trade { operation: Operation::Do, noun: done },
        Trade { operation: Operation::Undo, noun: undone },
    );
    Router::new()
        .route(&format!("/{}s", done.noun), serve(done))
        .route(&format!("/{}s", undone.noun), serve(undone))
}

async fn serve(desk: Arc<Desk>, trade: Trade, headers: &HeaderMap, body: &[u8]) -> Response {
    let Call { key, order, request } = match Call::parse(headers, body) {
        Ok(call) => call,
        Err(problem) => return problem.into_response(),
    };
    let busy = Some(busy(desk.service()));
    let arrival = Arrival { operation: trade.operation, key: &key, page: &order, busy };
    let reused = Problem {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        name: "idempotency-key-reused",
        title: "This Idempotency-Key was used before, with another request",
    };
    let (service, digest, says_not_found) =
        (desk.service(), desk.digest(&key), desk.says_not_found());
    let (name, page_name) = (key.clone(), order.clone());
    let act = move |book: &mut Book| {
        let is_repeat = book.knows(&name);
        let page = book.page(&page_name);
        let is_undo = trade.operation == Operation::Undo;
        if is_undo && says_not_found && !is_repeat && page.standing() == 0 {
            page.meets(FaultKind::NotFound);
            return NOTHING_TO_UNDO.into_response();
        }
        let asked = (trade.operation, request);
        book.once(&name, &page_name, asked, reused, |page, (_, request)| {
            let answer = perform(service, trade, (&name, &page_name, digest), request, page);
            Value::Object(answer)
        })
    };
    desk.serve(arrival, act).await
}

/// What the service answers while a request with the same key is in progress. The inventory's 409 says
/// that it is out of stock, so that a client can take 409 as "did not run".
const fn busy(service: Service) -> StatusCode {
    match service {
        Service::Inventory => StatusCode::LOCKED,
        Service::Payment
        | Service::Shipping
        | Service::Account
        | Service::Package
        | Service::Transport
        | Service::DroneScheduler
        | Service::Delivery => StatusCode::CONFLICT,
    }
}

/// Brings the effect about, or undoes it, and says what to answer.
fn perform(
    service: Service,
    Trade { operation, noun }: Trade,
    (key, order, digest): (&str, &str, u64),
    request: &Map<String, Value>,
    page: &mut Page,
) -> Map<String, Value> {
    let id = format!("{noun}-{digest:016x}");
    let mut answer = Map::new();
    answer.insert(noun.to_owned(), json!(id));
    answer.insert("order".to_owned(), json!(order));
    match operation {
        Operation::Do => {
            answer.extend(particulars(service, request, digest));
            page.effects.push(Effect { id, done_by: key.to_owned(), undone_by: None });
        }
        Operation::Undo => {
            answer.insert("undone".to_owned(), json!(page.undo(key, |_| true)));
        }
    }
    answer
}

impl Call {
    /// Reads a call; the error is the answer to one that is not well formed.
    fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, Problem> {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        let key = match key {
            Some(key) if !key.is_empty() && key.len() <= KEY_BYTES_MAX => key.to_owned(),
            Some(_) => {
                return Err(bad("idempotency-key-length", "Idempotency-Key is empty or too long"));
            }
            None => return Err(bad("idempotency-key-missing", "Idempotency-Key is missing")),
        };
        let request = object(body)?;
        let order = match request.get("order").and_then(Value::as_str) {
            Some(order) if is_id(order) => order.to_owned(),
            Some(_) => return Err(bad("order-length", "order is empty or too long")),
            None => return Err(bad("order-missing", "order is missing or not a string")),
        };
        Ok(Self { key, order, request })
    }
}
