//! The circuit breaker of one agent's remote service, shared by all instances of the agent.
//!
//! ```text
//!               requests failed in a row, seen by one instance
//!        ┌────────┐ ─────────────────────────────────────► ┌──────┐
//!        │ closed │                                        │ open │◄── probe fails: twice as long
//!        └────────┘ ◄───────────── ┌───────────┐ ◄──────── └──────┘        │
//!            the service responds  │ half open │   time is up: one         │
//!                                  └───────────┘   instance probes         │
//!                                    │  ▲   └──────────────────────────────┘
//!                                    └──┘ the probe timed out: another instance probes
//! ```
//!
//! | state     | event                                      | next state | action                             |
//! | --------- | ------------------------------------------ | ---------- | ---------------------------------- |
//! | closed    | call requested                             | closed     | allow the call                     |
//! | closed    | too many requests failed in a row          | open       | publish an alert                   |
//! | open      | call requested before the time is up       | open       | refuse until then                  |
//! | open      | call requested after that                  | half open  | allow the call as the probe        |
//! | open      | the same, and the request failed before    | open       | refuse for the same time again     |
//! | half open | call requested before the probe's deadline | half open  | refuse until then                  |
//! | half open | call requested after that                  | half open  | allow the call as the new probe    |
//! | half open | the service responds to the probe          | closed     | publish an event                   |
//! | half open | the service is unavailable for the probe   | open       | double the time                    |
//! | half open | the same, and the request failed before    | open       | another request may probe at once  |
//! | half open | the probe was not made                     | open       | the next call may probe at once    |
//!
//! The first call that completes at an address is recorded in any state. All other outcomes change nothing, for example that of a call that began before the breaker opened, or of a probe
//! that timed out. Each request counts once ([`FailuresInARow`]): one that always fails neither opens the breaker nor keeps
//! it open for others.
//!
//! The functions here are pure: the time and the caller are arguments. An instance saves a changed breaker on the
//! condition that the stored breaker has not changed. If the save fails, the instance decides again with the stored breaker.
//!
//! The pattern is from Michael Nygard's "Release It!"; see also
//! <https://learn.microsoft.com/azure/architecture/patterns/circuit-breaker>.

use std::{num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    limits,
    model::{
        events::{BreakerEventData, BusEvent, EventData},
        names::AgentName,
        time::later,
    },
};

mod failures;

pub use failures::{FailedRequests, FailuresInARow, KeyHash};

/// The settings of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// The breaker opens after this many [`FailuresInARow`] of one instance.
    pub failures: NonZeroU32,
    /// How long the breaker stays open at first. Each failed probe doubles this time, up to
    /// [`BREAKER_OPEN_MAX`](limits::BREAKER_OPEN_MAX).
    pub open_for: Duration,
    /// How long a probe may take, unless its step limits calls to a shorter time. If the instance of the probe crashes,
    /// another instance may probe after this time.
    pub probe_within: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: NonZeroU32::MIN.saturating_add(4),
            open_for: Duration::from_secs(10),
            probe_within: limits::CALL_WITHIN_MAX,
        }
    }
}

/// The state of a circuit breaker, shared by all instances of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Breaker {
    /// Whether the service may be called.
    pub state: BreakerState,
    /// The changes of the breaker whose events have not been published, or not for certain. Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpublished: Vec<BreakerChange>,
    /// The requests whose failures have counted, also before the breaker last closed. They do not count again.
    #[serde(default, skip_serializing_if = "FailedRequests::is_empty")]
    pub failed_requests: FailedRequests,
    /// The addresses at which the service has completed a call, the newest last. At another one, a redirect is probably a mistake in
    /// the agent's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_at: Vec<KeyHash>,
}

/// Whether the service may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum BreakerState {
    /// All calls are allowed.
    #[default]
    Closed,
    /// No call is allowed.
    Open {
        /// After this time a probe is allowed.
        #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
        until: Timestamp,
        /// The whole time for which the breaker is open, in milliseconds.
        open_for_ms: u64,
        /// The result of the last call, such as `HTTP 503`.
        reason: String,
    },
    /// One call, the probe, is in progress. No other call is allowed.
    HalfOpen {
        /// The id of the call that is the probe.
        probe: String,
        /// The deadline of the probe. After that another call may probe.
        #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
        until: Timestamp,
        /// How long the breaker was open before, in milliseconds.
        open_for_ms: u64,
        /// The result of the last call, such as `HTTP 503`.
        reason: String,
    },
}

/// The opening or closing of a breaker, for an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BreakerChange {
    /// Whether it opened or closed.
    pub to: BreakerTransition,
    /// When it changed. The event id consists of the agent's name, `to` and this time.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    pub at: Timestamp,
    /// The result of the last call, such as `HTTP 503`.
    pub reason: String,
}

/// Whether a breaker opened or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerTransition {
    /// It opened.
    Opened,
    /// It closed.
    Closed,
}

/// A call that an instance wants to make.
#[derive(Debug, Clone, Copy)]
pub struct PermitRequest<'a> {
    /// The id of the call, unique among all calls of all instances.
    pub call: &'a str,
    /// The request for which it is made.
    pub request: KeyHash,
    /// The current time.
    pub now: Timestamp,
    /// The maximum difference between two clocks.
    pub clock_skew: Duration,
}

/// The breaker's decision on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitDecision {
    /// The call is allowed.
    Call,
    /// The call is allowed as the probe, after this breaker has been saved.
    Probe(Breaker, CallPermit),
    /// No call is allowed until this time has passed.
    Wait(Duration),
}

/// The permission for a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallPermit {
    /// A normal call through a closed breaker.
    Call,
    /// The probe, which finds out whether the service is available again.
    Probe {
        /// The id of the call.
        call: String,
        /// The deadline of the probe. After that another call may probe.
        until: Timestamp,
    },
}

/// The outcome of a call, as far as it shows whether the service is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// The service completed the call.
    Completed {
        /// The address of the service.
        address: KeyHash,
    },
    /// The service responded with a refusal, or with a request to retry later. 4xx responses do not count as failures, because
    /// they show that the service works.
    Available,
    /// The service did not respond, or responded with a server error.
    Unavailable {
        /// The result of the call, such as `HTTP 503`.
        reason: String,
        /// The request, if the failure may be due to it. `None` if the call did not reach the service, or went to a wrong one.
        request: Option<KeyHash>,
    },
    /// The call was not made.
    NotCalled,
}

impl FailuresInARow {
    /// Records the outcome of a call. Keeps at most as many failures as open the breaker.
    pub fn record(&mut self, outcome: &CallOutcome, breaker: &Breaker, settings: &BreakerSettings) {
        match outcome {
            CallOutcome::Completed { .. } | CallOutcome::Available => *self = Self::default(),
            CallOutcome::Unavailable { request, .. } => {
                self.add(*request, &breaker.failed_requests, settings.failures.get());
            }
            CallOutcome::NotCalled => {}
        }
    }
}

impl Breaker {
    /// Decides whether a call to the service is allowed.
    #[must_use]
    pub fn request_permit(
        &self,
        request: PermitRequest<'_>,
        settings: &BreakerSettings,
    ) -> PermitDecision {
        let PermitRequest { call, request, now, clock_skew } = request;
        let probe = |since: Timestamp, open_for_ms: u64, reason: &str| {
            // A request that failed before leaves the probe to others for a while: if it fails again, nothing is learned.
            let others_until = later(since, Duration::from_millis(open_for_ms));
            if self.failed_requests.contains(request)
                && let Some(wait) = time_left(others_until, now)
            {
                return PermitDecision::Wait(wait.min(settings.open_for));
            }
            let (call, until) = (call.to_owned(), later(now, settings.probe_within));
            let (probe, reason) = (call.clone(), reason.to_owned());
            let state = BreakerState::HalfOpen { probe, until, open_for_ms, reason };
            let next = Self { state, ..self.clone() };
            PermitDecision::Probe(next, CallPermit::Probe { call, until })
        };
        match &self.state {
            BreakerState::Closed => PermitDecision::Call,
            BreakerState::Open { until, open_for_ms, reason } => match time_left(*until, now) {
                Some(wait) => PermitDecision::Wait(wait),
                None => probe(*until, *open_for_ms, reason),
            },
            // The instance of the probe uses its own clock, so the skew is added.
            BreakerState::HalfOpen { until, open_for_ms, reason, .. } => {
                let until = later(*until, clock_skew);
                match time_left(until, now) {
                    // The probe may end long before its deadline, so the wait is shortened.
                    Some(wait) => PermitDecision::Wait(wait.min(settings.open_for)),
                    None => probe(until, *open_for_ms, reason),
                }
            }
        }
    }

    /// Records the outcome of a call. Returns the changed breaker, or `None` if the outcome changes nothing.
    /// `failures` are those of this instance, including this one.
    #[must_use]
    pub fn record_outcome(
        &self,
        permit: &CallPermit,
        outcome: &CallOutcome,
        failures: &FailuresInARow,
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<Self> {
        let next = match (&self.state, permit) {
            (BreakerState::Closed, CallPermit::Call) => match outcome {
                CallOutcome::Unavailable { reason, .. }
                    if failures.are_at_least(settings.failures.get()) =>
                {
                    let mut opened =
                        self.closed_with_change(BreakerTransition::Opened, reason, now);
                    opened.state = open(settings.open_for, reason, now);
                    opened.failed_requests.add(failures.requests());
                    Some(opened)
                }
                CallOutcome::Unavailable { .. }
                | CallOutcome::Completed { .. }
                | CallOutcome::Available
                | CallOutcome::NotCalled => None,
            },
            (
                BreakerState::HalfOpen { probe, open_for_ms, reason: before, .. },
                CallPermit::Probe { call, .. },
            ) if probe == call => {
                let mut next = self.clone();
                match outcome {
                    CallOutcome::Completed { .. } | CallOutcome::Available => {
                        let reason = "the service responds again";
                        next = self.closed_with_change(BreakerTransition::Closed, reason, now);
                    }
                    CallOutcome::Unavailable { reason, request }
                        if !request.is_some_and(|failed| self.failed_requests.contains(failed)) =>
                    {
                        let open_for = Duration::from_millis(open_for_ms.saturating_mul(2));
                        next.state = open(open_for, reason, now);
                        next.failed_requests.add(*request);
                    }
                    // Nothing is learned about the service.
                    CallOutcome::Unavailable { .. } | CallOutcome::NotCalled => {
                        let (until, open_for_ms, reason) = (now, *open_for_ms, before.clone());
                        next.state = BreakerState::Open { until, open_for_ms, reason };
                    }
                }
                Some(next)
            }
            (
                BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen { .. },
                CallPermit::Call | CallPermit::Probe { .. },
            ) => None,
        };
        match outcome {
            CallOutcome::Completed { address } if !self.completed_at.contains(address) => {
                let mut next = next.unwrap_or_else(|| self.clone());
                next.completed_at.push(*address);
                let most = limits::BREAKER_ADDRESSES_MAX;
                next.completed_at.drain(..next.completed_at.len().saturating_sub(most));
                Some(next)
            }
            CallOutcome::Completed { .. }
            | CallOutcome::Available
            | CallOutcome::Unavailable { .. }
            | CallOutcome::NotCalled => next,
        }
    }

    /// Removes the changes that have been published. Returns the changed breaker, or `None` if nothing changes.
    #[must_use]
    pub fn mark_published(&self, published: &[BreakerChange]) -> Option<Self> {
        let unpublished: Vec<_> =
            self.unpublished.iter().filter(|change| !published.contains(change)).cloned().collect();
        (unpublished.len() < self.unpublished.len()).then(|| Self { unpublished, ..self.clone() })
    }

    /// Whether calls are refused at `now` even if another instance has changed the breaker since it was read. No change
    /// shortens the time for which a breaker is open.
    #[must_use]
    pub fn is_certainly_open(&self, now: Timestamp) -> bool {
        match &self.state {
            BreakerState::Open { until, .. } => now < *until,
            BreakerState::Closed | BreakerState::HalfOpen { .. } => false,
        }
    }

    /// The result of the last call, while the breaker is not closed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.state {
            BreakerState::Closed => None,
            BreakerState::Open { reason, .. } | BreakerState::HalfOpen { reason, .. } => {
                Some(reason)
            }
        }
    }

    /// Returns a closed breaker with one more change to publish. If publishing fails for a long time, the oldest changes
    /// are dropped.
    fn closed_with_change(&self, to: BreakerTransition, reason: &str, at: Timestamp) -> Self {
        let reason = limits::short_line(reason, limits::ERROR_CHARS_MAX);
        let mut unpublished = self.unpublished.clone();
        unpublished.push(BreakerChange { to, at: whole_millis(at), reason });
        let dropped = unpublished.len().saturating_sub(limits::BREAKER_UNPUBLISHED_MAX);
        let unpublished = unpublished.split_off(dropped);
        Self { state: BreakerState::Closed, unpublished, ..self.clone() }
    }
}

impl BreakerChange {
    /// Returns the event about this change. It is the same each time, so that consumers recognise a repetition.
    #[must_use]
    pub fn to_event(&self, agent: &AgentName) -> BusEvent {
        let data = BreakerEventData { agent: agent.clone(), reason: self.reason.clone() };
        let data = match self.to {
            BreakerTransition::Opened => EventData::BreakerOpened(data),
            BreakerTransition::Closed => EventData::BreakerClosed(data),
        };
        BusEvent::new(agent.as_str(), self.at, data)
    }
}

/// Returns the state of a breaker that opens at `now`.
fn open(open_for: Duration, reason: &str, now: Timestamp) -> BreakerState {
    let open_for = open_for.clamp(limits::STEP_WITHIN_MIN, limits::BREAKER_OPEN_MAX);
    BreakerState::Open {
        until: later(now, open_for),
        open_for_ms: u64::try_from(open_for.as_millis()).unwrap_or(u64::MAX),
        reason: limits::short_line(reason, limits::ERROR_CHARS_MAX),
    }
}

/// The time from `now` until `end`. `None` if `end` has passed.
fn time_left(end: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    (left > Duration::ZERO).then_some(left)
}

/// The time in the precision of the state store.
fn whole_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
