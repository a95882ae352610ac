//! The calls of agents to scripted services, and the callbacks that follow them.

use steward_agent::{attempt::CallFault, http::interpret_answer, response::CallResponse};
use steward_core::model::{
    attempt::Action,
    messages::{CallbackMessage, SchedulerMessage, StepRequest},
    names::CallbackToken,
};

use super::{
    script::{AnswerKind, CallRecord, LogItem, ServiceCall},
    services::{ScriptedServices, step_ref},
};
use crate::cost::task_simulation::TaskSimulation;

/// Makes a call as the script of `services` says.
///
/// # Errors
/// The script lets the call fail, or there is no such step.
pub(in crate::cost) async fn call(
    services: &ScriptedServices,
    simulation: &TaskSimulation,
    request: &StepRequest,
) -> Result<CallResponse, CallFault> {
    let Some((key, assumptions)) = simulation.assumptions(&request.task_id, &request.step.step)
    else {
        return transient("there is no such step", false);
    };
    let sample = assumptions.output.value(key.1.as_str(), &mut simulation.state().draw);
    let call = ServiceCall {
        step: step_ref(&key),
        request,
        number: services.count(&request.task_id, &request.step, request.action),
        at: simulation.now(),
        sample,
    };
    *simulation.state().calls.entry((key.clone(), request.action)).or_default() += 1;
    let answer = services.answer(&call);
    let record = CallRecord {
        task_id: request.task_id.clone(),
        workflow: key.0.clone(),
        request: request.clone(),
        number: call.number,
        answer: answer.clone(),
    };
    services.log(call.at, LogItem::Called(Box::new(record)));
    tokio::time::sleep(answer.after).await;
    let response = match answer.kind {
        AnswerKind::Silence => std::future::pending().await,
        AnswerKind::NoConnection => transient("no connection", false),
        AnswerKind::BrokenConnection => transient("the connection broke", true),
        AnswerKind::Response { status, headers, body } => {
            interpret_answer(status, headers, body, request).await
        }
    };
    let step = simulation.plan.step(&key);
    let awaits_callback = step.is_some_and(|step| step.callback.is_some());
    if response.is_ok() && request.action == Action::Do && awaits_callback {
        send_callbacks(services, simulation, &call);
    }
    response
}

fn send_callbacks(
    services: &ScriptedServices,
    simulation: &TaskSimulation,
    call: &ServiceCall<'_>,
) {
    let StepRequest { task_id, step, incarnation, idempotency_key, .. } = call.request;
    let edit = idempotency_key.strip_prefix(&format!("{task_id}/{step}/do/"));
    let edit = edit.and_then(|edit| edit.parse().ok());
    let (task_id, step, incarnation) = (task_id.clone(), step.clone(), *incarnation);
    let token = CallbackToken { task_id, step: step.clone(), incarnation, edit };
    for (after, outcome) in services.callbacks(call) {
        let at = simulation.now() + after;
        services.log(at, LogItem::CallbackSent(step.clone(), outcome.clone()));
        let message = CallbackMessage { token: token.clone(), outcome };
        simulation.send_to_scheduler(&SchedulerMessage::Callback(message), after);
    }
}

fn transient(reason: &str, may_have_run: bool) -> Result<CallResponse, CallFault> {
    let reason = reason.to_owned();
    Err(CallFault::Transient { reason, retry_after: None, may_have_run, detail: None })
}
