//! The limit, and the record that all instances of an agent share.

use std::{fmt, num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    limits,
    model::{
        registration::CallRate,
        time::{earlier, later},
    },
};

/// How far ahead of the present the slot of a leased token may be: the longest time that a call waits in the agent.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// For how long a lease should last, by the recent use of its instance.
pub const LEASE_PERIOD: Duration = Duration::from_secs(2);

/// How long after its lease a token may be used.
pub const LEASE_LIFETIME: Duration = Duration::from_secs(3);

/// The longest virtual line. A longer one begins again at its half, so that a limit that is raised takes effect within
/// this time.
pub const LINE_MAX: Duration = Duration::from_secs(3600);

/// How many leases all instances of an agent together aim at while there are too few tokens.
pub const LEASES_PER_SECOND: f64 = 5.0;

/// The limit of the calls of an agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// The rate in the long run.
    pub per_second: CallRate,
    /// How many calls may be made at once after a pause.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// A limit. Without a burst, a second's worth of calls, but at least one, may be made at once.
    #[must_use]
    pub fn new(per_second: CallRate, burst: Option<NonZeroU32>) -> Self {
        // The rate is at most 10,000.
        let seconds_worth = f64::from(per_second).ceil() as u32;
        let burst = burst.or(NonZeroU32::new(seconds_worth)).unwrap_or(NonZeroU32::MIN);
        Self { per_second, burst }
    }

    /// The most calls in a window of this length, if clocks differ by at most `clock_skew`.
    #[must_use]
    pub fn calls_max(&self, window: Duration, clock_skew: Duration) -> f64 {
        let counted = window + LEASE_LIFETIME + clock_skew;
        f64::from(self.per_second) * counted.as_secs_f64() + f64::from(self.burst.get())
    }

    /// The time in which the rate allows this many calls, in whole microseconds, rounded up.
    pub(super) fn time_of(&self, calls: u32) -> Duration {
        let micros = f64::from(calls) * 1e6 / f64::from(self.per_second);
        Duration::from_micros(micros.ceil() as u64)
    }

    /// The number of slots from `first` until `last`, at most `at_most`.
    fn slots(&self, first: Timestamp, last: Timestamp, at_most: u32) -> u32 {
        let Ok(time) = Duration::try_from(last.duration_since(first)) else { return 0 };
        let fitting = (time.as_secs_f64() * f64::from(self.per_second)).floor();
        // The conversion saturates.
        let slots = (fitting as u32).saturating_add(1).min(at_most);
        // Rounding may have counted a slot that is a microsecond too late.
        let last_slot = later(first, self.time_of(slots.saturating_sub(1)));
        if last_slot > last { slots.saturating_sub(1) } else { slots }
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, burst } = self;
        write!(f, "at most {per_second} calls per second, {burst} at once")
    }
}

/// What all instances of an agent share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateRecord {
    /// The first slot that is not leased.
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    pub next: Timestamp,
    /// The first place in the line that is not taken.
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    pub line_end: Timestamp,
}

impl Default for RateRecord {
    /// A limit that was never used: a whole burst is available.
    fn default() -> Self {
        Self { next: Timestamp::MIN, line_end: Timestamp::MIN }
    }
}

/// What an instance wants to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The calls that wait now.
    pub waiting: u32,
    /// The calls that are expected until the next lease.
    pub expected: u32,
    /// The end of the line, as far as the instance knows.
    pub next_place: Timestamp,
}

/// What an instance has leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The slot of the first token.
    pub first: Timestamp,
    /// The number of tokens.
    pub calls: u32,
    /// The first of the places in the line, one for each waiting call that got no token.
    pub first_place: Timestamp,
    /// The number of these places.
    pub places: u32,
}

impl RateRecord {
    /// Leases tokens, and places in the line for the waiting calls that get none. Returns the changed record, which must
    /// be saved before the lease is used.
    #[must_use]
    pub fn lease(
        &self,
        request: LeaseRequest,
        limit: &RateLimit,
        now: Timestamp,
        clock_skew: Duration,
    ) -> (Self, Lease) {
        let now = whole_micros(now);
        let LeaseRequest { waiting, expected, next_place } = request;
        let stored = self.in_bounds(now, clock_skew);
        let oldest = earlier(now, limit.time_of(limit.burst.get() - 1));
        let first = stored.next.max(oldest);
        let calls = limit.slots(first, later(now, WAIT_MAX), waiting.saturating_add(expected));
        let next = if calls > 0 { later(first, limit.time_of(calls)) } else { stored.next };
        let places = waiting.saturating_sub(calls);
        let line_end = stored.line_end.max(whole_micros(next_place)).max(now);
        let first_place = place(line_end.max(next), now);
        let line_end =
            if places > 0 { later(first_place, limit.time_of(places)) } else { line_end };
        let line_end = line_end.min(later(now, LINE_MAX * 2));
        (Self { next, line_end }, Lease { first, calls, first_place, places })
    }

    /// The record as it counts at `now`. A time so far ahead that a clock must have been wrong counts as now: it would
    /// stop the agent until then.
    fn in_bounds(&self, now: Timestamp, clock_skew: Duration) -> Self {
        let slowest = Duration::from_secs_f64(1.0 / limits::CALL_RATE_MIN);
        let within = |time: Timestamp, ahead: Duration| {
            if time > later(now, ahead.saturating_add(clock_skew)) { now } else { time }
        };
        Self {
            next: within(self.next, WAIT_MAX + slowest),
            line_end: within(self.line_end, LINE_MAX * 2),
        }
    }
}

/// A place in the line, not before the calls that wait in agents. A line that is too long begins again at its half.
pub(super) fn place(at: Timestamp, now: Timestamp) -> Timestamp {
    let longest = later(now, LINE_MAX);
    if at > longest { later(now, LINE_MAX / 2) } else { at.max(later(now, WAIT_MAX)) }
}

/// The time in the precision of the state store.
fn whole_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
