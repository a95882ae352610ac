//! One attempt at a step: asks the circuit breaker for a permit, calls the remote service, retries transient faults, and
//! either replies or stays silent.
//!
//! ```text
//! request ──► breaker ──► call ──► 2xx ────────────► reply: completed
//!              ▲   │       └─┬───► permanent fault ► reply: failed
//!              │   │         └───► transient fault ─┐
//!              │   └─ open, or Retry-After too long ┼► reply: deferred, costs no attempt
//!              └──── backoff, Retry-After ──────────┘
//!                     call timed out ───────────────► reply: outcome unknown
//!                     complete-by passed ───────────► silence: another agent may already retry the step
//!                     function's time is up ────────► back to the queue before the first call, else deferred
//! ```
//!
//! A call may take as long as its step allows (`call_within`). The agent aborts a longer call and does not repeat it,
//! because the service may still process it. The agent does not start a call if the function could not wait for its whole
//! time.
//!
//! A service that answers with a conflict (409, 423) may be processing an earlier call with the same idempotency key. As
//! long as there may be such a call, the agent retries; it always retries an undo. A conflict never proves that the step
//! did not run.
//!
//! A step that is not `idempotent` is claimed in the state store before its call. The agent repeats the call only after a
//! transient fault that certainly had no effect (no connection, 425, 429). It replies to any other fault at once.
//!
//! Implement [`RemoteService`] to write an agent for another protocol than HTTP.

use std::{convert::Infallible, future::Future, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    breaker::{CallOutcome, CallPermit},
    definition::recovery::seed,
    limits,
    model::{
        attempt::{Action, AttemptTimes},
        messages::{ReplyOutcome, StepReply, StepRequest},
    },
};
use steward_runtime::{
    metrics,
    ports::{Clock, Ports},
};
use tokio::time::{Instant, sleep_until, timeout_at};

mod attempt_end;
mod circuit_breaker;
mod claim;

use attempt_end::{AttemptEnd, failed};
use circuit_breaker::CallPermission;
pub use circuit_breaker::CircuitBreaker;

/// A remote service that an agent calls.
pub trait RemoteService: Send + Sync {
    /// Makes one call. It must send `request.idempotency_key` to the service, so that a repeated call takes effect once,
    /// and `traceparent` if there is one. The future may be dropped at any time.
    fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> impl Future<Output = Result<Value, CallFault>> + Send;
}

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFault {
    /// A retry may succeed.
    Transient {
        /// What happened, for logs. No payload.
        reason: String,
        /// How long the service wants the agent to wait; zero if it names no time. With a value the service counts as
        /// available; without one, the fault counts as a failure of the service for the circuit breaker.
        retry_after: Option<Duration>,
        /// Whether the call may have taken effect, because it was not rejected before it began.
        may_have_run: bool,
    },
    /// The request conflicts with another one, which may be an earlier call with the same idempotency key that is
    /// still in progress. The service is available.
    Conflict {
        /// What happened, for operators. No payload.
        reason: String,
    },
    /// The call timed out and was aborted. It may have taken effect, and may still do so later.
    TimedOut {
        /// What happened, for operators. No payload.
        reason: String,
    },
    /// A retry would fail again. The service is available.
    Permanent {
        /// What happened, for operators. No payload.
        reason: String,
        /// Whether the call may have taken effect, for example because the service's response is unreadable.
        may_have_run: bool,
    },
}

/// A request, and how the queue delivered it.
#[derive(Debug, Clone, Copy)]
pub struct DeliveredRequest<'a> {
    /// The request.
    pub request: &'a StepRequest,
    /// The W3C trace context, if there is one.
    pub traceparent: Option<&'a str>,
    /// Whether the queue delivered it before. Then an instance that died may have made the call.
    pub redelivered: bool,
    /// When it was sent, according to the queue.
    pub sent_at: Option<Timestamp>,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptResult {
    /// The reply to the scheduler.
    Reply(Box<StepReply>),
    /// Complete-by passed during the attempt. No reply may be sent, because the outcome is unknown; the scheduler is woken.
    Overdue,
    /// No reply may be sent: complete-by passed before the request arrived, or an earlier delivery may still reply. The
    /// supervisor recovers the task. A wake for each late request would add to the load that made the requests late.
    Silent,
    /// The request goes back to its queue: the function's own time is up before complete-by, or the claim of a call that
    /// must not be repeated could not be stored.
    Requeued,
}

/// The first pause between calls. Pauses grow exponentially with full jitter, so that many agents do not retry at the same
/// moment.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A call that was aborted at complete-by counts as a failure of the service only if it had at least this time: the
/// request may have been delivered late.
const MIN_CALL_TIME_FOR_FAILURE: Duration = Duration::from_secs(5);

/// Runs one attempt. It ends before `request.complete_by`, and before `deadline`, the time at which Lambda stops the
/// function.
pub async fn run_attempt<P: Ports, R: RemoteService>(
    ports: &P,
    breaker: &CircuitBreaker,
    service: &R,
    delivered: DeliveredRequest<'_>,
    deadline: Timestamp,
) -> AttemptResult {
    let request = delivered.request;
    let (start, now) = (Instant::now(), ports.clock().now());
    let Some(time) = remaining(now, request.complete_by) else {
        log_silence(request, "complete-by passed before the request arrived");
        return AttemptResult::Silent;
    };
    let Some(own_time) = remaining(now, deadline) else {
        return AttemptResult::Requeued;
    };
    let mut attempt = RunningAttempt {
        ports,
        breaker,
        service,
        delivered,
        end: start + time.min(own_time),
        ends_at_complete_by: time <= own_time,
        claimed: false,
        may_have_run: false,
        called_at: None,
    };
    let outcome = match attempt.run().await {
        Err(AttemptEnd::Outcome(outcome)) => outcome,
        Err(AttemptEnd::Silent(why)) => {
            log_silence(request, why);
            return AttemptResult::Silent;
        }
        Err(AttemptEnd::Overdue) => {
            log_silence(request, "complete-by passed without an answer");
            return AttemptResult::Overdue;
        }
        Err(AttemptEnd::Requeued) => return AttemptResult::Requeued,
    };
    let (queued_at, called_at) = (delivered.sent_at, attempt.called_at);
    let answered_at = Some(to_millis(ports.clock().now()));
    AttemptResult::Reply(Box::new(StepReply {
        task_id: request.task_id.clone(),
        step: request.step.clone(),
        action: request.action,
        attempt: request.attempt,
        outcome,
        incarnation: request.incarnation,
        times: AttemptTimes { queued_at, called_at, answered_at },
    }))
}

/// The state of a running attempt.
struct RunningAttempt<'a, P, R> {
    ports: &'a P,
    breaker: &'a CircuitBreaker,
    service: &'a R,
    delivered: DeliveredRequest<'a>,
    /// The end of the attempt: complete-by or the function's deadline, whichever is earlier.
    end: Instant,
    /// Whether `end` is complete-by.
    ends_at_complete_by: bool,
    /// Whether this delivery claimed the call. Only for a step that is not idempotent.
    claimed: bool,
    /// Whether a call of this or an earlier delivery may have taken effect.
    may_have_run: bool,
    /// When this delivery made its first call.
    called_at: Option<Timestamp>,
}

impl<P: Ports, R: RemoteService> RunningAttempt<'_, P, R> {
    /// The time limit of a call: that of the request, but at most the longest call that an agent can make.
    fn call_within(&self) -> Duration {
        let requested = self.delivered.request.call_within_ms.map(Duration::from_millis);
        requested.unwrap_or(limits::CALL_WITHIN_MAX).min(limits::CALL_WITHIN_MAX)
    }

    /// Calls the service until the attempt ends.
    async fn run(&mut self) -> Result<Infallible, AttemptEnd> {
        self.check_earlier_deliveries().await?;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let permit = self.permit().await?;
            let retry_after = match self.call(permit).await? {
                Ok(output) => {
                    let may_continue = self.may_have_run;
                    return Err(AttemptEnd::Outcome(ReplyOutcome::Completed {
                        output,
                        may_continue,
                    }));
                }
                Err(fault) => self.handle_fault(fault)?,
            };
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE).max(retry_after);
            // `retry_after` is not longer than the remaining time, so this does not overflow.
            let until = Instant::now() + pause;
            sleep_until(until.min(self.end)).await;
            if until >= self.end {
                return Err(self.time_is_up(false));
            }
        }
    }

    /// Finds out whether earlier deliveries of the request may have called.
    async fn check_earlier_deliveries(&mut self) -> Result<(), AttemptEnd> {
        let DeliveredRequest { request, redelivered, .. } = self.delivered;
        if redelivered && !request.idempotent {
            return claim::check_unclaimed(self.ports, request).await;
        }
        self.may_have_run = redelivered;
        Ok(())
    }

    /// Gets a permit from the circuit breaker, and claims a call that must not be repeated.
    async fn permit(&mut self) -> Result<CallPermit, AttemptEnd> {
        let permit = match self.breaker.request_permit(self.ports, self.call_within()).await {
            CallPermission::Granted(permit) => permit,
            CallPermission::Denied { reason, wait } => {
                // The next attempt makes the call, so another delivery of this attempt must not.
                self.claim().await?;
                return Err(self.defer(&reason, wait));
            }
        };
        if let Err(end) = self.claim().await {
            self.breaker.record(self.ports, permit, CallOutcome::NotCalled).await;
            return Err(end);
        }
        Ok(permit)
    }

    /// Claims the only call of a step that is not idempotent, before the call.
    async fn claim(&mut self) -> Result<(), AttemptEnd> {
        let request = self.delivered.request;
        if request.idempotent || self.claimed {
            return Ok(());
        }
        let call_name = self.breaker.unique_name(self.ports.instance());
        claim::claim(self.ports, request, &call_name).await?;
        self.claimed = true;
        Ok(())
    }

    /// Makes one call and records its outcome with the circuit breaker. `Err` if the attempt ended without a response.
    async fn call(&mut self, permit: CallPermit) -> Result<Result<Value, CallFault>, AttemptEnd> {
        let DeliveredRequest { request, traceparent, .. } = self.delivered;
        let begun = Instant::now();
        let bound = match &permit {
            CallPermit::Call => self.end,
            // The time since the permit was granted counts for the probe.
            CallPermit::Probe { until, .. } => {
                let left = remaining(self.ports.clock().now(), *until).unwrap_or_default();
                self.end.min(begun + left)
            }
        };
        let call_within = self.call_within();
        // Lambda would abort a call that takes longer than the function's remaining time.
        let function_ends_first =
            !self.ends_at_complete_by && self.end.saturating_duration_since(begun) < call_within;
        if begun >= bound || function_ends_first {
            self.breaker.record(self.ports, permit, CallOutcome::NotCalled).await;
            return Err(match begun >= self.end || function_ends_first {
                true => self.time_is_up(false),
                false => self.defer("the time limit of the probe has passed", Duration::ZERO),
            });
        }
        let times_out = begun + call_within < bound;
        let bound = bound.min(begun + call_within);
        self.called_at.get_or_insert_with(|| to_millis(self.ports.clock().now()));
        let response = match timeout_at(bound, self.service.call(request, traceparent)).await {
            Ok(response) => response,
            Err(_) if times_out => {
                let reason = format!("the call took longer than {call_within:?} and was aborted");
                Err(CallFault::TimedOut { reason })
            }
            Err(_) if bound < self.end => {
                let reason = "the call that probed the service did not end in time".to_owned();
                Err(CallFault::TimedOut { reason })
            }
            Err(_) => {
                // A probe that was aborted early keeps its lease, which delays the next probe.
                if self.ends_at_complete_by && begun.elapsed() >= MIN_CALL_TIME_FOR_FAILURE {
                    let reason = "no answer by complete-by".to_owned();
                    self.breaker
                        .record(self.ports, permit, CallOutcome::Unavailable { reason })
                        .await;
                }
                return Err(self.time_is_up(true));
            }
        };
        self.breaker.record(self.ports, permit, call_outcome(&response)).await;
        Ok(response)
    }

    /// The shortest pause before the next call, if the attempt may call again.
    fn handle_fault(&mut self, fault: CallFault) -> Result<Duration, AttemptEnd> {
        let StepRequest { task_id, step, attempt, idempotent, .. } = self.delivered.request;
        match fault {
            CallFault::Permanent { reason, may_have_run } => {
                Err(failed(&reason, self.may_have_run || may_have_run))
            }
            CallFault::TimedOut { reason } if !idempotent => {
                Err(failed(&unknown_outcome(&reason), true))
            }
            CallFault::TimedOut { reason } => {
                let reason = limits::truncate_chars(&reason, limits::REASON_CHARS_MAX);
                Err(AttemptEnd::Outcome(ReplyOutcome::Unknown { reason }))
            }
            CallFault::Conflict { reason } => {
                let request = self.delivered.request;
                // An undo is retried until it completes, because another delivery of it may be in progress.
                let is_undo = request.action == Action::Undo;
                let earlier_call = self.may_have_run || request.may_have_run || is_undo;
                if !idempotent || !earlier_call {
                    return Err(failed(&reason, true));
                }
                self.may_have_run = true;
                metrics::call_retried();
                tracing::debug!(%task_id, %step, attempt, reason, "an earlier call may be in progress; retrying");
                Ok(Duration::ZERO)
            }
            CallFault::Transient { reason, may_have_run: true, .. } if !idempotent => {
                Err(failed(&unknown_outcome(&reason), true))
            }
            CallFault::Transient { reason, retry_after, may_have_run } => {
                self.may_have_run |= may_have_run;
                let retry_after = retry_after.unwrap_or_default();
                if retry_after > self.end.saturating_duration_since(Instant::now()) {
                    return Err(self.defer(&reason, retry_after));
                }
                metrics::call_retried();
                tracing::debug!(%task_id, %step, attempt, reason, "call failed; retrying");
                Ok(retry_after)
            }
        }
    }

    /// Ends the attempt as deferred: the step is retried after `wait` and a jitter. The jitter is a hash, like the jitter of
    /// the pauses between attempts.
    fn defer(&self, reason: &str, wait: Duration) -> AttemptEnd {
        let StepRequest { task_id, step, action, attempt, .. } = self.delivered.request;
        let fraction = f64::from(seed(task_id, step, *action, *attempt)) / f64::from(u32::MAX);
        let wait = wait.saturating_add(self.breaker.settings().open_for.mul_f64(fraction));
        let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        metrics::deferred();
        tracing::info!(%task_id, %step, attempt, reason, retry_after_ms, "attempt deferred");
        let reason = limits::truncate_chars(reason, limits::REASON_CHARS_MAX);
        let may_have_run = self.may_have_run;
        AttemptEnd::Outcome(ReplyOutcome::Deferred { reason, retry_after_ms, may_have_run })
    }

    /// Ends the attempt because its time is up. `is_calling` says whether a call was aborted. A call that may be repeated
    /// is repeated by the next delivery.
    fn time_is_up(&self, is_calling: bool) -> AttemptEnd {
        const REASON: &str = "the function's time was up";
        match (self.ends_at_complete_by, self.claimed, is_calling) {
            (true, _, _) => AttemptEnd::Overdue,
            // A deferral costs no attempt, and does not count as a receive on the way to the dead-letter queue.
            (false, false, false) if self.called_at.is_some() => self.defer(REASON, Duration::ZERO),
            (false, false, _) => AttemptEnd::Requeued,
            (false, true, true) => failed(&unknown_outcome(REASON), true),
            // The next delivery would find the claim and would have to assume that the call was made.
            (false, true, false) => self.defer(REASON, Duration::ZERO),
        }
    }
}

/// What a response says about the availability of the service.
fn call_outcome(response: &Result<Value, CallFault>) -> CallOutcome {
    match response {
        Ok(_)
        | Err(
            CallFault::Permanent { .. }
            | CallFault::Conflict { .. }
            | CallFault::Transient { retry_after: Some(_), .. },
        ) => CallOutcome::Available,
        Err(
            CallFault::Transient { reason, retry_after: None, .. } | CallFault::TimedOut { reason },
        ) => CallOutcome::Unavailable { reason: reason.clone() },
    }
}

fn unknown_outcome(reason: &str) -> String {
    format!("outcome unknown, and the call must not be repeated: {reason}")
}

fn log_silence(request: &StepRequest, why: &'static str) {
    let StepRequest { task_id, step, attempt, .. } = request;
    metrics::agent_silent();
    tracing::info!(%task_id, %step, attempt, why, "attempt ended without a reply");
}

/// Rounds to milliseconds, the precision of messages and documents.
fn to_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

/// The time from `now` until `end`; `None` if `end` has passed.
fn remaining(now: Timestamp, end: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    (left > Duration::ZERO).then_some(left)
}
