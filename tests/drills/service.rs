//! The remote service of a drill. It honours idempotency keys, and remembers them when the tables of the deployment are
//! restored: a restore of Steward's tables restores no service.
//!
//! | path | behaviour |
//! | --- | --- |
//! | `/refused` | refuses every call whose body has `refuse: true` |
//! | `/unknown-once` | the first call takes effect, and its response is lost |
//! | `/once` | ignores idempotency keys: each call takes effect |
//! | all others | take effect once for each key, and answer a repeated call like the first |

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steward_agent::{
    attempt::{CallFault, RemoteService},
    response::CallResponse,
};
use steward_core::{
    engine::invariants::ending::PartEnding,
    model::{messages::StepRequest, task::ProcessState},
};

/// The service with its ledger.
#[derive(Debug, Clone, Default)]
pub(super) struct DrillService(Arc<Mutex<Ledger>>);

/// What the service did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// The number of side effects by idempotency key.
    pub(super) effects: BTreeMap<String, u32>,
    /// The body of the first call with each key.
    pub(super) bodies: BTreeMap<String, String>,
    /// The tokens of callbacks that the service will answer.
    #[serde(default)]
    pub(super) callbacks: BTreeSet<String>,
    /// Keys that came again with another body.
    #[serde(default)]
    pub(super) conflicts: BTreeSet<String>,
}

impl DrillService {
    pub(super) fn ledger(&self) -> Ledger {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn set_ledger(&self, ledger: Ledger) {
        *self.0.lock().unwrap() = ledger;
    }

    /// Takes the tokens of callbacks that wait for an answer.
    pub(super) fn take_callbacks(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().unwrap().callbacks)
    }
}

impl Ledger {
    /// Side effects that contradict the states of the scenario's tasks, or that a key had twice.
    pub(super) fn wrong_effects(&self, states: &BTreeMap<String, ProcessState>) -> Vec<String> {
        let twice = self.effects.iter().filter(|(_, count)| **count > 1);
        let mut wrong: Vec<_> =
            twice.map(|(key, count)| format!("{key} took effect {count} times")).collect();
        wrong.extend(self.conflicts.iter().map(|key| format!("{key} came with two bodies")));
        for (id, state) in states {
            let steps =
                ["reserve", "ship[0]", "ship[2]", "doubt"].map(|step| format!("{id}/{step}"));
            let steps = steps.into_iter().chain([format!("{id}:child/only")]);
            for step in steps {
                let count = |key: String| self.effects.get(&key).map_or(0, |count| *count as usize);
                let effects = count(format!("{step}/do"));
                let active = if count(format!("{step}/undo")) > 0 { 0 } else { effects };
                let expected = Some(1);
                let part =
                    PartEnding { name: step, effects, active, expected, ..PartEnding::default() };
                wrong.extend(part.violation(*state));
            }
        }
        wrong
    }
}

/// What the service makes of a call without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoResult {
    /// It refuses the call.
    Refused,
    /// The call took effect, and its response is lost.
    Lost,
}

impl DrillService {
    /// Handles a call.
    pub(super) fn respond(&self, path: &str, key: &str, body: &Value) -> Result<Value, NoResult> {
        if path == "/refused" && body["refuse"] == true {
            return Err(NoResult::Refused);
        }
        let mut ledger = self.0.lock().unwrap();
        let text = body.to_string();
        let first = ledger.bodies.entry(key.to_owned()).or_insert_with(|| text.clone());
        if *first != text {
            ledger.conflicts.insert(key.to_owned());
        }
        let effects = ledger.effects.entry(key.to_owned()).or_default();
        let is_new = *effects == 0;
        if is_new || path == "/once" {
            *effects += 1;
        }
        if let Some(token) = body["token"].as_str() {
            ledger.callbacks.insert(token.to_owned());
        }
        if path == "/unknown-once" && is_new {
            return Err(NoResult::Lost);
        }
        let mut output = json!({ "id": key });
        if let Some(note) = body.get("note").filter(|note| !note.is_null()) {
            output["note"] = note.clone();
        }
        Ok(output)
    }
}

impl RemoteService for DrillService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let body = request.body.as_ref().map_or(Value::Null, |body| body.value().clone());
        let response = self.respond(&request.path, &request.idempotency_key, &body);
        response.map(CallResponse::from).map_err(|fault| match fault {
            NoResult::Refused => {
                CallFault::Permanent { reason: "402".to_owned(), may_have_run: false, detail: None }
            }
            NoResult::Lost => CallFault::TimedOut { reason: "the call took too long".to_owned() },
        })
    }
}
