//! An instance's share of its agent's rate limit: the tokens that it has leased, and the call's wait for one.
//!
//! Every call to the service takes a token: the first call of an attempt, each retry, and a probe of the circuit breaker.
//! The agent takes the token after the breaker's permit, so an open breaker costs no token, and before it claims a call
//! that must not be repeated. While it waits for the token, nothing is claimed yet: if the function dies, the next
//! delivery makes the call.
//!
//! A call whose token has its slot within a second waits for it. If there is no token in time, the attempt ends as
//! deferred, which costs no attempt. If the state store cannot be read or written, the agent uses the tokens that it has
//! leased, and then defers: the limit must hold.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use steward_core::{
    limits,
    model::names::AgentName,
    rate::{InstanceTokens, LeaseRequest, RateLimit, TokenDecision, WAIT_MAX},
};
use steward_runtime::{
    metrics,
    ports::{Clock, Ports, error_chain},
    rate::{RateSaveOutcome, StoredRate},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

/// An instance's view of its agent's rate limit.
#[derive(Debug)]
pub struct RateLimiter {
    /// `None` without a limit.
    limited: Option<LimitedCalls>,
}

#[derive(Debug)]
struct LimitedCalls {
    /// The lock is held during reads and saves, so that concurrent calls share a lease.
    view: Mutex<RateView>,
    /// The calls that wait for a decision.
    waiting: AtomicU32,
}

#[derive(Debug)]
struct RateView {
    tokens: InstanceTokens,
    /// The shared record as this instance saved it last.
    copy: StoredRate,
    /// Whether no other instance had changed the record when this one saved it last.
    is_alone: bool,
}

/// Whether a call may be made.
pub(super) enum Token {
    Granted,
    /// There is no token in time. The call returns after `wait`.
    Denied {
        limit: RateLimit,
        wait: Duration,
    },
    /// The state store failed.
    Unknown {
        wait: Duration,
    },
}

impl RateLimiter {
    /// The view of an instance of `agent` that has made no calls yet. Without a limit, all calls are allowed.
    #[must_use]
    pub fn new(agent: AgentName, limit: Option<RateLimit>) -> Self {
        let limited = limit.map(|limit| {
            let (tokens, copy) = (InstanceTokens::new(limit), StoredRate::new(agent));
            let view = RateView { tokens, copy, is_alone: false };
            LimitedCalls { view: Mutex::new(view), waiting: AtomicU32::default() }
        });
        Self { limited }
    }

    /// Takes a token for a call that can wait for at most `longest_wait`, and waits for its slot.
    pub(super) async fn take<P: Ports>(&self, ports: &P, longest_wait: Duration) -> Token {
        let Some(limited) = &self.limited else { return Token::Granted };
        let until = Instant::now() + longest_wait;
        let mut is_first_wait = true;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (wait, expires_at) = match limited.decide(ports, left).await {
                (TokenDecision::CallAt { slot, expires_at }, _) => {
                    (Duration::try_from(slot.duration_since(ports.clock().now())), expires_at)
                }
                (TokenDecision::Defer(wait), limit) => return Token::Denied { limit, wait },
                (TokenDecision::Unknown(wait), _) => return Token::Unknown { wait },
                (TokenDecision::Lease(_), limit) => {
                    return Token::Denied { limit, wait: WAIT_MAX };
                }
            };
            // The slot has passed.
            let Some(wait) = wait.ok().filter(|wait| !wait.is_zero()) else {
                return Token::Granted;
            };
            if std::mem::take(&mut is_first_wait) {
                metrics::call_rate_limited("waited");
            }
            sleep(wait).await;
            // A process that was suspended meanwhile must not use an old token.
            if ports.clock().now() < expires_at {
                return Token::Granted;
            }
        }
    }
}

impl LimitedCalls {
    async fn decide<P: Ports>(&self, ports: &P, wait: Duration) -> (TokenDecision, RateLimit) {
        let _waiting = Waiting::begin(&self.waiting);
        let mut view = self.view.lock().await;
        let waiting = self.waiting.load(Ordering::Relaxed);
        let decision = view.tokens.decide(ports.clock().now(), wait, waiting);
        let decision = match decision {
            TokenDecision::Lease(request) => {
                view.lease(ports, request).await;
                view.tokens.decide(ports.clock().now(), wait, waiting)
            }
            TokenDecision::CallAt { .. } | TokenDecision::Defer(_) | TokenDecision::Unknown(_) => {
                decision
            }
        };
        (decision, *view.tokens.limit())
    }
}

/// Counts a waiting call, also if its future is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RateView {
    /// Leases tokens from the shared record. While the instance is alone, its copy is current, and a lease costs one write.
    async fn lease<P: Ports>(&mut self, ports: &P, request: LeaseRequest) {
        let mut stored = match self.is_alone {
            true => self.copy.clone(),
            false => match StoredRate::read(ports, &self.copy.agent).await {
                Ok(stored) => stored,
                Err(error) => {
                    return self.failed(ports, "rate limit not read", &error_chain(&error));
                }
            },
        };
        for _ in 0..limits::SAVE_CONFLICTS_MAX {
            let now = ports.clock().now();
            let skew = ports.timing().clock_skew;
            let (next, lease) = stored.record.lease(request, self.tokens.limit(), now, skew);
            stored = match stored.save(ports, next).await {
                Ok(RateSaveOutcome::Saved(saved)) => {
                    self.is_alone = saved.revision == self.copy.revision + 1;
                    self.tokens.leased(&lease, request, saved.revision, now);
                    self.copy = saved;
                    return;
                }
                Ok(RateSaveOutcome::Conflict(stored)) => stored,
                // The tokens may be leased. They are lost.
                Err(error) => {
                    return self.failed(ports, "rate limit not saved", &error_chain(&error));
                }
            };
        }
        self.failed(ports, "rate limit not saved", "other instances changed it again and again");
    }

    fn failed<P: Ports>(&mut self, ports: &P, what: &'static str, error: &str) {
        tracing::warn!(agent = %self.copy.agent, error, what, "no tokens leased; calls are deferred");
        // The next lease reads the record: this save may have taken effect.
        self.is_alone = false;
        self.tokens.lease_failed(ports.clock().now());
    }
}
