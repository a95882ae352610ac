//! The walk over the states of one machine, from the start to the end.
//!
//! For each state, the walk knows on which conditions it runs, which steps come before it, what its data is, and what its
//! variables are. A state becomes a step, or only changes these.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::{
    agent::Agent,
    cel::Cel,
    condition::{Condition, Truth},
    definition::{Definition, Draft, Mark, Step, mark_name},
    deployment,
    error::ImportError,
    jsonata, jsonpath,
    machine::{Flow, Machine, State, StateKind},
    names,
    options::Options,
    recovery::duration,
    report::{Level, Report},
    resource::AgentKind,
    scope::{ContextParts, Scope},
    source::Positions,
    symbol::{Symbol, Untranslatable},
};

/// How deep `Parallel` and `Map` nest.
const NESTING_MAX: usize = 8;

/// What all definitions of one import share.
pub(crate) struct Shared<'a> {
    pub(crate) positions: &'a Positions,
    pub(crate) options: &'a Options,
    /// The substitutions of the deployment in the state machine, by the names of their constants.
    pub(crate) constants: BTreeMap<String, BTreeSet<String>>,
    pub(crate) report: Report,
    pub(crate) agents: IndexMap<String, Agent>,
    pub(crate) workflow_names: BTreeSet<String>,
    /// The definitions of `Map` states with several states, which run as child tasks.
    pub(crate) children: Vec<Draft>,
    pub(crate) depth: usize,
    pub(crate) unique_values: Rc<Cell<u32>>,
}

/// The situation before a state.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) condition: Condition,
    /// The steps that must have completed.
    pub(crate) after: BTreeSet<String>,
    pub(crate) data: Symbol,
    pub(crate) variables: IndexMap<String, Symbol>,
}

/// What fails in a `Parallel` with such a `Catch`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Escapes {
    /// The conditions under which a step in it has failed.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) steps: BTreeSet<String>,
}

/// The import of one definition.
pub(crate) struct Importer<'s, 'a> {
    pub(crate) shared: &'s mut Shared<'a>,
    pub(crate) draft: Draft,
    pub(crate) step_names: BTreeSet<String>,
    /// The step of each state, by the pointer of the state.
    pub(crate) step_of: BTreeMap<String, String>,
    /// The situation before each state that became a step.
    pub(crate) points: BTreeMap<String, Point>,
    /// Marks of states, by the pointer of the state. A state without a step has them at the top of the definition.
    pub(crate) marks: Vec<(String, Mark)>,
    /// The rules of each choice.
    pub(crate) rules: Vec<Vec<Cel>>,
    /// The steps that fail if they are reached. What comes after a `Parallel` comes after those in its branches.
    pub(crate) failing: BTreeSet<String>,
    /// What fails in the `Parallel` around, if its `Catch` goes on.
    pub(crate) escapes: Option<Escapes>,
    /// The seconds that the machine may take, if it has a limit.
    pub(crate) timeout_s: Option<f64>,
    pub(crate) context: ContextParts,
}

impl<'s, 'a> Importer<'s, 'a> {
    pub(crate) fn new(shared: &'s mut Shared<'a>, name: String, context: ContextParts) -> Self {
        let draft = Draft { name, ..Draft::default() };
        Self {
            shared,
            draft,
            step_names: BTreeSet::new(),
            step_of: BTreeMap::new(),
            points: BTreeMap::new(),
            marks: Vec::new(),
            rules: Vec::new(),
            failing: BTreeSet::new(),
            escapes: None,
            timeout_s: None,
            context,
        }
    }

    /// Translates a whole machine, and returns its definition.
    ///
    /// # Errors
    /// The machine has no valid structure.
    pub(crate) fn definition(
        mut self,
        value: &Value,
        pointer: &str,
        is_jsonata: bool,
        start: Point,
    ) -> Result<Draft, ImportError> {
        self.head(value, pointer);
        let end = self.machine(value, pointer, is_jsonata, start)?;
        if self.draft.steps.is_empty() {
            let keys = [("wait".to_owned(), json!("0s"))].into_iter().collect();
            let step = Step { keys, ..Step::default() };
            self.draft.steps.insert("nothing".to_owned(), step);
            let message =
                "no state became a step, and a definition needs one: it waits for no time";
            self.report(Level::Note, pointer, pointer, message);
        }
        if let Some(end) = end {
            let output = self.render(pointer, pointer, &end.data);
            self.draft.output = Some(output);
        }
        self.constants(pointer);
        let pending = std::mem::take(&mut self.marks);
        for (state, mark) in pending {
            let step = self.step_of.get(&state).and_then(|name| self.draft.steps.get_mut(name));
            match step {
                Some(step) => step.marks.push(mark),
                None => self.draft.marks.push(mark),
            }
        }
        Ok(self.draft)
    }

    /// The constants that the definition reads: substitutions of the deployment.
    fn constants(&mut self, pointer: &str) {
        let steps = self.draft.steps.values().flat_map(|step| step.keys.values());
        let templates: Vec<_> = steps.chain(&self.draft.output).cloned().collect();
        let mut env = Map::new();
        for (constant, names) in self.shared.constants.clone() {
            if !templates.iter().any(|template| deployment::reads(template, &constant)) {
                continue;
            }
            let all =
                names.iter().map(|name| format!("`${{{name}}}`")).collect::<Vec<_>>().join(" and ");
            let message = format!(
                "{all} is `env.{constant}`: give its value with `steward workflow publish --env {constant}=VALUE`, or now with `--set`"
            );
            // Two substitutions with one name are two values.
            let level = if names.len() == 1 { Level::Note } else { Level::Decision };
            self.report(level, pointer, pointer, message);
            env.insert(constant, Value::Null);
        }
        if !env.is_empty() {
            self.draft.head.insert("env".to_owned(), Value::Object(env));
        }
    }

    /// The keys of the definition before its steps.
    fn head(&mut self, value: &Value, pointer: &str) {
        let known = [
            "StartAt",
            "States",
            "Comment",
            "QueryLanguage",
            "TimeoutSeconds",
            "Version",
            "ProcessorConfig",
        ];
        let fields = value.as_object();
        for key in fields.into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                let at = crate::source::child(pointer, key);
                self.report(Level::Decision, &at, pointer, format!("unknown key `{key}`"));
            }
        }
        let mut head = Map::new();
        head.insert("name".to_owned(), json!(self.draft.name));
        head.insert("version".to_owned(), json!(1));
        if let Some(comment) = value.get("Comment").and_then(Value::as_str) {
            head.insert("description".to_owned(), json!(comment));
        }
        let timeout = value.get("TimeoutSeconds").and_then(Value::as_f64);
        self.timeout_s = timeout;
        if timeout.is_none() && value.get("TimeoutSeconds").is_some() {
            let at = format!("{pointer}/TimeoutSeconds");
            let message = "deadlines are constants, so that `check` can compare them";
            self.report(Level::Decision, &at, pointer, message);
        }
        let within = match timeout {
            Some(seconds) => {
                let at = format!("{pointer}/TimeoutSeconds");
                self.report(
                    Level::Translated,
                    &at,
                    pointer,
                    "`complete_within`; an overdue task alerts the operator",
                );
                seconds
            }
            None => 365.0 * 86_400.0,
        };
        head.insert("complete_within".to_owned(), json!(duration(within)));
        self.draft.head = head;
    }

    /// Translates the states of a machine or a branch. Returns the situation at its end; `None` if it always fails.
    pub(crate) fn machine(
        &mut self,
        value: &Value,
        pointer: &str,
        is_jsonata: bool,
        start: Point,
    ) -> Result<Option<Point>, ImportError> {
        self.shared.depth += 1;
        if self.shared.depth > NESTING_MAX {
            return Err(self.error(pointer, "`Parallel` and `Map` nest too deep"));
        }
        let machine = Machine::read(value, pointer, is_jsonata)
            .map_err(|(at, message)| self.error(&at, &message))?;
        let (polls, refused) = self.polls(&machine);
        let flow = Flow { exits: self.exits(&machine), polls };
        let (order, back) = machine.order(&flow);
        self.loops(&machine, &back, &refused);
        let mut incoming: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
        incoming.insert(machine.start, vec![start]);
        let mut ends = Vec::new();
        for name in &order {
            let (Some(state), Some(points)) = (machine.states.get(name), incoming.remove(name))
            else {
                continue;
            };
            let point = self.join(&state.pointer, points);
            for key in state.unknown_keys() {
                let message = format!("unknown key `{key}`");
                self.report(Level::Decision, &state.at(key), &state.pointer, message);
            }
            for (target, point) in self.state(state, point, &flow)? {
                match target {
                    Some(target) if back.contains(&(*name, target)) => {}
                    Some(target) => incoming.entry(target).or_default().push(point),
                    None => ends.push(point),
                }
            }
        }
        self.catches(&machine, &order, &flow);
        self.unreachable(&machine);
        self.shared.depth -= 1;
        Ok((!ends.is_empty()).then(|| self.join(pointer, ends)))
    }

    fn loops(
        &mut self,
        machine: &Machine<'_>,
        back: &BTreeSet<(&str, &str)>,
        refused: &BTreeMap<&str, String>,
    ) {
        for (from, to) in back {
            let (Some(from), Some(to)) = (machine.states.get(from), machine.states.get(to)) else {
                continue;
            };
            let why = refused.get(from.name).or_else(|| refused.get(to.name));
            let message = match why {
                Some(why) => format!("a loop back to `{}` that polls: {why}", to.name),
                None => format!(
                    "a loop back to `{}`: steps run once. To poll a service, use `until`; for long work, a `callback`; for a list, \
                     `for_each`",
                    to.name
                ),
            };
            self.report(Level::Decision, &from.pointer, &to.pointer, message);
        }
    }

    /// Reports the states that no transition and no `Catch` leads to.
    fn unreachable(&mut self, machine: &Machine<'_>) {
        let mut reached = BTreeSet::new();
        let mut open = vec![machine.start];
        while let Some(state) = open.pop().and_then(|name| machine.states.get(name)) {
            if reached.insert(state.name) {
                open.extend(state.targets().into_iter().chain(state.handlers()));
            }
        }
        for state in machine.states.values().filter(|state| !reached.contains(state.name)) {
            let message = "no state leads here; it is left out";
            self.report(Level::Note, &state.pointer, &state.pointer, message);
        }
    }

    /// The situation after all of these.
    pub(crate) fn join(&mut self, pointer: &str, points: Vec<Point>) -> Point {
        let mut points = points.into_iter();
        let Some(mut joined) = points.next() else {
            let (condition, data) = (Condition::Never, Symbol::Scalar(Value::Null));
            return Point { condition, after: BTreeSet::new(), data, variables: IndexMap::new() };
        };
        for point in points {
            // The condition of the later situation decides between the two values.
            let test = match point.condition.truth(&self.rules) {
                Truth::Test(test) => test,
                Truth::Constant(value) => Cel::member(value.to_string()),
            };
            joined.data = Symbol::either(&test, point.data, joined.data);
            for (name, value) in point.variables {
                let value = match joined.variables.shift_remove(&name) {
                    Some(other) => Symbol::either(&test, value, other),
                    None => value,
                };
                joined.variables.insert(name, value);
            }
            joined.after.extend(point.after);
            joined.condition = joined.condition.or(&point.condition).unwrap_or_else(|| {
                let message = "the conditions of the branches that lead here are too many";
                self.report(Level::Cannot, pointer, pointer, message);
                Condition::Always
            });
        }
        joined
    }

    /// Adds a step before its keys are complete.
    pub(crate) fn add_step(
        &mut self,
        state: &State<'_>,
        name: &str,
        point: &Point,
        work: Map<String, Value>,
        kind: Option<AgentKind>,
    ) -> String {
        let name = names::unique(name, "_", &mut self.step_names);
        let mut keys = Map::new();
        if let Some(comment) = state.text("Comment") {
            keys.insert("description".to_owned(), json!(comment));
        }
        if !point.after.is_empty() {
            keys.insert("after".to_owned(), json!(point.after));
        }
        match point.condition.truth(&self.rules) {
            Truth::Constant(true) => {}
            Truth::Constant(false) => {
                keys.insert("when".to_owned(), json!("${ false }"));
            }
            Truth::Test(test) => {
                keys.insert("when".to_owned(), json!(format!("${{ {} }}", test.text)));
            }
        }
        keys.extend(work);
        self.draft.steps.insert(name.clone(), Step { keys, marks: Vec::new(), kind });
        self.step_of.entry(state.pointer.clone()).or_insert_with(|| name.clone());
        self.points.insert(state.pointer.clone(), point.clone());
        name
    }

    /// What the expressions of the state read.
    pub(crate) fn scope(&self, state: &State<'_>, point: &Point, has_token: bool) -> Scope {
        Scope {
            data: point.data.clone(),
            variables: point.variables.clone(),
            context: self.context.object(state.name, has_token),
            result: None,
            unique_values: self.shared.unique_values.clone(),
        }
    }

    /// Adds a line to the report. A decision, and what cannot be translated, also marks the state.
    pub(crate) fn report(
        &mut self,
        level: Level,
        pointer: &str,
        state: &str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        let position = self.shared.positions.of(pointer);
        let number = self.shared.report.add(level, pointer, position, message.clone());
        if level >= Level::Decision {
            let mark = Mark { number, level, message, is_placeholder: false };
            self.marks.push((state.to_owned(), mark));
        }
    }

    /// The template of a symbol. What cannot be said is reported, and has a placeholder that `check` refuses.
    pub(crate) fn render(&mut self, pointer: &str, state: &str, symbol: &Symbol) -> Value {
        let position = self.shared.positions.of(pointer);
        let (report, marks) = (&mut self.shared.report, &mut self.marks);
        symbol.template(&mut |why: &Untranslatable| {
            let level = if why.is_decision { Level::Decision } else { Level::Cannot };
            let message = format!("`{}`: {}", why.original, why.reason);
            let number = report.add(level, pointer, position, message.clone());
            let mark = Mark { number, level, message, is_placeholder: true };
            marks.push((state.to_owned(), mark));
            mark_name(level, number)
        })
    }

    /// The symbol as one expression, or a placeholder.
    pub(crate) fn cel(&mut self, pointer: &str, state: &str, symbol: &Symbol) -> Cel {
        match symbol.cel() {
            Ok(cel) => cel,
            Err(why) => {
                let placeholder = self.render(pointer, state, &Symbol::Unknown(why));
                let text = placeholder.as_str().unwrap_or_default();
                let name = text.trim_start_matches("${").trim_end_matches('}').trim();
                Cel::member(name)
            }
        }
    }

    pub(crate) fn error(&self, pointer: &str, message: &str) -> ImportError {
        let position = self.shared.positions.of(pointer);
        let message = crate::source::printable(message);
        ImportError::Invalid { position, pointer: pointer.to_owned(), message }
    }

    /// The data and the variables after a state, given its result.
    pub(crate) fn finish(
        &self,
        state: &State<'_>,
        before: &Point,
        mut scope: Scope,
        result: Symbol,
        after: BTreeSet<String>,
    ) -> Point {
        let mut variables = before.variables.clone();
        let data = if state.is_jsonata {
            scope.result = Some(result.clone());
            if let Some(Value::Object(assigned)) = state.get("Assign") {
                let assigned = assigned.iter();
                variables.extend(
                    assigned.map(|(name, value)| (name.clone(), jsonata::payload(&scope, value))),
                );
            }
            match state.get("Output") {
                Some(output) => jsonata::payload(&scope, output),
                None => result,
            }
        } else {
            let of_result = Scope { data: result.clone(), ..scope.clone() };
            if let Some(assigned) = state.get("Assign")
                && let Symbol::Object { fields, .. } = jsonpath::payload(&of_result, assigned)
            {
                variables.extend(fields);
            }
            let selected = match state.get("ResultSelector") {
                Some(selector) => jsonpath::payload(&of_result, selector),
                None => result,
            };
            let data = result_path(state, &before.data, selected);
            output_path(state, &scope, data)
        };
        Point { condition: before.condition.clone(), after, data, variables }
    }

    /// Records an agent that the definition needs.
    pub(crate) fn agent(&mut self, name: &str, kind: &AgentKind) -> String {
        let mut name = name.to_owned();
        let mut number = 1;
        loop {
            let agent = self
                .shared
                .agents
                .entry(name.clone())
                .or_insert_with(|| Agent::new(name.clone(), kind.clone()));
            if agent.accepts(kind) {
                agent.add(kind.clone());
                return name;
            }
            number += 1;
            let suffix = format!("-{number}");
            name = name.chars().take(36).collect::<String>() + &suffix;
        }
    }

    /// The kinds of states that become no step of their own, or several.
    fn state<'m>(
        &mut self,
        state: &State<'m>,
        point: Point,
        flow: &Flow<'m>,
    ) -> Result<Vec<(Option<&'m str>, Point)>, ImportError> {
        let next = state.text("Next");
        let exit = flow.exits.get(state.name);
        if let (StateKind::Parallel, Some(exit)) = (state.kind, exit) {
            let outer = self.enter_caught_parallel();
            let end = self.parallel(state, &point)?;
            return Ok(self.leave_caught_parallel(state, &point, exit, outer, end));
        }
        let ways = match state.kind {
            StateKind::Task => vec![(next, self.task(state, &point))],
            StateKind::Pass => vec![(next, self.pass(state, &point))],
            StateKind::Wait => vec![(next, self.wait(state, &point))],
            StateKind::Choice => self.choice(state, &point, flow.poll_of_choice(state.name)),
            StateKind::Parallel => match self.parallel(state, &point)? {
                Some(point) => vec![(next, point)],
                None => vec![],
            },
            StateKind::Map => vec![(next, self.map(state, &point)?)],
            StateKind::Succeed => vec![(None, self.pass(state, &point))],
            StateKind::Fail => {
                self.fail(state, &point);
                vec![]
            }
        };
        if let Some(poll) = flow.poll_of_task(state.name) {
            self.poll(state, poll);
        }
        Ok(match exit {
            Some(exit) => self.goes_on(state, &point, exit, ways),
            None => self.may_escape(state, &point, ways),
        })
    }
}

/// `ResultPath`: the result replaces the data, or a part of it, or is dropped.
fn result_path(state: &State<'_>, raw: &Symbol, result: Symbol) -> Symbol {
    match state.get("ResultPath") {
        None => result,
        Some(Value::Null) => raw.clone(),
        Some(Value::String(path)) => match jsonpath::keys(path) {
            Ok(keys) if keys.is_empty() => result,
            Ok(keys) => raw.with(&keys, result),
            Err(why) => Symbol::Unknown(why),
        },
        Some(other) => Symbol::unknown(other.to_string(), "`ResultPath` is a path or null"),
    }
}

/// `OutputPath`: the part of the data that the next state gets.
fn output_path(state: &State<'_>, scope: &Scope, data: Symbol) -> Symbol {
    match state.get("OutputPath") {
        None => data,
        Some(Value::Null) => Symbol::object([]),
        Some(Value::String(path)) => jsonpath::path(&Scope { data, ..scope.clone() }, path),
        Some(other) => Symbol::unknown(other.to_string(), "`OutputPath` is a path or null"),
    }
}

/// `InputPath`: the part of the data that the state reads.
pub(crate) fn input_path(state: &State<'_>, scope: &mut Scope) {
    match state.get("InputPath") {
        None => {}
        Some(Value::Null) => scope.data = Symbol::object([]),
        Some(Value::String(path)) => scope.data = jsonpath::path(scope, path),
        Some(other) => {
            scope.data = Symbol::unknown(other.to_string(), "`InputPath` is a path or null");
        }
    }
}

/// The definitions of an import as YAML.
pub(crate) fn definitions(drafts: &[Draft]) -> Result<Vec<Definition>, ImportError> {
    let definition = |draft: &Draft| {
        let yaml = draft.yaml().map_err(ImportError::Yaml)?;
        Ok(Definition { name: draft.name.clone(), yaml })
    };
    drafts.iter().map(definition).collect()
}
