//! What every agent shares: it calls its remote service, retries what is transient, and either
//! replies or stays silent.
//!
//! ```text
//! request ──► call ──► 2xx ─────────────────────► reply: completed
//!              ▲ │ ──► permanent fault ─────────► reply: failed
//!              │ └───► transient fault ─┐
//!              └── backoff, Retry-After ┘
//!                      complete-by passes ──────► silence: another agent may already be on it
//!                      function's time is up ───► back to the queue, for the same attempt
//! ```
//!
//! Implement [`RemoteService`] to write an agent for something other than HTTP.

use std::{future::Future, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    limits,
    messages::{Outcome, StepReply, StepRequest},
    metrics,
};

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
        /// How long the service asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The same again would fail again.
    Permanent {
        /// What happened, for people. No payload.
        reason: String,
    },
}

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempted {
    /// It has an answer.
    Reply(StepReply),
    /// Complete-by has passed: whatever came of it, nothing may be said.
    Silent,
    /// The function's own time is up before complete-by: the request goes back to its queue.
    OutOfTime,
}

/// The pauses between calls: exponential with full jitter, so that many agents do not come back at
/// the same moment.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Carries out one attempt, within `request.complete_by` and within `deadline`, the time at which
/// the function itself is stopped. `now` is the time at the start.
pub async fn attempt<R: RemoteService>(
    service: &R,
    request: &StepRequest,
    traceparent: Option<&str>,
    now: Timestamp,
    deadline: Timestamp,
) -> Attempted {
    let Some(time) = remaining(now, request.complete_by) else {
        note(request, "complete-by had passed before the call");
        return Attempted::Silent;
    };
    let Some(own_time) = remaining(now, deadline) else {
        return Attempted::OutOfTime;
    };
    let calls = || service.call(request, traceparent);
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    let called = calls
        .retry(pauses)
        .when(|fault| matches!(fault, Fault::Transient { .. }))
        .adjust(|fault, pause| pause.map(|pause| pause.max(asked_pause(fault))))
        .notify(|fault, pause| {
            metrics::call_retried();
            let pause_ms = pause.as_millis();
            let StepRequest { task_id, step, attempt, .. } = request;
            tracing::debug!(%task_id, %step, attempt, ?fault, pause_ms, "call failed, trying again");
        });
    let outcome = match tokio::time::timeout(time.min(own_time), called).await {
        Ok(Ok(output)) => Outcome::Completed { output },
        Ok(Err(Fault::Permanent { reason } | Fault::Transient { reason, .. })) => {
            let reason = limits::shorten(&reason, limits::REASON_CHARS_MAX);
            Outcome::Failed { reason, may_have_run: false }
        }
        Err(_) if own_time < time => return Attempted::OutOfTime,
        Err(_) => {
            note(request, "complete-by passed without an answer");
            return Attempted::Silent;
        }
    };
    Attempted::Reply(StepReply {
        task_id: request.task_id.clone(),
        step: request.step.clone(),
        action: request.action,
        attempt: request.attempt,
        outcome,
    })
}

fn note(request: &StepRequest, why: &'static str) {
    let StepRequest { task_id, step, attempt, .. } = request;
    metrics::agent_silent();
    tracing::info!(%task_id, %step, attempt, why, "agent stays silent");
}

fn asked_pause(fault: &Fault) -> Duration {
    match fault {
        Fault::Transient { retry_after, .. } => retry_after.unwrap_or_default(),
        Fault::Permanent { .. } => Duration::ZERO,
    }
}

/// The time from `now` until `end`, unless it has passed.
fn remaining(now: Timestamp, end: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    (left > Duration::ZERO).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;
    use steward_core::{messages::Action, workflow::Method};

    /// Answers as scripted, each answer after a time, and notes when it was called.
    struct Script {
        answers: Mutex<Vec<(Duration, Result<Value, Fault>)>>,
        called_at: Mutex<Vec<Duration>>,
        start: tokio::time::Instant,
    }

    impl Script {
        fn new(answers: Vec<(Duration, Result<Value, Fault>)>) -> Self {
            let start = tokio::time::Instant::now();
            Self { answers: Mutex::new(answers), called_at: Mutex::default(), start }
        }
    }

    impl RemoteService for Script {
        async fn call(&self, _: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
            self.called_at.lock().unwrap().push(self.start.elapsed());
            let (time, answer) = self.answers.lock().unwrap().remove(0);
            tokio::time::sleep(time).await;
            answer
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn busy(retry_after: Option<Duration>) -> Result<Value, Fault> {
        Err(Fault::Transient { reason: "503".into(), retry_after })
    }

    async fn run(script: &Script, within: Duration, own_time: Duration) -> Attempted {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let request = StepRequest {
            task_id: "t".parse().unwrap(),
            step: "s".parse().unwrap(),
            action: Action::Do,
            attempt: 1,
            complete_by: now + within,
            idempotency_key: "t/s/do".into(),
            idempotent: true,
            agent: "a".parse().unwrap(),
            method: Method::Post,
            path: "/".into(),
            body: None,
        };
        attempt(script, &request, None, now, now + own_time).await
    }

    #[tokio::test(start_paused = true)]
    async fn transient_faults_are_retried_until_the_answer() {
        let script = Script::new(vec![
            (Duration::ZERO, busy(None)),
            (Duration::ZERO, busy(None)),
            (Duration::ZERO, Ok(json!({ "id": 1 }))),
        ]);
        let Attempted::Reply(reply) = run(&script, 30 * SECOND, 60 * SECOND).await else {
            panic!()
        };
        assert_eq!(reply.outcome, Outcome::Completed { output: json!({ "id": 1 }) });
        assert_eq!(script.called_at.lock().unwrap().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_honoured() {
        let script = Script::new(vec![
            (Duration::ZERO, busy(Some(7 * SECOND))),
            (Duration::ZERO, Ok(Value::Null)),
        ]);
        run(&script, 30 * SECOND, 60 * SECOND).await;
        let called_at = script.called_at.lock().unwrap();
        assert!(called_at[1] >= 7 * SECOND, "{called_at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_fault_is_reported_at_once() {
        let refused = Err(Fault::Permanent { reason: "402".into() });
        let script = Script::new(vec![(Duration::ZERO, refused)]);
        let Attempted::Reply(reply) = run(&script, 30 * SECOND, 60 * SECOND).await else {
            panic!()
        };
        assert_eq!(reply.outcome, Outcome::Failed { reason: "402".into(), may_have_run: false });
    }

    #[tokio::test(start_paused = true)]
    async fn when_complete_by_passes_the_agent_drops_the_call_and_says_nothing() {
        let script = Script::new(vec![(40 * SECOND, Ok(Value::Null))]);
        assert_eq!(run(&script, 30 * SECOND, 60 * SECOND).await, Attempted::Silent);
        assert_eq!(script.start.elapsed().as_secs(), 30);
        assert_eq!(run(&script, Duration::ZERO, 60 * SECOND).await, Attempted::Silent);
        assert_eq!(script.called_at.lock().unwrap().len(), 1, "called after complete-by");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_functions_time_is_up_the_request_goes_back() {
        let script = Script::new(vec![(40 * SECOND, Ok(Value::Null))]);
        assert_eq!(run(&script, 30 * SECOND, 10 * SECOND).await, Attempted::OutOfTime);
    }
}
