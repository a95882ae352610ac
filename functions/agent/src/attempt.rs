//! What every agent shares: it asks the circuit breaker, calls its remote service, retries what is
//! transient, and either replies or stays silent.
//!
//! ```text
//! request ──► breaker ──► call ──► 2xx ────────────► reply: completed
//!              ▲   │       └─┬───► permanent fault ► reply: failed
//!              │   │         └───► transient fault ─┐
//!              │   └─ open, or Retry-After too long ┼► reply: deferred, costs no attempt
//!              └──── backoff, Retry-After ──────────┘
//!                     call takes too long ──────────► reply: outcome unknown
//!                     complete-by passes ───────────► silence: another agent may already be on it
//!                     function's time is up ────────► back to the queue before the first call, else deferred
//! ```
//!
//! One call may take as long as its step says (`call_within`); the agent cuts one that takes longer and does not
//! repeat it, for the service may still be at work on it. No call begins that the function could not hold so long.
//!
//! A service that answers that the request conflicts with another one (409, 423) may be at work on an earlier call with the
//! same idempotency key: while there may be one, the agent retries, and an undo always. The answer never proves that the
//! step did not run.
//!
//! A step that is not `idempotent` is recorded before its call and called once: only a fault that
//! certainly did not take effect is retried, any other is replied at once as "outcome unknown".
//!
//! Implement [`RemoteService`] to write an agent for something other than HTTP.

use std::{convert::Infallible, future::Future, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    breaker::{Heard, Permit},
    definition::recovery::seed,
    limits,
    model::{
        attempt::{Action, AttemptTimes},
        messages::{Outcome, StepReply, StepRequest},
    },
};
use steward_runtime::{
    metrics,
    ports::{Clock, Ports},
};
use tokio::time::{Instant, sleep_until, timeout_at};

mod claim;
mod guard;

pub use guard::Guard;
use guard::Permitted;

/// The remote service that an agent wraps.
pub trait RemoteService: Send + Sync {
    /// Makes one call. It must carry `request.idempotency_key` to the service, so that a repeated
    /// call takes effect once, and `traceparent` if there is one. It may be dropped at any time.
    fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> impl Future<Output = Result<Value, Fault>> + Send;
}

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The same again may succeed.
    Transient {
        /// What happened, for the log.
        reason: String,
        /// How long the service asks to be left alone; zero if it does not say how long. A service
        /// that asks is alive, so this does not open the circuit breaker; without it, it does.
        retry_after: Option<Duration>,
        /// Whether the call may have taken effect: it was not refused before it began.
        may_have_run: bool,
    },
    /// The request conflicts with another one, which may be an earlier call with the same idempotency key that is
    /// still in progress. The service is alive: it answered.
    Conflict {
        /// What happened, for people. No payload.
        reason: String,
    },
    /// The call took too long and was cut off: it may have taken effect, and may still do so.
    Cut {
        /// What happened, for people. No payload.
        reason: String,
    },
    /// The same again would fail again. The service is alive: it answered.
    Permanent {
        /// What happened, for people. No payload.
        reason: String,
        /// Whether the call may have taken effect: its answer is of no use, say.
        may_have_run: bool,
    },
}

/// A request as the queue handed it over.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<'a> {
    /// What is asked.
    pub request: &'a StepRequest,
    /// The trace it belongs to.
    pub traceparent: Option<&'a str>,
    /// Whether the queue delivered it before. An instance that died may have made the call.
    pub redelivered: bool,
    /// When it was sent, as the queue says.
    pub sent_at: Option<Timestamp>,
}

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempted {
    /// It has an answer.
    Reply(Box<StepReply>),
    /// Nothing may be said: complete-by has passed, or an earlier delivery may still answer.
    Silent,
    /// The request goes back to its queue: the function's own time is up before complete-by, or the
    /// attempt could not be recorded before a call that must not be repeated.
    GivenBack,
}

/// The pauses between calls: exponential with full jitter, so that many agents do not come back at
/// the same moment.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A call that complete-by cut off sooner than this says nothing about the service: the request may
/// have come late.
const FAIR_TIME: Duration = Duration::from_secs(5);

/// Carries out one attempt, within `request.complete_by` and within `deadline`, the time at which
/// the function itself is stopped.
pub async fn attempt<P: Ports, R: RemoteService>(
    ports: &P,
    guard: &Guard,
    service: &R,
    delivered: Delivered<'_>,
    deadline: Timestamp,
) -> Attempted {
    let request = delivered.request;
    let (start, now) = (Instant::now(), ports.clock().now());
    let Some(time) = remaining(now, request.complete_by) else {
        note(request, "complete-by had passed before the call");
        return Attempted::Silent;
    };
    let Some(own_time) = remaining(now, deadline) else {
        return Attempted::GivenBack;
    };
    let mut attempt = Attempt {
        ports,
        guard,
        service,
        delivered,
        end: start + time.min(own_time),
        is_last: time <= own_time,
        claimed: false,
        may_have_run: false,
        called_at: None,
    };
    let outcome = match attempt.run().await {
        Err(Ended::With(outcome)) => outcome,
        Err(Ended::Silent(why)) => {
            note(request, why);
            return Attempted::Silent;
        }
        Err(Ended::GivenBack) => return Attempted::GivenBack,
    };
    let (queued_at, called_at) = (delivered.sent_at, attempt.called_at);
    let answered_at = Some(in_millis(ports.clock().now()));
    Attempted::Reply(Box::new(StepReply {
        task_id: request.task_id.clone(),
        step: request.step.clone(),
        action: request.action,
        attempt: request.attempt,
        outcome,
        incarnation: request.incarnation,
        times: AttemptTimes { queued_at, called_at, answered_at },
    }))
}

/// How an attempt ended.
enum Ended {
    With(Outcome),
    Silent(&'static str),
    GivenBack,
}

/// One attempt, with all it works with.
struct Attempt<'a, P, R> {
    ports: &'a P,
    guard: &'a Guard,
    service: &'a R,
    delivered: Delivered<'a>,
    /// When time is up...
    end: Instant,
    /// ...and whether that is at complete-by, or only the function's own time.
    is_last: bool,
    /// Whether it is on record that the call is made. Only for a step that is not idempotent.
    claimed: bool,
    /// Whether a call, of an earlier delivery too, may have taken effect.
    may_have_run: bool,
    /// When this delivery first called.
    called_at: Option<Timestamp>,
}

impl<P: Ports, R: RemoteService> Attempt<'_, P, R> {
    /// How long one call may take: as the request says, and no longer than an agent can hold one.
    fn call_within(&self) -> Duration {
        let said = self.delivered.request.call_within_ms.map(Duration::from_millis);
        said.unwrap_or(limits::CALL_WITHIN_MAX).min(limits::CALL_WITHIN_MAX)
    }

    /// Calls until there is an answer, or no more call may be made.
    async fn run(&mut self) -> Result<Infallible, Ended> {
        self.look_back().await?;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let permit = self.permit().await?;
            let asked = match self.call(permit).await? {
                Ok(output) => {
                    let may_continue = self.may_have_run;
                    return Err(Ended::With(Outcome::Completed { output, may_continue }));
                }
                Err(fault) => self.judge(fault)?,
            };
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE).max(asked);
            // What is asked for is not longer than the time left, so this is no overflow.
            let until = Instant::now() + pause;
            sleep_until(until.min(self.end)).await;
            if until >= self.end {
                return Err(self.time_is_up(false));
            }
        }
    }

    /// What earlier deliveries of the request may have done.
    async fn look_back(&mut self) -> Result<(), Ended> {
        let Delivered { request, redelivered, .. } = self.delivered;
        if redelivered && !request.idempotent {
            return claim::look(self.ports, request).await;
        }
        self.may_have_run = redelivered;
        Ok(())
    }

    /// Asks the breaker, and records a call that must not be repeated.
    async fn permit(&mut self) -> Result<Permit, Ended> {
        let permit = match self.guard.ask(self.ports, self.call_within()).await {
            Permitted::Yes(permit) => permit,
            Permitted::No { reason, wait } => {
                // Another delivery must not make the call that is put off to the next attempt.
                self.claim().await?;
                return Err(self.defer(&reason, wait));
            }
        };
        if let Err(ended) = self.claim().await {
            self.guard.heard(self.ports, permit, Heard::Nothing).await;
            return Err(ended);
        }
        Ok(permit)
    }

    /// Records the one call of a step that is not idempotent, before it is made.
    async fn claim(&mut self) -> Result<(), Ended> {
        let request = self.delivered.request;
        if request.idempotent || self.claimed {
            return Ok(());
        }
        let by = self.guard.unique_name(self.ports.instance());
        claim::put(self.ports, request, &by).await?;
        self.claimed = true;
        Ok(())
    }

    /// Makes one call, and tells the breaker what came of it.
    async fn call(&mut self, permit: Permit) -> Result<Result<Value, Fault>, Ended> {
        let Delivered { request, traceparent, .. } = self.delivered;
        let begun = Instant::now();
        let bound = match &permit {
            Permit::Call => self.end,
            // What came before the call took from its time.
            Permit::Probe { until, .. } => {
                let left = remaining(self.ports.clock().now(), *until).unwrap_or_default();
                self.end.min(begun + left)
            }
        };
        let call_within = self.call_within();
        // A call that the function cannot hold to its end would be cut off by it.
        let cannot_hold = !self.is_last && self.end.saturating_duration_since(begun) < call_within;
        if begun >= bound || cannot_hold {
            self.guard.heard(self.ports, permit, Heard::Nothing).await;
            return Err(match begun >= self.end || cannot_hold {
                true => self.time_is_up(false),
                false => self.defer("the time to probe the service is up", Duration::ZERO),
            });
        }
        let is_cut = begun + call_within < bound;
        let bound = bound.min(begun + call_within);
        self.called_at.get_or_insert_with(|| in_millis(self.ports.clock().now()));
        let answer = match timeout_at(bound, self.service.call(request, traceparent)).await {
            Ok(answer) => answer,
            Err(_) if is_cut => {
                let reason = format!("the call took longer than {call_within:?}, and was cut off");
                Err(Fault::Cut { reason })
            }
            Err(_) if bound < self.end => {
                let reason = "the call that probed the service did not end in time".to_owned();
                Err(Fault::Cut { reason })
            }
            Err(_) => {
                // A probe that was cut off early keeps its lease, which paces the next one.
                if self.is_last && begun.elapsed() >= FAIR_TIME {
                    let reason = "no answer by complete-by".to_owned();
                    self.guard.heard(self.ports, permit, Heard::Unavailable { reason }).await;
                }
                return Err(self.time_is_up(true));
            }
        };
        self.guard.heard(self.ports, permit, health(&answer)).await;
        Ok(answer)
    }

    /// How long the service asks to be left alone, if another call may be made.
    fn judge(&mut self, fault: Fault) -> Result<Duration, Ended> {
        let StepRequest { task_id, step, attempt, idempotent, .. } = self.delivered.request;
        match fault {
            Fault::Permanent { reason, may_have_run } => {
                Err(failed(&reason, self.may_have_run || may_have_run))
            }
            Fault::Cut { reason } if !idempotent => Err(failed(&unknown(&reason), true)),
            Fault::Cut { reason } => {
                let reason = limits::shorten(&reason, limits::REASON_CHARS_MAX);
                Err(Ended::With(Outcome::Unknown { reason }))
            }
            Fault::Conflict { reason } => {
                let request = self.delivered.request;
                // An undo is repeated until it completes: another delivery of it may be in progress.
                let is_undo = request.action == Action::Undo;
                let earlier_call = self.may_have_run || request.may_have_run || is_undo;
                if !idempotent || !earlier_call {
                    return Err(failed(&reason, true));
                }
                self.may_have_run = true;
                metrics::call_retried();
                tracing::debug!(%task_id, %step, attempt, reason, "earlier call in progress, trying again");
                Ok(Duration::ZERO)
            }
            Fault::Transient { reason, may_have_run: true, .. } if !idempotent => {
                Err(failed(&unknown(&reason), true))
            }
            Fault::Transient { reason, retry_after, may_have_run } => {
                self.may_have_run |= may_have_run;
                let asked = retry_after.unwrap_or_default();
                if asked > self.end.saturating_duration_since(Instant::now()) {
                    return Err(self.defer(&reason, asked));
                }
                metrics::call_retried();
                tracing::debug!(%task_id, %step, attempt, reason, "call failed, trying again");
                Ok(asked)
            }
        }
    }

    /// The service is left alone, and the step waits. The spread is a hash, as that of the pauses
    /// between attempts is.
    fn defer(&self, reason: &str, wait: Duration) -> Ended {
        let StepRequest { task_id, step, action, attempt, .. } = self.delivered.request;
        let part = f64::from(seed(task_id, step, *action, *attempt)) / f64::from(u32::MAX);
        let wait = wait.saturating_add(self.guard.settings().open_for.mul_f64(part));
        let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        metrics::deferred();
        tracing::info!(%task_id, %step, attempt, reason, retry_after_ms, "agent defers");
        let reason = limits::shorten(reason, limits::REASON_CHARS_MAX);
        let may_have_run = self.may_have_run;
        Ended::With(Outcome::Deferred { reason, retry_after_ms, may_have_run })
    }

    /// `calling`: a call was under way. One that may be repeated is, by whoever gets the request next.
    fn time_is_up(&self, calling: bool) -> Ended {
        const REASON: &str = "the function's time was up";
        match (self.is_last, self.claimed, calling) {
            (true, _, _) => Ended::Silent("complete-by passed without an answer"),
            // Deferred, it costs neither an attempt nor one of the receives after which a message is a dead letter.
            (false, false, false) if self.called_at.is_some() => self.defer(REASON, Duration::ZERO),
            (false, false, _) => Ended::GivenBack,
            (false, true, true) => failed(&unknown(REASON), true),
            // Whoever got it next would find the claim, and have to believe that the call was made.
            (false, true, false) => self.defer(REASON, Duration::ZERO),
        }
    }
}

/// What an answer tells about the service's health.
fn health(answer: &Result<Value, Fault>) -> Heard {
    match answer {
        Ok(_)
        | Err(
            Fault::Permanent { .. }
            | Fault::Conflict { .. }
            | Fault::Transient { retry_after: Some(_), .. },
        ) => Heard::Alive,
        Err(Fault::Transient { reason, retry_after: None, .. } | Fault::Cut { reason }) => {
            Heard::Unavailable { reason: reason.clone() }
        }
    }
}

fn failed(reason: &str, may_have_run: bool) -> Ended {
    let reason = limits::shorten(reason, limits::REASON_CHARS_MAX);
    Ended::With(Outcome::Failed { reason, may_have_run })
}

fn unknown(reason: &str) -> String {
    format!("outcome unknown, and the call must not be repeated: {reason}")
}

fn note(request: &StepRequest, why: &'static str) {
    let StepRequest { task_id, step, attempt, .. } = request;
    metrics::agent_silent();
    tracing::info!(%task_id, %step, attempt, why, "agent stays silent");
}

/// As exactly as times are told and stored.
fn in_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

/// The time from `now` until `end`, unless it has passed.
fn remaining(now: Timestamp, end: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    (left > Duration::ZERO).then_some(left)
}
