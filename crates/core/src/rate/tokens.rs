//! The tokens that one instance holds, and when it asks for more.

use std::time::Duration;

use jiff::Timestamp;

use super::record::{
    LEASE_LIFETIME, LEASE_PERIOD, LEASES_PER_SECOND, Lease, LeaseRequest, RateLimit, WAIT_MAX,
    place,
};
use crate::model::time::later;

/// The most instances that are distinguished.
const INSTANCES_MAX: f64 = 100.0;

/// How far apart an instance chooses places in the line without a lease, in units of `1/R`, for each instance: the others
/// defer calls meanwhile. Places that are too far apart leave tokens unused. Places that are too close cost more
/// deferrals.
const PLACES_FOR_EACH_INSTANCE: f64 = 0.5;

/// The longest pause between two leases of an instance while there are too few tokens.
const LONGEST_PAUSE: Duration = LEASE_PERIOD;

/// The pause after a lease that failed, because the state store cannot be read or written.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How long a call is deferred while the state store cannot be read or written.
const DEFERRED_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// By how much more than it used an instance may lease, at most.
const GROWTH: f64 = 4.0;

/// What an instance does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenDecision {
    /// The call has a token. It may begin at this time, which may have passed, and must begin before `expires_at`.
    CallAt {
        /// The token's slot.
        slot: Timestamp,
        /// The end of the token's lease.
        expires_at: Timestamp,
    },
    /// The instance must lease tokens first.
    Lease(LeaseRequest),
    /// There is no token in time. The call returns after this time, its place in the line.
    Defer(Duration),
    /// It is not known whether there are tokens, because the last lease failed. The call returns after this time.
    Unknown(Duration),
}

/// The tokens that an instance holds.
#[derive(Debug, Clone)]
pub struct InstanceTokens {
    limit: RateLimit,
    /// The slot of the first token of the lease.
    first: Timestamp,
    /// The number of leased tokens, and how many of them are taken.
    leased: u32,
    taken: u32,
    expires_at: Timestamp,
    /// The next place in the line, as far as this instance knows. Other instances may give it to another call.
    next_place: Timestamp,
    /// How many calls it deferred since the last lease.
    deferred: u32,
    /// The last lease.
    last: Option<LastLease>,
    /// An estimate of the number of instances that lease tokens, from 1.
    instances: f64,
}

/// The last lease, or the last attempt at one.
#[derive(Debug, Clone, Copy)]
struct LastLease {
    at: Timestamp,
    /// The revision of the saved record.
    revision: u64,
    result: LeaseResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseResult {
    /// As many tokens as requested.
    Full,
    /// Fewer: all slots are taken.
    Exhausted,
    /// The state store failed.
    Failed,
}

impl InstanceTokens {
    /// The tokens of an instance that has leased none yet.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        Self {
            limit,
            first: Timestamp::UNIX_EPOCH,
            leased: 0,
            taken: 0,
            expires_at: Timestamp::UNIX_EPOCH,
            next_place: Timestamp::MIN,
            deferred: 0,
            last: None,
            instances: 1.0,
        }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// Decides on a call that can wait for at most `longest_wait`. `waiting` is the number of calls of this instance that
    /// wait for a decision, including this one.
    #[must_use]
    pub fn decide(
        &mut self,
        now: Timestamp,
        longest_wait: Duration,
        waiting: u32,
    ) -> TokenDecision {
        if self.taken < self.leased && now < self.expires_at {
            let slot = later(self.first, self.limit.time_of(self.taken));
            if slot <= later(now, longest_wait.min(WAIT_MAX)) {
                self.taken += 1;
                return TokenDecision::CallAt { slot, expires_at: self.expires_at };
            }
            // Other calls can wait for longer.
            return self.defer(now);
        }
        match self.last {
            Some(LastLease { at, result, .. }) if self.is_pausing(at, result, now) => {
                match result {
                    LeaseResult::Failed => TokenDecision::Unknown(DEFERRED_AFTER_FAILURE),
                    LeaseResult::Full | LeaseResult::Exhausted => self.defer(now),
                }
            }
            Some(LastLease { at, .. }) => {
                let expected = self.expected(at, now);
                TokenDecision::Lease(LeaseRequest {
                    waiting,
                    expected,
                    next_place: self.next_place,
                })
            }
            None => TokenDecision::Lease(LeaseRequest {
                waiting,
                expected: 0,
                next_place: self.next_place,
            }),
        }
    }

    /// Records a lease, which was saved with this revision.
    pub fn leased(&mut self, lease: &Lease, request: LeaseRequest, revision: u64, now: Timestamp) {
        if let Some(last) = self.last {
            self.count_instances(last, revision, now);
        }
        let asked = request.waiting.saturating_add(request.expected);
        let result = if lease.calls < asked { LeaseResult::Exhausted } else { LeaseResult::Full };
        self.last = Some(LastLease { at: now, revision, result });
        (self.first, self.leased, self.taken) = (lease.first, lease.calls, 0);
        self.expires_at = later(now, LEASE_LIFETIME);
        (self.next_place, self.deferred) = (lease.first_place, 0);
    }

    /// Records that the state store failed. Tokens that were leased may be lost.
    pub fn lease_failed(&mut self, now: Timestamp) {
        let revision = self.last.map_or(0, |last| last.revision);
        self.last = Some(LastLease { at: now, revision, result: LeaseResult::Failed });
        self.leased = 0;
        self.taken = 0;
    }

    fn is_pausing(&self, at: Timestamp, result: LeaseResult, now: Timestamp) -> bool {
        let pause = match result {
            LeaseResult::Full => return false,
            LeaseResult::Exhausted => self.pause(),
            LeaseResult::Failed => PAUSE_AFTER_FAILURE,
        };
        (at..later(at, pause)).contains(&now)
    }

    /// How many calls are expected until the next lease, by those since the last one.
    fn expected(&self, last: Timestamp, now: Timestamp) -> u32 {
        let passed = now.duration_since(last).as_secs_f64().max(0.001);
        let calls = f64::from(self.taken.saturating_add(self.deferred));
        let most = f64::from(self.taken) * GROWTH;
        // The conversion saturates.
        (calls * LEASE_PERIOD.as_secs_f64() / passed).min(most).floor() as u32
    }

    /// The pause after a lease that brought too few tokens.
    fn pause(&self) -> Duration {
        let pause = Duration::from_secs_f64(self.instances / LEASES_PER_SECOND);
        pause.min(LONGEST_PAUSE)
    }

    /// Estimates the number of instances: while there are too few tokens, each leases once in a pause.
    fn count_instances(&mut self, last: LastLease, revision: u64, now: Timestamp) {
        let passed_s = now.duration_since(last.at).as_secs_f64();
        let pause_s = self.pause().as_secs_f64();
        if last.result == LeaseResult::Exhausted && passed_s >= pause_s {
            let leases = revision.saturating_sub(last.revision) as f64;
            self.instances = (leases * pause_s / passed_s).clamp(1.0, INSTANCES_MAX);
        }
    }

    /// Gives a call a place in the line: one that was leased for it, or the next one, without knowing of the calls that other
    /// instances have deferred since.
    fn defer(&mut self, now: Timestamp) -> TokenDecision {
        let at = place(self.next_place, now);
        self.deferred = self.deferred.saturating_add(1);
        let places = (self.instances * PLACES_FOR_EACH_INSTANCE).max(1.0);
        self.next_place = later(at, self.limit.time_of(1).mul_f64(places));
        TokenDecision::Defer(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }
}
