//! One service's front desk: takes a call in, lets the plan spoil it, hands it on, keeps the book.
//!
//! Both visits to the book (arrival, then effect) are short and synchronous; all waiting is between
//! them. The effect and the memory of it are written under one lock: two calls with the same key, or
//! for the same id, that race cannot both take effect.
//!
//! A call that is to take effect runs in a task of its own, because axum drops a handler's future when
//! its caller hangs up: like a real service, this one finishes what it began.

use std::collections::{HashMap, HashSet};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use super::answer::{
    Problem, broken_connection, busy, empty_answer, failure, not_json, redirect, refusal,
};
use super::fault::{OUTLIVING_AFTER_MS, OUTLIVING_MS, digest};
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
    /// Keys of the calls that are in progress.
    in_progress: HashSet<String>,
    /// Keys of the calls that were carried out: the same again changes nothing.
    carried_out: HashSet<String>,
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
    /// What the service answers while another call with this key is in progress; `None` for a call that
    /// changes nothing.
    pub(super) busy: Option<StatusCode>,
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It takes effect after this time, and is answered in this way.
    Served {
        after_ms: u64,
        answer: Answer,
    },
    Failed {
        after_ms: u64,
        status: u16,
        retry_after: bool,
    },
    Hung,
    Refused,
    /// Another call with its key is in progress.
    Busy {
        status: StatusCode,
    },
}

/// How a call that takes effect is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// In full, after the effect.
    Full,
    /// The connection breaks after the effect.
    Lost,
    Redirect {
        status: u16,
        before_effect: bool,
    },
    Empty,
    NotJson,
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

    /// Whether an undo that finds nothing is answered with 404.
    pub(super) fn says_not_found(&self) -> bool {
        self.plan.undo_not_found && !self.is_healed.load(Ordering::SeqCst)
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

    /// Lets the call meet its fate; if it gets through, `act` takes effect and returns the answer.
    pub(super) async fn serve(
        self: &Arc<Self>,
        call: Arrival<'_>,
        act: impl FnOnce(&mut Book) -> Response + Send + 'static,
    ) -> Response {
        let (fate, in_progress) = self.arrive(call);
        match fate {
            Fate::Served { after_ms, answer } => {
                let desk = Arc::clone(self);
                let carrying_out = tokio::spawn(desk.carry_out(in_progress, after_ms, act));
                if let Answer::Redirect { status, before_effect: true } = answer {
                    pause(self.plan.latency_ms).await;
                    return redirect(status);
                }
                let Ok(full) = carrying_out.await else { return broken_connection() };
                match answer {
                    Answer::Lost => broken_connection(),
                    // A refusal, or an undo that found nothing, is no success to be disguised.
                    _ if !full.status().is_success() => full,
                    Answer::Full => full,
                    Answer::Redirect { status, .. } => redirect(status),
                    Answer::Empty => empty_answer(),
                    Answer::NotJson => not_json(),
                }
            }
            Fate::Failed { after_ms, status, retry_after } => {
                pause(self.plan.latency_ms + after_ms).await;
                failure(status, retry_after)
            }
            Fate::Hung => {
                // Ends by being dropped, when the client goes away, or else with the services.
                let _ = self.stopped.clone().changed().await;
                broken_connection()
            }
            Fate::Refused => {
                pause(self.plan.latency_ms).await;
                refusal(self.service).into_response()
            }
            Fate::Busy { status } => busy(status).into_response(),
        }
    }

    /// Takes effect after a while, unless the services are stopped meanwhile.
    async fn carry_out(
        self: Arc<Self>,
        in_progress: Option<InProgress>,
        after_ms: u64,
        act: impl FnOnce(&mut Book) -> Response + Send + 'static,
    ) -> Response {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            () = pause(self.plan.latency_ms.saturating_add(after_ms)) => {}
            _ = stopped.changed() => return broken_connection(),
        }
        let mut book = self.book();
        let answer = act(&mut book);
        if let Some(InProgress { key, page, call }) = in_progress {
            book.in_progress.remove(&key);
            book.carried_out.insert(key);
            book.page(&page).end_call(call);
        }
        answer
    }

    /// Counts the call, and says what becomes of it.
    fn arrive(&self, call: Arrival<'_>) -> (Fate, Option<InProgress>) {
        let fault = match call.operation {
            _ if self.is_healed.load(Ordering::SeqCst) => Fault::Healthy,
            Operation::Do => self.plan.fault(call.key),
            Operation::Undo => self.plan.fault_of_undo(call.key),
        };
        let mut book = self.book();
        book.page(call.page).calls += 1;
        if self.is_down.load(Ordering::SeqCst) {
            book.page(call.page).meets(FaultKind::Down);
            return (Fate::Failed { after_ms: 0, status: 503, retry_after: false }, None);
        }
        let is_busy = book.in_progress.contains(call.key);
        if let Some(status) = call.busy
            && is_busy
            && self.plan.conflict_in_progress
        {
            book.page(call.page).meets(FaultKind::InProgress);
            return (Fate::Busy { status }, None);
        }
        let calls = book.calls.entry(call.key.to_owned()).or_default();
        *calls = calls.saturating_add(1);
        let (kind, fate) = fate(fault, *calls);
        if let Some(kind) = kind {
            book.page(call.page).meets(kind);
        }
        let takes_effect = matches!(fate, Fate::Served { .. })
            && call.busy.is_some()
            && !is_busy
            && !book.carried_out.contains(call.key);
        let in_progress = takes_effect.then(|| {
            book.in_progress.insert(call.key.to_owned());
            let (key, page) = (call.key.to_owned(), call.page.to_owned());
            let call = book.page(&page).begin_call(&key);
            InProgress { key, page, call }
        });
        (fate, in_progress)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Every entry is written whole, so a panic elsewhere leaves nothing half done.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is in progress: its key, the page it belongs on, and its number there.
#[derive(Debug)]
struct InProgress {
    key: String,
    page: String,
    call: usize,
}

/// What the fault makes of the `nth` call with its key, and what it counts as.
const fn fate(fault: Fault, nth: u32) -> (Option<FaultKind>, Fate) {
    const fn served(after_ms: u64, answer: Answer) -> Fate {
        Fate::Served { after_ms, answer }
    }
    match fault {
        Fault::Slow { delay_ms } => (Some(FaultKind::Slow), served(delay_ms, Answer::Full)),
        Fault::Flaky { calls, status, retry_after } if nth <= calls => {
            (Some(FaultKind::Flaky), Fate::Failed { after_ms: 0, status, retry_after })
        }
        Fault::Hang if nth == 1 => (Some(FaultKind::Hang), Fate::Hung),
        Fault::AnswerLost if nth == 1 => (Some(FaultKind::AnswerLost), served(0, Answer::Lost)),
        Fault::Refuse => (Some(FaultKind::Refuse), Fate::Refused),
        Fault::Long { delay_ms } if nth == 1 => {
            (Some(FaultKind::Long), served(delay_ms, Answer::Full))
        }
        Fault::Outlive if nth == 1 => {
            let failed =
                Fate::Failed { after_ms: OUTLIVING_AFTER_MS, status: 503, retry_after: false };
            (Some(FaultKind::Outlive), failed)
        }
        Fault::Outlive if nth == 2 => {
            (Some(FaultKind::Outlive), served(OUTLIVING_MS, Answer::Full))
        }
        Fault::Redirect { status, commit_after_ms } => {
            let before_effect = nth == 1 && commit_after_ms > 0;
            let after_ms = if before_effect { commit_after_ms } else { 0 };
            let answer = Answer::Redirect { status, before_effect };
            (Some(FaultKind::Redirect), served(after_ms, answer))
        }
        Fault::EmptyAnswer => (Some(FaultKind::EmptyAnswer), served(0, Answer::Empty)),
        Fault::NotJson => (Some(FaultKind::NotJson), served(0, Answer::NotJson)),
        Fault::Healthy
        | Fault::Flaky { .. }
        | Fault::Hang
        | Fault::AnswerLost
        | Fault::Long { .. }
        | Fault::Outlive => (None, served(0, Answer::Full)),
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

    /// Whether something of this name was made, taken back or not.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.done.contains_key(name)
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
