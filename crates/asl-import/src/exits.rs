//! `Catch` after which the machine goes on: the step has `recovery.then: continue`, the states of the handler run if
//! `steps.NAME.failed` is true, and the states after the step if it is not.
//!
//! A failure is one more branch of the machine, so the walk treats it as a choice that comes after the step.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    catch::{self, Handler},
    cel::Cel,
    condition::Condition,
    importer::{Escapes, Importer, Point},
    jsonata, jsonpath,
    machine::{Exit, Flow, Machine, State, StateKind},
    report::Level,
    source::child,
    symbol::Symbol,
};

/// Errors that contain every failure of a step.
const ANY: [&str; 2] = ["States.ALL", "States.TaskFailed"];

/// The names of the errors of a catcher.
fn errors(catcher: &Value) -> impl Iterator<Item = &str> {
    catcher
        .get("ErrorEquals")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether it catches every failure of a step.
fn catches_all(catcher: &Value) -> bool {
    errors(catcher).any(|name| ANY.contains(&name))
}

/// The catcher of all errors decides. Without one, it is the first after which the machine goes on.
fn exit<'a>(machine: &Machine<'a>, state: &State<'a>, normal: &[&'a str]) -> Option<Exit<'a>> {
    let catchers = state.list("Catch").iter().enumerate();
    let mut catchers = catchers.filter_map(|(index, catcher)| {
        let target = catcher.get("Next").and_then(Value::as_str)?;
        Some(Exit { index, target, catcher })
    });
    let goes_on =
        |exit: &Exit<'a>| matches!(catch::handler(machine, exit.target, normal), Handler::GoesOn);
    match catchers.clone().find(|exit| catches_all(exit.catcher)) {
        Some(exit) => Some(exit).filter(goes_on),
        None => catchers.find(goes_on),
    }
}

impl Importer<'_, '_> {
    /// The states that go on after a failure.
    pub(crate) fn exits<'m>(&self, machine: &Machine<'m>) -> BTreeMap<&'m str, Exit<'m>> {
        let (normal, _) = machine.order(&Flow::default());
        let mut exits = BTreeMap::new();
        let (mut open, mut reached) = (vec![machine.start], BTreeSet::new());
        while let Some(state) = open.pop().and_then(|name| machine.states.get(name)) {
            if !reached.insert(state.name) {
                continue;
            }
            open.extend(state.targets());
            if let Some(exit) = exit(machine, state, &normal) {
                open.push(exit.target);
                exits.insert(state.name, exit);
            }
        }
        exits
    }

    /// Adds the way after a failure to the ways after a state.
    pub(crate) fn goes_on<'m>(
        &mut self,
        state: &State<'m>,
        before: &Point,
        exit: &Exit<'m>,
        next: Vec<(Option<&'m str>, Point)>,
    ) -> Vec<(Option<&'m str>, Point)> {
        let Some(step) = self.step_of.get(&state.pointer).cloned() else { return next };
        let (failed, mut next) = self.on_failure(&step, before, next);
        let after = BTreeSet::from([step.clone()]);
        next.push((Some(exit.target), self.after_failure(state, before, exit, failed, after)));
        self.note_on_exit(state, exit, &step);
        let message = format!(
            "`recovery.then: continue` of step `{step}`, and `{}` if it failed",
            exit.target
        );
        self.report_exit(state, exit, message);
        next
    }

    /// Notes how the failure of an item or of a child task differs.
    fn note_on_exit(&mut self, state: &State<'_>, exit: &Exit<'_>, step: &str) {
        let notes = [
            (
                "for_each",
                "after the failure of an item, the other items go on; then the handler runs",
            ),
            (
                "workflow",
                "a child task that fails is in Error, with an alert of its own, while this task goes on",
            ),
        ];
        for (key, note) in notes {
            if self.draft.steps.get(step).is_some_and(|step| step.keys.contains_key(key)) {
                self.report(Level::Note, &at(state, exit.index), &state.pointer, note);
            }
        }
    }

    /// Lets the task go on without a step that fails. Returns the condition of its failure, and the ways with the condition of
    /// its success.
    fn on_failure<'m>(
        &mut self,
        step: &str,
        before: &Point,
        next: Vec<(Option<&'m str>, Point)>,
    ) -> (Condition, Vec<(Option<&'m str>, Point)>) {
        self.set_then(step, "continue");
        let choice = self.rules.len();
        self.rules.push(vec![Cel::member(format!("steps.{step}.failed"))]);
        let succeeded = |(target, point): (Option<&'m str>, Point)| {
            let condition = point.condition.and_branch(choice, 1, 2);
            (target, Point { condition, ..point })
        };
        let failed = before.condition.and_branch(choice, 0, 2);
        (failed, next.into_iter().map(succeeded).collect())
    }

    /// Sets the policy after the failure of a step.
    pub(crate) fn set_then(&mut self, step: &str, then: &str) {
        let Some(step) = self.draft.steps.get_mut(step) else { return };
        let recovery = step.keys.entry("recovery").or_insert_with(|| Value::Object(Map::new()));
        if let Some(recovery) = recovery.as_object_mut() {
            recovery.insert("then".to_owned(), json!(then));
        }
    }

    /// The situation after a failure: the error is not available.
    fn after_failure(
        &mut self,
        state: &State<'_>,
        before: &Point,
        exit: &Exit<'_>,
        condition: Condition,
        after: BTreeSet<String>,
    ) -> Point {
        let mut scope = self.scope(state, before, false);
        let mut variables = before.variables.clone();
        let data = self.caught(state, exit.catcher, before, FORWARD);
        if !state.is_jsonata {
            scope.data = Symbol::unknown("the error", FORWARD);
        }
        let payload = if state.is_jsonata { jsonata::payload } else { jsonpath::payload };
        if let Some(Symbol::Object { fields, .. }) =
            exit.catcher.get("Assign").map(|assigned| payload(&scope, assigned))
        {
            variables.extend(fields);
        }
        Point { condition, after, data, variables }
    }

    /// Reports a catcher after which the machine goes on, and those whose errors now take the same way.
    fn report_exit(&mut self, state: &State<'_>, exit: &Exit<'_>, translated: String) {
        let pointer = at(state, exit.index);
        self.report(Level::Translated, &pointer, &state.pointer, translated);
        if !catches_all(exit.catcher) {
            let names: Vec<_> = errors(exit.catcher).map(|name| format!("`{name}`")).collect();
            let message = format!(
                "only {} is caught; a step cannot tell errors apart by name, so the task goes on with `{}` after every failure. If \
                 that is right, delete this line; if not, delete `then: continue`",
                names.join(" or "),
                exit.target
            );
            self.report(Level::Decision, &pointer, &state.pointer, message);
        } else if errors(exit.catcher).all(|name| name == "States.TaskFailed") {
            let message =
                "`States.TaskFailed` is no timeout; the task goes on after a timeout, too";
            self.report(Level::Note, &pointer, &state.pointer, message);
        }
        for (index, other) in state.list("Catch").iter().enumerate() {
            if index != exit.index && !is_same(other, exit.catcher) {
                self.left_out(state, index, exit.target);
            }
        }
    }

    /// Reports the catchers of errors by name whose state ends otherwise after all other errors.
    pub(crate) fn left_out(&mut self, state: &State<'_>, index: usize, target: &str) {
        let message = format!(
            "left out: a step cannot tell errors apart by name, and the catcher of all errors leads to `{target}`. Map the expected \
             errors to `completed` with `responses`, select `response.status` in `output`, and branch with `when`"
        );
        self.report(Level::Decision, &at(state, index), &state.pointer, message);
    }

    /// A `Parallel` whose `Catch` goes on: each step in it may fail. Returns what the steps around it had collected.
    pub(crate) fn enter_caught_parallel(&mut self) -> Option<Escapes> {
        self.escapes.replace(Escapes::default())
    }

    /// After a step in a `Parallel` whose `Catch` goes on.
    pub(crate) fn may_escape<'m>(
        &mut self,
        state: &State<'m>,
        before: &Point,
        next: Vec<(Option<&'m str>, Point)>,
    ) -> Vec<(Option<&'m str>, Point)> {
        let is_work = matches!(state.kind, StateKind::Task | StateKind::Map);
        let step = self.step_of.get(&state.pointer).filter(|_| is_work).cloned();
        let Some(step) = step.filter(|_| self.escapes.is_some()) else { return next };
        let (failed, next) = self.on_failure(&step, before, next);
        if let Some(escapes) = &mut self.escapes {
            escapes.conditions.push(failed);
            escapes.steps.insert(step);
        }
        next
    }

    /// After a step that fails if it is reached.
    pub(crate) fn escape(&mut self, step: &str, before: &Point) {
        if let Some(escapes) = &mut self.escapes {
            escapes.conditions.push(before.condition.clone());
            escapes.steps.insert(step.to_owned());
            self.set_then(step, "continue");
        }
    }

    /// How many failures have been collected.
    pub(crate) fn escapes_len(&self) -> usize {
        self.escapes.as_ref().map_or(0, |escapes| escapes.conditions.len())
    }

    /// The condition of the failures that have been collected after the first `skipped`.
    pub(crate) fn escaped(&mut self, state: &State<'_>, skipped: usize) -> Condition {
        let conditions = self.escapes.iter().flat_map(|escapes| &escapes.conditions).skip(skipped);
        let failed = conditions.into_iter().try_fold(Condition::Never, |all, one| all.or(one));
        failed.unwrap_or_else(|| {
            let message = "too many steps may fail in the branches";
            self.report(Level::Cannot, &state.pointer, &state.pointer, message);
            Condition::Always
        })
    }

    /// The ways after a `Parallel` whose `Catch` goes on: `end` if no step in it failed.
    pub(crate) fn leave_caught_parallel<'m>(
        &mut self,
        state: &State<'m>,
        before: &Point,
        exit: &Exit<'m>,
        outer: Option<Escapes>,
        end: Option<Point>,
    ) -> Vec<(Option<&'m str>, Point)> {
        let failed = self.escaped(state, 0);
        let escapes = std::mem::replace(&mut self.escapes, outer).unwrap_or_default();
        let mut after = before.after.clone();
        after.extend(escapes.steps);
        let mut next = Vec::new();
        if let Some(mut end) = end {
            end.after.extend(after.iter().cloned());
            next.push((state.text("Next"), end));
        }
        next.push((Some(exit.target), self.after_failure(state, before, exit, failed, after)));
        let message = "the steps of the other branches run to their end after a failure; then the handler runs";
        self.report(Level::Note, &at(state, exit.index), &state.pointer, message);
        let message = format!(
            "`recovery.then: continue` of each step in it, and `{}` if one failed",
            exit.target
        );
        self.report_exit(state, exit, message);
        next
    }
}

/// Why a handler cannot read the error.
const FORWARD: &str = "a task that goes on after a failure knows that the step failed (`steps.NAME.failed`), but not the error";

/// Whether both catchers do the same.
fn is_same(a: &Value, b: &Value) -> bool {
    ["Next", "ResultPath", "Assign", "Output"].iter().all(|key| a.get(key) == b.get(key))
}

/// The pointer of a catcher.
fn at(state: &State<'_>, index: usize) -> String {
    child(&state.at("Catch"), &index.to_string())
}
