//! One mock service: receives calls, injects the faults of its plan, carries the calls out and keeps the ledger. What it
//! does with a call is data, as for the other fake services: a [`CallPlan`].
//!
//! A call locks the service's state twice, at its arrival and when it takes effect. Both are short and synchronous; all
//! waiting happens between them. The side effect and the stored response are written under one lock, so that two racing
//! calls with the same key or id cannot both take effect.
//!
//! Calls that take effect run in their own tokio task, because axum drops a handler's future when its caller
//! disconnects. Like a real service, this one finishes the calls that it has begun.

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
use steward_test_world::service::{CallPlan, Millis, Reply};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{
    demo_service::DemoService,
    fault::{
        Fault, FaultKind, FaultPlan, OUTLIVE_CALL_MS, OUTLIVE_FAILURE_AFTER_MS, Sending, digest,
    },
    ledger::{ServiceLedger, SideEffect, SubjectRecord},
    responses::{
        ErrorResponse, broken_connection, busy_body, byte_order_mark, empty_body, failure,
        in_progress, long_pause, not_json, redirect, refusal, response, with_byte_order_mark,
    },
};

/// One service with its fault plan and its state.
#[derive(Debug)]
pub(super) struct MockService {
    service: DemoService,
    plan: FaultPlan,
    /// Whether it currently answers every call with 503.
    is_down: AtomicBool,
    is_healed: AtomicBool,
    /// Its `changed` returns an error when the services are stopped.
    stopped: watch::Receiver<()>,
    state: Mutex<ServiceState>,
}

/// The ledger of a service, and what it needs to deduplicate calls.
#[derive(Debug, Default)]
pub(super) struct ServiceState {
    ledger: ServiceLedger,
    /// The number of calls so far, by key.
    calls: HashMap<String, u32>,
    /// The results of calls that took effect, by idempotency key or client-generated id.
    results: HashMap<String, StoredResult>,
    /// The keys of the calls that are in progress.
    in_progress: HashSet<String>,
    /// The keys of the calls that were carried out. Repeated calls have no side effect.
    carried_out: HashSet<String>,
}

/// The request that took effect under a key or id, and its response.
#[derive(Debug)]
struct StoredResult {
    subject: String,
    request: RequestContent,
    response: Value,
    /// Whether the resource was deleted.
    is_deleted: bool,
}

/// The content of a request. A repeated request has equal content.
pub(super) type RequestContent = (Operation, Map<String, Value>);

/// Whether a call does or undoes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Do,
    Undo,
}

/// A well-formed call.
#[derive(Debug, Clone, Copy)]
pub(super) struct IncomingCall<'a> {
    pub(super) operation: Operation,
    /// Selects the fault: the idempotency key, or the method and the path.
    pub(super) key: &'a str,
    /// The order, package or account that the call is about.
    pub(super) subject: &'a str,
    /// The status while another call with this key is in progress; `None` for a call without side effects.
    pub(super) in_progress_status: Option<StatusCode>,
}

impl MockService {
    pub(super) fn new(service: DemoService, plan: FaultPlan, stopped: watch::Receiver<()>) -> Self {
        Self {
            service,
            plan,
            is_down: AtomicBool::new(false),
            is_healed: AtomicBool::new(false),
            stopped,
            state: Mutex::default(),
        }
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::SeqCst);
    }

    pub(super) const fn service(&self) -> DemoService {
        self.service
    }

    /// Whether an undo that finds nothing gets 404.
    pub(super) fn undo_not_found(&self) -> bool {
        self.plan.undo_not_found && !self.is_healed.load(Ordering::SeqCst)
    }

    /// The fault of the calls with this key.
    pub(super) fn fault(&self, operation: Operation, key: &str) -> Fault {
        match operation {
            _ if self.is_healed.load(Ordering::SeqCst) => Fault::Healthy,
            Operation::Do => self.plan.fault(key),
            Operation::Undo => self.plan.fault_of_undo(key),
        }
    }

    /// How the service sends the answer or event with this key.
    pub(super) fn sending(&self, key: &str) -> Sending {
        if self.is_healed.load(Ordering::SeqCst) {
            return FaultPlan::none(self.plan.seed).sending(key);
        }
        self.plan.sending(key)
    }

    /// Whether the service is down.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }

    /// The shortest duration of a call.
    pub(super) fn latency_ms(&self) -> u64 {
        self.plan.latency_ms
    }

    /// Completes when the services are stopped.
    pub(super) async fn stopped(&self) {
        // An error is the signal.
        let _ = self.stopped.clone().changed().await;
    }

    pub(super) fn ledger(&self) -> ServiceLedger {
        self.state().ledger.clone()
    }

    /// Forgets all about the subjects: their records, their calls and their results.
    pub(super) fn forget(&self, subjects: &HashSet<String>) {
        let mut state = self.state();
        let ServiceState { ledger, calls, results, in_progress: _, carried_out } = &mut *state;
        ledger.forget(subjects);
        results.retain(|_, result| !subjects.contains(&result.subject));
        // A key contains its subject as a part of a path.
        let is_kept = |key: &str| !key.split('/').any(|part| subjects.contains(part));
        calls.retain(|key, _| is_kept(key));
        carried_out.retain(|key| is_kept(key));
    }

    /// A hash of the key, which is always the same for the same seed.
    pub(super) fn digest(&self, key: &str) -> u64 {
        digest(self.plan.seed, key)
    }

    /// The subject of the request that took effect under this key or id.
    pub(super) fn subject_of(&self, name: &str) -> Option<String> {
        self.state().results.get(name).map(|result| result.subject.clone())
    }

    /// Handles a call as the fault plan says. `execute` carries it out under the lock and returns the response.
    pub(super) async fn serve(
        self: &Arc<Self>,
        call: IncomingCall<'_>,
        execute: impl FnOnce(&mut ServiceState) -> Response + Send + 'static,
    ) -> Response {
        let (plan, in_progress_call) = self.receive(call);
        let CallPlan { commits_after, replies_after, reply, .. } = plan;
        let execution = commits_after.map(|after_ms| {
            tokio::spawn(Arc::clone(self).carry_out(in_progress_call, after_ms, execute))
        });
        let Some(replies_after) = replies_after else {
            // Ends when the client disconnects, which drops this future, or when the services stop.
            self.stopped().await;
            return broken_connection();
        };
        let Some(execution) = execution.filter(|_| commits_after <= Some(replies_after)) else {
            pause(replies_after).await;
            return response(reply);
        };
        let Ok(full) = execution.await else { return broken_connection() };
        // Only successes are replaced, not refusals or undos that found nothing.
        let is_full = reply.is_plain_success() || !full.status().is_success();
        if is_full && reply != Reply::BrokenConnection {
            return full;
        }
        if reply == byte_order_mark() { with_byte_order_mark(full).await } else { response(reply) }
    }

    /// Carries a call out after a delay, unless the services are stopped meanwhile.
    async fn carry_out(
        self: Arc<Self>,
        call: Option<CallInProgress>,
        after_ms: Millis,
        execute: impl FnOnce(&mut ServiceState) -> Response + Send + 'static,
    ) -> Response {
        tokio::select! {
            () = pause(after_ms) => {}
            () = self.stopped() => return broken_connection(),
        }
        let mut state = self.state();
        let response = execute(&mut state);
        if let Some(CallInProgress { key, subject, index }) = call {
            state.in_progress.remove(&key);
            state.carried_out.insert(key);
            state.record(&subject).end_call(index);
        }
        response
    }

    /// Counts the call, and decides what to do with it.
    pub(super) fn receive(&self, call: IncomingCall<'_>) -> (CallPlan, Option<CallInProgress>) {
        let fault = self.fault(call.operation, call.key);
        let mut state = self.state();
        state.record(call.subject).calls += 1;
        if self.is_down() {
            state.record(call.subject).count_fault(FaultKind::Down);
            return (CallPlan::without_effect(self.plan.latency_ms, failure(503, false)), None);
        }
        let is_in_progress = state.in_progress.contains(call.key);
        if let Some(status) = call.in_progress_status
            && is_in_progress
            && self.plan.conflict_in_progress
        {
            state.record(call.subject).count_fault(FaultKind::InProgress);
            return (CallPlan::without_effect(0, in_progress(status).into()), None);
        }
        let (kind, plan) = self.planned(fault, state.count_call(call.key));
        if let Some(kind) = kind {
            state.record(call.subject).count_fault(kind);
        }
        let takes_effect = plan.commits_after.is_some()
            && call.in_progress_status.is_some()
            && !is_in_progress
            && !state.carried_out.contains(call.key);
        let in_progress_call = takes_effect.then(|| {
            state.in_progress.insert(call.key.to_owned());
            let (key, subject) = (call.key.to_owned(), call.subject.to_owned());
            let index = state.record(&subject).begin_call(&key);
            CallInProgress { key, subject, index }
        });
        (plan, in_progress_call)
    }

    /// Whether the service has this fault. A consumer of a queue has no caller that it could refuse or redirect. An error in the
    /// body of a 200 is for callers that judge it. Lambda's results are JSON without a byte order mark.
    fn has(&self, fault: Fault) -> bool {
        match fault {
            Fault::Refuse
            | Fault::Redirect { .. }
            | Fault::EmptyAnswer
            | Fault::NotJson
            | Fault::StoredError { .. } => self.service.queue().is_none(),
            Fault::BusyBody { .. } => self.service == DemoService::Payment,
            Fault::ByteOrderMark | Fault::LongPause { .. } => {
                self.service.queue().is_none() && self.service != DemoService::Finance
            }
            Fault::Healthy
            | Fault::Slow { .. }
            | Fault::Flaky { .. }
            | Fault::Hang
            | Fault::AnswerLost
            | Fault::Long { .. }
            | Fault::Outlive => true,
        }
    }

    /// What the service does with the `nth` call with a key that has this fault, and the kind of fault to count.
    fn planned(&self, fault: Fault, nth: u32) -> (Option<FaultKind>, CallPlan) {
        let latency = self.plan.latency_ms;
        let fails = |after, reply| CallPlan::without_effect(latency + after, reply);
        let success = |after| {
            let plan = CallPlan::success(latency + after, Value::Null);
            CallPlan { commits_after: plan.replies_after, ..plan }
        };
        let takes_effect = |after, reply| CallPlan { reply, ..success(after) };
        let (kind, plan) = match fault {
            _ if !self.has(fault) => return (None, success(0)),
            Fault::Slow { delay_ms } => (FaultKind::Slow, success(delay_ms)),
            Fault::Flaky { calls, status, retry_after } if nth <= calls => {
                (FaultKind::Flaky, fails(0, failure(status, retry_after)))
            }
            Fault::Hang if nth == 1 => {
                (FaultKind::Hang, fails(0, Reply::BrokenConnection).silent())
            }
            Fault::AnswerLost if nth == 1 => {
                (FaultKind::AnswerLost, takes_effect(0, Reply::BrokenConnection))
            }
            Fault::Long { delay_ms } if nth == 1 => (FaultKind::Long, success(delay_ms)),
            Fault::Outlive if nth == 1 => {
                (FaultKind::Outlive, fails(OUTLIVE_FAILURE_AFTER_MS, failure(503, false)))
            }
            Fault::Outlive if nth == 2 => (FaultKind::Outlive, success(OUTLIVE_CALL_MS)),
            Fault::Refuse => (FaultKind::Refuse, fails(0, refusal(self.service).into())),
            Fault::Redirect { status, commit_after_ms } => {
                let after = if nth == 1 { commit_after_ms } else { 0 };
                let plan = takes_effect(after, redirect(status));
                (FaultKind::Redirect, CallPlan { replies_after: Some(latency), ..plan })
            }
            Fault::EmptyAnswer => (FaultKind::EmptyAnswer, takes_effect(0, empty_body())),
            Fault::NotJson => (FaultKind::NotJson, takes_effect(0, not_json())),
            Fault::StoredError { takes_effect: true } => {
                (FaultKind::StoredError, takes_effect(0, failure(500, false)))
            }
            Fault::StoredError { takes_effect: false } => {
                (FaultKind::StoredError, fails(0, failure(500, false)))
            }
            Fault::BusyBody { calls } if nth <= calls => {
                (FaultKind::BusyBody, fails(0, busy_body()))
            }
            Fault::ByteOrderMark => (FaultKind::ByteOrderMark, takes_effect(0, byte_order_mark())),
            Fault::LongPause { seconds } if nth == 1 => {
                (FaultKind::LongPause, fails(0, long_pause(seconds)))
            }
            Fault::Healthy
            | Fault::Flaky { .. }
            | Fault::Hang
            | Fault::AnswerLost
            | Fault::Long { .. }
            | Fault::LongPause { .. }
            | Fault::Outlive
            | Fault::BusyBody { .. } => return (None, success(0)),
        };
        (Some(kind), plan)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ServiceState> {
        // No code panics between two dependent changes, so the state is consistent even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is in progress.
#[derive(Debug)]
pub(super) struct CallInProgress {
    key: String,
    subject: String,
    /// Its index in `SubjectRecord::carried_out`.
    index: usize,
}

impl ServiceState {
    /// The record of a subject, created if needed.
    pub(super) fn record(&mut self, subject: &str) -> &mut SubjectRecord {
        self.ledger.record_mut(subject)
    }

    /// Counts a call with this key, and returns how many there were.
    pub(super) fn count_call(&mut self, key: &str) -> u32 {
        let calls = self.calls.entry(key.to_owned()).or_default();
        *calls = calls.saturating_add(1);
        *calls
    }

    /// Executes a request once per key or id. `take_effect` adds the side effect and returns the response. A repeated
    /// request gets the first response, or [`DELETED`] if the resource was deleted. A request with other content gets
    /// `conflict`.
    pub(super) fn execute_once(
        &mut self,
        name: &str,
        subject: &str,
        request: RequestContent,
        conflict: impl IntoResponse,
        take_effect: impl FnOnce(&mut SubjectRecord, &RequestContent) -> Value,
    ) -> Response {
        match self.results.get(name) {
            Some(result) if result.request == request && result.is_deleted => {
                self.record(subject).deduplicated += 1;
                DELETED.into_response()
            }
            Some(result) if result.request == request => {
                let response = result.response.clone();
                self.record(subject).deduplicated += 1;
                let header = http::HeaderName::from_static("idempotent-replay");
                let replay = [(header, HeaderValue::from_static("true"))];
                (StatusCode::OK, replay, Json(response)).into_response()
            }
            Some(_) => {
                self.record(subject).keys_reused += 1;
                conflict.into_response()
            }
            None => {
                let response = take_effect(self.record(subject), &request);
                let result = StoredResult {
                    subject: subject.to_owned(),
                    request,
                    response: response.clone(),
                    is_deleted: false,
                };
                self.results.insert(name.to_owned(), result);
                (StatusCode::CREATED, Json(response)).into_response()
            }
        }
    }

    /// Whether a request took effect under this key or id, even if its resource was deleted.
    pub(super) fn has_result(&self, name: &str) -> bool {
        self.results.contains_key(name)
    }

    /// Deletes the resource with this id, if there is one. The id cannot be used again, because a repeated request to
    /// create the resource may still arrive. `key` is the key of the call that deletes it.
    pub(super) fn delete(&mut self, name: &str, key: &str) {
        let Self { ledger, results, .. } = self;
        if let Some(result) = results.get_mut(name) {
            result.is_deleted = true;
            ledger.record_mut(&result.subject).undo(key, |effect: &SideEffect| effect.id == name);
        }
    }
}

/// The response to a repeated request whose resource was deleted.
const DELETED: ErrorResponse = ErrorResponse {
    status: StatusCode::GONE,
    name: "taken-back",
    title: "This resource was created and then deleted",
};

/// Waits for this time.
pub(super) async fn pause(ms: Millis) {
    // A sleep of zero would still wait for the timer's next millisecond.
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
