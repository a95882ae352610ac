//! Lints for valid definitions that do not do what their author expects: deadlines that do not fit together, and
//! steps whose effects would not be undone.
//!
//! Publication of a file refuses errors and prints warnings. The lints are separate from
//! [`problems`](Workflow::problems): a published definition that violates one still runs.
//!
//! | finding | severity |
//! | --- | --- |
//! | `callback.within` longer than the task's `complete_within` | error |
//! | a `wait`, or consecutive waits together, longer than the task's `complete_within` | error |
//! | `give_up_after` shorter than one attempt with its callback, or `key_valid_for` shorter than its call | error |
//! | `idempotent: false` with `then: undo`, and no `undo` of the step | error |
//! | `idempotent: false` without `undo`, in a workflow that may be undone for another reason | warning |
//! | an `undo` that reads its own step's output, and does not ask whether there is one | warning |
//! | attempts, pauses and extended waits of one step longer than the task's `complete_within` | warning |
//! | the same for a path of consecutive steps | warning |
//! | `warn_after` not shorter than `complete_within` | warning |
//! | a label that reads a masked value | warning |
//! | a division whose result depends on whether an input is written 12 or 12.0 | warning |
//! | attempts, pauses and extended waits of one step longer than its `give_up_after` or `key_valid_for` | note |
//! | a step with `then: alert` beside a parallel step with `then: undo` | note |
//! | an undo whose `request` has no `idempotency_key`, of a step with one | note |

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{
    definition::{
        duration,
        problem::DefinitionProblem,
        recovery::{FinalAction, Overdue},
        step::{ActionDefinition, RequestTemplate, StepDefinition, StepWork},
        wait::Wait,
        workflow::Workflow,
    },
    expression::{
        template::Template,
        uses::{PathKey, ValueKind},
    },
    model::{attempt::Action, json_text::to_json_text, names::StepName},
};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A part of the definition can never take effect, or breaks the guarantee of "all or nothing".
    Error,
    /// The task may run out of time, or leave side effects.
    Warning,
    /// A behaviour that is easily overlooked.
    Note,
}

/// A finding of a lint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LintFinding {
    /// The severity.
    pub severity: Severity,
    /// The location and the message.
    pub problem: DefinitionProblem,
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.severity {
            Severity::Error => write!(f, "{}", self.problem),
            Severity::Warning => write!(f, "warning: {}", self.problem),
            Severity::Note => write!(f, "note: {}", self.problem),
        }
    }
}

impl Workflow {
    /// Returns the findings of all lints, errors first. They are meaningful only for a definition without
    /// [problems](Workflow::problems).
    #[must_use]
    pub fn lint(&self) -> Vec<LintFinding> {
        let mut linter = Linter { workflow: self, found: Vec::new() };
        for (name, step) in &self.steps {
            linter.check_callback(name, step);
            linter.check_wait(name, step);
            linter.check_time_limits(name, step);
            linter.check_repetition(name, step);
            linter.check_attempts(name, step);
            linter.check_undo(name, step);
        }
        linter.check_warning();
        linter.check_labels();
        linter.check_divisions();
        linter.check_key_formats();
        linter.check_request_paths();
        linter.check_paths();
        linter.check_parallel_policies();
        linter.found.sort();
        linter.found
    }
}

struct Linter<'a> {
    workflow: &'a Workflow,
    found: Vec<LintFinding>,
}

impl Linter<'_> {
    fn report(&mut self, severity: Severity, at: String, message: String, hint: &str) {
        let hint = Some(hint.to_owned());
        self.found.push(LintFinding { severity, problem: DefinitionProblem { at, message, hint } });
    }

    fn check_warning(&mut self) {
        let Some(after) = self.workflow.warn_after else { return };
        if after >= self.workflow.complete_within {
            let message = "not shorter than `complete_within`, so no task is reported as late";
            let hint = "warn earlier, or remove it";
            self.report(Severity::Warning, "warn_after".to_owned(), message.to_owned(), hint);
        }
    }

    fn check_callback(&mut self, name: &StepName, step: &StepDefinition) {
        let (Some(callback), task) = (&step.callback, self.workflow.complete_within) else {
            return;
        };
        if callback.within > task {
            let message =
                format!("longer than the task's `complete_within` of {}", duration_text(task));
            let hint = "give the task more time, or the callback less";
            self.report(Severity::Error, format!("steps.{name}.callback.within"), message, hint);
        }
    }

    fn check_wait(&mut self, name: &StepName, step: &StepDefinition) {
        let task = self.workflow.complete_within;
        if literal_wait(step).is_some_and(|wait| wait > task) {
            let message =
                format!("longer than the task's `complete_within` of {}", duration_text(task));
            let hint = "give the task more time";
            self.report(Severity::Error, format!("steps.{name}.wait"), message, hint);
        }
    }

    fn check_time_limits(&mut self, name: &StepName, step: &StepDefinition) {
        for (action, at) in [(Action::Do, "recovery"), (Action::Undo, "undo.recovery")] {
            let Some(definition) = step.action(action) else { continue };
            // A callback is awaited after the call, so it does not use the key.
            let limits = [
                ("give_up_after", definition.recovery.give_up_after, definition.longest_attempt()),
                ("key_valid_for", definition.key_valid_for(), definition.complete_within),
            ];
            for (key, limit, attempt) in limits {
                if limit.is_none_or(|limit| limit >= attempt) {
                    continue;
                }
                let message =
                    format!("shorter than one attempt, which may take {}", duration_text(attempt));
                let hint = "raise it, set it to null, or give an attempt less time";
                let at = format!("steps.{name}.{at}.{key}");
                self.report(Severity::Error, at, message, hint);
            }
            self.check_key(name, definition, &format!("{at}.key_valid_for"), longest(step, action));
        }
    }

    /// Notes that attempts and pauses go on for longer than the service keeps the key.
    fn check_key(
        &mut self,
        name: &StepName,
        definition: ActionDefinition<'_>,
        at: &str,
        longest: Duration,
    ) {
        let limit = definition.recovery.give_up_after.unwrap_or(Duration::MAX);
        let longest = longest.min(limit);
        if let Some(valid) = definition.key_valid_for().filter(|valid| *valid < longest) {
            let message = format!(
                "attempts, pauses and extended waits take up to {}: if an attempt may have run, the step fails after {}",
                duration_text(longest),
                duration_text(valid),
            );
            let hint = "lower `attempts` and the pauses, unless that is meant";
            self.report(Severity::Note, format!("steps.{name}.{at}"), message, hint);
        }
    }

    /// Notes for each step with `then: alert` that the failure of a parallel step undoes the task, also after the alert.
    fn check_parallel_policies(&mut self) {
        let ancestors = self.workflow.ancestors();
        let is_before =
            |a: &StepName, b: &StepName| ancestors.get(b).is_some_and(|of| of.contains(a));
        let with = |then| {
            let steps = self.workflow.steps.iter();
            let steps = steps.filter(move |(_, step)| can_fail(step) && step.recovery.then == then);
            steps.map(|(name, _)| name)
        };
        let pairs = with(FinalAction::Alert).filter_map(|name| {
            let is_parallel =
                |other: &&StepName| !is_before(name, other) && !is_before(other, name);
            Some((name, with(FinalAction::Undo).find(is_parallel)?))
        });
        for (name, other) in pairs.collect::<Vec<_>>() {
            let message = format!(
                "`alert`, but `{other}` runs beside it with `undo`: if both fail, the task is undone, in either order"
            );
            let hint = "give both the same `then`, unless that is meant";
            self.report(Severity::Note, format!("steps.{name}.recovery.then"), message, hint);
        }
    }

    /// Checks a step that is not idempotent. An interrupted call is not repeated and may have taken effect. If the
    /// task is then undone, the step needs an undo.
    fn check_repetition(&mut self, name: &StepName, step: &StepDefinition) {
        if step.idempotent || step.undo.is_some() || step.point_of_no_return || !step.needs_undo() {
            return;
        }
        let message = "a call with an unknown outcome is not repeated, and the undo skips the step";
        if step.recovery.then == FinalAction::Undo {
            let hint =
                "give it an `undo` that does no harm if the step has not run, or set `then: alert`";
            return self.report(
                Severity::Error,
                format!("steps.{name}.idempotent"),
                message.into(),
                hint,
            );
        }
        let others =
            self.workflow.steps.values().any(|other| other.recovery.then == FinalAction::Undo);
        if others || self.workflow.overdue == Overdue::Undo {
            let hint = "give it an `undo`, unless it has no effect to undo";
            self.report(
                Severity::Warning,
                format!("steps.{name}.idempotent"),
                message.into(),
                hint,
            );
        }
    }

    /// Checks an undo that reads its own step's output. If it is unknown whether the step ran, there is no output.
    fn check_undo(&mut self, name: &StepName, step: &StepDefinition) {
        let request = step.undo.as_ref().and_then(|undo| undo.request.as_ref());
        let templates = || request.into_iter().flat_map(RequestTemplate::templates);
        let guard = format!("has(steps.{name}.output)");
        if !templates().any(|template| template.required_values().steps.contains(name))
            || templates().any(|template| to_json_text(template).contains(&guard))
        {
            return;
        }
        let message = "reads the step's own output, which does not exist if it is unknown whether the step ran: then \
                       the undo fails, and an operator is alerted";
        let hint =
            format!("use a value that you chose, such as `task.id`, or ask for it: `{guard}`");
        let at = format!("steps.{name}.undo.request");
        self.report(Severity::Warning, at, message.to_owned(), &hint);
    }

    fn check_attempts(&mut self, name: &StepName, step: &StepDefinition) {
        let task = self.workflow.complete_within;
        for (action, at) in [(Action::Do, "recovery"), (Action::Undo, "undo.recovery")] {
            let Some(definition) = step.action(action) else { continue };
            let longest = longest(step, action);
            // A shorter limit has its own finding.
            let limit = definition.recovery.give_up_after;
            let limit = limit.filter(|limit| (definition.longest_attempt()..task).contains(limit));
            if longest <= limit.unwrap_or(task) || step.wait.is_some() {
                continue;
            }
            let (severity, time, hint) = match limit {
                Some(limit) => {
                    let hint = "raise `give_up_after`, or lower `attempts` and the pauses";
                    (Severity::Note, format!("`give_up_after` is {}", duration_text(limit)), hint)
                }
                None => {
                    let hint = "give the task more time, or the step less";
                    (Severity::Warning, format!("the task has {}", duration_text(task)), hint)
                }
            };
            let message = format!(
                "attempts, pauses and extended waits take up to {}; {time}, so the last of them \
                 are never made",
                duration_text(longest),
            );
            self.report(severity, format!("steps.{name}.{at}"), message, hint);
        }
    }

    /// Finds labels that show what the mask hides.
    fn check_labels(&mut self) {
        let workflow = self.workflow;
        for (name, template) in &workflow.labels {
            let uses = template.value_uses(ValueKind::Any);
            let masked = workflow
                .mask
                .pointers()
                .find(|pointer| uses.iter().any(|used| is_masked(pointer, &used.path)));
            let Some(pointer) = masked else { continue };
            let message = format!("reads `{pointer}`, which `mask` hides; labels are shown");
            let hint = "search for an id in place of the value";
            self.report(Severity::Warning, format!("labels.{name}"), message, hint);
        }
    }

    /// Finds divisions of inputs and of answers to callbacks that a schema calls numbers, and that their author may write with
    /// decimals or without.
    fn check_divisions(&mut self) {
        let mut found = Vec::new();
        let mut add = |at: String, template: &Template| {
            let uses = template.value_uses(ValueKind::Any).into_iter();
            let divided = uses.filter(|used| used.kind == ValueKind::Divided);
            found.extend(divided.map(|used| (at.clone(), used.path)));
        };
        self.workflow.output.iter().for_each(|template| add("output".to_owned(), template));
        let labels = self.workflow.labels.iter();
        labels.for_each(|(name, template)| add(format!("labels.{name}"), template));
        for (name, step) in &self.workflow.steps {
            let items = step.for_each.iter().map(|each| &each.items);
            let rounds = step.repeat.iter().map(|repeat| &repeat.until);
            let own = items.chain(rounds).chain(&step.when).chain(&step.output);
            own.for_each(|template| add(format!("steps.{name}"), template));
            for (action, at) in [(Action::Do, ""), (Action::Undo, ".undo")] {
                let Some(definition) = step.action(action) else { continue };
                let of_work = definition.work.templates();
                of_work.for_each(|template| add(format!("steps.{name}{at}"), template));
            }
        }
        for (at, path) in found {
            let Some(field) = number_field(self.workflow, &path) else { continue };
            let message = format!(
                "divides `{field}`, which the schema calls a number: 12 / 5 fails, because it leaves a rest, and 12.0 / 5 is 2.4"
            );
            let hint = format!("write `double({field})`, or let the schema require an integer");
            self.report(Severity::Warning, at, message, &hint);
        }
    }

    /// Finds undos that send their idempotency key in another way than the step, at the same agent.
    fn check_key_formats(&mut self) {
        for (name, step) in &self.workflow.steps {
            let format = |request: &RequestTemplate| request.idempotency_key.is_some();
            let undo = step.undo.as_ref().filter(|undo| undo.agent.is_none());
            let undo = undo.and_then(|undo| undo.request.as_ref());
            if step.request.as_ref().is_some_and(format) && undo.is_some_and(|undo| !format(undo)) {
                let at = format!("steps.{name}.undo.request");
                let message = "sends its key as the agent is configured, and the step sends it as its `idempotency_key` says";
                let hint = "give the undo its own `idempotency_key`, or configure the agent";
                self.report(Severity::Note, at, message.to_owned(), hint);
            }
        }
    }

    /// Finds paths that an expression puts together, whose values are not encoded and may be empty; and paths that depend on how a
    /// number is spelled.
    fn check_request_paths(&mut self) {
        for (name, step) in &self.workflow.steps {
            let undo = step.undo.as_ref().and_then(|undo| undo.request.as_ref());
            for (of, request) in [("", step.request.as_ref()), ("undo.", undo)] {
                let path = request.and_then(|request| request.path.as_ref()?.expression());
                let texts = request.and_then(|request| request.path.as_ref());
                for used in texts.iter().flat_map(|path| path.value_uses(ValueKind::Text)) {
                    let Some(field) = number_field(self.workflow, &used.path) else { continue };
                    let at = format!("steps.{name}.{of}request.path");
                    let message = format!(
                        "contains `{field}`, which the schema calls a number: 12 and 12.0 are two paths"
                    );
                    let hint = "let the schema require an integer or a text";
                    self.report(Severity::Warning, at, message, hint);
                }
                if path.is_some_and(|path| path.trim_start().starts_with(['\'', '"'])) {
                    let at = format!("steps.{name}.{of}request.path");
                    let message = "an expression puts the path together, so an empty value is not noticed, and none is encoded";
                    let hint = "write it as a text with values, such as `/orders/${ input.id }`";
                    self.report(Severity::Warning, at, message.to_owned(), hint);
                }
            }
        }
    }

    fn check_paths(&mut self) {
        let task = self.workflow.complete_within;
        let certain_wait = |step: &StepDefinition| {
            let wait = literal_wait(step).filter(|_| step.when.is_none());
            wait.filter(|wait| *wait <= task).unwrap_or_default()
        };
        let waits = self.longest_path(certain_wait);
        if waits.length > task {
            let message = format!(
                "too short for the consecutive waits of {}: {}",
                waits,
                duration_text(waits.length)
            );
            let hint = "give the task more time";
            return self.report(Severity::Error, "complete_within".to_owned(), message, hint);
        }
        // A single step that takes too long has its own finding.
        let possible_length = |step: &StepDefinition| {
            let limit = step.recovery.give_up_after.unwrap_or(Duration::MAX);
            let longest = longest(step, Action::Do).min(limit);
            Some(longest).filter(|longest| *longest <= task).unwrap_or_default()
        };
        let path = self.longest_path(possible_length);
        if path.length > task {
            let message = format!(
                "if every attempt is used, {} take up to {}: the task may be overdue before that",
                path,
                duration_text(path.length)
            );
            let hint = "give the task more time, or the steps less";
            self.report(Severity::Warning, "complete_within".to_owned(), message, hint);
        }
    }

    /// Returns the path of consecutive steps with the greatest total `length`.
    fn longest_path(&self, length: impl Fn(&StepDefinition) -> Duration) -> StepPath<'_> {
        let ancestors = self.workflow.ancestors();
        // Sorted by the number of ancestors, so that each step comes after its predecessors.
        let mut order: Vec<_> = self.workflow.steps.iter().collect();
        order.sort_by_key(|(name, _)| ancestors.get(name).map_or(0, |before| before.len()));
        let mut ends: BTreeMap<&StepName, StepPath<'_>> = BTreeMap::new();
        for (name, step) in order {
            let before = step.after.iter().filter_map(|other| ends.get(other));
            let mut path = before.max_by_key(|path| path.length).cloned().unwrap_or_default();
            let own = length(step);
            if !own.is_zero() {
                path.length = path.length.saturating_add(own);
                path.steps.push(name);
            }
            ends.insert(name, path);
        }
        ends.into_values().max_by_key(|path| path.length).unwrap_or_default()
    }
}

/// Consecutive steps and their total length.
#[derive(Debug, Clone, Default)]
struct StepPath<'a> {
    steps: Vec<&'a StepName>,
    length: Duration,
}

impl fmt::Display for StepPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            write!(f, "{}`{step}`", if n == 0 { "" } else { " → " })?;
        }
        Ok(())
    }
}

/// Whether an expression that reads `path` reads what this pointer of a mask hides, as a whole or in part.
fn is_masked(pointer: &str, path: &[PathKey]) -> bool {
    let [PathKey::Field(root), read @ ..] = path else { return false };
    let hidden = pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    root == "input"
        && hidden.zip(read).all(|(hidden, key)| match key {
            PathKey::Field(field) => hidden == "*" || hidden == *field,
            PathKey::Element => true,
        })
}

fn literal_wait(step: &StepDefinition) -> Option<Duration> {
    match step.wait.as_ref()? {
        Wait::Until(until) => duration::parse(until.as_literal()?.as_str()?).ok(),
        Wait::Event(wait) => Some(wait.within),
    }
}

/// Returns how long a step or its undo may take: all attempts at their maximum length, with all pauses and extended
/// waits. A length that only an expression or another definition determines counts as zero.
fn longest(step: &StepDefinition, action: Action) -> Duration {
    let Some(definition) = step.action(action) else { return Duration::ZERO };
    match definition.work {
        StepWork::Wait(_) | StepWork::Event(_) => return literal_wait(step).unwrap_or_default(),
        StepWork::Child(_) => {
            return step.complete_within.filter(|_| action == Action::Do).unwrap_or_default();
        }
        StepWork::Call { .. } => {}
    }
    if let (Some(_), Some(limit), Action::Do) = (&step.until, step.recovery.give_up_after, action) {
        return limit;
    }
    let attempt = definition.longest_attempt();
    if action == Action::Do && !step.idempotent {
        return attempt;
    }
    definition.recovery.longest_duration(attempt)
}

fn duration_text(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// Whether a failure of the step can end the task. A wait for a time cannot fail.
fn can_fail(step: &StepDefinition) -> bool {
    step.fail.is_some() || !matches!(step.work(), None | Some(StepWork::Wait(_)))
}

/// The name of a value of the input that its schema calls a number, and not an integer.
fn number_field(workflow: &Workflow, path: &[PathKey]) -> Option<String> {
    use PathKey::Field;
    let (schema, mut name, fields) = match path {
        [Field(root), fields @ ..] if root == "input" => {
            (workflow.input.as_ref(), root.clone(), fields)
        }
        [Field(root), Field(step), Field(output), fields @ ..]
            if root == "steps" && output == "output" =>
        {
            let callback = workflow.steps.get(step.as_str())?.callback.as_ref();
            (callback?.answer.as_ref(), format!("steps.{step}.output"), fields)
        }
        _ => return None,
    };
    let mut schema = schema?.source();
    for key in fields {
        schema = match key {
            PathKey::Field(field) => {
                name = format!("{name}.{field}");
                schema.get("properties")?.get(field)?
            }
            PathKey::Element => {
                name.push_str("[…]");
                schema.get("items")?
            }
        };
    }
    (schema.get("type")? == "number").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn findings(workflow: Value) -> Vec<String> {
        let mut definition = json!({ "name": "w", "version": 1, "complete_within": "1d" });
        for (key, value) in workflow.as_object().unwrap() {
            definition[key] = value.clone();
        }
        let workflow: Workflow = serde_json::from_value(definition).unwrap();
        assert_eq!(workflow.problems(), []);
        workflow.lint().iter().map(ToString::to_string).collect()
    }

    fn with(more: Value) -> Value {
        let mut step = json!({ "agent": "a", "request": { "path": "/", "body": "${ input }" } });
        for (key, value) in more.as_object().unwrap() {
            step[key] = value.clone();
        }
        step
    }

    #[test]
    fn a_definition_that_fits_its_deadlines_has_no_findings() {
        let steps = json!({
            "a": with(json!({ "complete_within": "1h" })),
            "b": { "wait": "12h", "after": ["a"] },
            "c": { "workflow": { "name": "other" }, "after": ["b"] },
            "d": { "wait": "${ input.long }", "after": ["b"] },
        });
        assert_eq!(findings(json!({ "steps": steps })), Vec::<String>::new());
    }

    #[test]
    fn an_undo_that_needs_the_output_of_its_step_is_a_warning() {
        let undo = |path: &str| {
            let step = with(json!({ "undo": { "request": { "path": path } } }));
            findings(json!({ "steps": { "book": step } }))
        };
        assert_eq!(
            undo("/bookings/${ steps.book.output.id }"),
            [
                "warning: steps.book.undo.request: reads the step's own output, which does not exist if it is unknown whether \
              the step ran: then the undo fails, and an operator is alerted; use a value that you chose, such as \
              `task.id`, or ask for it: `has(steps.book.output)`"
            ]
        );
        let guarded = "/bookings/${ has(steps.book.output) ? steps.book.output.id : task.id }";
        assert_eq!(undo(guarded), Vec::<String>::new());
        let other = "/bookings/${ has(input.id) ? input.id : steps.book.output.id }";
        assert_eq!(undo(other).len(), 1, "the guard asks for something else");
        assert_eq!(undo("/bookings/${ task.id }"), Vec::<String>::new());
    }

    #[test]
    fn a_division_whose_result_depends_on_the_spelling_of_a_number_is_a_warning() {
        let schema = json!({ "type": "object", "properties": {
            "amount": { "type": "number" }, "count": { "type": "integer" },
            "lines": { "type": "array", "items": { "properties": { "price": { "type": "number" } } } },
        } });
        let body = |expression: &str| {
            let request = json!({ "path": "/", "body": format!("${{ {expression} }}") });
            let step = with(json!({ "request": request }));
            findings(json!({ "input": schema, "steps": { "a": step } }))
        };
        let found = body("input.amount / 5");
        assert_eq!(
            found,
            [
                "warning: steps.a: divides `input.amount`, which the schema calls a number: 12 / 5 fails, because it leaves a rest, \
                 and 12.0 / 5 is 2.4; write `double(input.amount)`, or let the schema require an integer"
            ]
        );
        assert!(body("input.lines.map(l, l.price / 2)")[0].contains("`input.lines[…].price`"));
        for spelled in ["(input.amount + 1) / 5", "3 * input.amount / 5", "-input.amount / 5"] {
            assert_eq!(body(spelled).len(), 1, "{spelled}");
        }
        let ask = json!({
            "agent": "x", "request": { "path": "/${ callback.url }" },
            "callback": { "within": "1h", "answer": schema },
        });
        let steps = json!({ "ask": ask });
        let found =
            findings(json!({ "steps": steps, "output": "${ steps.ask.output.amount / 5 }" }));
        assert!(found[0].contains("output: divides `steps.ask.output.amount`"), "{found:?}");
        for certain in [
            "input.amount / 5.0",
            "double(input.amount) / 5",
            "input.count / 5",
            "input.amount * 5",
            "(input.amount + 0.5) / 5",
        ] {
            assert_eq!(body(certain), Vec::<String>::new(), "{certain}");
        }
    }

    #[test]
    fn a_label_that_shows_what_the_mask_hides_is_a_warning() {
        let labels = json!({
            "card": "${ input.card.number }", "whole": "${ string(input.card) }", "first": "${ input.items[0].secret }",
            "id": "${ input.card.id }", "task": "${ task.id }",
        });
        let mask = json!(["/card/number", "/items/*/secret"]);
        let found = findings(json!({
            "steps": { "a": { "wait": "1h" } }, "mask": mask, "labels": labels,
        }));
        let masked = |label: &str, pointer: &str| {
            format!(
                "warning: labels.{label}: reads `{pointer}`, which `mask` hides; labels are shown; \
                 search for an id in place of the value"
            )
        };
        let expected = [
            masked("card", "/card/number"),
            masked("first", "/items/*/secret"),
            masked("whole", "/card/number"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_path_that_an_expression_puts_together_or_that_contains_a_number_is_a_warning() {
        let schema = json!({ "properties": {
            "amount": { "type": "number" }, "count": { "type": "integer" },
        } });
        let path = |path: &str| {
            let request = json!({ "path": path });
            let step = with(json!({ "request": request, "undo": { "request": request } }));
            findings(json!({ "input": schema, "steps": { "a": step } }))
        };
        let found = path("${ '/orders/' + input.id }");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0]
                .starts_with("warning: steps.a.request.path: an expression puts the path together"),
            "{found:?}"
        );
        assert!(found[1].starts_with("warning: steps.a.undo.request.path: "), "{found:?}");
        let found = path("/orders/${ input.amount }");
        assert!(
            found[0].contains("contains `input.amount`, which the schema calls a number"),
            "{found:?}"
        );
        for fine in ["/orders/${ input.id }", "/orders/${ input.count }", "${ input.path }"] {
            assert_eq!(path(fine), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn an_undo_that_sends_its_key_in_another_way_than_its_step_is_noted() {
        let found = |undo: Value| {
            let key = json!({ "header": "X-Key", "form": "uuid" });
            let step = json!({ "request": { "path": "/", "idempotency_key": key }, "undo": undo });
            findings(json!({ "steps": { "a": with(step) } }))
        };
        let noted = found(json!({ "request": { "path": "/" } }));
        assert!(noted[0].starts_with("note: steps.a.undo.request: sends its key as"), "{noted:?}");
        let own = json!({ "path": "/", "idempotency_key": { "form": "uuid" } });
        for fine in [json!({ "request": own }), json!({ "agent": "b", "request": { "path": "/" } })]
        {
            assert_eq!(found(fine.clone()), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn a_callback_or_wait_longer_than_the_task_is_an_error() {
        let mut approve =
            with(json!({ "callback": { "within": "5d" }, "recovery": { "attempts": 1 } }));
        approve["request"]["body"] = json!("${ callback.token }");
        let found = findings(json!({ "steps": { "ask": approve, "rest": { "wait": "20d" } } }));
        assert_eq!(
            found[..2],
            [
                "steps.ask.callback.within: longer than the task's `complete_within` of 1day; give the \
                 task more time, or the callback less",
                "steps.rest.wait: longer than the task's `complete_within` of 1day; give the task more time",
            ]
        );
    }

    #[test]
    fn consecutive_waits_longer_than_the_task_are_an_error_unless_one_may_be_skipped() {
        let steps = |when: Value| {
            let mut last = json!({ "wait": "12h", "after": ["b"] });
            if !when.is_null() {
                last["when"] = when;
            }
            json!({ "steps": { "a": { "wait": "10h" }, "b": { "wait": "4h", "after": ["a"] }, "c": last } })
        };
        assert_eq!(
            findings(steps(Value::Null)),
            [
                "complete_within: too short for the consecutive waits of `a` → `b` → `c`: 1day 2h; give the task more time"
            ]
        );
        let skipped = findings(steps(json!("${ input.long }")));
        assert_eq!(skipped.len(), 1, "{skipped:?}");
        assert!(skipped[0].starts_with("warning: complete_within: if every attempt is used, `a`"));
        let parallel = json!({ "a": { "wait": "20h" }, "b": { "wait": "20h" } });
        assert_eq!(findings(json!({ "steps": parallel })), Vec::<String>::new());
    }

    #[test]
    fn attempts_that_the_task_has_no_time_for_are_a_warning() {
        let pauses =
            json!({ "attempts": 100, "backoff": { "first": "1h", "max": "1h", "rate": 1.0 } });
        assert_eq!(
            findings(json!({ "steps": { "a": with(json!({ "recovery": pauses })) } })),
            [
                "warning: steps.a.recovery: attempts, pauses and extended waits take up to 4days 4h 40m; the \
              task has 1day, so the last of them are never made; give the task more time, or the step less"
            ]
        );
        let waits = json!({ "extended_wait": { "wait": "8h", "times": 3 } });
        let undo = json!({ "request": { "path": "/" }, "recovery": waits });
        let found = findings(json!({ "steps": { "a": with(json!({ "undo": undo })) } }));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("warning: steps.a.undo.recovery: "), "{found:?}");
        let slow = json!({ "complete_within": "10h", "recovery": { "attempts": 1 } });
        let mut last = with(slow.clone());
        last["after"] = json!(["a"]);
        let mut third = with(slow.clone());
        third["after"] = json!(["b"]);
        assert_eq!(
            findings(json!({ "steps": { "a": with(slow), "b": last, "c": third } })),
            [
                "warning: complete_within: if every attempt is used, `a` → `b` → `c` take up to 1day 6h: \
              the task may be overdue before that; give the task more time, or the steps less"
            ]
        );
    }

    #[test]
    fn a_time_limit_that_is_shorter_than_one_attempt_is_an_error() {
        let mut ask = with(json!({ "complete_within": "10s", "callback": { "within": "3h" } }));
        ask["request"]["body"] = json!("${ callback.token }");
        let steps = |step_limit: &str, undo_limit: &str| {
            let of = |limit| json!({ "recovery": { "attempts": 1, "give_up_after": limit } });
            let mut undo = of(undo_limit);
            undo["request"] = json!({ "path": "/" });
            let mut call = with(of("1m"));
            call["undo"] = undo;
            let mut ask = ask.clone();
            ask["recovery"] = of(step_limit)["recovery"].clone();
            findings(json!({ "steps": { "call": call, "ask": ask } }))
        };
        assert_eq!(steps("3h 10s", "1m"), Vec::<String>::new());
        assert_eq!(
            steps("3h 9s", "59s"),
            [
                "steps.ask.recovery.give_up_after: shorter than one attempt, which may take 3h 10s; raise it, set it to null, \
                 or give an attempt less time",
                "steps.call.undo.recovery.give_up_after: shorter than one attempt, which may take 1m; raise it, set it to null, \
                 or give an attempt less time",
            ]
        );
    }

    #[test]
    fn attempts_that_have_no_time_before_the_step_gives_up_are_noted() {
        let recovery =
            |limit: &str| json!({ "extended_wait": { "wait": "15m" }, "give_up_after": limit });
        let step = |limit: &str| {
            let undo = json!({ "request": { "path": "/" }, "recovery": recovery(limit) });
            findings(
                json!({ "steps": { "a": with(json!({ "recovery": recovery(limit), "undo": undo })) } }),
            )
        };
        let message = "attempts, pauses and extended waits take up to 21m 6s; `give_up_after` is 20m, so the last of them are \
                       never made; raise `give_up_after`, or lower `attempts` and the pauses";
        assert_eq!(
            step("20m"),
            [
                format!("note: steps.a.recovery: {message}"),
                format!("note: steps.a.undo.recovery: {message}"),
            ]
        );
        assert_eq!(step("21m 6s"), Vec::<String>::new());
        // A step that gives up in time leaves time for the others.
        let slow = |after: Value| {
            let waits = json!({ "extended_wait": { "wait": "20h" }, "give_up_after": "11h" });
            with(json!({ "recovery": waits, "after": after }))
        };
        let found = findings(json!({ "steps": { "a": slow(json!([])), "b": slow(json!(["a"])) } }));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|found| found.starts_with("note: ")), "{found:?}");
    }

    #[test]
    fn a_key_that_the_service_keeps_for_less_than_the_attempts_is_noted() {
        let step = |valid: &str| {
            let recovery = json!({ "extended_wait": { "wait": "15m" }, "key_valid_for": valid });
            let step = with(json!({ "complete_within": "10s", "recovery": recovery }));
            findings(json!({ "steps": { "a": step } }))
        };
        assert_eq!(
            step("10m"),
            [
                "note: steps.a.recovery.key_valid_for: attempts, pauses and extended waits take up to 16m 6s: if an attempt may have \
                 run, the step fails after 10m; lower `attempts` and the pauses, unless that is meant"
            ]
        );
        assert_eq!(step("16m 6s"), Vec::<String>::new());
        assert!(
            step("9s")[0].contains("key_valid_for: shorter than one attempt, which may take 10s")
        );
    }

    #[test]
    fn the_validity_of_keys_is_none_of_a_child_task() {
        let recovery = json!({ "attempts": 1, "key_valid_for": "1h" });
        let child = json!({ "workflow": { "name": "other" }, "recovery": recovery });
        assert_eq!(findings(json!({ "steps": { "a": child } })), Vec::<String>::new());
    }

    #[test]
    fn a_call_with_unknown_outcome_must_be_undone_or_alerted() {
        let once = |more: Value| {
            let mut step = with(json!({ "idempotent": false }));
            for (key, value) in more.as_object().unwrap() {
                step[key] = value.clone();
            }
            findings(json!({ "steps": { "a": step } }))
        };
        let found = once(json!({ "recovery": { "then": "undo" } }));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("steps.a.idempotent: a call with an unknown outcome"),
            "{found:?}"
        );
        let undo = json!({ "request": { "path": "/" } });
        for fine in [
            json!({}),
            json!({ "recovery": { "then": "undo" }, "undo": undo }),
            json!({ "recovery": { "then": "undo" }, "point_of_no_return": true }),
        ] {
            assert_eq!(once(fine.clone()), Vec::<String>::new(), "{fine}");
        }
        let step = with(json!({ "idempotent": false }));
        let found = findings(json!({ "overdue": "undo", "steps": { "a": step } }));
        assert!(found[0].starts_with("warning: steps.a.idempotent: "), "{found:?}");
    }

    #[test]
    fn parallel_steps_with_different_policies_are_noted() {
        let undo = || with(json!({ "recovery": { "then": "undo" } }));
        let steps =
            json!({ "a": undo(), "b": with(json!({})), "c": with(json!({ "after": ["a"] })) });
        assert_eq!(
            findings(json!({ "steps": steps })),
            [
                "note: steps.b.recovery.then: `alert`, but `a` runs beside it with `undo`: if both fail, the task is undone, in \
                 either order; give both the same `then`, unless that is meant"
            ]
        );
    }

    #[test]
    fn definitions_at_the_limits_are_linted_without_overflow() {
        let most = json!({
            "attempts": 100, "backoff": { "first": "30d", "max": "30d", "rate": 10.0 },
            "extended_wait": { "wait": "30d", "times": 1000 },
        });
        let step = with(json!({ "complete_within": "30d", "recovery": most }));
        assert_eq!(findings(json!({ "steps": { "a": step } })).len(), 1);
    }
}
