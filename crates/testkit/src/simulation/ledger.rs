//! The remote services' books: what was called, what is in progress, what took effect, what was undone,
//! and when; and what those say who were to answer later.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::StepRequest,
    names::{CallbackToken, Part, StepName, TaskId},
};

use super::plan::Millis;

/// A part of a task.
pub(super) type Item = (TaskId, Part);

/// Something that a part did.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) at: Millis,
    pub(super) undone: bool,
    /// The item that it was done for.
    pub(super) item: Option<Value>,
}

/// A call that an agent is waiting for.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) action: Action,
    pub(super) attempt: u32,
}

/// A call as its service sees it. It goes on when its caller no longer waits for it.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) request: Box<StepRequest>,
    pub(super) began_at: Millis,
    /// When it takes effect; nothing if it does not, or already has.
    pub(super) commits_at: Option<Millis>,
    /// When the service is done with it.
    pub(super) ends_at: Millis,
    /// Whether it goes on when its caller hangs up, and as planned.
    pub(super) detached: bool,
}

/// All that the services know of one part of one task.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) effects: Vec<Effect>,
    /// Whether its undo has been asked for.
    pub(super) undo_called: bool,
    /// The calls that are under way, by number.
    pub(super) live: BTreeMap<u64, Call>,
    /// How often the part itself was called.
    pub(super) calls: u32,
    /// The item it was last called for.
    pub(super) item: Option<Value>,
    /// What was answered to each idempotency key of the part itself, and of its undo.
    answers: [BTreeMap<String, Value>; 2],
    /// What was given as its output by those who answered later, and to which attempt.
    pub(super) said: Vec<Value>,
}

impl Account {
    /// Whether something it did has not been undone.
    pub(super) fn stands(&self) -> bool {
        self.effects.iter().any(|effect| !effect.undone)
    }

    /// What the service returned for the part itself.
    pub(super) fn returned(&self) -> impl Iterator<Item = &Value> {
        let [run, _] = &self.answers;
        run.values()
    }

    fn answers(&self, action: Action) -> &BTreeMap<String, Value> {
        let [run, undo] = &self.answers;
        if action == Action::Do { run } else { undo }
    }

    fn answers_mut(&mut self, action: Action) -> &mut BTreeMap<String, Value> {
        let [run, undo] = &mut self.answers;
        if action == Action::Do { run } else { undo }
    }
}

/// All accounts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<Item, Account>,
    /// What each idempotency key was first used for.
    keys: BTreeMap<String, (Item, Action)>,
    /// The calls that the services work on, by number.
    processes: BTreeMap<u64, Process>,
    /// The tokens that somebody has already, with the attempt that handed each out.
    pub(super) tokens: BTreeSet<(CallbackToken, u32)>,
    last_call: u64,
    pub(super) effects: u64,
}

impl Ledger {
    pub(super) fn account(&self, task_id: &TaskId, part: &Part) -> Option<&Account> {
        self.accounts.get(&(task_id.clone(), part.clone()))
    }

    /// The accounts of all parts of a task.
    pub(super) fn of_task(&self, task_id: &TaskId) -> impl Iterator<Item = (&Part, &Account)> {
        let all = self.accounts.iter().filter(move |((of, _), _)| of == task_id);
        all.map(|((_, part), account)| (part, account))
    }

    /// The accounts of all parts of a step.
    pub(super) fn of_step(
        &self,
        task_id: &TaskId,
        step: &StepName,
    ) -> impl Iterator<Item = (&Part, &Account)> {
        self.of_task(task_id).filter(move |(part, _)| part.step == *step)
    }

    fn account_mut(&mut self, task_id: &TaskId, part: &Part) -> &mut Account {
        self.accounts.entry((task_id.clone(), part.clone())).or_default()
    }

    /// A call begins; answers its number.
    pub(super) fn begin(&mut self, process: Process) -> u64 {
        let request = &process.request;
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
        account.live.insert(number, Call { action: request.action, attempt: request.attempt });
        let now = process.began_at;
        self.processes.retain(|_, other| other.commits_at.is_some() || other.ends_at > now);
        self.processes.insert(number, process);
        number
    }

    /// The call is to take effect now; nothing if it already has, or is not to.
    pub(super) fn commit(&mut self, number: u64) -> Option<Box<StepRequest>> {
        let process = self.processes.get_mut(&number)?;
        process.commits_at.take()?;
        Some(process.request.clone())
    }

    /// A call as its service sees it.
    pub(super) fn process_mut(&mut self, number: u64) -> Option<&mut Process> {
        self.processes.get_mut(&number)
    }

    /// Whether the service works on a call with this idempotency key.
    pub(super) fn is_in_progress(&self, key: &str, now: Millis) -> bool {
        self.processes.values().any(|process| {
            process.request.idempotency_key == key
                && process.began_at <= now
                && now < process.ends_at
        })
    }

    /// The calls of a task that will do something that is not done yet.
    pub(super) fn pending(&self, task_id: &TaskId) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(move |process| {
            let request = &process.request;
            request.task_id == *task_id && process.commits_at.is_some() && !self.is_known(request)
        })
    }

    /// Whether a call's idempotency key was used for something else.
    pub(super) fn is_borrowed(&self, request: &StepRequest) -> bool {
        let of = self.keys.get(&request.idempotency_key);
        of.is_some_and(|((task_id, part), action)| {
            (task_id, part, action) != (&request.task_id, &request.step, &request.action)
        })
    }

    /// The agent has its answer, or waits no more.
    pub(super) fn end(&mut self, request: &StepRequest, number: u64) {
        self.account_mut(&request.task_id, &request.step).live.remove(&number);
    }

    /// Whether this call would do nothing that is not done.
    pub(super) fn is_known(&self, request: &StepRequest) -> bool {
        let account = self.account(&request.task_id, &request.step);
        let knows = |account: &Account| {
            account.answers(request.action).contains_key(&request.idempotency_key)
        };
        request.idempotent && account.is_some_and(knows)
    }

    /// The call takes effect; a key that is known does nothing again. Answers what the service says:
    /// what it said the first time, or `answer`.
    pub(super) fn take_effect(
        &mut self,
        request: &StepRequest,
        answer: Value,
        now: Millis,
    ) -> Value {
        let (key, known) = (&request.idempotency_key, self.is_known(request));
        let account = self.account_mut(&request.task_id, &request.step);
        if known && let Some(answer) = account.answers(request.action).get(key) {
            return answer.clone();
        }
        match request.action {
            Action::Do => {
                let item = item(request);
                account.effects.push(Effect { at: now, undone: false, item });
            }
            Action::Undo => account.effects.iter_mut().for_each(|effect| effect.undone = true),
        }
        account.answers_mut(request.action).insert(key.clone(), answer.clone());
        self.effects += 1;
        answer
    }

    /// The services no longer know what an earlier task with this id had them do.
    pub(super) fn forget(&mut self, id: &TaskId) {
        self.accounts.retain(|(of, _), _| of != id);
        self.keys.retain(|_, ((of, _), _)| of != id);
        self.tokens.retain(|(token, _)| token.task_id != *id);
    }

    /// Somebody gives an output, who was to answer later.
    pub(super) fn say(&mut self, token: &CallbackToken, output: &Value) {
        let account = self.account_mut(&token.task_id, &token.step);
        account.said.push(output.clone());
    }
}

/// The item that a call is for.
fn item(request: &StepRequest) -> Option<Value> {
    request.body.as_ref().map(JsonText::value)?.get("item").cloned()
}

/// What is returned for a key: a number below a hundred and a short list among it.
pub(super) fn output(key: &str, now: Millis) -> Value {
    let sum = key.bytes().fold(17_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let roll = (sum >> 3) % 100;
    let items: Vec<_> = (0..roll % 5).map(|n| roll + n).collect();
    json!({ "for": key, "at": now, "roll": roll, "items": items })
}
