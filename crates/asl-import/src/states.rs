//! The translation of each kind of state.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use steward_core::limits;

use crate::{
    choice, deployment,
    error::ImportError,
    importer::{Importer, Point, input_path},
    jsonata, jsonpath,
    machine::{Poll, State},
    recovery::duration,
    report::Level,
    scope::Scope,
    source::child,
    symbol::{Symbol, literal},
};

impl Importer<'_, '_> {
    /// The effective input of a state: `Parameters` or `Arguments`, or else its data.
    pub(crate) fn effective_input(&self, state: &State<'_>, scope: &mut Scope) -> Symbol {
        if state.is_jsonata {
            return match state.get("Arguments") {
                Some(arguments) => jsonata::payload(scope, arguments),
                None => scope.data.clone(),
            };
        }
        input_path(state, scope);
        match state.get("Parameters") {
            Some(parameters) => jsonpath::payload(scope, parameters),
            None => scope.data.clone(),
        }
    }

    /// `Pass` and `Succeed`: they only change the data.
    pub(crate) fn pass(&mut self, state: &State<'_>, point: &Point) -> Point {
        let mut scope = self.scope(state, point, false);
        let input = self.effective_input(state, &mut scope);
        let result = match state.get("Result") {
            Some(result) if !state.is_jsonata => constant(result),
            Some(_) | None => input,
        };
        self.report(
            Level::Translated,
            &state.pointer,
            &state.pointer,
            "no step; later steps read its values as expressions",
        );
        self.finish(state, point, scope, result, point.after.clone())
    }

    pub(crate) fn wait(&mut self, state: &State<'_>, point: &Point) -> Point {
        let mut scope = self.scope(state, point, false);
        if !state.is_jsonata {
            input_path(state, &mut scope);
        }
        let value = |key: &str| {
            let value = state.get(key)?;
            let Some(text) = value.as_str() else { return Some(Symbol::constant(value)) };
            Some(match jsonata::code(text).filter(|_| state.is_jsonata) {
                Some(code) => jsonata::expression(&scope, code),
                None if key.ends_with("Path") => jsonpath::path(&scope, text),
                // Text and number give the same duration.
                None if key == "Seconds" => literal(&deployment::as_written(text)),
                None => literal(text),
            })
        };
        let seconds = value("Seconds").or_else(|| value("SecondsPath"));
        let time = value("Timestamp").or_else(|| value("TimestampPath"));
        let at = &state.pointer;
        let wait = match (seconds, time) {
            (Some(Symbol::Scalar(Value::Number(seconds))), None) => {
                json!(duration(seconds.as_f64().unwrap_or_default()))
            }
            (Some(seconds), None) => {
                let seconds = self.cel(at, at, &seconds);
                json!(format!("${{ {} }}s", seconds.text))
            }
            (None, Some(time)) => self.render(at, at, &time),
            (None, None) | (Some(_), Some(_)) => {
                self.report(Level::Cannot, at, at, "a `Wait` needs one of its four times");
                json!("1s")
            }
        };
        let text = wait.as_str().unwrap_or_default().to_owned();
        let work = [("wait".to_owned(), wait)].into_iter().collect();
        let name = self.add_step(state, state.name, point, work, None);
        self.report(Level::Translated, at, at, format!("step `{name}`: wait {text}"));
        let result = scope.data.clone();
        self.finish(state, point, scope, result, BTreeSet::from([name]))
    }

    pub(crate) fn choice<'m>(
        &mut self,
        state: &State<'m>,
        point: &Point,
        poll: Option<&Poll<'m>>,
    ) -> Vec<(Option<&'m str>, Point)> {
        let mut scope = self.scope(state, point, false);
        if !state.is_jsonata {
            input_path(state, &mut scope);
        }
        // The step polls until a branch that leaves the loop is taken.
        let mut entries: Vec<_> = state.list("Choices").iter().enumerate().collect();
        let mut default = None;
        if let Some(poll) = poll {
            entries.retain(|(_, entry)| entry.get("Next") != Some(&json!(poll.wait)));
            if state.text("Default") == Some(poll.wait) {
                default = entries.pop().map(|(_, entry)| entry);
            }
        }
        let mut rules = Vec::new();
        for (index, entry) in &entries {
            let at = format!("{}/Choices/{index}", state.pointer);
            let empty = Map::new();
            let rule = choice::rule(&scope, entry.as_object().unwrap_or(&empty));
            let symbol = rule.map_or_else(Symbol::Unknown, Symbol::Cel);
            let rule = self.cel(&at, &state.pointer, &symbol);
            self.report(Level::Translated, &at, &state.pointer, format!("rule: {}", rule.text));
            rules.push(rule);
        }
        let number = self.rules.len();
        let branches = rules.len() + 1;
        self.rules.push(rules);
        let mut next = Vec::new();
        let entries = entries.into_iter().map(|(_, entry)| Some(entry));
        for (branch, entry) in entries.chain([default]).enumerate() {
            let condition = point.condition.and_branch(number, branch, branches);
            let before = Point { condition, ..point.clone() };
            let target = match entry {
                Some(entry) => entry.get("Next").and_then(Value::as_str),
                None => state.text("Default"),
            };
            if entry.is_none() && target.is_none() {
                let text = "States.NoChoiceMatched";
                self.failing_step(state, &format!("{} no choice", state.name), &before, text);
                let message = "no `Default`: a step fails if no rule matches";
                self.report(Level::Translated, &state.pointer, &state.pointer, message);
                continue;
            }
            let mut after =
                self.finish(state, &before, scope.clone(), scope.data.clone(), point.after.clone());
            if let Some(entry) = entry {
                self.branch(entry, state, &before, &scope, &mut after);
            }
            next.push((target, after));
        }
        next
    }

    /// The `Assign` and `Output` of one rule replace those of the state.
    fn branch(
        &self,
        entry: &Value,
        state: &State<'_>,
        before: &Point,
        scope: &Scope,
        after: &mut Point,
    ) {
        after.variables.clone_from(&before.variables);
        let payload = if state.is_jsonata { jsonata::payload } else { jsonpath::payload };
        if let Some(Symbol::Object { fields, .. }) =
            entry.get("Assign").map(|assigned| payload(scope, assigned))
        {
            after.variables.extend(fields);
        }
        if state.is_jsonata {
            after.data = match entry.get("Output") {
                Some(output) => payload(scope, output),
                None => scope.data.clone(),
            };
        }
    }

    /// `Fail`: a step that only fails.
    pub(crate) fn fail(&mut self, state: &State<'_>, point: &Point) {
        let part = |key: &str| state.text(key).filter(|text| jsonata::code(text).is_none());
        let is_dropped = |key: &&&str| {
            state.get(&format!("{key}Path")).is_some()
                || state.get(key).is_some() && part(key).is_none()
        };
        if let Some(key) = ["Error", "Cause"].iter().find(is_dropped) {
            let message =
                format!("a `fail` is a constant text, so the value of `{key}` is not kept");
            self.report(Level::Note, &state.pointer, &state.pointer, message);
        }
        let text: Vec<_> = [part("Error"), part("Cause")].into_iter().flatten().collect();
        let text = if text.is_empty() { state.name.to_owned() } else { text.join(": ") };
        let name = self.failing_step(state, state.name, point, &text);
        let message = match self.escapes {
            Some(_) => {
                format!("step `{name}`: it fails, and the `Catch` of the `Parallel` applies")
            }
            None => format!("step `{name}`: it fails, and the task stops in Error with an alert"),
        };
        self.report(Level::Translated, &state.pointer, &state.pointer, message);
    }

    /// Adds a step that fails if it is reached.
    fn failing_step(&mut self, state: &State<'_>, name: &str, point: &Point, text: &str) -> String {
        // The text has no expressions.
        let text = text.replace("${", "$ {");
        let text: String = text.chars().take(limits::REASON_CHARS_MAX).collect();
        let work = [("fail".to_owned(), json!(text))].into_iter().collect();
        let name = self.add_step(state, &format!("fail {name}"), point, work, None);
        self.failing.insert(name.clone());
        self.escape(&name, point);
        name
    }

    /// `Parallel`: the steps of all branches come after the same steps.
    pub(crate) fn parallel(
        &mut self,
        state: &State<'_>,
        point: &Point,
    ) -> Result<Option<Point>, ImportError> {
        let mut scope = self.scope(state, point, false);
        let input = self.effective_input(state, &mut scope);
        let mut results = Vec::new();
        let mut always_fails = false;
        let mut after = BTreeSet::new();
        let outer = std::mem::take(&mut self.failing);
        let collected = self.escapes_len();
        let pointer = state.at("Branches");
        for (index, branch) in state.list("Branches").iter().enumerate() {
            let start = Point { data: input.clone(), ..point.clone() };
            let at = child(&pointer, &index.to_string());
            let Some(end) = self.machine(branch, &at, state.is_jsonata, start)? else {
                // The branch always fails, and then the task does not get here.
                always_fails = true;
                continue;
            };
            results.push(end.data);
            after.extend(end.after);
        }
        // A failure in a branch must stop the states after the `Parallel`.
        after.extend(self.failing.iter().cloned());
        self.failing.extend(outer);
        if always_fails {
            return Ok(None);
        }
        if !state.list("Retry").is_empty() {
            let message = "all branches are tried again after a failure; steps are tried again one by one: give them `recovery`";
            self.report(Level::Decision, &state.at("Retry"), &state.pointer, message);
        }
        let message = format!("{} branches, as steps that run in parallel", results.len());
        self.report(Level::Translated, &state.pointer, &state.pointer, message);
        let failed = self.escaped(state, collected);
        let mut end = self.finish(state, point, scope, Symbol::List(results), after);
        end.condition = end.condition.but_not(&failed);
        Ok(Some(end))
    }
}

/// The `Result` of a `Pass`: a constant, except for substitutions of the deployment.
fn constant(value: &Value) -> Symbol {
    match value {
        Value::String(text) => literal(text),
        Value::Array(items) => Symbol::List(items.iter().map(constant).collect()),
        Value::Object(fields) => {
            Symbol::object(fields.iter().map(|(key, value)| (key.clone(), constant(value))))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Symbol::Scalar(value.clone()),
    }
}
