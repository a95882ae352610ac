//! The remote services, as the odds have them: how each call is answered, and who answers later.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use steward_agent::attempt::{Fault, RemoteService};
use steward_core::{
    definition::step::Callback,
    model::{
        attempt::Action,
        messages::{Answer, CallbackAnswer, SchedulerMessage, StepRequest},
        names::{CallbackFence, CallbackToken},
    },
};

use super::{
    plan::{StepKey, Temper},
    world::{Role, World},
};
use steward_aws::queues;

/// How widely latencies spread: the standard deviation of their logarithm. One call in a hundred
/// takes almost three times the mean.
const SPREAD: f64 = 0.5;

/// How long a service that is down takes to say so, at most.
const DOWN_TAKES: Duration = Duration::from_millis(50);

/// A remote service.
#[derive(Debug, Clone)]
pub(super) struct Service(pub(super) Arc<World>);

/// What chance decides over an attempt, the same whenever it is asked: its request may be delivered
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    Silent,
    Fails,
}

impl Fate {
    pub(super) fn of(temper: &Temper, action: Action, draw: &mut fastrand::Rng) -> Self {
        let (silent, fail) = match action {
            Action::Do => (temper.silent, temper.fail),
            Action::Undo => (0.0, temper.fail_undo),
        };
        match draw.f64() {
            share if share < silent => Self::Silent,
            share if share < silent + fail * (1.0 - silent) => Self::Fails,
            _ => Self::Fine,
        }
    }
}

/// A time that is log-normally distributed, in whole milliseconds.
pub(super) fn about(mean: Duration, draw: &mut fastrand::Rng) -> Duration {
    // Box-Muller: https://en.wikipedia.org/wiki/Box%E2%80%93Muller_transform
    let (one, other) = (1.0 - draw.f64(), draw.f64());
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    let millis = mean.as_secs_f64() * 1_000.0 * (SPREAD * normal - SPREAD * SPREAD / 2.0).exp();
    Duration::from_millis(millis.round().max(1.0) as u64)
}

impl RemoteService for Service {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        let world = &self.0;
        let permanent =
            |reason: &str| Err(Fault::Permanent { reason: reason.to_owned(), may_have_run: false });
        let transient = |reason: &str, may_have_run| {
            let reason = reason.to_owned();
            Err(Fault::Transient { reason, retry_after: None, may_have_run })
        };
        let Some((key, temper)) = world.temper(&request.task_id, &request.step.step) else {
            return permanent("there is no such step");
        };
        let StepRequest { task_id, step, action, attempt, .. } = request;
        let fate = Fate::of(temper, *action, &mut world.draw_for(task_id, step, *action, *attempt));
        let callback = world.plan.step(&key).and_then(|step| step.callback.as_ref());
        let callback = callback.filter(|_| *action == Action::Do);
        let (flaky, takes, output) = {
            let state = &mut *world.state();
            *state.calls.entry((key.clone(), *action)).or_default() += 1;
            let draw = &mut state.draw;
            let flaky = *action == Action::Do && draw.f64() < temper.flaky;
            (flaky, about(temper.slow, draw), temper.output.value(key.1.as_str(), draw))
        };
        if world.now() < temper.down {
            tokio::time::sleep(takes.min(DOWN_TAKES)).await;
            return transient("HTTP 503 Service Unavailable", false);
        }
        if fate == Fate::Silent && callback.is_none() {
            return std::future::pending().await;
        }
        let timeout = world.plan.settings.call_timeout;
        tokio::time::sleep(takes.min(timeout)).await;
        match fate {
            _ if takes > timeout => Err(Fault::Cut { reason: "the call timed out".to_owned() }),
            Fate::Fails => permanent("HTTP 422 Unprocessable Entity"),
            Fate::Fine | Fate::Silent if flaky => transient("HTTP 500 Internal Server Error", true),
            Fate::Fine => {
                if let Some(callback) = callback {
                    answer_later(world, request, callback, temper, &output);
                }
                Ok(output)
            }
            Fate::Silent => Ok(output),
        }
    }
}

/// Someone answers the step that a call has begun, with heartbeats until then if it wants them.
fn answer_later(
    world: &Arc<World>,
    request: &StepRequest,
    callback: &Callback,
    temper: &Temper,
    output: &Value,
) {
    let (task_id, step) = (request.task_id.clone(), request.step.clone());
    let (fence, incarnation) = (CallbackFence::Attempt(request.attempt), request.incarnation);
    let token = CallbackToken { task_id, step, incarnation, fence };
    let after = about(temper.answer, &mut world.state().draw);
    let say = |answer: Answer, after: Duration| {
        let answer = CallbackAnswer { token: token.clone(), answer };
        world.tell(&SchedulerMessage::Callback(answer), after);
    };
    // At least so often that none is missed.
    if let Some(every) = callback.heartbeat.map(|heartbeat| heartbeat / 2) {
        let mut at = every;
        while at < after && !every.is_zero() {
            say(Answer::Heartbeat, at);
            at += every;
        }
    }
    say(Answer::Completed { output: output.clone() }, after);
}

/// Which step of a workflow a step's task runs for, if that is not run but taken as a call.
pub(super) fn child_fate(
    world: &World,
    key: &StepKey,
    temper: &Temper,
    action: Action,
) -> (Fate, Duration) {
    let state = &mut *world.state();
    *state.calls.entry((key.clone(), action)).or_default() += 1;
    (Fate::of(temper, action, &mut state.draw), about(temper.slow, &mut state.draw))
}

impl Role {
    /// How long the function may run, by `template.yaml`.
    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Submission | Self::Scheduler => 30,
            Self::Agent(_) => 120,
        })
    }

    /// How often its queue delivers a message before it is a dead letter.
    pub(super) fn receives_max(&self) -> u32 {
        let redelivery = match self {
            Self::Submission => queues::SUBMISSIONS,
            Self::Scheduler => queues::SCHEDULER,
            Self::Agent(_) => queues::AGENT,
        };
        redelivery.receives_max
    }
}
