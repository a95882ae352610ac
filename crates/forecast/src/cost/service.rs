//! The simulated remote services: they answer calls and callbacks by the assumed failure rates and latencies.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::response::CallResponse;
use steward_core::{
    definition::step::CallbackDefinition,
    model::{
        attempt::Action,
        messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
        names::CallbackToken,
    },
};

use super::{
    attempt_outcome::{AttemptOutcome, random_duration},
    plan::StepAssumptions,
    scripted::calls,
    task_simulation::TaskSimulation,
};
/// The longest time in which a service that is down refuses a call.
const DOWN_LATENCY: Duration = Duration::from_millis(50);

/// A remote service.
#[derive(Debug, Clone)]
pub(super) struct ForecastService(pub(super) Arc<TaskSimulation>);

impl RemoteService for ForecastService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let simulation = &self.0;
        if let Some(scripted) = &simulation.scripted {
            return calls::call(scripted, simulation, request).await;
        }
        let permanent = |reason: &str| {
            Err(CallFault::Permanent {
                reason: reason.to_owned(),
                may_have_run: false,
                detail: None,
            })
        };
        let transient = |reason: &str, may_have_run| {
            let reason = reason.to_owned();
            Err(CallFault::Transient { reason, retry_after: None, may_have_run, detail: None })
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
                Ok(output.into())
            }
            AttemptOutcome::NoReply => Ok(output.into()),
        }
    }
}

/// Schedules the answer to a callback, and heartbeats until then if the step has them.
fn answer_later(
    simulation: &TaskSimulation,
    request: &StepRequest,
    callback: &CallbackDefinition,
    assumptions: &StepAssumptions,
    output: &Value,
) {
    let (task_id, step) = (request.task_id.clone(), request.step.clone());
    let token = CallbackToken { task_id, step, incarnation: request.incarnation, edit: None };
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
