//! The remote service of a scenario: its behavior is scripted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use steward_core::model::{attempt::Action, messages::StepRequest, names::TaskId};
use steward_test_world::service::{CallPlan, FakeService, PlannedServices, Reply};

/// The behavior of the service for the calls of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceBehavior {
    /// Every call fails permanently.
    Fails,
    /// Every call fails permanently until an operator has repaired the service.
    FailsUntilRepaired,
    /// The call of the first attempt takes effect but never returns.
    SilentAtFirst,
    /// No call takes effect or returns.
    Silent,
}

/// The scripted remote service.
#[derive(Clone)]
pub(super) struct ScriptedService {
    pub(super) service: FakeService<PlannedServices>,
    state: Arc<Mutex<ServiceState>>,
}

#[derive(Debug, Default)]
struct ServiceState {
    is_repaired: bool,
    /// Idempotency keys of requests with a `null` in their body.
    with_null: Vec<String>,
}

impl ScriptedService {
    pub(super) fn new(behaviors: &[(&'static str, Action, ServiceBehavior)]) -> Self {
        let (behaviors, state) = (behaviors.to_vec(), Arc::<Mutex<ServiceState>>::default());
        let shared = state.clone();
        let service = FakeService::planned(move |request, _| {
            let of_request = |(step, action, _): &&(&str, _, _)| {
                (*step, *action) == (request.step.step.as_str(), request.action)
            };
            let behavior = behaviors.iter().find(of_request).map(|(.., behavior)| *behavior);
            shared.lock().unwrap().plan(behavior, request)
        });
        Self { service, state }
    }

    pub(super) fn repair(&self) {
        self.state.lock().unwrap().is_repaired = true;
    }

    /// The idempotency key and the body of each effect, by task, in order.
    pub(super) fn ledgers(&self) -> BTreeMap<TaskId, Vec<(String, String)>> {
        let mut ledgers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in &self.service.ledger().entries {
            let body = entry.body.as_ref().map(ToString::to_string).unwrap_or_default();
            ledgers.entry(entry.task_id.clone()).or_default().push((entry.key.clone(), body));
        }
        ledgers
    }

    /// Idempotency keys of requests with a `null` in place of a document's value.
    pub(super) fn with_null(&self) -> Vec<String> {
        self.state.lock().unwrap().with_null.clone()
    }
}

impl ServiceState {
    fn plan(&mut self, behavior: Option<ServiceBehavior>, request: &StepRequest) -> CallPlan {
        let mut body = request.body.as_ref().map(|body| body.value()).unwrap_or_default();
        if request.body.is_some() && has_null(&body) {
            self.with_null.push(request.idempotency_key.clone());
        }
        let mut output = json!({ "id": request.idempotency_key });
        // As large as the input.
        let note = body.pointer_mut("/input/note").map(Value::take);
        if let Some(note) = note.filter(|note| !note.is_null()) {
            output["note"] = note;
        }
        let refusal = CallPlan::without_effect(0, Reply::status(422));
        match behavior {
            Some(ServiceBehavior::Fails) => refusal,
            Some(ServiceBehavior::FailsUntilRepaired) if !self.is_repaired => refusal,
            Some(ServiceBehavior::SilentAtFirst) if request.attempt == 1 => {
                CallPlan::success(0, output).silent()
            }
            Some(ServiceBehavior::Silent) => refusal.silent(),
            Some(ServiceBehavior::FailsUntilRepaired | ServiceBehavior::SilentAtFirst) | None => {
                CallPlan::success(0, output)
            }
        }
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
