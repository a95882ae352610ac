//! `Catch` after which the machine does not go on.
//!
//! After a failure, a task stops in Error, with an alert, so a `Catch` that leads to `Fail` needs nothing. One that leads to
//! states that reverse the effects of earlier states, and then to `Fail`, becomes the `undo` of those steps. After all others the
//! task goes on ([`crate::exits`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    importer::{Importer, Point},
    jsonata, jsonpath,
    machine::{Flow, Machine, State, StateKind},
    names,
    recovery::{self},
    report::Level,
    resource::{self, AgentKind, Work},
    source::child,
    symbol::Symbol,
};

/// First words of states that reverse something.
const REVERSING: [&str; 18] = [
    "cancel",
    "refund",
    "release",
    "delete",
    "undo",
    "rollback",
    "revert",
    "compensate",
    "remove",
    "void",
    "unreserve",
    "reverse",
    "restore",
    "return",
    "unbook",
    "deprovision",
    "detach",
    "deregister",
];

/// First words of states that do something that can be reversed.
const DOING: [&str; 22] = [
    "reserve",
    "book",
    "charge",
    "create",
    "process",
    "make",
    "add",
    "update",
    "place",
    "take",
    "debit",
    "do",
    "request",
    "allocate",
    "provision",
    "submit",
    "confirm",
    "pay",
    "insert",
    "put",
    "attach",
    "register",
];

/// What a handler does.
pub(crate) enum Handler<'m, 'a> {
    /// It only leads to `Fail`.
    Fails,
    /// It runs these tasks one after the other, of which some reverse earlier ones, and then fails or ends.
    Reverses { tasks: Vec<&'m State<'a>>, fails: bool },
    /// It does anything else: the task goes on.
    GoesOn,
}

/// A state with a `Catch`, and one of its catchers.
struct Catcher<'m, 'a> {
    state: &'m State<'a>,
    pointer: String,
    value: &'a Value,
}

/// The handlers that reverse earlier tasks: the catchers that lead there, their tasks, and whether they fail then.
type Chains<'m, 'a> = Vec<(Vec<Catcher<'m, 'a>>, Vec<&'m State<'a>>, bool)>;

impl Importer<'_, '_> {
    /// Translates each `Catch` of a machine after which it does not go on.
    pub(crate) fn catches(&mut self, machine: &Machine<'_>, order: &[&str], flow: &Flow<'_>) {
        let (normal, _) = machine.order(&Flow::default());
        let mut by_target: BTreeMap<&str, Vec<Catcher<'_, '_>>> = BTreeMap::new();
        for state in order.iter().filter_map(|name| machine.states.get(name)) {
            if flow.exits.contains_key(state.name) {
                continue;
            }
            for (index, value) in state.list("Catch").iter().enumerate() {
                let pointer = child(&state.at("Catch"), &index.to_string());
                let Some(target) = value.get("Next").and_then(Value::as_str) else { continue };
                by_target.entry(target).or_default().push(Catcher { state, pointer, value });
            }
        }
        let (mut chains, mut dropped) = (Vec::new(), BTreeSet::new());
        for (target, catchers) in by_target {
            let handler = handler(machine, target, &normal);
            if let Handler::Fails | Handler::Reverses { .. } = handler {
                dropped.extend(dropped_cause(machine, target));
            }
            match handler {
                Handler::Fails => {
                    for catcher in &catchers {
                        let message = "leads to `Fail`: the task stops in Error with an alert";
                        let state = &catcher.state.pointer;
                        self.report(Level::Translated, &catcher.pointer, state, message);
                    }
                }
                Handler::GoesOn => self.by_name(&catchers, target),
                Handler::Reverses { tasks, fails } => chains.push((catchers, tasks, fails)),
            }
        }
        self.compensations(machine, order, &normal, chains);
        for pointer in dropped {
            let message = "`Error` and `Cause` are not kept: the error of the task says which step failed, and why";
            self.report(Level::Note, &pointer, &pointer, message);
        }
    }

    /// Reports the catchers of errors by name, of states that end after all other errors.
    fn by_name(&mut self, catchers: &[Catcher<'_, '_>], target: &str) {
        for catcher in catchers {
            let message = format!(
                "the handler `{target}` is left out: a step cannot tell errors apart by name, and the task does not go on after the others"
            );
            self.report(Level::Decision, &catcher.pointer, &catcher.state.pointer, message);
        }
    }

    /// Translates the handlers that are chains of tasks: compensations become undos.
    fn compensations<'m, 'a>(
        &mut self,
        machine: &'m Machine<'a>,
        order: &[&str],
        normal: &[&str],
        chains: Chains<'m, 'a>,
    ) {
        let forward = tasks(machine, normal);
        let mut undos: BTreeMap<&str, &State<'a>> = BTreeMap::new();
        let mut compensated = Vec::new();
        let mut left_out: Vec<&State<'a>> = Vec::new();
        for (catchers, tasks, fails) in chains {
            let reversed: Vec<_> = tasks.iter().map(|task| reversed_by(task, &forward)).collect();
            let mut names = Vec::new();
            for (task, forward) in tasks.iter().zip(&reversed) {
                match forward {
                    Some(forward) => {
                        undos.insert(forward.name, task);
                        names.push(forward.name);
                    }
                    None => left_out.push(*task),
                }
            }
            let is_exact = reversed.iter().all(Option::is_some);
            compensated.push((catchers, names, fails && is_exact));
        }
        left_out.sort_by_key(|task| task.name);
        left_out.dedup_by_key(|task| task.name);
        for task in left_out {
            let message = "runs after the compensations of a failure and is left out. For a message, use the alert or `lifecycle_events: [undone]`";
            self.report(Level::Decision, &task.pointer, &task.pointer, message);
        }
        let steps: Vec<_> = forward.iter().map(|state| state.name).collect();
        let is_certain = compensated.iter().all(|(catchers, reversed, fails)| {
            *fails && catchers.iter().all(|catcher| covers(&steps, catcher, reversed, &undos))
        }) && undos.iter().all(|(state, task)| is_exact(task.name, state));
        for (catchers, _, _) in &compensated {
            for catcher in catchers {
                self.undo_on_failure(catcher, is_certain);
            }
        }
        for (name, task) in &undos {
            let catcher =
                compensated.iter().rev().flat_map(|(catchers, ..)| catchers.iter().rev()).next();
            if let (Some(state), Some(catcher)) = (machine.states.get(name), catcher) {
                self.undo(state, task, catcher, is_certain);
            }
        }
        self.missing_undos(
            &tasks(machine, order),
            &compensated.iter().flat_map(|(catchers, ..)| catchers).collect::<Vec<_>>(),
            &undos,
        );
    }

    /// Sets `recovery.then: undo` of a state whose `Catch` leads to compensations.
    fn undo_on_failure(&mut self, catcher: &Catcher<'_, '_>, is_certain: bool) {
        let pointer = &catcher.state.pointer;
        let step = self.step_of.get(pointer).and_then(|name| self.draft.steps.get_mut(name));
        let recovery = step.and_then(|step| step.keys.get_mut("recovery")?.as_object_mut());
        match recovery.filter(|recovery| recovery.get("then") != Some(&json!("continue"))) {
            Some(recovery) => {
                recovery.insert("then".to_owned(), json!("undo"));
                let message = "leads to compensations: `recovery.then: undo`";
                self.report(Level::Translated, &catcher.pointer, pointer, message);
                if !is_certain {
                    let message = "the compensations do not run in the reverse order of exactly the steps before; Steward undoes every \
                                   step that may have run, in reverse order. Check that this is meant";
                    self.report(Level::Decision, &catcher.pointer, pointer, message);
                }
            }
            None => {
                let message = "leads to compensations, but the failure may come from several steps: give each `recovery.then: undo`";
                self.report(Level::Decision, &catcher.pointer, pointer, message);
            }
        }
    }

    /// Adds the undo of a step, from the task that reverses it.
    fn undo(
        &mut self,
        state: &State<'_>,
        task: &State<'_>,
        catcher: &Catcher<'_, '_>,
        is_certain: bool,
    ) {
        let Some(name) = self.step_of.get(&state.pointer).cloned() else { return };
        let Some(point) = self.points.get(&catcher.state.pointer).cloned() else { return };
        let data = self.caught(catcher.state, catcher.value, &point, BACKWARD);
        let point = Point { data, ..point };
        let mut scope = self.scope(task, &point, false);
        let input = self.effective_input(task, &mut scope);
        let work = resource::work(
            task.text("Resource").unwrap_or_default(),
            &input,
            &self.shared.options.region,
        );
        let step_kind = self.draft.steps.get(&name).and_then(|step| step.kind.clone());
        let call = match (work, step_kind) {
            (Ok(Work::Call(call)), Some(kind)) if shares_agent(&kind, &call.kind) => call,
            (Ok(Work::Call(_) | Work::Child { .. }) | Err(_), _) => {
                let message = format!(
                    "reverses `{}`, but an undo calls the agent of its step: this call needs another agent, or functions whose names are \
                     known (`--set`)",
                    state.name
                );
                return self.report(Level::Decision, &task.pointer, &state.pointer, message);
            }
        };
        let mut call = *call;
        call.decisions.clear();
        // The agent of the step makes the call, so its role needs the target of the undo, too.
        let agent = self
            .draft
            .steps
            .get(&name)
            .and_then(|step| step.keys.get("agent")?.as_str().map(str::to_owned));
        if let Some(agent) = agent.as_ref().and_then(|agent| self.shared.agents.get_mut(agent)) {
            agent.add(call.kind.clone());
        }
        let pointer = state.pointer.clone();
        let request = self.request(&State { pointer: task.pointer.clone(), ..task.clone() }, &call);
        for (owner, _) in self.marks.iter_mut().filter(|(owner, _)| *owner == task.pointer) {
            owner.clone_from(&pointer);
        }
        self.check_reads(&name, &request, task, state);
        let mut undo = Map::new();
        undo.insert("request".to_owned(), request);
        undo.insert("recovery".to_owned(), Value::Object(recovery::recovery(task).keys));
        if let Some(step) = self.draft.steps.get_mut(&name) {
            step.keys.insert("undo".to_owned(), Value::Object(undo));
        }
        let message = format!(
            "the undo of step `{name}`; Steward calls it unless the step certainly did not run"
        );
        self.report(Level::Translated, &task.pointer, &pointer, message);
        if !is_certain {
            let message = format!("check that it reverses exactly `{}`", state.name);
            self.report(Level::Decision, &task.pointer, &pointer, message);
        }
    }

    /// An undo reads the outputs of its own step and of the steps before it, but not of later ones.
    fn check_reads(&mut self, name: &str, request: &Value, task: &State<'_>, state: &State<'_>) {
        let text = request.to_string();
        let before = self.steps_before(name);
        let later: Vec<_> = self
            .draft
            .steps
            .keys()
            .filter(|other| *other != name && !before.contains(*other))
            .filter(|other| text.contains(&format!("steps.{other}.output")))
            .cloned()
            .collect();
        for other in later {
            let message =
                format!("the undo of `{name}` reads the output of `{other}`, which runs later");
            self.report(Level::Decision, &task.pointer, &state.pointer, message);
        }
    }

    fn steps_before(&self, name: &str) -> BTreeSet<String> {
        let mut before = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(step) = open.pop() {
            let after = self.draft.steps.get(&step).and_then(|step| step.keys.get("after"));
            for other in
                after.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            {
                if before.insert(other.to_owned()) {
                    open.push(other.to_owned());
                }
            }
        }
        before
    }

    /// The data of a handler: the data of the state that failed, with the error at `ResultPath`. `why` the error is not available.
    pub(crate) fn caught(
        &self,
        state: &State<'_>,
        catcher: &Value,
        before: &Point,
        why: &str,
    ) -> Symbol {
        let error = Symbol::unknown("the error", why);
        if state.is_jsonata {
            let scope = self.scope(state, before, false);
            return match catcher.get("Output") {
                Some(output) => jsonata::payload(&scope, output),
                None => error,
            };
        }
        match catcher.get("ResultPath") {
            Some(Value::Null) => before.data.clone(),
            Some(Value::String(path)) => match jsonpath::keys(path) {
                Ok(keys) => before.data.with(&keys, error),
                Err(why) => Symbol::Unknown(why),
            },
            Some(_) | None => error,
        }
    }

    /// Reports the steps that have no undo, although the task may be undone.
    fn missing_undos(
        &mut self,
        forward: &[&State<'_>],
        catchers: &[&Catcher<'_, '_>],
        undos: &BTreeMap<&str, &State<'_>>,
    ) {
        if catchers.is_empty() {
            return;
        }
        for state in forward.iter().filter(|state| !undos.contains_key(state.name)) {
            let action =
                state.text("Resource").and_then(|text| text.rsplit(':').next()).unwrap_or_default();
            let words = names::words(state.name);
            let reads = resource::is_read(action)
                || words.first().is_some_and(|word| resource::is_read(word));
            if !reads {
                let message = "no undo: the task may be undone after this step. If the step has an effect, give it an `undo`; if not, delete \
                               this line";
                self.report(Level::Decision, &state.pointer, &state.pointer, message);
            }
        }
    }
}

/// The pointer of the `Fail` state at the end of a handler, if it says something of the failure.
fn dropped_cause(machine: &Machine<'_>, target: &str) -> Option<String> {
    let mut next = machine.states.get(target);
    // Such a handler is a chain without loops.
    while let Some(state) = next.filter(|state| state.kind != StateKind::Fail) {
        next = state.text("Next").and_then(|name| machine.states.get(name));
    }
    let keys = ["Error", "ErrorPath", "Cause", "CausePath"];
    let state = next.filter(|state| keys.iter().any(|key| state.get(key).is_some()))?;
    Some(state.pointer.clone())
}

/// The tasks among these states.
fn tasks<'m, 'a>(machine: &'m Machine<'a>, names: &[&str]) -> Vec<&'m State<'a>> {
    let states = names.iter().filter_map(|name| machine.states.get(*name));
    states.filter(|state| state.kind == StateKind::Task).collect()
}

/// Follows a handler to its end. `normal`: the states that also run without a failure.
pub(crate) fn handler<'m, 'a>(
    machine: &'m Machine<'a>,
    target: &str,
    normal: &[&str],
) -> Handler<'m, 'a> {
    let mut chain = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = Some(target);
    let mut fails = false;
    while let Some(state) = next.and_then(|name| machine.states.get(name)) {
        let is_fail = state.kind == StateKind::Fail;
        if is_fail && chain.is_empty() {
            return Handler::Fails;
        }
        if !is_fail && normal.contains(&state.name) || !seen.insert(state.name) {
            return Handler::GoesOn;
        }
        match state.kind {
            StateKind::Fail => fails = true,
            StateKind::Task => chain.push(state),
            StateKind::Pass | StateKind::Succeed => {}
            StateKind::Choice | StateKind::Wait | StateKind::Parallel | StateKind::Map => {
                return Handler::GoesOn;
            }
        }
        next = state.text("Next");
    }
    let forward = tasks(machine, normal);
    match chain.iter().any(|task| reversed_by(task, &forward).is_some()) {
        true => Handler::Reverses { tasks: chain, fails },
        false => Handler::GoesOn,
    }
}

/// The state that a task reverses, by their names: `CancelHotel` reverses `ReserveHotel`. Of several, the first with the most
/// words in common.
fn reversed_by<'m, 'a>(task: &State<'_>, forward: &[&'m State<'a>]) -> Option<&'m State<'a>> {
    let words = names::words(task.name);
    let nouns = nouns(&words);
    if !words.iter().any(|word| REVERSING.contains(&word.as_str())) {
        return None;
    }
    let mut best: Option<(usize, &State<'a>)> = None;
    for state in forward {
        let other = names::words(state.name);
        if other.iter().any(|word| REVERSING.contains(&word.as_str())) {
            continue;
        }
        let common = self::nouns(&other).iter().filter(|word| nouns.contains(word)).count();
        if common > best.map_or(0, |(count, _)| count) {
            best = Some((common, state));
        }
    }
    best.map(|(_, state)| state)
}

/// The words of a name without its verbs.
fn nouns(words: &[String]) -> Vec<&str> {
    let words = words.iter().map(String::as_str);
    words.filter(|word| !REVERSING.contains(word) && !DOING.contains(word)).collect()
}

/// Whether both names have the same nouns, so that no other state is meant.
fn is_exact(task: &str, state: &str) -> bool {
    let (task, state) = (names::words(task), names::words(state));
    nouns(&task) == nouns(&state)
}

/// Whether the chain of a catcher reverses exactly the steps with an undo before its state, the last first. The state itself may
/// be included.
fn covers(
    steps: &[&str],
    catcher: &Catcher<'_, '_>,
    reversed: &[&str],
    undos: &BTreeMap<&str, &State<'_>>,
) -> bool {
    let Some(own) = steps.iter().position(|step| *step == catcher.state.name) else { return false };
    let upto = |end: usize| -> Vec<&str> {
        let before = steps.iter().take(end).rev();
        before.copied().filter(|step| undos.contains_key(step)).collect()
    };
    reversed == upto(own) || reversed == upto(own + 1)
}

/// Why an undo cannot read the error.
const BACKWARD: &str = "an undo does not know the error";

/// Whether the agent of a step can make the other call: with another function, queue, bus or action among its targets, or at the
/// same URL.
fn shares_agent(step: &AgentKind, undo: &AgentKind) -> bool {
    match (step, undo) {
        (AgentKind::Lambda(step), AgentKind::Lambda(undo)) => {
            step == undo || !(step.contains("${") || undo.contains("${"))
        }
        (AgentKind::Sqs(_), AgentKind::Sqs(_))
        | (AgentKind::Events(_), AgentKind::Events(_))
        | (AgentKind::Aws(_), AgentKind::Aws(_)) => true,
        (AgentKind::Http(..), AgentKind::Http(..)) => step == undo,
        _ => false,
    }
}
