//! The remote service of a scenario, with a ledger of what took effect. It recognises a repeated
//! call by its idempotency key, as the services of idempotent steps do.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use steward_agent::attempt::{Fault, RemoteService};
use steward_core::model::{attempt::Action, messages::StepRequest, names::TaskId};

/// How the service treats the calls of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Refuses for good.
    Refuses,
    /// Refuses until an operator has mended it.
    RefusesUntilMended,
    /// Does what the first attempt asks, and never answers it.
    SilentAtFirst,
    /// Does nothing and never answers.
    Silent,
}

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    manners: BTreeMap<(&'static str, Action), Manner>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys and contents.
    ledgers: BTreeMap<TaskId, Vec<(String, String)>>,
    is_mended: bool,
    /// Keys that came again with other content.
    mixed_up: Vec<String>,
    /// Keys whose request has a `null` in its body.
    with_null: Vec<String>,
    /// How often it was called, with or without effect.
    calls: usize,
}

impl Remote {
    pub(super) fn new(manners: &[(&'static str, Action, Manner)]) -> Self {
        let manners = manners.iter().map(|(step, action, manner)| ((*step, *action), *manner));
        Self { manners: manners.collect(), state: Arc::default() }
    }

    pub(super) fn mend(&self) {
        self.state.lock().unwrap().is_mended = true;
    }

    /// What took effect for each task, in order.
    pub(super) fn ledgers(&self) -> BTreeMap<TaskId, Vec<(String, String)>> {
        self.state.lock().unwrap().ledgers.clone()
    }

    pub(super) fn mixed_up(&self) -> Vec<String> {
        self.state.lock().unwrap().mixed_up.clone()
    }

    /// Keys whose request has a `null` where a document's value belongs.
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
        let key = request.idempotency_key.clone();
        let ledger = state.ledgers.entry(request.task_id.clone()).or_default();
        match ledger.iter().find(|(known, _)| *known == key) {
            None => ledger.push((key, body)),
            Some((_, known)) if *known == body => {}
            Some(_) => state.mixed_up.push(key),
        }
        json!({ "id": request.idempotency_key })
    }
}

impl RemoteService for Remote {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        self.count(request);
        let manner = self.manners.get(&(request.step.step.as_str(), request.action));
        let is_mended = self.state.lock().unwrap().is_mended;
        match manner {
            Some(Manner::RefusesUntilMended) if is_mended => Ok(self.take_effect(request)),
            Some(Manner::Refuses | Manner::RefusesUntilMended) => {
                Err(Fault::Permanent { reason: "refused".to_owned(), may_have_run: false })
            }
            Some(Manner::SilentAtFirst) if request.attempt == 1 => {
                self.take_effect(request);
                pending().await
            }
            Some(Manner::Silent) => pending().await,
            Some(Manner::SilentAtFirst) | None => Ok(self.take_effect(request)),
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
