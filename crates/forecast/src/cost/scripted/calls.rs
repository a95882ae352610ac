//! The calls of agents to scripted services, and the callbacks that follow them.

use std::time::Duration;

use serde_json::Value;
use steward_core::model::{
    messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
    names::CallbackToken,
};
use steward_test_world::service::CallPlan;

use super::{
    script::{CallRecord, LogItem, ScriptedCall},
    services::{ScriptedServices, step_ref},
};
use crate::cost::{plan::StepKey, task_simulation::TaskSimulation};

/// What is remembered of a call.
pub(in crate::cost) struct CallMemo {
    pub(in crate::cost) key: StepKey,
    /// Which call of this part and action it is, from 1.
    pub(in crate::cost) number: u32,
    /// The time since the start of the run.
    pub(in crate::cost) at: Duration,
    /// The output that was drawn for the call.
    pub(in crate::cost) sample: Value,
    /// Whether the callback is answered.
    pub(in crate::cost) is_answered: bool,
}

/// What a service does with a call, as the script says. Logs it.
pub(in crate::cost) fn plan(
    services: &ScriptedServices,
    request: &StepRequest,
    memo: &CallMemo,
) -> CallPlan {
    let plan = services.script.call(&service_call(request, memo));
    let record = CallRecord {
        task_id: request.task_id.clone(),
        workflow: memo.key.0.clone(),
        request: request.clone(),
        number: memo.number,
        answer: plan.clone(),
    };
    services.log(memo.at, LogItem::Called(Box::new(record)));
    plan
}

fn service_call<'a>(request: &'a StepRequest, memo: &'a CallMemo) -> ScriptedCall<'a> {
    let CallMemo { key, number, at, sample, .. } = memo;
    ScriptedCall { step: step_ref(key), request, number: *number, at: *at, sample: sample.clone() }
}

/// Sends what the holder of the callback token says. A failure says that no side effect remains.
pub(in crate::cost) fn send_callbacks(
    services: &ScriptedServices,
    simulation: &TaskSimulation,
    request: &StepRequest,
    memo: &CallMemo,
) {
    let StepRequest { task_id, step, incarnation, idempotency_key, .. } = request;
    let edit = idempotency_key.strip_prefix(&format!("{task_id}/{step}/do/"));
    let edit = edit.and_then(|edit| edit.parse().ok());
    let (task_id, step, incarnation) = (task_id.clone(), step.clone(), *incarnation);
    let token = CallbackToken { task_id, step: step.clone(), incarnation, edit };
    for (after, outcome) in services.script.callbacks(&service_call(request, memo)) {
        if let CallbackOutcome::Failed { .. } = outcome {
            simulation.state().ledger.set_effect(&token.task_id, &step, None);
        }
        let at = simulation.now() + after;
        services.log(at, LogItem::CallbackSent(step.clone(), outcome.clone()));
        let message = CallbackMessage { token: token.clone(), outcome };
        simulation.send_to_scheduler(&SchedulerMessage::Callback(message), after);
    }
}
