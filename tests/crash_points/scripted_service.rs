//! The remote service of a scenario: its behavior is scripted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_core::model::{attempt::Action, messages::StepRequest, names::TaskId};
use steward_test_world::{
    ledger::EffectLedger,
    service::{CallPlan, Millis, Reply, ServiceHost},
};
use tokio::time::Instant;

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
    start: Instant,
}

#[derive(Debug, Default)]
struct ServiceState {
    ledger: EffectLedger,
    is_repaired: bool,
    /// Idempotency keys of requests with a `null` in their body.
    with_null: Vec<String>,
    /// The number of calls, with or without effect.
    calls: usize,
}

impl ScriptedService {
    pub(super) fn new(behaviors: &[(&'static str, Action, ServiceBehavior)]) -> Self {
        let behaviors =
            behaviors.iter().map(|(step, action, behavior)| ((*step, *action), *behavior));
        let start = Instant::now();
        Self { behaviors: behaviors.collect(), state: Arc::default(), start }
    }

    pub(super) fn repair(&self) {
        self.state.lock().unwrap().is_repaired = true;
    }

    /// The idempotency key and the body of each effect, by task, in order.
    pub(super) fn ledgers(&self) -> BTreeMap<TaskId, Vec<(String, String)>> {
        let mut ledgers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in &self.state.lock().unwrap().ledger.entries {
            let body = entry.body.as_ref().map(ToString::to_string).unwrap_or_default();
            ledgers.entry(entry.task_id.clone()).or_default().push((entry.key.clone(), body));
        }
        ledgers
    }

    pub(super) fn conflicting_keys(&self) -> Vec<String> {
        self.state.lock().unwrap().ledger.conflicting_keys.iter().cloned().collect()
    }

    /// Idempotency keys of requests with a `null` in place of a document's value.
    pub(super) fn with_null(&self) -> Vec<String> {
        self.state.lock().unwrap().with_null.clone()
    }

    pub(super) fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }
}

impl ServiceHost for ScriptedService {
    type Memo = ();

    async fn receive(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<(CallPlan, ()), CallFault> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let mut body = request.body.as_ref().map(|body| body.value()).unwrap_or_default();
        if request.body.is_some() && has_null(&body) {
            state.with_null.push(request.idempotency_key.clone());
        }
        let mut output = json!({ "id": request.idempotency_key });
        // As large as the input.
        let note = body.pointer_mut("/input/note").map(Value::take);
        if let Some(note) = note.filter(|note| !note.is_null()) {
            output["note"] = note;
        }
        let refuses = match self.behaviors.get(&(request.step.step.as_str(), request.action)) {
            Some(ServiceBehavior::Fails) => true,
            Some(ServiceBehavior::FailsUntilRepaired) => !state.is_repaired,
            Some(ServiceBehavior::SilentAtFirst) if request.attempt == 1 => {
                return Ok((CallPlan::success(0, output).silent(), ()));
            }
            Some(ServiceBehavior::Silent) => {
                return Ok((CallPlan::without_effect(0, Reply::status(503)).silent(), ()));
            }
            Some(ServiceBehavior::SilentAtFirst) | None => false,
        };
        let plan = match refuses {
            true => CallPlan::without_effect(0, Reply::status(422)),
            false => CallPlan::success(0, output),
        };
        Ok((plan, ()))
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut EffectLedger) -> T) -> T {
        act(&mut self.state.lock().unwrap().ledger)
    }

    fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
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
