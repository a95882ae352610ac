//! The simulated remote services: they answer calls and callbacks by the assumed failure rates and latencies.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use steward_agent::attempt::{CallFault, RemoteService};
use steward_core::{
    definition::step::CallbackDefinition,
    model::{
        attempt::Action,
        messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
        names::{CallbackFence, CallbackToken},
    },
};

use super::{
    plan::{StepAssumptions, StepKey},
    task_simulation::{FunctionRole, TaskSimulation},
};
use steward_aws::queues;

/// The standard deviation of the logarithm of latencies. One call in a hundred takes almost three times the mean.
const SPREAD: f64 = 0.5;

/// The longest time in which a service that is down refuses a call.
const DOWN_LATENCY: Duration = Duration::from_millis(50);

/// A remote service.
#[derive(Debug, Clone)]
pub(super) struct ForecastService(pub(super) Arc<TaskSimulation>);

/// The drawn outcome of an attempt. It is the same for every delivery of the attempt's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Succeeds,
    NoReply,
    Fails,
}

impl AttemptOutcome {
    pub(super) fn of(
        assumptions: &StepAssumptions,
        action: Action,
        draw: &mut fastrand::Rng,
    ) -> Self {
        let (silent, fail) = match action {
            Action::Do => (assumptions.silent, assumptions.fail),
            Action::Undo => (0.0, assumptions.fail_undo),
        };
        match draw.f64() {
            share if share < silent => Self::NoReply,
            share if share < silent + fail * (1.0 - silent) => Self::Fails,
            _ => Self::Succeeds,
        }
    }
}

/// A random duration with this mean, log-normally distributed, in whole milliseconds.
pub(super) fn random_duration(mean: Duration, draw: &mut fastrand::Rng) -> Duration {
    // Box-Muller: https://en.wikipedia.org/wiki/Box%E2%80%93Muller_transform
    let (one, other) = (1.0 - draw.f64(), draw.f64());
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    let millis = mean.as_secs_f64() * 1_000.0 * (SPREAD * normal - SPREAD * SPREAD / 2.0).exp();
    Duration::from_millis(millis.round().max(1.0) as u64)
}

impl RemoteService for ForecastService {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, CallFault> {
        let simulation = &self.0;
        let permanent = |reason: &str| {
            Err(CallFault::Permanent { reason: reason.to_owned(), may_have_run: false })
        };
        let transient = |reason: &str, may_have_run| {
            let reason = reason.to_owned();
            Err(CallFault::Transient { reason, retry_after: None, may_have_run })
        };
        let Some((key, assumptions)) = simulation.assumptions(&request.task_id, &request.step.step)
        else {
            return permanent("there is no such step");
        };
        let StepRequest { task_id, step, action, attempt, .. } = request;
        let outcome = AttemptOutcome::of(
            assumptions,
            *action,
            &mut simulation.attempt_random(task_id, step, *action, *attempt),
        );
        let callback = simulation.plan.step(&key).and_then(|step| step.callback.as_ref());
        let callback = callback.filter(|_| *action == Action::Do);
        let (flaky, takes, output) = {
            let state = &mut *simulation.state();
            *state.calls.entry((key.clone(), *action)).or_default() += 1;
            let draw = &mut state.draw;
            let flaky = *action == Action::Do && draw.f64() < assumptions.flaky;
            (
                flaky,
                random_duration(assumptions.slow, draw),
                assumptions.output.value(key.1.as_str(), draw),
            )
        };
        if simulation.now() < assumptions.down {
            tokio::time::sleep(takes.min(DOWN_LATENCY)).await;
            return transient("HTTP 503 Service Unavailable", false);
        }
        if outcome == AttemptOutcome::NoReply && callback.is_none() {
            return std::future::pending().await;
        }
        let timeout = simulation.plan.settings.call_timeout;
        tokio::time::sleep(takes.min(timeout)).await;
        match outcome {
            _ if takes > timeout => {
                Err(CallFault::TimedOut { reason: "the call timed out".to_owned() })
            }
            AttemptOutcome::Fails => permanent("HTTP 422 Unprocessable Entity"),
            AttemptOutcome::Succeeds | AttemptOutcome::NoReply if flaky => {
                transient("HTTP 500 Internal Server Error", true)
            }
            AttemptOutcome::Succeeds => {
                if let Some(callback) = callback {
                    answer_later(simulation, request, callback, assumptions, &output);
                }
                Ok(output)
            }
            AttemptOutcome::NoReply => Ok(output),
        }
    }
}

/// Schedules the answer to a callback, and heartbeats until then if the step has them.
fn answer_later(
    simulation: &Arc<TaskSimulation>,
    request: &StepRequest,
    callback: &CallbackDefinition,
    assumptions: &StepAssumptions,
    output: &Value,
) {
    let (task_id, step) = (request.task_id.clone(), request.step.clone());
    let (fence, incarnation) = (CallbackFence::Attempt(request.attempt), request.incarnation);
    let token = CallbackToken { task_id, step, incarnation, fence };
    let after = random_duration(assumptions.answer, &mut simulation.state().draw);
    let send = |outcome: CallbackOutcome, after: Duration| {
        let answer = CallbackMessage { token: token.clone(), outcome };
        simulation.send_to_scheduler(&SchedulerMessage::Callback(answer), after);
    };
    // Twice as often as required, so that no heartbeat is missed.
    if let Some(every) = callback.heartbeat.map(|heartbeat| heartbeat / 2) {
        let mut at = every;
        while at < after && !every.is_zero() {
            send(CallbackOutcome::Heartbeat, at);
            at += every;
        }
    }
    send(CallbackOutcome::Completed { output: output.clone() }, after);
}

/// Draws the outcome and the duration of a child task whose workflow is not given.
pub(super) fn child_outcome(
    simulation: &TaskSimulation,
    key: &StepKey,
    assumptions: &StepAssumptions,
    action: Action,
) -> (AttemptOutcome, Duration) {
    let state = &mut *simulation.state();
    *state.calls.entry((key.clone(), action)).or_default() += 1;
    (
        AttemptOutcome::of(assumptions, action, &mut state.draw),
        random_duration(assumptions.slow, &mut state.draw),
    )
}

impl FunctionRole {
    /// The timeout of the function in `template.yaml`.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Submission | Self::Scheduler => 30,
            Self::Agent(_) => 120,
        })
    }

    /// How often its queue delivers a message before it becomes a dead letter.
    pub(super) fn receives_max(&self) -> u32 {
        let redelivery = match self {
            Self::Submission => queues::SUBMISSIONS,
            Self::Scheduler => queues::SCHEDULER,
            Self::Agent(_) => queues::AGENT,
        };
        redelivery.receives_max
    }
}
