//! The services of a case: they succeed, except at the places that the case makes fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::Action,
        messages::{CallbackOutcome, ChildOutcome},
        names::Part,
    },
};
use steward_forecast::cost::scripted::{
    CallPlan, ChildCall, KeyMemory, Millis, Script, ScriptedCall, StepKeyRef,
};

use super::fault::{CALL_MS, Fault, KEYS_KEPT, Site};

/// How long a healthy answer to a callback, an event or a child task takes.
const LATER: Duration = Duration::from_secs(60);

/// How many calls to an unreachable service are run one by one: more than open its circuit breaker.
const UNREACHABLE_CALLS: u32 = 20;

/// The services of how many steps answer at the same time: as many answers share a batch of a queue.
const ANSWERS_AT_ONCE: usize = 10;

/// How much later each further service answers, in milliseconds.
const NEXT_ANSWER_MS: Millis = 1;

/// Which calls fail, and how. Of a step with `for_each`, the calls of one item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlannedFault {
    pub(super) site: Site,
    pub(super) fault: Fault,
    pub(super) item: Option<u32>,
}

/// The services of one case.
#[derive(Debug)]
pub(super) struct FaultyServices {
    workflows: Vec<Workflow>,
    faults: Vec<PlannedFault>,
    /// The outputs of the variant, so that a failure does not change which steps run.
    outputs: BTreeMap<Site, Value>,
    state: Mutex<Observed>,
}

/// What the services have seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    /// The places that were called, with the highest item.
    pub(super) called: BTreeMap<Site, Option<u32>>,
    /// The outputs that the steps returned first.
    pub(super) outputs: BTreeMap<Site, Value>,
    /// When the first call failed.
    pub(super) first_fault: Option<Duration>,
    /// The faults that occurred.
    pub(super) occurred: BTreeSet<Site>,
}

impl FaultyServices {
    pub(super) fn new(
        workflows: Vec<Workflow>,
        faults: Vec<PlannedFault>,
        outputs: BTreeMap<Site, Value>,
    ) -> Self {
        Self { workflows, faults, outputs, state: Mutex::default() }
    }

    pub(super) fn observed(&self) -> Observed {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, Observed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workflow(&self, step: &StepKeyRef<'_>) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.name == *step.workflow)
    }

    /// How much later than the first services that of a step answers, in milliseconds. If a hundred services answered at once,
    /// each save of the task would race with all others: a case would take seconds, most of them for saves that lost.
    fn delay(&self, step: &StepKeyRef<'_>) -> Millis {
        let steps = self.workflow(step).map(|workflow| &workflow.steps);
        let position = steps.and_then(|steps| steps.get_index_of(step.step)).unwrap_or_default();
        let later = position.saturating_sub(ANSWERS_AT_ONCE);
        NEXT_ANSWER_MS * Millis::try_from(later).unwrap_or_default()
    }

    /// How long the service of a step keeps idempotency keys: as long as the step relies on them.
    fn keys_kept(&self, step: &StepKeyRef<'_>) -> Duration {
        let steps = self.workflow(step).map(|workflow| &workflow.steps);
        let step = steps.and_then(|steps| steps.get(step.step));
        step.and_then(|step| step.recovery.key_valid_for).unwrap_or(KEYS_KEPT)
    }

    fn fault(&self, site: &Site, part: &Part) -> Option<Fault> {
        let planned = self.faults.iter().find(|planned| planned.site == *site)?;
        (part.item.is_none() || part.item == planned.item).then_some(planned.fault)
    }

    /// What a call meets of a fault.
    fn met(&self, fault: Fault, call: &ScriptedCall<'_>) -> Option<Fault> {
        let first_fault = self.state().first_fault.unwrap_or(call.at);
        let is_forgotten = call.at.saturating_sub(first_fault) > self.keys_kept(&call.step);
        let is_repeated = call.number > 1;
        let waits_for_key = fault == Fault::KeyForgotten && is_repeated && !is_forgotten;
        if fault.repeats_the_effect() && is_repeated && !waits_for_key {
            return None;
        }
        let met = if waits_for_key { Fault::Unreachable } else { fault };
        // The breaker is open by now: the step is deferred until the task's time is up, for months perhaps.
        let is_open = met == Fault::Unreachable && call.number > UNREACHABLE_CALLS;
        Some(if is_open { Fault::Busy } else { met })
    }

    /// The output of a step: as in the run without failures.
    fn output(&self, site: &Site, sample: &Value) -> Value {
        let known = self.outputs.get(site).cloned();
        let output = known.unwrap_or_else(|| sample.clone());
        self.state().outputs.entry(site.clone()).or_insert_with(|| output.clone());
        output
    }

    fn record_call(&self, site: &Site, part: &Part, fault: Option<Fault>, at: Duration) {
        let state = &mut *self.state();
        let item = state.called.entry(site.clone()).or_default();
        *item = (*item).max(part.item);
        if fault.is_some() {
            state.first_fault.get_or_insert(at);
            state.occurred.insert(site.clone());
        }
    }
}

impl Script for FaultyServices {
    fn call(&self, call: &ScriptedCall<'_>) -> CallPlan {
        let (request, action) = (call.request, call.request.action);
        let site = site(&call.step, action);
        let fault = self.fault(&site, &request.step);
        self.record_call(&site, &request.step, fault, call.at);
        let within = self.workflow(&call.step).map(|workflow| workflow.complete_within);
        let key_memory =
            fault.map_or(KeyMemory::Kept, |fault| fault.key_memory(self.keys_kept(&call.step)));
        let fault = fault.and_then(|fault| self.met(fault, call));
        let failure = fault.filter(|fault| !fault.comes_later());
        let failure =
            failure.and_then(|fault| fault.plan(&request.responses, within.unwrap_or_default()));
        let plan = failure.unwrap_or_else(|| {
            let output = self.output(&site, &call.sample);
            let output = if action == Action::Do { output } else { Value::Null };
            CallPlan::success(CALL_MS + self.delay(&call.step), output)
        });
        let takes_effect = fault.is_none_or(Fault::call_takes_effect);
        CallPlan { commits_after: takes_effect.then_some(0), key_memory, ..plan }
    }

    fn callbacks(&self, call: &ScriptedCall<'_>) -> Vec<(Duration, CallbackOutcome)> {
        let site = site(&call.step, Action::Do);
        let definition =
            self.workflow(&call.step).and_then(|found| found.steps.get(call.step.step));
        let callback = definition.and_then(|step| step.callback.as_ref());
        let Some(callback) = callback else { return Vec::new() };
        let after = LATER.min(callback.within / 10);
        match self.fault(&site, &call.request.step) {
            Some(Fault::CallbackFailed) => {
                vec![(after, CallbackOutcome::Failed { reason: "the service failed".to_owned() })]
            }
            Some(fault) if !fault.repeats_the_effect() => Vec::new(),
            Some(_) | None => {
                let output = self.output(&site, &call.sample);
                vec![(after, CallbackOutcome::Completed { output })]
            }
        }
    }

    fn child(&self, child: &ChildCall<'_>) -> Option<(Duration, ChildOutcome)> {
        let site = site(&child.step, child.action);
        let fault = self.fault(&site, child.part);
        self.record_call(&site, child.part, fault, child.at);
        let reason = || "as the analysis assumes".to_owned();
        let outcome = match (child.action, fault) {
            (_, Some(Fault::ChildNever)) => return None,
            (action, Some(Fault::ChildError)) => {
                let not_undone = action == Action::Undo;
                ChildOutcome::Error { reason: reason(), not_undone, was_processed: false }
            }
            (Action::Do, None) => {
                ChildOutcome::Processed { output: self.output(&site, &child.sample) }
            }
            (Action::Do | Action::Undo, _) => ChildOutcome::Undone { reason: reason() },
        };
        Some((LATER, outcome))
    }

    fn event_after(&self, step: &StepKeyRef<'_>, part: &Part, at: Duration) -> Option<Duration> {
        let site = site(step, Action::Do);
        let fault = self.fault(&site, part);
        self.record_call(&site, part, fault, at);
        fault.is_none().then_some(LATER)
    }
}

fn site(step: &StepKeyRef<'_>, action: Action) -> Site {
    Site { workflow: step.workflow.clone(), step: step.step.clone(), action }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_keeps_a_key_for_as_long_as_its_step_relies_on_it() {
        let text = "{ name: w, version: 1, steps: {
            transfer: { agent: a, request: { path: / }, recovery: { key_valid_for: 30m } },
            mail: { agent: a, request: { path: / } } } }";
        let workflow = steward_definition_file::parse("w.yaml".as_ref(), text).unwrap();
        let name = workflow.name.clone();
        let services = FaultyServices::new(vec![workflow], Vec::new(), BTreeMap::new());
        let minutes = ["transfer", "mail"].map(|step| {
            let kept =
                services.keys_kept(&StepKeyRef { workflow: &name, step: &step.parse().unwrap() });
            kept.as_secs() / 60
        });
        assert_eq!(minutes, [30, 24 * 60]);
    }
}
