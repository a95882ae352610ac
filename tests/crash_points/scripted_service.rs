//! The remote service of a scenario: its behavior is scripted, and a ledger records its effects. It recognises repeated
//! calls by their idempotency key, as the services of idempotent steps do.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::response::CallResponse;
use steward_core::model::{attempt::Action, messages::StepRequest, names::TaskId};

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
#[derive(Debug, Clone)]
pub(super) struct ScriptedService {
    behaviors: BTreeMap<(&'static str, Action), ServiceBehavior>,
    state: Arc<Mutex<ServiceState>>,
}

#[derive(Debug, Default)]
struct ServiceState {
    /// The idempotency key and body of each effect, by task.
    ledgers: BTreeMap<TaskId, Vec<(String, String)>>,
    is_repaired: bool,
    /// Idempotency keys that were received with two different bodies.
    conflicting_keys: Vec<String>,
    /// Idempotency keys of requests with a `null` in their body.
    with_null: Vec<String>,
    /// The number of calls, with or without effect.
    calls: usize,
}

impl ScriptedService {
    pub(super) fn new(behaviors: &[(&'static str, Action, ServiceBehavior)]) -> Self {
        let behaviors =
            behaviors.iter().map(|(step, action, behavior)| ((*step, *action), *behavior));
        Self { behaviors: behaviors.collect(), state: Arc::default() }
    }

    pub(super) fn repair(&self) {
        self.state.lock().unwrap().is_repaired = true;
    }

    /// The effects by task, in order.
    pub(super) fn ledgers(&self) -> BTreeMap<TaskId, Vec<(String, String)>> {
        self.state.lock().unwrap().ledgers.clone()
    }

    pub(super) fn conflicting_keys(&self) -> Vec<String> {
        self.state.lock().unwrap().conflicting_keys.clone()
    }

    /// Idempotency keys of requests with a `null` in place of a document's value.
    pub(super) fn with_null(&self) -> Vec<String> {
        self.state.lock().unwrap().with_null.clone()
    }

    pub(super) fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    fn count(&self, request: &StepRequest) {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        if request.body.as_ref().is_some_and(|body| has_null(&body.value())) {
            state.with_null.push(request.idempotency_key.clone());
        }
    }

    fn take_effect(&self, request: &StepRequest) -> Value {
        let mut state = self.state.lock().unwrap();
        let body = request.body.as_ref().map(ToString::to_string).unwrap_or_default();
        let note = request.body.as_ref().map(|body| body.value()["input"]["note"].take());
        let key = request.idempotency_key.clone();
        let ledger = state.ledgers.entry(request.task_id.clone()).or_default();
        match ledger.iter().find(|(known, _)| *known == key) {
            None => ledger.push((key, body)),
            Some((_, known)) if *known == body => {}
            Some(_) => state.conflicting_keys.push(key),
        }
        let mut output = json!({ "id": request.idempotency_key });
        // As large as the input.
        if let Some(note) = note.filter(|note| !note.is_null()) {
            output["note"] = note;
        }
        output
    }
}

impl RemoteService for ScriptedService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        self.count(request);
        let behavior = self.behaviors.get(&(request.step.step.as_str(), request.action));
        let is_repaired = self.state.lock().unwrap().is_repaired;
        match behavior {
            Some(ServiceBehavior::FailsUntilRepaired) if is_repaired => {
                Ok(self.take_effect(request).into())
            }
            Some(ServiceBehavior::Fails | ServiceBehavior::FailsUntilRepaired) => {
                Err(CallFault::Permanent {
                    reason: "refused".to_owned(),
                    may_have_run: false,
                    detail: None,
                })
            }
            Some(ServiceBehavior::SilentAtFirst) if request.attempt == 1 => {
                self.take_effect(request);
                pending().await
            }
            Some(ServiceBehavior::Silent) => pending().await,
            Some(ServiceBehavior::SilentAtFirst) | None => Ok(self.take_effect(request).into()),
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
