//! The remote services' books: what was called, what took effect, what was undone, and when.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steward_core::{
    messages::{Action, StepRequest},
    names::{Part, TaskId},
};

use super::plan::Millis;

/// A step of a task.
pub(super) type Item = (TaskId, Part);

/// Something that a step did.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) undone: bool,
}

/// A call that an agent is waiting for.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) action: Action,
    pub(super) attempt: u32,
}

/// All that the services know of one step of one task.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) effects: Vec<Effect>,
    /// Whether its undo has been asked for.
    pub(super) undo_called: bool,
    /// The calls that are under way, by number.
    pub(super) live: BTreeMap<u64, Call>,
    /// How often the step itself was called.
    pub(super) calls: u32,
    /// What was answered to each idempotency key.
    answers: BTreeMap<String, Value>,
}

impl Account {
    /// Whether something it did has not been undone.
    pub(super) fn stands(&self) -> bool {
        self.effects.iter().any(|effect| !effect.undone)
    }
}

/// All accounts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<Item, Account>,
    last_call: u64,
    pub(super) effects: u64,
}

impl Ledger {
    pub(super) fn account(&self, task_id: &TaskId, step: &Part) -> Option<&Account> {
        self.accounts.get(&(task_id.clone(), step.clone()))
    }

    fn account_mut(&mut self, request: &StepRequest) -> &mut Account {
        self.accounts.entry((request.task_id.clone(), request.step.clone())).or_default()
    }

    /// A call begins; answers its number.
    pub(super) fn begin(&mut self, request: &StepRequest) -> u64 {
        self.last_call += 1;
        let number = self.last_call;
        let account = self.account_mut(request);
        match request.action {
            Action::Do => account.calls += 1,
            Action::Undo => account.undo_called = true,
        }
        account.live.insert(number, Call { action: request.action, attempt: request.attempt });
        number
    }

    /// The agent has its answer, or waits no more.
    pub(super) fn end(&mut self, request: &StepRequest, number: u64) {
        self.account_mut(request).live.remove(&number);
    }

    /// Whether this call would do nothing that is not done.
    pub(super) fn is_known(&self, request: &StepRequest) -> bool {
        request.idempotent
            && self
                .account(&request.task_id, &request.step)
                .is_some_and(|account| account.answers.contains_key(&request.idempotency_key))
    }

    /// The call takes effect; a key that is known does nothing again. Answers what the service says.
    pub(super) fn take_effect(&mut self, request: &StepRequest, now: Millis) -> Value {
        let known = self.is_known(request);
        let account = self.account_mut(request);
        let answer = json!({ "for": request.idempotency_key, "at": now });
        if known {
            return account.answers.get(&request.idempotency_key).cloned().unwrap_or(answer);
        }
        match request.action {
            Action::Do => account.effects.push(Effect { undone: false }),
            Action::Undo => account.effects.iter_mut().for_each(|effect| effect.undone = true),
        }
        account.answers.insert(request.idempotency_key.clone(), answer.clone());
        self.effects += 1;
        answer
    }
}
