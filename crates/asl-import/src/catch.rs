//! `Catch`: what happens after a failure.
//!
//! Steward has no failure branches. After a failure, a task either stops in Error, with an alert, or is undone. So a `Catch`
//! that leads to `Fail` needs nothing. A `Catch` that leads to states that reverse the effects of earlier states, and then to
//! `Fail`, becomes the `undo` of those steps. Each other handler is reported.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    importer::{Importer, Point},
    machine::{Machine, State, StateKind},
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
enum Handler<'m, 'a> {
    /// It only leads to `Fail`.
    Fails,
    /// It runs these tasks one after the other, and then fails or ends.
    Chain { tasks: Vec<&'m State<'a>>, fails: bool },
    /// It goes on with states that also run without a failure.
    Continues(&'a str),
    /// It has branches.
    Branches,
}

/// A state with a `Catch`, and the index of the catcher.
struct Catcher<'m, 'a> {
    state: &'m State<'a>,
    pointer: String,
    target: &'a str,
    result_path: Option<&'a Value>,
}

impl Importer<'_, '_> {
    /// Translates the `Catch` of all states of a machine.
    pub(crate) fn catches(&mut self, machine: &Machine<'_>, order: &[&str]) {
        let normal: BTreeSet<&str> = order.iter().copied().collect();
        let mut by_target: BTreeMap<&str, Vec<Catcher<'_, '_>>> = BTreeMap::new();
        for state in order.iter().filter_map(|name| machine.states.get(name)) {
            for (index, catcher) in state.list("Catch").iter().enumerate() {
                let pointer = child(&state.at("Catch"), &index.to_string());
                let Some(target) = catcher.get("Next").and_then(Value::as_str) else { continue };
                let result_path = catcher.get("ResultPath");
                by_target.entry(target).or_default().push(Catcher {
                    state,
                    pointer,
                    target,
                    result_path,
                });
            }
        }
        let mut chains = Vec::new();
        for (target, catchers) in by_target {
            match handler(machine, target, &normal) {
                Handler::Fails => {
                    for catcher in &catchers {
                        let message = "leads to `Fail`: the task stops in Error with an alert";
                        self.report(Level::Translated, &catcher.pointer, &catcher.state.pointer, message);
                    }
                }
                Handler::Continues(state) => self.refuse(&catchers, &format!(
                    "goes on with `{state}` after a failure: there are no failure branches. Map the expected errors to `completed` with \
                     `responses`, select `response.status` in `output`, and branch with `when`"
                )),
                Handler::Branches => self.refuse(&catchers, &format!(
                    "`{target}` handles the failure with choices, waits or branches: there are no failure branches"
                )),
                Handler::Chain { tasks, fails } => chains.push((catchers, tasks, fails)),
            }
        }
        self.compensations(machine, order, chains);
        self.dropped_causes(machine, &normal);
    }

    /// Reports what the `Fail` states after failures say of them.
    fn dropped_causes(&mut self, machine: &Machine<'_>, normal: &BTreeSet<&str>) {
        let is_dropped = |state: &&State<'_>| {
            let keys = ["Error", "ErrorPath", "Cause", "CausePath"];
            state.kind == StateKind::Fail
                && !normal.contains(state.name)
                && keys.iter().any(|key| state.get(key).is_some())
        };
        for state in machine.states.values().filter(is_dropped) {
            let message = "`Error` and `Cause` are not kept: the error of the task says which step failed, and why";
            self.report(Level::Note, &state.pointer, &state.pointer, message);
        }
    }

    fn refuse(&mut self, catchers: &[Catcher<'_, '_>], message: &str) {
        for catcher in catchers {
            self.report(Level::Cannot, &catcher.pointer, &catcher.state.pointer, message);
        }
    }

    /// Translates the handlers that are chains of tasks: compensations become undos.
    fn compensations<'m, 'a>(
        &mut self,
        machine: &'m Machine<'a>,
        order: &[&str],
        chains: Vec<(Vec<Catcher<'m, 'a>>, Vec<&'m State<'a>>, bool)>,
    ) {
        let forward: Vec<_> = order
            .iter()
            .filter_map(|name| machine.states.get(name))
            .filter(|state| state.kind == StateKind::Task)
            .collect();
        let mut undos: BTreeMap<&str, &State<'a>> = BTreeMap::new();
        let mut compensated = Vec::new();
        let mut left_out: Vec<&State<'a>> = Vec::new();
        for (catchers, tasks, fails) in chains {
            let reversed: Vec<_> = tasks.iter().map(|task| reversed_by(task, &forward)).collect();
            if reversed.iter().all(Option::is_none) {
                self.left_out(&catchers);
                continue;
            }
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
            &forward,
            &compensated.iter().flat_map(|(catchers, ..)| catchers).collect::<Vec<_>>(),
            &undos,
        );
    }

    fn left_out(&mut self, catchers: &[Catcher<'_, '_>]) {
        for catcher in catchers {
            let message = format!(
                "`{}` handles the failure: the task stops in Error with an alert instead, and the handler is left out. For a message, \
                 use the alert or `lifecycle_events`; for a compensation, `undo` and `recovery.then: undo`",
                catcher.target
            );
            self.report(Level::Decision, &catcher.pointer, &catcher.state.pointer, message);
        }
    }

    /// Sets `recovery.then: undo` of a state whose `Catch` leads to compensations.
    fn undo_on_failure(&mut self, catcher: &Catcher<'_, '_>, is_certain: bool) {
        let pointer = &catcher.state.pointer;
        let step = self.step_of.get(pointer).and_then(|name| self.draft.steps.get_mut(name));
        let recovery = step.and_then(|step| step.keys.get_mut("recovery")?.as_object_mut());
        match recovery {
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
        let point = Point { data: caught(catcher, &point.data), ..point };
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

/// Follows a handler to its end.
fn handler<'m, 'a>(
    machine: &'m Machine<'a>,
    target: &'a str,
    normal: &BTreeSet<&str>,
) -> Handler<'m, 'a> {
    let mut tasks = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = Some(target);
    while let Some(state) = next.and_then(|name| machine.states.get(name)) {
        if state.kind == StateKind::Fail {
            return match tasks.is_empty() {
                true => Handler::Fails,
                false => Handler::Chain { tasks, fails: true },
            };
        }
        if normal.contains(state.name) {
            return Handler::Continues(state.name);
        }
        if !seen.insert(state.name) {
            return Handler::Branches;
        }
        match state.kind {
            StateKind::Task => tasks.push(state),
            StateKind::Pass | StateKind::Succeed => {}
            StateKind::Choice
            | StateKind::Wait
            | StateKind::Parallel
            | StateKind::Map
            | StateKind::Fail => {
                return Handler::Branches;
            }
        }
        next = state.text("Next");
    }
    match tasks.is_empty() {
        true => Handler::Continues("the end"),
        false => Handler::Chain { tasks, fails: false },
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

/// The data of a handler: the data of the state that failed, with the error at `ResultPath`.
fn caught(catcher: &Catcher<'_, '_>, data: &Symbol) -> Symbol {
    let error = Symbol::unknown("the error", "an undo does not know the error");
    match catcher.result_path {
        Some(Value::Null) => data.clone(),
        Some(Value::String(path)) => match crate::jsonpath::keys(path) {
            Ok(keys) => data.with(&keys, error),
            Err(why) => Symbol::Unknown(why),
        },
        Some(_) | None if catcher.state.is_jsonata => data.clone(),
        Some(_) | None => error,
    }
}

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
