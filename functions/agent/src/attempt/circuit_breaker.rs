//! An instance's view of its agent's circuit breaker: a cached copy of the record that all instances share, and this
//! instance's own failures in a row.
//!
//! The breaker costs few reads and writes. While it is closed, an instance reads the shared record at most once a second,
//! and only the first call that completes at an address writes something. While it is open, the instance does not read the record until the open time is
//! over. If the state store cannot be read, the instance uses its last copy: the breaker must not stop the agent.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use steward_core::{
    breaker::{
        Breaker, BreakerSettings, BreakerState, BreakerTransition, CallOutcome, CallPermit,
        FailuresInARow, KeyHash, PermitDecision, PermitRequest,
    },
    limits,
    model::{names::AgentName, time::later},
};
use steward_runtime::{
    breaker::{BreakerSaveOutcome, StoredBreaker, publish_changes},
    metrics,
    ports::{Clock, Ports, error_chain},
};
use tokio::sync::Mutex;

/// How long the cached copy is used without a read.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// An instance's view of its agent's circuit breaker.
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    /// The lock is held during reads and saves, so that only one of several concurrent calls reads or probes.
    view: Mutex<BreakerView>,
    /// The number of names that were given out.
    names: AtomicU64,
}

#[derive(Debug)]
struct BreakerView {
    /// The cached copy of the shared record.
    copy: StoredBreaker,
    /// When the copy was read; `None` if never.
    read_at: Option<Timestamp>,
    /// The failures of this instance.
    failures: FailuresInARow,
}

/// Whether the breaker permits a call.
pub(crate) enum CallPermission {
    Granted(CallPermit),
    /// The breaker is open, or another instance probes the service. `wait` is the time until the next try.
    Denied {
        reason: String,
        wait: Duration,
    },
}

impl CircuitBreaker {
    /// The breaker of an instance that has called nothing yet.
    #[must_use]
    pub fn new(agent: AgentName, settings: BreakerSettings) -> Self {
        let copy = StoredBreaker::new(agent);
        let view = BreakerView { copy, read_at: None, failures: FailuresInARow::default() };
        Self { settings, view: Mutex::new(view), names: AtomicU64::default() }
    }

    pub(crate) fn settings(&self) -> &BreakerSettings {
        &self.settings
    }

    /// Whether the service has ever completed a call of any instance at this address.
    pub(crate) async fn has_completed<P: Ports>(&self, ports: &P, address: KeyHash) -> bool {
        let mut view = self.view.lock().await;
        if !view.copy.breaker.completed_at.contains(&address) {
            view.read(ports, ports.clock().now()).await;
        }
        view.copy.breaker.completed_at.contains(&address)
    }

    /// A name that is unique across all instances.
    pub(crate) fn unique_name(&self, instance: &str) -> String {
        format!("{instance}/{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Requests permission for a call of this request that takes at most `call_within`. The caller must pass a permit to
    /// [`record`](Self::record) after the call.
    pub(crate) async fn request_permit<P: Ports>(
        &self,
        ports: &P,
        request: KeyHash,
        call_within: Duration,
    ) -> CallPermission {
        let probe_within = self.settings.probe_within.min(call_within);
        let settings = BreakerSettings { probe_within, ..self.settings };
        let mut view = self.view.lock().await;
        let now = ports.clock().now();
        view.refresh(ports, now).await;
        let call = self.unique_name(ports.instance());
        let clock_skew = ports.timing().clock_skew;
        let request = PermitRequest { call: &call, request, now, clock_skew };
        for _ in 0..limits::SAVE_CONFLICTS_MAX {
            let (next, permit) = match view.copy.breaker.request_permit(request, &settings) {
                PermitDecision::Call => return CallPermission::Granted(CallPermit::Call),
                PermitDecision::Wait(wait) => return view.deny(wait),
                PermitDecision::Probe(next, permit) => (next, permit),
            };
            match view.save(ports, next, now).await {
                Some(true) => {
                    tracing::info!(agent = %view.copy.agent, call, "breaker half-open: probing the service");
                    return CallPermission::Granted(permit);
                }
                Some(false) => {}
                None => break,
            }
        }
        // The probe could not be recorded, so another instance might probe at the same time.
        view.deny(CACHE_TTL)
    }

    /// Records the outcome of a call.
    pub(crate) async fn record<P: Ports>(
        &self,
        ports: &P,
        permit: CallPermit,
        outcome: CallOutcome,
    ) {
        let mut view = self.view.lock().await;
        let now = ports.clock().now();
        let BreakerView { copy, failures, .. } = &mut *view;
        failures.record(&outcome, &copy.breaker, &self.settings);
        for _ in 0..limits::SAVE_CONFLICTS_MAX {
            let Breaker { unpublished, .. } = &view.copy.breaker;
            let newest = unpublished.last().cloned();
            let next = view.copy.breaker.record_outcome(
                &permit,
                &outcome,
                &view.failures,
                now,
                &self.settings,
            );
            let Some(next) = next else {
                if view.copy.breaker.state != BreakerState::Closed {
                    // They are of before it opened.
                    view.failures = FailuresInARow::default();
                }
                return;
            };
            let change =
                next.unpublished.last().filter(|turn| Some(*turn) != newest.as_ref()).cloned();
            match view.save(ports, next, now).await {
                Some(false) => {}
                None => return,
                Some(true) => {
                    view.failures = FailuresInARow::default();
                    if let Some(change) = change {
                        view.log(change.to, &change.reason);
                        let copy = view.copy.clone();
                        view.copy = publish_changes(ports, copy, Timestamp::MAX).await.1;
                    }
                    return;
                }
            }
        }
    }
}

impl BreakerView {
    /// Reads the shared record if the copy is too old.
    async fn refresh<P: Ports>(&mut self, ports: &P, now: Timestamp) {
        let is_fresh = |read_at| (read_at..later(read_at, CACHE_TTL)).contains(&now);
        if self.read_at.is_some_and(is_fresh) || self.copy.breaker.is_certainly_open(now) {
            return;
        }
        self.read(ports, now).await;
    }

    async fn read<P: Ports>(&mut self, ports: &P, now: Timestamp) {
        // A failed read is not retried at once either.
        self.read_at = Some(now);
        match StoredBreaker::read(ports, &self.copy.agent).await {
            Ok(copy) => self.copy = copy,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "circuit breaker not read; using the last copy"
                );
            }
        }
    }

    /// Saves the shared record. `Some(false)` if another instance saved first; the copy is then the other's. `None` if the
    /// store failed.
    async fn save<P: Ports>(&mut self, ports: &P, next: Breaker, now: Timestamp) -> Option<bool> {
        let (copy, saved) = match self.copy.save(ports, next).await {
            Ok(BreakerSaveOutcome::Saved(copy)) => (copy, true),
            Ok(BreakerSaveOutcome::Conflict(copy)) => (copy, false),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "circuit breaker not saved");
                return None;
            }
        };
        self.copy = copy;
        self.read_at = Some(now);
        Some(saved)
    }

    /// Denies a call. Failures from before the breaker opened do not count after it closes.
    fn deny(&mut self, wait: Duration) -> CallPermission {
        self.failures = FailuresInARow::default();
        let reason = self.copy.breaker.reason().unwrap_or("its record cannot be read or saved");
        CallPermission::Denied { reason: format!("circuit breaker open: {reason}"), wait }
    }

    fn log(&self, to: BreakerTransition, reason: &str) {
        metrics::breaker_turned(to);
        let agent = &self.copy.agent;
        match to {
            BreakerTransition::Opened => tracing::warn!(%agent, reason, "circuit breaker opened"),
            BreakerTransition::Closed => tracing::info!(%agent, reason, "circuit breaker closed"),
        }
    }
}
