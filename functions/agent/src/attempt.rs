//! One attempt at a step: asks the circuit breaker for a permit, calls the remote service, retries transient faults, and
//! then replies, wakes the scheduler, returns the request to its queue, or sends nothing.
//!
//! ```text
//! request ──► breaker ──► call ──► 2xx ────────────► reply: completed
//!              ▲   │       └─┬───► permanent fault ► reply: failed
//!              │   │         └───► transient fault ─┐
//!              │   └─ open, or Retry-After too long ┼► reply: deferred, costs no attempt
//!              │      no time left, and all refused ┤
//!              └──── backoff, Retry-After ──────────┘
//!                     no time left for another call ► reply: outcome unknown
//!                     call timed out ───────────────► reply: outcome unknown
//!                     complete-by passed ───────────► no reply; a delayed wake with the call, whose outcome is unknown
//! request received after complete-by ───────────────► reply: deferred, costs no attempt
//!                     function's time is up ────────► back to the queue before the first call, else deferred
//! ```
//!
//! After the breaker's permit, each call takes a token of the agent's rate limit ([`RateLimiter`]). Without one, the
//! attempt ends as deferred.
//!
//! A call may take as long as its step allows (`call_within`). The agent aborts a longer call and does not repeat it: the
//! service may still process it. It starts no call if the function could not wait for its whole time.
//!
//! A service that answers with a conflict (409, 423) may be processing an earlier call with the same idempotency key. As
//! long as there may be such a call, the agent retries; it always retries an undo. A conflict never proves that the step
//! did not run.
//!
//! If the queue states times that are in the future by the agent's own clock, that clock is behind, and complete-by may have
//! passed. The agent then does not call, and replies *deferred*.
//!
//! The agent does not call for a request that waited in the queue until complete-by. It replies *deferred*: waiting costs
//! no attempt. It stays silent if it received the request before, because the earlier delivery may still reply.
//!
//! A refusal is certain only for the delivery that got it. If several other deliveries may have called, one may have replied
//! with a refusal, and another may have died during its call. Then the outcome is unknown, also if this delivery is refused.
//!
//! A step with a callback may end while the agent repeats its call. Before each further call, the agent reads whether the answer
//! to the callback is stored, and then makes none.
//!
//! A request of which only one delivery may call is claimed in the state store before its call: its step is not `idempotent`,
//! or it is `exclusive`, because the scheduler may move on to another agent. The agent also claims before it refuses an
//! `exclusive` request, and its reply is `certain` then.
//!
//! The agent repeats the call of a step that is not `idempotent` only after a transient fault that certainly had no effect (no
//! connection, 425, 429). It replies to any other fault at once.
//!
//! Implement [`RemoteService`] to write an agent for another protocol than HTTP.

use std::{future::Future, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    breaker::{CallOutcome, CallPermit, KeyHash},
    definition::recovery::seed,
    limits,
    model::{
        attempt::{Action, AttemptTimes},
        error_detail::ErrorDetail,
        messages::{ReplyOutcome, StepReply, StepRequest},
        time::later,
    },
};
use steward_runtime::{
    claims::Refusal,
    metrics,
    ports::{Clock, Ports},
};
use tokio::time::{Instant, sleep_until, timeout_at};

pub use crate::call_fault::CallFault;
use crate::{call_fault::call_outcome, response::CallResponse};

mod answer;
mod attempt_end;
mod circuit_breaker;
mod claim;
mod clock;
mod rate_limit;
mod token;

use attempt_end::{AttemptEnd, failed, failed_in_doubt, unknown};
use circuit_breaker::CallPermission;
pub use circuit_breaker::CircuitBreaker;
pub use rate_limit::RateLimiter;

/// A remote service that an agent calls.
pub trait RemoteService: Send + Sync {
    /// Makes one call. It must send `request.idempotency_key` to the service, so that a repeated call takes effect once,
    /// and `traceparent` if there is one. The future may be dropped at any time.
    fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> impl Future<Output = Result<CallResponse, CallFault>> + Send;

    /// The address of the service, as the agent is configured.
    fn address(&self) -> KeyHash {
        KeyHash::new("")
    }
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
    /// Whether the queue delivered it more than once before.
    pub redelivered_again: bool,
    /// When it was sent, according to the queue.
    pub sent_at: Option<Timestamp>,
    /// When a receiver first got it, according to the queue.
    pub first_received_at: Option<Timestamp>,
}

impl DeliveredRequest<'_> {
    /// Whether one delivery of the request alone may call: the step is not idempotent, or the scheduler may move on to
    /// another agent.
    fn is_called_once(&self) -> bool {
        !self.request.idempotent || self.request.exclusive
    }

    /// Whether two other deliveries may have called: of this message, or of one with the same request. The reply of one may
    /// be recorded, so it says nothing about the other.
    fn others_may_have_called(&self) -> bool {
        let sent_before = self.request.may_have_run && self.redelivered;
        !self.is_called_once() && (self.redelivered_again || sent_before)
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptResult {
    /// The reply to the scheduler.
    Reply(Box<StepReply>),
    /// Complete-by passed, and the outcome of a call is unknown. No reply may be sent; a wake of the scheduler reports the call.
    Overdue,
    /// No reply may be sent: an earlier delivery may still reply, or the request arrived long after complete-by. The
    /// supervisor recovers the task.
    Silent,
    /// The request goes back to its queue: the function's own time is up, or a call's claim could not be stored.
    Requeued,
}

/// The first pause between calls. Pauses grow exponentially, with full jitter against retries at the same moment.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A call that was aborted at complete-by counts as a failure of the service only if it had at least this time: the
/// request may have been delivered late.
const MIN_CALL_TIME_FOR_FAILURE: Duration = Duration::from_secs(5);

/// A request that arrives later than this after complete-by is dropped without a reply. Its task may have ended and expired,
/// and the scheduler would report the reply as corrupt.
const SHED_WITHIN: Duration = Duration::from_secs(limits::RETENTION_MIN.as_secs() / 2);

/// Runs one attempt. It ends before `request.complete_by`, and before `deadline`, the time at which the function stops to
/// call.
pub async fn run_attempt<P: Ports, R: RemoteService>(
    ports: &P,
    breaker: &CircuitBreaker,
    rate: &RateLimiter,
    service: &R,
    delivered: DeliveredRequest<'_>,
    deadline: Timestamp,
) -> AttemptResult {
    let request = delivered.request;
    let (start, now) = (Instant::now(), ports.clock().now());
    let time = remaining(now, request.complete_by);
    let latest_report = later(request.complete_by, SHED_WITHIN);
    let can_be_deferred = !delivered.redelivered && now < latest_report;
    if time.is_none() && !can_be_deferred {
        log_silence(request, "complete-by passed before the request arrived");
        let reports = delivered.others_may_have_called() && now < latest_report;
        return if reports { AttemptResult::Overdue } else { AttemptResult::Silent };
    }
    let Some(own_time) = remaining(now, deadline) else {
        return AttemptResult::Requeued;
    };
    let mut attempt = RunningAttempt {
        ports,
        breaker,
        rate,
        service,
        delivered,
        end: start + time.unwrap_or_default().min(own_time),
        ends_at_complete_by: time.unwrap_or_default() <= own_time,
        claimed: false,
        may_have_run: false,
        has_call_in_doubt: false,
        called_at: None,
        last_fault: (String::new(), None),
    };
    let end = match time {
        Some(_) => attempt.run().await.map_or_else(|end| end, AttemptEnd::Outcome),
        None => attempt.shed(now).await,
    };
    let outcome = match end {
        AttemptEnd::Outcome(outcome) => outcome,
        AttemptEnd::Silent(why) => {
            log_silence(request, why);
            return AttemptResult::Silent;
        }
        AttemptEnd::Overdue => {
            log_silence(request, "complete-by passed without an answer");
            return AttemptResult::Overdue;
        }
        AttemptEnd::Requeued => return AttemptResult::Requeued,
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
        agent: Some(request.agent.clone()),
    }))
}

/// The state of a running attempt.
struct RunningAttempt<'a, P, R> {
    ports: &'a P,
    breaker: &'a CircuitBreaker,
    rate: &'a RateLimiter,
    service: &'a R,
    delivered: DeliveredRequest<'a>,
    /// The end of the attempt: complete-by or the function's deadline, whichever is earlier.
    end: Instant,
    /// Whether `end` is complete-by.
    ends_at_complete_by: bool,
    /// Whether this delivery claimed the attempt. Only if one delivery alone may call.
    claimed: bool,
    /// Whether a call of this or an earlier delivery may have taken effect.
    may_have_run: bool,
    /// Whether a call of this delivery has an unknown outcome.
    has_call_in_doubt: bool,
    /// When this delivery made its first call.
    called_at: Option<Timestamp>,
    /// Why its last call has no usable answer: the reason, and what the service said.
    last_fault: (String, Option<ErrorDetail>),
}

impl<P: Ports, R: RemoteService> RunningAttempt<'_, P, R> {
    /// The time limit of a call: that of the request, but at most the longest call that an agent can make.
    fn call_within(&self) -> Duration {
        let requested = Duration::from_millis(self.delivered.request.call_within_ms);
        requested.min(limits::CALL_WITHIN_MAX)
    }

    fn key_hash(&self) -> KeyHash {
        KeyHash::new(&self.delivered.request.idempotency_key)
    }

    /// Calls the service until it completes the step, or until the attempt ends in another way.
    async fn run(&mut self) -> Result<ReplyOutcome, AttemptEnd> {
        self.check_earlier_deliveries().await?;
        self.check_clock().await?;
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
                    return Ok(ReplyOutcome::Completed { output, may_continue });
                }
                Err(fault) => self.handle_fault(fault)?,
            };
            let longest = self.end.saturating_duration_since(Instant::now());
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE).max(retry_after);
            // The service expects a call after the pause that it asks for.
            let asks = !retry_after.is_zero() && pause >= longest;
            let pause = if asks { retry_after } else { pause };
            let until = Instant::now() + pause;
            if until >= self.end {
                return Err(self.no_further_call(pause).await);
            }
            sleep_until(until).await;
            self.check_unanswered().await?;
        }
    }

    /// Ends an attempt without the time for a call after this pause.
    async fn no_further_call(&mut self, pause: Duration) -> AttemptEnd {
        let (fault, detail) = self.last_fault.clone();
        let reason = format!("no time is left for another call: {fault}");
        if !self.may_have_run {
            // Every call was refused before it began, so the attempt has not failed.
            return self.defer(&reason, pause);
        }
        if !self.ends_at_complete_by {
            sleep_until(self.end).await;
            return self.time_is_up(false);
        }
        unknown(&reason, detail)
    }

    /// Ends an attempt whose request waited in the queue until complete-by. The next attempt waits as long as this one
    /// did, so that the requests of a backlog do not all return at once.
    async fn shed(&mut self, now: Timestamp) -> AttemptEnd {
        let sent_at = self.delivered.sent_at.unwrap_or(now);
        let waited = remaining(sent_at, now).unwrap_or_default();
        // Without a claim, another message with the same request may have called: the scheduler may send a request twice.
        self.may_have_run = !self.delivered.is_called_once();
        let refusal =
            self.refusal("the request waited in the agent's queue until complete-by", waited);
        self.refuse(refusal).await
    }

    /// Finds out whether earlier deliveries of the request may have called.
    async fn check_earlier_deliveries(&mut self) -> Result<(), AttemptEnd> {
        let DeliveredRequest { request, redelivered, .. } = self.delivered;
        if redelivered && self.delivered.is_called_once() {
            claim::check_unclaimed(self.ports, request).await?;
        }
        // Rule R21 of the contract: a redelivered request is not refused for certain, whatever its claim says.
        self.may_have_run = redelivered && request.idempotent;
        Ok(())
    }

    /// Gets a permit from the circuit breaker and a token of the rate limit, and claims a call that must not be repeated.
    async fn permit(&mut self) -> Result<CallPermit, AttemptEnd> {
        let (ports, request) = (self.ports, self.key_hash());
        let permit = match self.breaker.request_permit(ports, request, self.call_within()).await {
            CallPermission::Granted(permit) => permit,
            CallPermission::Denied { reason, wait } => {
                let refusal = self.refusal(&reason, wait);
                return Err(self.refuse(refusal).await);
            }
        };
        if let Err(end) = self.take_token_and_claim(&permit).await {
            self.breaker.record(self.ports, permit, CallOutcome::NotCalled).await;
            return Err(end);
        }
        Ok(permit)
    }

    /// Whether no call of the attempt has taken effect or can do so later, except for calls of this delivery.
    fn is_certain(&self) -> bool {
        self.delivered.request.exclusive && !self.may_have_run
    }

    /// Claims an attempt that only one delivery may carry out, before the call or before the refusal.
    async fn claim(&mut self, refused: Option<&Refusal>) -> Result<(), AttemptEnd> {
        if !self.delivered.is_called_once() || self.claimed {
            return Ok(());
        }
        let call_name = self.breaker.unique_name(self.ports.instance());
        let refused = refused.filter(|_| self.is_certain());
        claim::claim(self.ports, self.delivered.request, &call_name, refused).await?;
        self.claimed = true;
        Ok(())
    }

    /// Ends the attempt without a call. The next attempt makes the call, perhaps at another agent, so another delivery of
    /// this attempt must not.
    async fn refuse(&mut self, refusal: Refusal) -> AttemptEnd {
        match self.claim(Some(&refusal)).await {
            Ok(()) => self.defer_as(refusal),
            Err(end) => end,
        }
    }

    /// Makes one call, and records its outcome with the circuit breaker. Returns the output of the step; `Err` if the attempt
    /// ended without a response.
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
                    let request = Some(self.key_hash());
                    let outcome = CallOutcome::Unavailable { reason, request };
                    self.breaker.record(self.ports, permit, outcome).await;
                }
                return Err(self.time_is_up(true));
            }
        };
        // A large response takes many times its size in memory. It is reduced to the output before anything else is awaited,
        // so that not all calls of a batch hold one.
        let response = self.judge_redirect(response).await;
        let outcome = call_outcome(&response, Some(self.key_hash()), self.service.address());
        let output = response.and_then(|response| response.output(request.output.as_deref()));
        self.breaker.record(self.ports, permit, outcome).await;
        Ok(output)
    }

    /// A redirect of a service that has completed calls at this address is a refusal. Without one, the agent's base URL is probably wrong.
    async fn judge_redirect<T>(&self, response: Result<T, CallFault>) -> Result<T, CallFault> {
        match response {
            Err(CallFault::Redirected { reason, detail }) => {
                Err(match self.breaker.has_completed(self.ports, self.service.address()).await {
                    true => CallFault::Permanent { reason, may_have_run: true, detail },
                    false => {
                        let reason = format!("{reason}; is the base URL right?");
                        CallFault::Redirected { reason, detail }
                    }
                })
            }
            response => response,
        }
    }

    /// The shortest pause before the next call, if the attempt may call again.
    fn handle_fault(&mut self, fault: CallFault) -> Result<Duration, AttemptEnd> {
        let idempotent = self.delivered.request.idempotent;
        match fault {
            // The reply of another delivery may be recorded as a refusal while a call of a third one has taken effect. Then a
            // refusal with a doubt would look like a repeated one.
            CallFault::Permanent { reason, detail, .. }
                if self.delivered.others_may_have_called() =>
            {
                Err(unknown(&reason, detail))
            }
            CallFault::Permanent { reason, may_have_run, detail } => {
                self.has_call_in_doubt |= may_have_run;
                // Another message with the same request may have called.
                let sent_before =
                    self.delivered.request.may_have_run && !self.delivered.is_called_once();
                let may_have_run = self.may_have_run || may_have_run || sent_before;
                Err(failed(&reason, may_have_run, self.has_call_in_doubt, detail))
            }
            CallFault::TimedOut { reason } if !idempotent => Err(failed_in_doubt(&reason, None)),
            CallFault::TimedOut { reason } => Err(unknown(&reason, None)),
            CallFault::Conflict { reason, retry_after, detail } => {
                let request = self.delivered.request;
                // An undo is retried until it completes, because another delivery of it may be in progress.
                let is_undo = request.action == Action::Undo;
                let earlier_call = self.may_have_run || request.may_have_run || is_undo;
                if !idempotent || !earlier_call {
                    return Err(failed(&reason, true, self.has_call_in_doubt, detail));
                }
                self.retry(reason, retry_after, true, detail)
            }
            CallFault::Transient { reason, may_have_run: true, detail, .. }
            | CallFault::Redirected { reason, detail }
                if !idempotent =>
            {
                Err(failed_in_doubt(&reason, detail))
            }
            CallFault::Redirected { reason, detail } => self.retry(reason, None, true, detail),
            CallFault::Transient { reason, retry_after, may_have_run, detail } => {
                self.retry(reason, retry_after, may_have_run, detail)
            }
        }
    }

    /// The pause that the service asks for, zero if it asks for none. A longer one than the attempt has time for ends the attempt.
    fn retry(
        &mut self,
        reason: String,
        retry_after: Option<Duration>,
        may_have_run: bool,
        detail: Option<ErrorDetail>,
    ) -> Result<Duration, AttemptEnd> {
        let StepRequest { task_id, step, attempt, .. } = self.delivered.request;
        self.may_have_run |= may_have_run;
        self.has_call_in_doubt |= may_have_run;
        self.last_fault = (reason.clone(), detail);
        let retry_after = retry_after.unwrap_or_default();
        if retry_after > self.end.saturating_duration_since(Instant::now()) {
            return Err(self.defer(&reason, retry_after));
        }
        metrics::call_retried();
        tracing::debug!(%task_id, %step, attempt, reason, "call failed; retrying");
        Ok(retry_after)
    }

    /// Ends the attempt as deferred: the step is retried after `wait` and a jitter. The jitter is a hash, like the jitter of
    /// the pauses between attempts.
    fn defer(&self, reason: &str, wait: Duration) -> AttemptEnd {
        self.defer_as(self.refusal(reason, wait))
    }

    fn defer_as(&self, refusal: Refusal) -> AttemptEnd {
        self.defer_to(self.claimed && self.is_certain(), refusal)
    }

    /// Ends the attempt as deferred. If `certain`, the scheduler may move on to another agent.
    fn defer_to(&self, certain: bool, refusal: Refusal) -> AttemptEnd {
        let StepRequest { task_id, step, attempt, agent, .. } = self.delivered.request;
        let Refusal { reason, retry_after_ms } = refusal;
        // Another delivery of the request may have called. The scheduler assumes so after each deferral that is not certain.
        let may_have_run = self.may_have_run;
        metrics::deferred();
        tracing::info!(%task_id, %step, attempt, %agent, reason, retry_after_ms, certain, "attempt deferred");
        AttemptEnd::Outcome(ReplyOutcome::Deferred {
            reason,
            retry_after_ms,
            may_have_run,
            certain,
            call_in_doubt: self.has_call_in_doubt,
            detail: self.last_fault.1.clone(),
        })
    }

    /// The reason of a deferral, and the time until the next attempt: `wait` and a jitter.
    fn refusal(&self, reason: &str, wait: Duration) -> Refusal {
        let StepRequest { task_id, step, action, attempt, .. } = self.delivered.request;
        let fraction = f64::from(seed(task_id, step, *action, *attempt)) / f64::from(u32::MAX);
        let jitter = self.breaker.settings().open_for.mul_f64(fraction);
        Refusal::new(reason, wait.saturating_add(jitter))
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
            (false, true, true) if self.delivered.request.idempotent => unknown(REASON, None),
            (false, true, true) => failed_in_doubt(REASON, None),
            // The next delivery would find the claim and would have to assume that the call was made.
            (false, true, false) => self.defer(REASON, Duration::ZERO),
        }
    }
}

fn log_silence(request: &StepRequest, why: &'static str) {
    let StepRequest { task_id, step, attempt, agent, .. } = request;
    metrics::agent_silent();
    tracing::info!(%task_id, %step, attempt, %agent, why, "attempt ended without a reply");
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
