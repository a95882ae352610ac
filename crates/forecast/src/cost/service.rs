//! The simulated remote services: they answer calls and callbacks by the assumed failure rates and latencies, or by a
//! script.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use steward_agent::attempt::CallFault;
use steward_agent::response::CallResponse;
use steward_core::{
    definition::step::CallbackDefinition,
    model::{
        attempt::Action,
        messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
        names::CallbackToken,
        responses::ClassifiedResponse,
    },
};
use steward_test_world::{
    ledger::EffectLedger,
    service::{CallPlan, Millis, Reply, ServiceHost},
};

use super::{
    attempt_outcome::{AttemptOutcome, random_duration},
    plan::{StepAssumptions, StepKey},
    scripted::calls::{self, CallMemo},
    task_simulation::TaskSimulation,
};

/// The longest time in which a service that is down refuses a call.
const DOWN_LATENCY: Millis = 50;

/// The remote services of a simulation.
#[derive(Debug, Clone)]
pub(super) struct ForecastService(pub(super) Arc<TaskSimulation>);

impl ServiceHost for ForecastService {
    type Memo = CallMemo;

    async fn receive(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<(CallPlan, CallMemo), CallFault> {
        let simulation = &self.0;
        let StepRequest { task_id, step, action, .. } = request;
        let Some((key, assumptions)) = simulation.assumptions(task_id, &step.step) else {
            let reason = "there is no such step".to_owned();
            return Err(CallFault::Permanent { reason, may_have_run: false, detail: None });
        };
        *simulation.state().calls.entry((key.clone(), *action)).or_default() += 1;
        let at = simulation.now();
        if let Some(scripted) = &simulation.scripted {
            let draw = &mut simulation.state().draw;
            let sample = assumptions.output.value(key.1.as_str(), draw);
            let number = scripted.count(task_id, step, *action);
            let memo = CallMemo { key, number, at, sample, is_answered: true };
            return Ok((calls::plan(scripted, request, &memo), memo));
        }
        let outcome = AttemptOutcome::of(
            assumptions,
            *action,
            &mut simulation.attempt_random(task_id, step, *action, request.attempt),
        );
        let is_answered = outcome == AttemptOutcome::Succeeds;
        let (plan, sample) = self.draw(request, &key, assumptions, outcome);
        Ok((plan, CallMemo { key, number: 0, at, sample, is_answered }))
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut EffectLedger) -> T) -> T {
        act(&mut self.0.state().ledger)
    }

    fn now(&self) -> Millis {
        self.0.now().as_millis() as Millis
    }

    fn time(&self) -> Timestamp {
        self.0.time()
    }

    /// Answers the callback of a step that has started.
    async fn replied(
        &self,
        request: &StepRequest,
        memo: &CallMemo,
        answer: Result<CallResponse, CallFault>,
    ) -> Result<CallResponse, CallFault> {
        let simulation = &self.0;
        let step = simulation.plan.step(&memo.key);
        let callback = step.and_then(|step| step.callback.as_ref());
        let starts = request.action == Action::Do && memo.is_answered && answer.is_ok();
        let Some(callback) = callback.filter(|_| starts) else { return answer };
        if let Some(scripted) = &simulation.scripted {
            calls::send_callbacks(scripted, simulation, request, memo);
        } else if let Some(assumptions) = simulation.plan.step_assumptions.get(&memo.key) {
            answer_later(simulation, request, callback, assumptions, &memo.sample);
        }
        answer
    }
}

impl ForecastService {
    /// Draws what a service does, and its output.
    fn draw(
        &self,
        request: &StepRequest,
        key: &StepKey,
        assumptions: &StepAssumptions,
        outcome: AttemptOutcome,
    ) -> (CallPlan, Value) {
        let (simulation, action) = (&self.0, request.action);
        let draw = &mut simulation.state().draw;
        let flaky = action == Action::Do && draw.f64() < assumptions.flaky;
        let takes = random_duration(assumptions.slow, draw).as_millis() as Millis;
        let output = assumptions.output.value(key.1.as_str(), draw);
        if simulation.now() < assumptions.down {
            let plan = CallPlan::without_effect(takes.min(DOWN_LATENCY), Reply::NoConnection);
            return (plan, output);
        }
        let step = simulation.plan.step(key);
        let has_callback = action == Action::Do && step.is_some_and(|step| step.callback.is_some());
        let success = CallPlan::success(takes, output.clone());
        let maybe = ClassifiedResponse::Retry { may_have_run: true };
        let plan = match outcome {
            AttemptOutcome::NoReply if !has_callback => return (success.silent(), output),
            AttemptOutcome::Fails => {
                let refusal = Reply::refusal(&request.responses);
                CallPlan::without_effect(takes, refusal.unwrap_or(Reply::status(422)))
            }
            AttemptOutcome::Succeeds | AttemptOutcome::NoReply if flaky => {
                let statuses = [500, 502, 503, 504];
                let reply = Reply::classified(&request.responses, &statuses, &maybe);
                CallPlan { reply: reply.unwrap_or(Reply::BrokenConnection), ..success }
            }
            AttemptOutcome::Succeeds | AttemptOutcome::NoReply => success,
        };
        let timeout = simulation.plan.settings.call_timeout.as_millis() as Millis;
        (CallPlan { caller_waits: Some(timeout), ..plan }, output)
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
