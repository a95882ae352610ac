//! The ledger of the fake services: calls, calls in progress, side effects and undone side effects, with their times; and the
//! outputs that callbacks provide. It knows nothing of Steward's records, so checks can compare both.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::StepRequest,
    names::{AgentName, CallbackToken, Part, StepName, TaskId},
};

use super::call_plan::{AfterDisconnect, CallPlan, KeyMemory, Millis};

/// A part of a task.
pub type TaskPart = (TaskId, Part);

/// An idempotency key at the service of an agent. The services do not share keys.
type ServiceKey = (AgentName, String);

/// A side effect of a part.
#[derive(Debug, Clone)]
pub struct LedgerEffect {
    /// When it happened.
    pub at: Millis,
    /// Whether it is undone.
    pub undone: bool,
    /// The agent at whose service it is, if a call caused it.
    pub agent: Option<AgentName>,
    /// The item of the call.
    pub item: Option<Value>,
}

/// A call whose answer an agent awaits.
#[derive(Debug, Clone)]
pub struct CallAttempt {
    /// Whether the call does or undoes.
    pub action: Action,
    /// The number of the attempt.
    pub attempt: u32,
}

/// A call from the service's point of view. It continues when its caller no longer waits for it.
#[derive(Debug, Clone)]
pub struct ServiceCall {
    /// The agent's request.
    pub request: Box<StepRequest>,
    /// When the service received it.
    pub began_at: Millis,
    /// When the call takes effect; `None` if it does not, or already has.
    pub commits_at: Option<Millis>,
    /// When the service finishes the call.
    pub ends_at: Millis,
    plan: CallPlan,
}

/// Everything that the services know about one part of one task.
#[derive(Debug, Default)]
pub struct LedgerAccount {
    /// All side effects, undone or not.
    pub effects: Vec<LedgerEffect>,
    /// Whether its undo was called.
    pub undo_called: bool,
    /// The calls in progress, by number.
    pub in_progress: BTreeMap<u64, CallAttempt>,
    /// How often the part was called, without calls of its undo and calls that the service throttled.
    pub calls: u32,
    /// The item of the last call.
    pub item: Option<Value>,
    /// The answers by agent and idempotency key, each with the time of its effect: of the part, and of its undo.
    answers: [BTreeMap<ServiceKey, (Value, Millis)>; 2],
    /// Other answers to repeated calls of the part, and those that the service forgot, without its undo.
    other_answers: Vec<Value>,
    /// The outputs that callbacks provided.
    pub callback_outputs: Vec<Value>,
}

impl LedgerAccount {
    /// Whether any of its effects is not undone.
    pub fn has_remaining_effect(&self) -> bool {
        self.effects.iter().any(|effect| !effect.undone)
    }

    /// Whether any of its effects at the service of an agent is not undone.
    pub fn has_remaining_effect_at(&self, agent: &AgentName) -> bool {
        self.effects.iter().any(|effect| !effect.undone && effect.agent.as_ref() == Some(agent))
    }

    /// The answers to calls of the part, without its undo.
    pub fn returned(&self) -> impl Iterator<Item = &Value> {
        let [run, _] = &self.answers;
        run.values().map(|(answer, _)| answer).chain(&self.other_answers)
    }

    fn answers(&self, action: Action) -> &BTreeMap<ServiceKey, (Value, Millis)> {
        let [run, undo] = &self.answers;
        if action == Action::Do { run } else { undo }
    }

    fn answers_mut(&mut self, action: Action) -> &mut BTreeMap<ServiceKey, (Value, Millis)> {
        let [run, undo] = &mut self.answers;
        if action == Action::Do { run } else { undo }
    }
}

/// The accounts of all parts.
#[derive(Debug, Default)]
pub struct EffectLedger {
    accounts: BTreeMap<TaskPart, LedgerAccount>,
    /// The agents that undo what others have done.
    undo_agents: BTreeSet<AgentName>,
    /// The part and action for which each idempotency key was first used.
    keys: BTreeMap<String, (TaskPart, Action)>,
    /// The calls that the services are executing, by number.
    service_calls: BTreeMap<u64, ServiceCall>,
    /// The callback tokens that were issued, each with its attempt.
    pub tokens: BTreeSet<(CallbackToken, u32)>,
    /// The number of calls that reached a service.
    pub calls: u64,
    /// The number of effects, of undos too.
    pub effects: u64,
    /// The calls that took effect, in order, without repeated idempotency keys.
    pub entries: Vec<LedgerEntry>,
    /// The idempotency keys that were received with two different bodies.
    pub conflicting_keys: BTreeSet<String>,
    /// The body of the first call with each idempotency key.
    bodies: BTreeMap<ServiceKey, Option<JsonText>>,
    /// The plan of the first call with each key whose reply the service stores.
    stored: BTreeMap<ServiceKey, CallPlan>,
}

/// A call that took effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The task.
    pub task_id: TaskId,
    /// The part of the task.
    pub part: Part,
    /// Whether it was done or undone.
    pub action: Action,
    /// The agent at whose service it is.
    pub agent: AgentName,
    /// The idempotency key.
    pub key: String,
    /// The body.
    pub body: Option<JsonText>,
    /// What the service returned.
    pub answer: Value,
}

impl EffectLedger {
    /// A ledger of tasks of which these agents undo what others have done.
    #[must_use]
    pub fn with_undo_agents(undo_agents: BTreeSet<AgentName>) -> Self {
        Self { undo_agents, ..Self::default() }
    }

    /// What the services know about a part.
    #[must_use]
    pub fn account(&self, task_id: &TaskId, part: &Part) -> Option<&LedgerAccount> {
        self.accounts.get(&(task_id.clone(), part.clone()))
    }

    /// The accounts of all parts of a task.
    pub fn task_accounts(&self, task_id: &TaskId) -> impl Iterator<Item = (&Part, &LedgerAccount)> {
        let all = self.accounts.iter().filter(move |((of, _), _)| of == task_id);
        all.map(|((_, part), account)| (part, account))
    }

    /// The accounts of all parts of a step.
    pub fn step_accounts(
        &self,
        task_id: &TaskId,
        step: &StepName,
    ) -> impl Iterator<Item = (&Part, &LedgerAccount)> {
        self.task_accounts(task_id).filter(move |(part, _)| part.step == *step)
    }

    /// The side effects that are not undone: the part of each.
    pub fn remaining_effects(&self) -> impl Iterator<Item = (&TaskId, &Part)> {
        self.accounts.iter().flat_map(|((task_id, part), account)| {
            let remaining = account.effects.iter().filter(|effect| !effect.undone);
            remaining.map(move |_| (task_id, part))
        })
    }

    /// Records what is known of a part's side effect other than by a call of the part: it happened at this time, as that of a
    /// child task, or nothing of it remains.
    pub fn set_effect(&mut self, task_id: &TaskId, part: &Part, at: Option<Millis>) {
        let account = self.account_mut(task_id, part);
        account.effects.iter_mut().for_each(|effect| effect.undone = true);
        if let Some(at) = at {
            account.effects.push(LedgerEffect { at, undone: false, agent: None, item: None });
        }
    }

    fn account_mut(&mut self, task_id: &TaskId, part: &Part) -> &mut LedgerAccount {
        self.accounts.entry((task_id.clone(), part.clone())).or_default()
    }

    /// What the service does with a call, given what it remembers of the idempotency key.
    pub fn recall_key(&mut self, request: &StepRequest, plan: CallPlan, now: Millis) -> CallPlan {
        let key = service_key(request);
        let forgets = match plan.key_memory {
            KeyMemory::Kept => false,
            KeyMemory::Ignored => true,
            KeyMemory::ForgottenAfter(time) => {
                let account = self.account_mut(&request.task_id, &request.step);
                let known = account.answers(request.action).get(&key);
                known.is_some_and(|(_, at)| at + time <= now)
            }
            KeyMemory::ReplyStored => return self.stored.entry(key).or_insert(plan).clone(),
        };
        let account = self.account_mut(&request.task_id, &request.step);
        if forgets && let Some((answer, _)) = account.answers_mut(request.action).remove(&key) {
            self.record_other_answer(request, answer);
        }
        plan
    }

    /// Records the start of a call. Returns its number.
    pub fn begin_call(&mut self, request: &StepRequest, plan: CallPlan, now: Millis) -> u64 {
        let of = ((request.task_id.clone(), request.step.clone()), request.action);
        self.keys.entry(request.idempotency_key.clone()).or_insert(of);
        let first = self.bodies.entry(service_key(request)).or_insert_with(|| request.body.clone());
        if *first != request.body {
            self.conflicting_keys.insert(request.idempotency_key.clone());
        }
        self.calls += 1;
        let number = self.calls;
        let account = self.account_mut(&request.task_id, &request.step);
        match request.action {
            Action::Do => {
                account.calls += u32::from(!plan.reply.is_throttled());
                account.item = item(request.body.as_ref());
            }
            Action::Undo => account.undo_called = true,
        }
        account
            .in_progress
            .insert(number, CallAttempt { action: request.action, attempt: request.attempt });
        self.service_calls.retain(|_, other| other.commits_at.is_some() || other.ends_at > now);
        let service_call = ServiceCall {
            request: Box::new(request.clone()),
            began_at: now,
            commits_at: plan.commits_after.map(|after| now + after),
            ends_at: now + plan.ends_after,
            plan,
        };
        self.service_calls.insert(number, service_call);
        number
    }

    /// Takes the request of a call that must take effect now, with the planned output; `None` if it already has, or must not.
    pub fn commit(&mut self, number: u64) -> Option<(Box<StepRequest>, Value)> {
        let service_call = self.service_calls.get_mut(&number)?;
        service_call.commits_at.take()?;
        Some((service_call.request.clone(), service_call.plan.output.clone()))
    }

    /// Records that the agent no longer waits for a call. Returns when the call takes effect, if it still does.
    pub fn disconnect(
        &mut self,
        request: &StepRequest,
        number: u64,
        now: Millis,
    ) -> Option<Millis> {
        self.account_mut(&request.task_id, &request.step).in_progress.remove(&number);
        let service_call = self.service_calls.get_mut(&number)?;
        let commits_at = service_call.commits_at?;
        let plan = &service_call.plan;
        let (commits_at, ends_at) = match plan.after_disconnect {
            AfterDisconnect::Continues => (Some(commits_at), service_call.ends_at),
            AfterDisconnect::Stops => (None, now),
            AfterDisconnect::TakesEffect { share } => {
                let left = (service_call.began_at + plan.longest).saturating_sub(now);
                let at = now + (left as f64 * share) as Millis;
                (Some(at), at)
            }
        };
        (service_call.commits_at, service_call.ends_at) = (commits_at, ends_at);
        commits_at
    }

    /// Whether a call with the idempotency key of `request` is in progress at the service.
    pub fn is_in_progress(&self, request: &StepRequest, now: Millis) -> bool {
        self.service_calls.values().any(|service_call| {
            service_key(&service_call.request) == service_key(request)
                && service_call.began_at <= now
                && now < service_call.ends_at
        })
    }

    /// The calls of a task that will have a new effect.
    pub fn pending_calls(&self, task_id: &TaskId) -> impl Iterator<Item = &ServiceCall> {
        self.service_calls.values().filter(move |service_call| {
            let request = &service_call.request;
            request.task_id == *task_id
                && service_call.commits_at.is_some()
                && !self.is_repeat(request)
        })
    }

    /// Whether the idempotency key of a call was used before for another part or action.
    pub fn is_key_reused(&self, request: &StepRequest) -> bool {
        let of = self.keys.get(&request.idempotency_key);
        of.is_some_and(|((task_id, part), action)| {
            (task_id, part, action) != (&request.task_id, &request.step, &request.action)
        })
    }

    /// Whether the call repeats an answered idempotency key, and so has no new effect.
    pub fn is_repeat(&self, request: &StepRequest) -> bool {
        let account = self.account(&request.task_id, &request.step);
        let knows = |account: &LedgerAccount| {
            account.answers(request.action).contains_key(&service_key(request))
        };
        request.idempotent && account.is_some_and(knows)
    }

    /// Whether a call with this idempotency key took effect, even if the service has forgotten the key.
    #[must_use]
    pub fn had_effect(&self, request: &StepRequest) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.agent == request.agent && entry.key == request.idempotency_key)
    }

    /// Applies the effect of a call. A repeated idempotency key has no effect. Returns the answer of the service: the first
    /// answer for a repeated key, else `answer`.
    pub fn take_effect(&mut self, request: &StepRequest, answer: Value, now: Millis) -> Value {
        let known = self.is_repeat(request);
        let account = self.account_mut(&request.task_id, &request.step);
        let answers = account.answers(request.action);
        if known && let Some((answer, _)) = answers.get(&service_key(request)) {
            return answer.clone();
        }
        let entry = LedgerEntry {
            task_id: request.task_id.clone(),
            part: request.step.clone(),
            action: request.action,
            agent: request.agent.clone(),
            key: request.idempotency_key.clone(),
            body: request.body.clone(),
            answer: answer.clone(),
        };
        self.record_effect(entry, now);
        answer
    }

    /// Records the effect of a call.
    pub fn record_effect(&mut self, entry: LedgerEntry, now: Millis) {
        let LedgerEntry { task_id, part, action, agent, key, body, answer } = entry.clone();
        let key = (agent.clone(), key);
        self.bodies.entry(key.clone()).or_insert_with(|| body.clone());
        let undoes_for_others = self.undo_agents.contains(&agent);
        let account = self.account_mut(&task_id, &part);
        match action {
            Action::Do => account.effects.push(LedgerEffect {
                at: now,
                undone: false,
                agent: Some(agent),
                item: item(body.as_ref()),
            }),
            Action::Undo => {
                let is_own = |effect: &LedgerEffect| effect.agent.as_ref() == Some(&agent);
                let effects = account.effects.iter_mut();
                let undone = effects.filter(|effect| undoes_for_others || is_own(effect));
                undone.for_each(|effect| effect.undone = true);
            }
        }
        account.answers_mut(action).insert(key, (answer, now));
        self.effects += 1;
        self.entries.push(entry);
    }

    /// Records that a service answers a repeated call in another way than the first.
    pub fn record_other_answer(&mut self, request: &StepRequest, answer: Value) {
        if request.action == Action::Do {
            self.account_mut(&request.task_id, &request.step).other_answers.push(answer);
        }
    }

    /// Removes everything about an earlier task with this id, as services do with old idempotency keys.
    pub fn forget(&mut self, id: &TaskId) {
        self.accounts.retain(|(of, _), _| of != id);
        self.keys.retain(|_, ((of, _), _)| of != id);
        self.tokens.retain(|(token, _)| token.task_id != *id);
        let keys = &self.keys;
        self.bodies.retain(|(_, key), _| keys.contains_key(key));
        self.stored.retain(|(_, key), _| keys.contains_key(key));
        self.entries.retain(|entry| entry.task_id != *id);
    }

    /// Records the output that a callback provides.
    pub fn record_callback_output(&mut self, token: &CallbackToken, output: &Value) {
        let account = self.account_mut(&token.task_id, &token.step);
        account.callback_outputs.push(output.clone());
    }
}

fn service_key(request: &StepRequest) -> ServiceKey {
    (request.agent.clone(), request.idempotency_key.clone())
}

/// The item of a call.
fn item(body: Option<&JsonText>) -> Option<Value> {
    body.map(JsonText::value)?.get("item").cloned()
}
