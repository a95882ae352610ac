//! The ledger of the remote services: calls, calls in progress, effects and undone effects, with their times; and the
//! outputs that callbacks provide.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::StepRequest,
    names::{AgentName, CallbackToken, Part, StepName, TaskId},
};

use super::virtual_time::Millis;

/// A part of a task.
pub(super) type TaskPart = (TaskId, Part);

/// An idempotency key at the service of an agent. The services do not share keys.
type ServiceKey = (AgentName, String);

/// An effect of a part.
#[derive(Debug, Clone)]
pub(super) struct LedgerEffect {
    pub(super) at: Millis,
    pub(super) undone: bool,
    /// The agent at whose service it is.
    pub(super) agent: AgentName,
    /// The item of the call.
    pub(super) item: Option<Value>,
}

/// A call whose answer an agent awaits.
#[derive(Debug, Clone)]
pub(super) struct CallAttempt {
    pub(super) action: Action,
    pub(super) attempt: u32,
}

/// A call from the service's point of view. It continues when its caller no longer waits for it.
#[derive(Debug, Clone)]
pub(super) struct ServiceCall {
    pub(super) request: Box<StepRequest>,
    pub(super) began_at: Millis,
    /// When the call takes effect; `None` if it does not, or already has.
    pub(super) commits_at: Option<Millis>,
    /// When the service finishes the call.
    pub(super) ends_at: Millis,
    /// Whether the call continues as planned when its caller disconnects.
    pub(super) detached: bool,
}

/// Everything that the services know about one part of one task.
#[derive(Debug, Default)]
pub(super) struct LedgerAccount {
    pub(super) effects: Vec<LedgerEffect>,
    /// Whether its undo was called.
    pub(super) undo_called: bool,
    /// The calls in progress, by number.
    pub(super) in_progress: BTreeMap<u64, CallAttempt>,
    /// How often the part was called, without calls of its undo.
    pub(super) calls: u32,
    /// The item of the last call.
    pub(super) item: Option<Value>,
    /// The answers by agent and idempotency key: of the part, and of its undo.
    answers: [BTreeMap<ServiceKey, Value>; 2],
    /// Other answers to repeated calls of the part, without its undo.
    other_answers: Vec<Value>,
    /// The outputs that callbacks provided.
    pub(super) callback_outputs: Vec<Value>,
}

impl LedgerAccount {
    /// Whether any of its effects is not undone.
    pub(super) fn has_remaining_effect(&self) -> bool {
        self.effects.iter().any(|effect| !effect.undone)
    }

    /// Whether any of its effects at the service of an agent is not undone.
    pub(super) fn has_remaining_effect_at(&self, agent: &AgentName) -> bool {
        self.effects.iter().any(|effect| !effect.undone && effect.agent == *agent)
    }

    /// The answers to calls of the part, without its undo.
    pub(super) fn returned(&self) -> impl Iterator<Item = &Value> {
        let [run, _] = &self.answers;
        run.values().chain(&self.other_answers)
    }

    fn answers(&self, action: Action) -> &BTreeMap<ServiceKey, Value> {
        let [run, undo] = &self.answers;
        if action == Action::Do { run } else { undo }
    }

    fn answers_mut(&mut self, action: Action) -> &mut BTreeMap<ServiceKey, Value> {
        let [run, undo] = &mut self.answers;
        if action == Action::Do { run } else { undo }
    }
}

/// The accounts of all parts.
#[derive(Debug, Default)]
pub(super) struct EffectLedger {
    accounts: BTreeMap<TaskPart, LedgerAccount>,
    /// The part and action for which each idempotency key was first used.
    keys: BTreeMap<String, (TaskPart, Action)>,
    /// The calls that the services are executing, by number.
    service_calls: BTreeMap<u64, ServiceCall>,
    /// The callback tokens that were issued, each with its attempt.
    pub(super) tokens: BTreeSet<(CallbackToken, u32)>,
    last_call: u64,
    pub(super) effects: u64,
}

impl EffectLedger {
    pub(super) fn account(&self, task_id: &TaskId, part: &Part) -> Option<&LedgerAccount> {
        self.accounts.get(&(task_id.clone(), part.clone()))
    }

    /// The accounts of all parts of a task.
    pub(super) fn task_accounts(
        &self,
        task_id: &TaskId,
    ) -> impl Iterator<Item = (&Part, &LedgerAccount)> {
        let all = self.accounts.iter().filter(move |((of, _), _)| of == task_id);
        all.map(|((_, part), account)| (part, account))
    }

    /// The accounts of all parts of a step.
    pub(super) fn step_accounts(
        &self,
        task_id: &TaskId,
        step: &StepName,
    ) -> impl Iterator<Item = (&Part, &LedgerAccount)> {
        self.task_accounts(task_id).filter(move |(part, _)| part.step == *step)
    }

    fn account_mut(&mut self, task_id: &TaskId, part: &Part) -> &mut LedgerAccount {
        self.accounts.entry((task_id.clone(), part.clone())).or_default()
    }

    /// Records the start of a call. Returns its number.
    pub(super) fn begin_call(&mut self, service_call: ServiceCall) -> u64 {
        let request = &service_call.request;
        let of = ((request.task_id.clone(), request.step.clone()), request.action);
        self.keys.entry(request.idempotency_key.clone()).or_insert(of);
        self.last_call += 1;
        let number = self.last_call;
        let account = self.account_mut(&request.task_id, &request.step);
        match request.action {
            Action::Do => account.calls += 1,
            Action::Undo => account.undo_called = true,
        }
        if request.action == Action::Do {
            account.item = item(request);
        }
        account
            .in_progress
            .insert(number, CallAttempt { action: request.action, attempt: request.attempt });
        let now = service_call.began_at;
        self.service_calls.retain(|_, other| other.commits_at.is_some() || other.ends_at > now);
        self.service_calls.insert(number, service_call);
        number
    }

    /// Takes the request of a call that must take effect now; `None` if it already has, or must not.
    pub(super) fn commit(&mut self, number: u64) -> Option<Box<StepRequest>> {
        let service_call = self.service_calls.get_mut(&number)?;
        service_call.commits_at.take()?;
        Some(service_call.request.clone())
    }

    /// The call with this number, from the service's point of view.
    pub(super) fn service_call_mut(&mut self, number: u64) -> Option<&mut ServiceCall> {
        self.service_calls.get_mut(&number)
    }

    /// Whether a call with the idempotency key of `request` is in progress at the service.
    pub(super) fn is_in_progress(&self, request: &StepRequest, now: Millis) -> bool {
        self.service_calls.values().any(|service_call| {
            service_key(&service_call.request) == service_key(request)
                && service_call.began_at <= now
                && now < service_call.ends_at
        })
    }

    /// The calls of a task that will have a new effect.
    pub(super) fn pending_calls(&self, task_id: &TaskId) -> impl Iterator<Item = &ServiceCall> {
        self.service_calls.values().filter(move |service_call| {
            let request = &service_call.request;
            request.task_id == *task_id
                && service_call.commits_at.is_some()
                && !self.is_repeat(request)
        })
    }

    /// Whether the idempotency key of a call was used before for another part or action.
    pub(super) fn is_key_reused(&self, request: &StepRequest) -> bool {
        let of = self.keys.get(&request.idempotency_key);
        of.is_some_and(|((task_id, part), action)| {
            (task_id, part, action) != (&request.task_id, &request.step, &request.action)
        })
    }

    /// Records that the agent has the answer, or no longer waits for it.
    pub(super) fn end_call(&mut self, request: &StepRequest, number: u64) {
        self.account_mut(&request.task_id, &request.step).in_progress.remove(&number);
    }

    /// Whether the call repeats an answered idempotency key, and so has no new effect.
    pub(super) fn is_repeat(&self, request: &StepRequest) -> bool {
        let account = self.account(&request.task_id, &request.step);
        let knows = |account: &LedgerAccount| {
            account.answers(request.action).contains_key(&service_key(request))
        };
        request.idempotent && account.is_some_and(knows)
    }

    /// Applies the effect of a call. A repeated idempotency key has no effect. Returns the answer of the service: the first
    /// answer for a repeated key, else `answer`.
    pub(super) fn take_effect(
        &mut self,
        request: &StepRequest,
        answer: Value,
        now: Millis,
    ) -> Value {
        let (key, known) = (service_key(request), self.is_repeat(request));
        let account = self.account_mut(&request.task_id, &request.step);
        if known && let Some(answer) = account.answers(request.action).get(&key) {
            return answer.clone();
        }
        match request.action {
            Action::Do => {
                let item = item(request);
                let agent = request.agent.clone();
                account.effects.push(LedgerEffect { at: now, undone: false, agent, item });
            }
            Action::Undo => {
                let own = account.effects.iter_mut().filter(|e| e.agent == request.agent);
                own.for_each(|effect| effect.undone = true);
            }
        }
        account.answers_mut(request.action).insert(key, answer.clone());
        self.effects += 1;
        answer
    }

    /// Records that a service answers a repeated call in another way than the first.
    pub(super) fn record_other_answer(&mut self, request: &StepRequest, answer: Value) {
        if request.action == Action::Do {
            self.account_mut(&request.task_id, &request.step).other_answers.push(answer);
        }
    }

    /// Removes everything about an earlier task with this id, as services do with old idempotency keys.
    pub(super) fn forget(&mut self, id: &TaskId) {
        self.accounts.retain(|(of, _), _| of != id);
        self.keys.retain(|_, ((of, _), _)| of != id);
        self.tokens.retain(|(token, _)| token.task_id != *id);
    }

    /// Records the output that a callback provides.
    pub(super) fn record_callback_output(&mut self, token: &CallbackToken, output: &Value) {
        let account = self.account_mut(&token.task_id, &token.step);
        account.callback_outputs.push(output.clone());
    }
}

fn service_key(request: &StepRequest) -> ServiceKey {
    (request.agent.clone(), request.idempotency_key.clone())
}

/// The item of a call.
fn item(request: &StepRequest) -> Option<Value> {
    request.body.as_ref().map(JsonText::value)?.get("item").cloned()
}

/// The output for an idempotency key. It contains a number below a hundred and a short list. One in four has a text of up
/// to 1.2 KB, so that some documents fit into the item of their task and others do not.
pub(super) fn output(key: &str, now: Millis) -> Value {
    let sum = key.bytes().fold(17_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let roll = (sum >> 3) % 100;
    let items: Vec<_> = (0..roll % 5).map(|n| roll + n).collect();
    let mut output = json!({ "for": key, "at": now, "roll": roll, "items": items });
    if let (0, Some(fields)) = ((sum >> 13) % 4, output.as_object_mut()) {
        let bytes = 12 * usize::try_from(roll).unwrap_or_default();
        fields.insert("note".to_owned(), "x".repeat(bytes).into());
    }
    output
}
