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
use steward_core::{
    engine::invariants::ending::PartEnding,
    model::{messages::StepRequest, task::ProcessState},
};
use steward_test_world::{
    ledger::{EffectLedger, LedgerEntry},
    service::{CallPlan, FakeService, PlannedServices, Reply},
};

/// The service with its ledger.
#[derive(Clone)]
pub(super) struct DrillService {
    pub(super) fake: FakeService<PlannedServices>,
    /// The tokens of callbacks that the service will answer.
    callbacks: Arc<Mutex<BTreeSet<String>>>,
}

/// What the service remembers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ServiceMemory {
    effects: Vec<LedgerEntry>,
    callbacks: BTreeSet<String>,
    /// Keys that came again with another body.
    conflicts: BTreeSet<String>,
}

impl DrillService {
    pub(super) fn new() -> Self {
        let callbacks = Arc::<Mutex<BTreeSet<String>>>::default();
        let received = callbacks.clone();
        let fake = FakeService::planned(move |request, ledger| {
            let body = request.body.as_ref().map(|body| body.value()).unwrap_or_default();
            if let Some(token) = body["token"].as_str() {
                received.lock().unwrap().insert(token.to_owned());
            }
            plan(request, &body, ledger)
        });
        Self { fake, callbacks }
    }

    pub(super) fn memory(&self) -> ServiceMemory {
        let ledger = self.fake.ledger();
        let callbacks = self.callbacks.lock().unwrap().clone();
        let (effects, conflicts) = (ledger.entries.clone(), ledger.conflicting_keys.clone());
        ServiceMemory { effects, callbacks, conflicts }
    }

    pub(super) fn remember(&self, memory: ServiceMemory) {
        let ServiceMemory { effects, callbacks, conflicts } = memory;
        let mut ledger = EffectLedger::default();
        ledger.conflicting_keys = conflicts;
        effects.into_iter().for_each(|effect| ledger.record_effect(effect, 0));
        *self.fake.ledger() = ledger;
        *self.callbacks.lock().unwrap() = callbacks;
    }

    /// Takes the tokens of callbacks that wait for an answer.
    pub(super) fn take_callbacks(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.callbacks.lock().unwrap())
    }

    /// Side effects that contradict the states of the scenario's tasks, or that a key had twice.
    pub(super) fn wrong_effects(&self, states: &BTreeMap<String, ProcessState>) -> Vec<String> {
        let ledger = self.fake.ledger();
        let mut counts = BTreeMap::<_, usize>::new();
        for entry in &ledger.entries {
            *counts.entry(entry.key.as_str()).or_default() += 1;
        }
        let twice = counts.iter().filter(|(_, count)| **count > 1);
        let mut wrong: Vec<_> =
            twice.map(|(key, count)| format!("{key} took effect {count} times")).collect();
        let conflicts = ledger.conflicting_keys.iter();
        wrong.extend(conflicts.map(|key| format!("{key} came with two bodies")));
        for (id, state) in states {
            let steps = ["reserve", "ship[0]", "ship[2]", "doubt"].map(|step| (id.clone(), step));
            for (id, step) in steps.into_iter().chain([(format!("{id}:child"), "only")]) {
                let account = ledger.account(&id.parse().unwrap(), &step.parse().unwrap());
                let effects = account.map_or(&[][..], |account| &account.effects);
                let part = PartEnding {
                    name: format!("{id}/{step}"),
                    effects: effects.len(),
                    active: effects.iter().filter(|effect| !effect.undone).count(),
                    expected: Some(1),
                    ..PartEnding::default()
                };
                wrong.extend(part.violation(*state));
            }
        }
        wrong
    }
}

fn plan(request: &StepRequest, body: &Value, ledger: &EffectLedger) -> CallPlan {
    let mut output = json!({ "id": request.idempotency_key });
    if let Some(note) = body.get("note").filter(|note| !note.is_null()) {
        output["note"] = note.clone();
    }
    match request.path.as_str() {
        "/refused" if body["refuse"] == true => CallPlan::without_effect(0, Reply::status(410)),
        "/unknown-once" if !ledger.is_repeat(request) => {
            CallPlan { caller_waits: Some(0), ..CallPlan::success(0, output).silent() }
        }
        _ => CallPlan::success(0, output),
    }
}
