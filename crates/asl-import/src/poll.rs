//! Loops that poll a job: a task asks how it is, a choice judges the answer, and a wait leads back to the task. They are one
//! step with `until`.
//!
//! The step completes with the first response that leads out of the loop. The choice comes after it, without the branches that
//! lead to the wait. So the condition may read nothing but the response, and each call must send the same request.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::{
    cel::Cel,
    choice,
    condition::{Condition, Truth},
    definition::Step,
    importer::{Importer, Point, input_path},
    machine::{Machine, Poll, State, StateKind},
    recovery::{POLLS_S, STEP_MAX, duration},
    report::Level,
    resource::{self, AgentKind, Completion, Work},
    scope::Scope,
    symbol::{Symbol, Untranslatable},
};

/// The states of a loop that has the form of a poll.
struct Candidate<'m, 'a> {
    task: &'m State<'a>,
    choice: &'m State<'a>,
    wait: &'m State<'a>,
}

impl Importer<'_, '_> {
    /// The loops that become polls, and why others with their form do not, by the name of the wait.
    pub(crate) fn polls<'a>(
        &self,
        machine: &Machine<'a>,
    ) -> (Vec<Poll<'a>>, BTreeMap<&'a str, String>) {
        let (mut polls, mut refused) = (Vec::new(), BTreeMap::new());
        for candidate in machine.states.values().filter_map(|wait| candidate(machine, wait)) {
            match self.poll_of(&candidate) {
                Ok(poll) => polls.push(poll),
                Err(why) => {
                    refused.insert(candidate.wait.name, why);
                }
            }
        }
        (polls, refused)
    }

    fn poll_of<'a>(&self, candidate: &Candidate<'_, 'a>) -> Result<Poll<'a>, String> {
        let Candidate { task, choice, wait } = candidate;
        let Some(every_s) = wait.get("Seconds").and_then(Value::as_f64).filter(|s| *s > 0.0) else {
            return Err("the pause of a poll is a constant".to_owned());
        };
        let changes_data = |fields: &Map<String, Value>| {
            fields.contains_key("Assign") || fields.contains_key("Output")
        };
        let mut rules = choice.list("Choices").iter().filter_map(Value::as_object);
        if changes_data(choice.fields) || rules.any(changes_data) {
            return Err("its choice changes the data".to_owned());
        }
        let nothing =
            |what: &str| Symbol::unknown(what, "the condition of a poll reads only the response");
        let before = |data: Symbol| Point {
            condition: Condition::Always,
            after: Default::default(),
            data,
            variables: IndexMap::new(),
        };
        let first = before(Symbol::path("before"));
        let body = self.response(task, &first)?;
        let mut later = self.after_response(task, &first, &body);
        for state in [choice, wait] {
            later = self.after_state(state, &later);
        }
        let changes = self.request_of(task, &first) != self.request_of(task, &later);
        let judged = self.after_response(task, &before(nothing("$")), &body);
        let mut scope = self.scope(choice, &judged, false);
        scope.context = nothing("$$");
        if !choice.is_jsonata {
            input_path(choice, &mut scope);
        }
        let condition = leaves(choice, wait.name, &scope).map_err(|why| {
            format!("`until` cannot say when it ends: `{}`: {}", why.original, why.reason)
        })?;
        if condition.text.contains("env.") {
            return Err(
                "the condition of a poll reads no constants of `env`; give them with `--set`"
                    .to_owned(),
            );
        }
        let (task, choice, wait) = (task.name, choice.name, wait.name);
        Ok(Poll { task, choice, wait, condition, every_s, changes })
    }

    /// The result of the state, as an expression over `response`.
    fn response(&self, task: &State<'_>, before: &Point) -> Result<Symbol, String> {
        let text = task.text("Resource").unwrap_or_default();
        let input = self.request_of(task, before);
        match resource::work(text, &input, &self.shared.options.region) {
            Ok(Work::Call(call)) if matches!(call.kind, AgentKind::Http(..) | AgentKind::Aws(_) | AgentKind::Own(_)) => {
                let body = Symbol::path("response.body");
                // The `output` of the step selects body and status.
                let output = match call.output {
                    None => body,
                    Some(_) => Symbol::object([
                        ("ResponseBody".to_owned(), body),
                        ("StatusCode".to_owned(), Symbol::path("response.status")),
                    ]),
                };
                Ok(call.result.of(output))
            }
            Ok(Work::Call(call)) if matches!(call.kind, AgentKind::Lambda(_)) => Err(
                "agents of kind `lambda` do not judge responses, so a step that calls a function has no `until`. Let the job complete a \
                 step with a `callback`, or call the API of the service, or the URL of the function, over HTTP"
                    .to_owned(),
            ),
            Ok(Work::Call(_) | Work::Child { .. }) | Err(_) => {
                Err("only a call over HTTP can have `until`; or let the job complete a step with a `callback`".to_owned())
            }
        }
    }

    fn request_of(&self, task: &State<'_>, before: &Point) -> Symbol {
        let mut scope = self.scope(task, before, false);
        self.effective_input(task, &mut scope)
    }

    fn after_response(&self, task: &State<'_>, before: &Point, body: &Symbol) -> Point {
        let mut scope = self.scope(task, before, false);
        if !task.is_jsonata {
            input_path(task, &mut scope);
        }
        self.finish(task, before, scope, body.clone(), Default::default())
    }

    /// The situation after a state that only has paths.
    fn after_state(&self, state: &State<'_>, before: &Point) -> Point {
        let mut scope = self.scope(state, before, false);
        if !state.is_jsonata {
            input_path(state, &mut scope);
        }
        let result = scope.data.clone();
        self.finish(state, before, scope, result, Default::default())
    }

    /// Makes the step of a task a poll.
    pub(crate) fn poll(&mut self, task: &State<'_>, poll: &Poll<'_>) {
        let Some(name) = self.step_of.get(&task.pointer).cloned() else { return };
        let limit_s = self.timeout_s.unwrap_or(POLLS_S).min(STEP_MAX.as_secs_f64());
        let every = duration(poll.every_s);
        if let Some(step) = self.draft.steps.get_mut(&name) {
            let condition = format!("${{ {} }}", poll.condition.text);
            let until = json!({ "condition": condition, "every": every });
            step.keys.insert("until".to_owned(), until);
            let recovery = step.keys.entry("recovery").or_insert_with(|| Value::Object(Map::new()));
            if let Some(recovery) = recovery.as_object_mut() {
                recovery.insert("give_up_after".to_owned(), json!(duration(limit_s)));
            }
        }
        let at = &task.pointer;
        let message =
            format!("the loop of `{}` and `{}`: `until`, every {every}", poll.choice, poll.wait);
        self.report(Level::Translated, at, at, message);
        if self.timeout_s.is_none() {
            let limit = duration(limit_s);
            let message = format!(
                "the state machine has no `TimeoutSeconds`: the step polls for at most {limit}"
            );
            self.report(Level::Note, at, at, message);
        }
        let is_own = |step: &Step| matches!(step.kind, Some(AgentKind::Own(_)));
        if self.draft.steps.get(&name).is_some_and(is_own) {
            let message =
                "the agent of your own must judge `responses`: `until` is a short form of them";
            self.report(Level::Note, at, at, message);
        }
        if poll.changes {
            let message = "later calls of the loop send what the response before returned; a poll sends the first request again. If both \
                           are the same, delete this line";
            self.report(Level::Decision, at, at, message);
        }
    }
}

/// The loop of this wait, if it has the form of a poll.
fn candidate<'m, 'a>(machine: &'m Machine<'a>, wait: &'m State<'a>) -> Option<Candidate<'m, 'a>> {
    let next = |state: &State<'a>| state.text("Next").and_then(|name| machine.states.get(name));
    let task =
        next(wait).filter(|task| task.kind == StateKind::Task && wait.kind == StateKind::Wait)?;
    let choice = next(task).filter(|choice| choice.kind == StateKind::Choice)?;
    let leads_to = |state: &State<'a>, name: &str| {
        state.targets().contains(&name) || state.handlers().contains(&name)
    };
    let is_only_way = |to: &str, from: &str| {
        let mut states = machine.states.values();
        states.all(|state| state.name == from || !leads_to(state, to)) && machine.start != to
    };
    let is_poll = choice.targets().contains(&wait.name)
        && !choice.targets().contains(&task.name)
        && is_only_way(choice.name, task.name)
        && resource::completion(task.text("Resource").unwrap_or_default()) == Completion::Response;
    is_poll.then_some(Candidate { task, choice, wait })
}

/// The expression that is true if the choice leads out of the loop.
fn leaves(choice: &State<'_>, wait: &str, scope: &Scope) -> Result<Cel, Untranslatable> {
    let entries = choice.list("Choices");
    let empty = Map::new();
    let rules =
        entries.iter().map(|entry| choice::rule(scope, entry.as_object().unwrap_or(&empty)));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    let branches = rules.len() + 1;
    let targets = entries.iter().map(|entry| entry.get("Next").and_then(Value::as_str));
    let mut condition = Condition::Never;
    for (branch, target) in targets.chain([choice.text("Default")]).enumerate() {
        if target != Some(wait) {
            let taken = Condition::Always.and_branch(0, branch, branches);
            condition = condition.or(&taken).unwrap_or(Condition::Always);
        }
    }
    match condition.truth(&[rules]) {
        Truth::Test(test) => Ok(test),
        Truth::Constant(_) => {
            Err(Untranslatable::new(choice.name, "it always has the same answer"))
        }
    }
}
