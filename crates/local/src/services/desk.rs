//! One service's front desk: takes a call in, lets the plan spoil it, hands it on, keeps the book.
//!
//! Both visits to the book (arrival, then effect) are short and synchronous; all waiting is between
//! them. The effect and the memory of it are written under one lock: two calls with the same key, or
//! for the same id, that race cannot both take effect.

use std::collections::HashMap;
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use super::answer::{Problem, broken_connection, failure, refusal};
use super::fault::digest;
use super::ledger::ServiceLedger;
use super::{Effect, Fault, FaultKind, FaultPlan, Page, Service};

/// Bytes of an id that a caller chose.
const ID_BYTES_MAX: usize = 512;

/// One service: its plan for misbehaving and its book.
#[derive(Debug)]
pub(super) struct Desk {
    service: Service,
    plan: FaultPlan,
    /// Whether it answers every call with 503, for now.
    is_down: AtomicBool,
    is_healed: AtomicBool,
    /// Changes, with an error, when the services are stopped.
    stopped: watch::Receiver<()>,
    book: Mutex<Book>,
}

/// What a service knows.
#[derive(Debug, Default)]
pub(super) struct Book {
    ledger: ServiceLedger,
    /// Calls so far, by their key.
    calls: HashMap<String, u32>,
    /// What took effect, by what the caller named it: an idempotency key, or a thing's id.
    done: HashMap<String, Done>,
}

/// What took effect under a name, and what it was answered.
#[derive(Debug)]
struct Done {
    page: String,
    asked: Asked,
    answer: Value,
    /// Whether it has been taken back under the same name.
    is_gone: bool,
}

/// What was asked: a repeat asks the same.
pub(super) type Asked = (Operation, Map<String, Value>);

/// Doing something or undoing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Do,
    Undo,
}

/// A well-formed call, as it comes in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) operation: Operation,
    /// Faults go by it: the idempotency key, or else the method and the path.
    pub(super) key: &'a str,
    /// The page of the book that it belongs on.
    pub(super) page: &'a str,
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

impl Desk {
    pub(super) fn new(service: Service, plan: FaultPlan, stopped: watch::Receiver<()>) -> Self {
        Self {
            service,
            plan,
            is_down: AtomicBool::new(false),
            is_healed: AtomicBool::new(false),
            stopped,
            book: Mutex::default(),
        }
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::SeqCst);
    }

    pub(super) const fn service(&self) -> Service {
        self.service
    }

    pub(super) fn ledger(&self) -> ServiceLedger {
        self.book().ledger.clone()
    }

    /// A number that is always the same for this key.
    pub(super) fn digest(&self, key: &str) -> u64 {
        digest(self.plan.seed, key)
    }

    /// The page on which something of this name stands.
    pub(super) fn page_of(&self, name: &str) -> Option<String> {
        self.book().done.get(name).map(|done| done.page.clone())
    }

    /// Lets the call meet its fate; if it gets through, `act` takes effect and says the answer.
    pub(super) async fn serve(
        &self,
        call: Arrival<'_>,
        act: impl FnOnce(&mut Book) -> Response,
    ) -> Response {
        let fate = self.arrive(call);
        // All waiting is before the effect: who gives up on a slow call has called without effect.
        pause(self.plan.latency_ms).await;
        match fate {
            Fate::Served { after_ms } => {
                pause(after_ms).await;
                act(&mut self.book())
            }
            Fate::ServedUnheard => {
                act(&mut self.book());
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
    fn arrive(&self, call: Arrival<'_>) -> Fate {
        let fault = match call.operation {
            _ if self.is_healed.load(Ordering::SeqCst) => Fault::Healthy,
            Operation::Do => self.plan.fault(call.key),
            Operation::Undo => self.plan.fault_of_undo(call.key),
        };
        let mut book = self.book();
        if self.is_down.load(Ordering::SeqCst) {
            let page = book.page(call.page);
            page.calls += 1;
            page.meets(FaultKind::Down);
            return Fate::Failed { status: 503, retry_after: false };
        }
        let calls = book.calls.entry(call.key.to_owned()).or_default();
        *calls = calls.saturating_add(1);
        let (kind, fate) = fate(fault, *calls);
        let page = book.page(call.page);
        page.calls += 1;
        if let Some(kind) = kind {
            page.meets(kind);
        }
        fate
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Every entry is written whole, so a panic elsewhere leaves nothing half done.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the fault makes of the `nth` call with its key, and what it counts as.
const fn fate(fault: Fault, nth: u32) -> (Option<FaultKind>, Fate) {
    match fault {
        Fault::Slow { delay_ms } => (Some(FaultKind::Slow), Fate::Served { after_ms: delay_ms }),
        Fault::Flaky { calls, status, retry_after } if nth <= calls => {
            (Some(FaultKind::Flaky), Fate::Failed { status, retry_after })
        }
        Fault::Hang if nth == 1 => (Some(FaultKind::Hang), Fate::Hung),
        Fault::AnswerLost if nth == 1 => (Some(FaultKind::AnswerLost), Fate::ServedUnheard),
        Fault::Refuse => (Some(FaultKind::Refuse), Fate::Refused),
        Fault::Healthy | Fault::Flaky { .. } | Fault::Hang | Fault::AnswerLost => {
            (None, Fate::Served { after_ms: 0 })
        }
    }
}

impl Book {
    /// A page, a new one if need be.
    pub(super) fn page(&mut self, name: &str) -> &mut Page {
        self.ledger.page_mut(name)
    }

    /// Takes effect under `name` by `make`, once: a repeat gets the first answer, word for word, one
    /// that comes after it was taken back gets [`GONE`], and anything else under that name `taken`.
    pub(super) fn once(
        &mut self,
        name: &str,
        page: &str,
        asked: Asked,
        taken: impl IntoResponse,
        make: impl FnOnce(&mut Page, &Asked) -> Value,
    ) -> Response {
        match self.done.get(name) {
            Some(done) if done.asked == asked && done.is_gone => {
                self.page(page).deduplicated += 1;
                GONE.into_response()
            }
            Some(done) if done.asked == asked => {
                let answer = done.answer.clone();
                self.page(page).deduplicated += 1;
                let header = http::HeaderName::from_static("idempotent-replay");
                let replay = [(header, HeaderValue::from_static("true"))];
                (StatusCode::OK, replay, Json(answer)).into_response()
            }
            Some(_) => {
                self.page(page).keys_reused += 1;
                taken.into_response()
            }
            None => {
                let answer = make(self.page(page), &asked);
                let page = page.to_owned();
                let done = Done { page, asked, answer: answer.clone(), is_gone: false };
                self.done.insert(name.to_owned(), done);
                (StatusCode::CREATED, Json(answer)).into_response()
            }
        }
    }

    /// Takes back the one thing of this name, if it stands. The name stays used up: a repeat of the
    /// call that made it may still be under way. `key` is that of the call which takes it back.
    pub(super) fn take_back(&mut self, name: &str, key: &str) {
        let Self { ledger, done, .. } = self;
        if let Some(done) = done.get_mut(name) {
            done.is_gone = true;
            ledger.page_mut(&done.page).undo(key, |effect: &Effect| effect.id == name);
        }
    }
}

/// The answer to who asks again for what has been taken back.
const GONE: Problem = Problem {
    status: StatusCode::GONE,
    name: "taken-back",
    title: "This was made, and has been taken back",
};

/// Whether a caller may choose this id.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_BYTES_MAX
}

async fn pause(ms: u64) {
    // Not even a sleep of nothing is free: it waits for the timer's next millisecond.
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
