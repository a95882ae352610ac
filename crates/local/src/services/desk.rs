//! One service's front desk: takes a call in, lets the plan spoil it, writes the book, answers.
//!
//! Both visits to the book (arrival, then effect) are short and synchronous; all waiting is between
//! them. The effect and its idempotency record are written under one lock: two calls with the same
//! key that race cannot both take effect.

use std::collections::HashMap;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::answer::{Problem, broken_connection, failure, refusal};
use super::fault::digest;
use super::ledger::ServiceLedger;
use super::{Effect, Fault, FaultKind, FaultPlan, OrderLedger, Service};

const BODY_BYTES_MAX: usize = 64 * 1024;
const KEY_BYTES_MAX: usize = 1024;
const ORDER_BYTES_MAX: usize = 512;

/// One service: its plan for misbehaving and its book.
#[derive(Debug)]
pub(super) struct Desk {
    service: Service,
    plan: FaultPlan,
    /// Whether it answers every call with 503, for now.
    is_down: AtomicBool,
    /// Changes, with an error, when the services are stopped.
    stopped: watch::Receiver<()>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    ledger: ServiceLedger,
    keys: HashMap<String, KeyRecord>,
}

/// What is remembered of an idempotency key.
#[derive(Debug, Default)]
struct KeyRecord {
    calls: u32,
    /// The call that took effect, and what it was answered.
    done: Option<(Call, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Do,
    Undo,
}

/// A call that is well formed.
#[derive(Debug, Clone, PartialEq)]
struct Call {
    operation: Operation,
    key: String,
    order: String,
    request: Map<String, Value>,
}

/// What the plan has in mind for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Served { after_ms: u64 },
    ServedUnheard,
    Failed { status: u16, retry_after: bool },
    Hung,
    Refused,
}

/// The service's routes, to be nested under its name.
pub(super) fn router(desk: Arc<Desk>) -> Router {
    let serve = |operation| {
        post(move |State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes| async move {
            desk.serve(operation, &headers, &body).await
        })
    };
    Router::new()
        .route(&format!("/{}s", noun(desk.service, Operation::Do)), serve(Operation::Do))
        .route(&format!("/{}s", noun(desk.service, Operation::Undo)), serve(Operation::Undo))
        .route("/ledger", get(async |State(desk): State<Arc<Desk>>| Json(desk.ledger())))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(desk)
}

impl Desk {
    pub(super) fn new(service: Service, plan: FaultPlan, stopped: watch::Receiver<()>) -> Self {
        Self { service, plan, is_down: AtomicBool::new(false), stopped, book: Mutex::default() }
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(super) const fn service(&self) -> Service {
        self.service
    }

    pub(super) fn ledger(&self) -> ServiceLedger {
        self.book().ledger.clone()
    }

    async fn serve(&self, operation: Operation, headers: &HeaderMap, body: &[u8]) -> Response {
        let call = match Call::parse(operation, headers, body) {
            Ok(call) => call,
            Err(problem) => return problem.into_response(),
        };
        let fate = self.arrive(&call);
        // All waiting is before the effect: who gives up on a slow call has called without effect.
        pause(self.plan.latency_ms).await;
        match fate {
            Fate::Served { after_ms } => {
                pause(after_ms).await;
                self.take_effect(call)
            }
            Fate::ServedUnheard => {
                self.take_effect(call);
                broken_connection()
            }
            Fate::Failed { status, retry_after } => failure(status, retry_after),
            Fate::Hung => {
                // Ends by being dropped, when the client goes away, or else with the services.
                let _ = self.stopped.clone().changed().await;
                broken_connection()
            }
            Fate::Refused => refusal(self.service).into_response(),
        }
    }

    /// Counts the call, and says what becomes of it.
    fn arrive(&self, call: &Call) -> Fate {
        let fault = match call.operation {
            Operation::Do => self.plan.fault(&call.key),
            Operation::Undo => self.plan.fault_of_undo(&call.key),
        };
        let mut book = self.book();
        if self.is_down.load(Ordering::SeqCst) {
            let order = book.ledger.order_mut(&call.order);
            order.calls += 1;
            *order.faults.entry(FaultKind::Down).or_default() += 1;
            return Fate::Failed { status: 503, retry_after: false };
        }
        let record = book.keys.entry(call.key.clone()).or_default();
        record.calls = record.calls.saturating_add(1);
        let nth = record.calls;

        let (kind, fate) = match fault {
            Fault::Slow { delay_ms } => {
                (Some(FaultKind::Slow), Fate::Served { after_ms: delay_ms })
            }
            Fault::Flaky { calls, status, retry_after } if nth <= calls => {
                (Some(FaultKind::Flaky), Fate::Failed { status, retry_after })
            }
            Fault::Hang if nth == 1 => (Some(FaultKind::Hang), Fate::Hung),
            Fault::AnswerLost if nth == 1 => (Some(FaultKind::AnswerLost), Fate::ServedUnheard),
            Fault::Refuse => (Some(FaultKind::Refuse), Fate::Refused),
            Fault::Healthy | Fault::Flaky { .. } | Fault::Hang | Fault::AnswerLost => {
                (None, Fate::Served { after_ms: 0 })
            }
        };
        let order = book.ledger.order_mut(&call.order);
        order.calls += 1;
        if let Some(kind) = kind {
            *order.faults.entry(kind).or_default() += 1;
        }
        fate
    }

    /// Takes effect, unless the key already has; then the answer is the one from back then.
    fn take_effect(&self, call: Call) -> Response {
        let mut book = self.book();
        let Book { ledger, keys } = &mut *book;
        let order = ledger.order_mut(&call.order);
        let record = keys.entry(call.key.clone()).or_default();
        match &record.done {
            Some((first, answer)) if *first == call => {
                order.deduplicated += 1;
                let replay = [("idempotent-replay", HeaderValue::from_static("true"))];
                (StatusCode::OK, replay, Json(answer.clone())).into_response()
            }
            Some(_) => {
                order.keys_reused += 1;
                let reused = Problem {
                    status: StatusCode::UNPROCESSABLE_ENTITY,
                    name: "idempotency-key-reused",
                    title: "This Idempotency-Key was used before, with another request",
                };
                reused.into_response()
            }
            None => {
                let answer = self.perform(&call, order);
                record.done = Some((call, answer.clone()));
                (StatusCode::CREATED, Json(answer)).into_response()
            }
        }
    }

    /// Brings the effect about, or undoes it, and says what to answer.
    fn perform(&self, call: &Call, order: &mut OrderLedger) -> Value {
        let digest = digest(self.plan.seed, &call.key);
        let noun = noun(self.service, call.operation);
        let id = format!("{noun}-{digest:016x}");
        let mut answer = Map::new();
        answer.insert(noun.to_owned(), json!(id));
        answer.insert("order".to_owned(), json!(call.order));
        match call.operation {
            Operation::Do => {
                answer.extend(particulars(self.service, &call.request, digest));
                order.effects.push(Effect {
                    id,
                    idempotency_key: call.key.clone(),
                    undone_by: None,
                });
            }
            Operation::Undo => {
                answer.insert("undone".to_owned(), json!(order.undo(&call.key)));
            }
        }
        Value::Object(answer)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Every entry is written whole, so a panic elsewhere leaves nothing half done.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// Reads a call; the error is the answer to one that is not well formed.
    fn parse(operation: Operation, headers: &HeaderMap, body: &[u8]) -> Result<Self, Problem> {
        let bad = |name, title| {
            let status = StatusCode::BAD_REQUEST;
            Err(Problem { status, name, title })
        };
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        let key = match key {
            Some(key) if !key.is_empty() && key.len() <= KEY_BYTES_MAX => key.to_owned(),
            Some(_) => {
                return bad("idempotency-key-length", "Idempotency-Key is empty or too long");
            }
            None => return bad("idempotency-key-missing", "Idempotency-Key is missing"),
        };
        let Ok(request) = serde_json::from_slice::<Map<String, Value>>(body) else {
            return bad("body-not-an-object", "The body is not a JSON object");
        };
        let order = match request.get("order").and_then(Value::as_str) {
            Some(order) if !order.is_empty() && order.len() <= ORDER_BYTES_MAX => order.to_owned(),
            Some(_) => return bad("order-length", "order is empty or too long"),
            None => return bad("order-missing", "order is missing or not a string"),
        };
        Ok(Self { operation, key, order, request })
    }
}

async fn pause(ms: u64) {
    // Not even a sleep of nothing is free: it waits for the timer's next millisecond.
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}

/// What the operation brings into being. Its plural is the path, itself the field of the answer.
const fn noun(service: Service, operation: Operation) -> &'static str {
    match (service, operation) {
        (Service::Inventory, Operation::Do) => "reservation",
        (Service::Inventory, Operation::Undo) => "release",
        (Service::Payment, Operation::Do) => "charge",
        (Service::Payment, Operation::Undo) => "refund",
        (Service::Shipping, Operation::Do) => "shipment",
        (Service::Shipping, Operation::Undo) => "cancellation",
    }
}

/// What else the service says of what it did; small, since the caller will store it.
fn particulars(
    service: Service,
    request: &Map<String, Value>,
    digest: u64,
) -> Option<(String, Value)> {
    let one_of = |[first, second, third]: [&str; 3]| match digest % 3 {
        0 => json!(first),
        1 => json!(second),
        _ => json!(third),
    };
    match service {
        Service::Inventory => {
            Some(("warehouse".to_owned(), one_of(["Rotterdam", "Genoa", "Gdansk"])))
        }
        Service::Payment => {
            request.get("amount").map(|amount| ("amount".to_owned(), amount.clone()))
        }
        Service::Shipping => {
            Some(("carrier".to_owned(), one_of(["Swift Parcel", "Blue Van", "Night Mail"])))
        }
    }
}
