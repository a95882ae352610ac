//! The circuit breaker of one agent's remote service, shared by all instances of the agent.
//!
//! ```text
//!                 failures in a row, seen by one instance
//!        ┌────────┐ ─────────────────────────────────────► ┌──────┐
//!        │ closed │                                        │ open │◄── probe fails: twice as long
//!        └────────┘ ◄───────────── ┌───────────┐ ◄──────── └──────┘        │
//!             the service answers  │ half open │   time is up: one         │
//!                                  └───────────┘   instance probes         │
//!                                    │  ▲   └──────────────────────────────┘
//!                                    └──┘ the prober died: another probes
//! ```
//!
//! | state     | what happens                           | becomes   | and                        |
//! | --------- | -------------------------------------- | --------- | -------------------------- |
//! | closed    | asked                                  | closed    | call                       |
//! | closed    | service unavailable, too often in a row | open     | alert                      |
//! | open      | asked before its time is up            | open      | wait                       |
//! | open      | asked after                            | half open | call: this is the probe    |
//! | half open | asked while the probe has time         | half open | wait                       |
//! | half open | asked after                            | half open | call: another's probe      |
//! | half open | the probe's service answers            | closed    | alert                      |
//! | half open | the probe's service is unavailable     | open      | for twice as long          |
//! | half open | the probe was not made after all       | open      | another may probe at once  |
//!
//! Whatever else is heard changes nothing: a call that began before the breaker opened, a prober whose
//! time was up. Everything here is pure: time, and who asks, are arguments. Each change is saved on the
//! condition that nobody else was quicker; who loses the race decides again on what is stored.
//!
//! The idea is Michael Nygard's ("Release It!"); see also
//! <https://learn.microsoft.com/azure/architecture/patterns/circuit-breaker>.

use std::{num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    limits,
    model::{
        events::{BreakerTurned, BusEvent, Happened},
        names::AgentName,
        time::later,
    },
};

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How many calls in a row, as one instance sees them, find the service unavailable before the
    /// breaker opens.
    pub failures: NonZeroU32,
    /// How long it stays open at first. It doubles with every probe that fails, up to
    /// [`BREAKER_OPEN_MAX`](limits::BREAKER_OPEN_MAX).
    pub open_for: Duration,
    /// How long a probe may take, unless its step allows a call less. If its instance dies, another probes after this
    /// time.
    pub probe_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failures: NonZeroU32::MIN.saturating_add(4),
            open_for: Duration::from_secs(10),
            probe_within: limits::CALL_WITHIN_MAX,
        }
    }
}

/// What the instances of an agent share of its breaker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Breaker {
    /// Whether the service may be called.
    pub state: State,
    /// The turns that nobody is known to have been told of, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Turn>,
}

/// Whether the service may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum State {
    /// It may.
    #[default]
    Closed,
    /// It may not.
    Open {
        /// Until then.
        #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
        until: Timestamp,
        /// How long that was from the beginning.
        open_for_ms: u64,
        /// What the last call met.
        reason: String,
    },
    /// One call may be made, to see.
    HalfOpen {
        /// The one that makes it.
        probe: String,
        /// By when it has an answer. After that another may probe.
        #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
        until: Timestamp,
        /// How long the breaker was open before.
        open_for_ms: u64,
        /// What the last call met.
        reason: String,
    },
}

/// A breaker opened or closed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Which.
    pub to: Turned,
    /// When; with the agent's name and `to` it is the event's id.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    pub at: Timestamp,
    /// What the last call met.
    pub reason: String,
}

/// How a breaker turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turned {
    /// It opened.
    Opened,
    /// It closed.
    Closed,
}

/// Who asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// A name that no other call of any instance has.
    pub call: &'a str,
    /// The time.
    pub now: Timestamp,
    /// How far clocks may disagree.
    pub clock_skew: Duration,
}

/// The answer to who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Call.
    Call,
    /// Call, once this is saved: the call is the probe.
    Probe(Breaker, Permit),
    /// Do not call before this time has passed.
    Wait(Duration),
}

/// What a call may be made as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Permit {
    /// One of many.
    Call,
    /// The one that finds out whether the service is back.
    Probe {
        /// Its name.
        call: String,
        /// By when it must have an answer: then another may probe.
        until: Timestamp,
    },
}

/// What a call tells about the service's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It answered: with what was asked for, with a refusal, or that it wants to be left alone for a
    /// while. That it refuses everyone is no reason to stop asking it.
    Alive,
    /// It did not answer, or only that it is broken.
    Unavailable {
        /// What the call met.
        reason: String,
    },
    /// Nothing: the call was not made after all.
    Nothing,
}

impl Breaker {
    /// Whether the service may be called.
    #[must_use]
    pub fn ask(&self, asker: Asker<'_>, settings: &Settings) -> Asked {
        let Asker { call, now, clock_skew } = asker;
        let probe = |open_for_ms: u64, reason: &str| {
            let (call, until) = (call.to_owned(), later(now, settings.probe_within));
            let (probe, reason) = (call.clone(), reason.to_owned());
            let state = State::HalfOpen { probe, until, open_for_ms, reason };
            let next = Self { state, untold: self.untold.clone() };
            Asked::Probe(next, Permit::Probe { call, until })
        };
        match &self.state {
            State::Closed => Asked::Call,
            State::Open { until, open_for_ms, reason } => match left(*until, now) {
                Some(left) => Asked::Wait(left),
                None => probe(*open_for_ms, reason),
            },
            // The prober goes by its own clock.
            State::HalfOpen { until, open_for_ms, reason, .. } => {
                match left(later(*until, clock_skew), now) {
                    // The probe may be over long before its time is.
                    Some(left) => Asked::Wait(left.min(settings.open_for)),
                    None => probe(*open_for_ms, reason),
                }
            }
        }
    }

    /// The breaker after a call, if that changes it. `in_a_row` is how many calls, this one included,
    /// found the service unavailable one after the other, as the calling instance sees it.
    #[must_use]
    pub fn after(
        &self,
        permit: &Permit,
        heard: &Heard,
        in_a_row: u32,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<Self> {
        match (&self.state, permit) {
            (State::Closed, Permit::Call) => match heard {
                Heard::Unavailable { reason } if in_a_row >= settings.failures.get() => {
                    let opened = self.turned(Turned::Opened, reason, now);
                    Some(Self { state: open(settings.open_for, reason, now), ..opened })
                }
                Heard::Unavailable { .. } | Heard::Alive | Heard::Nothing => None,
            },
            (
                State::HalfOpen { probe, open_for_ms, reason: before, .. },
                Permit::Probe { call, .. },
            ) if probe == call => {
                let untold = self.untold.clone();
                Some(match heard {
                    Heard::Alive => self.turned(Turned::Closed, "the service answers again", now),
                    Heard::Unavailable { reason } => {
                        let open_for = Duration::from_millis(open_for_ms.saturating_mul(2));
                        Self { state: open(open_for, reason, now), untold }
                    }
                    Heard::Nothing => {
                        let (until, open_for_ms, reason) = (now, *open_for_ms, before.clone());
                        Self { state: State::Open { until, open_for_ms, reason }, untold }
                    }
                })
            }
            (
                State::Closed | State::Open { .. } | State::HalfOpen { .. },
                Permit::Call | Permit::Probe { .. },
            ) => None,
        }
    }

    /// The breaker once `told` has been told, if that changes it.
    #[must_use]
    pub fn told(&self, told: &[Turn]) -> Option<Self> {
        let untold: Vec<_> =
            self.untold.iter().filter(|turn| !told.contains(turn)).cloned().collect();
        (untold.len() < self.untold.len()).then(|| Self { state: self.state.clone(), untold })
    }

    /// Whether it can be said without another look that the service may not be called at `now`. The
    /// time until which a breaker is open is never cut short.
    #[must_use]
    pub fn is_surely_open(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Open { until, .. } => now < *until,
            State::Closed | State::HalfOpen { .. } => false,
        }
    }

    /// What the last call met, while the breaker is not closed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.state {
            State::Closed => None,
            State::Open { reason, .. } | State::HalfOpen { reason, .. } => Some(reason),
        }
    }

    /// Closed, and with one turn more to tell. If nobody can be told for long, the oldest are forgotten.
    fn turned(&self, to: Turned, reason: &str, at: Timestamp) -> Self {
        let reason = limits::shorten(reason, limits::ERROR_CHARS_MAX);
        let mut untold = self.untold.clone();
        untold.push(Turn { to, at: whole_millis(at), reason });
        let forgotten = untold.len().saturating_sub(limits::BREAKER_UNTOLD_MAX);
        Self { state: State::Closed, untold: untold.split_off(forgotten) }
    }
}

impl Turn {
    /// The event that tells of it: the same whenever it is told.
    #[must_use]
    pub fn event(&self, agent: &AgentName) -> BusEvent {
        let turned = BreakerTurned { agent: agent.clone(), reason: self.reason.clone() };
        let happened = match self.to {
            Turned::Opened => Happened::BreakerOpened(turned),
            Turned::Closed => Happened::BreakerClosed(turned),
        };
        BusEvent::new(agent.as_str(), self.at, happened)
    }
}

fn open(open_for: Duration, reason: &str, now: Timestamp) -> State {
    let open_for = open_for.clamp(limits::WITHIN_MIN, limits::BREAKER_OPEN_MAX);
    State::Open {
        until: later(now, open_for),
        open_for_ms: u64::try_from(open_for.as_millis()).unwrap_or(u64::MAX),
        reason: limits::shorten(reason, limits::ERROR_CHARS_MAX),
    }
}

/// The time left from `now` until `end`, if any is.
fn left(end: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    (left > Duration::ZERO).then_some(left)
}

/// As the state store keeps it.
fn whole_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
