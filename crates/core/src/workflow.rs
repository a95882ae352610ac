//! Workflows: versioned definitions, and the questions the engine asks of them.
//!
//! Steps form a graph: each names the steps it comes `after`, so sequence, parallel branches and
//! joins are one thing. A step without `after` starts with the task.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    limits,
    messages::Action,
    names::{AgentName, StepName, WorkflowName},
    recovery::{Recovery, Then},
    task::Task,
    template::Template,
};

/// Durations as people write them: `90s`, `15m`, `1d 12h`.
pub(crate) mod friendly {
    use super::{Deserialize, Duration};

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text)
            .map_err(|error| serde::de::Error::custom(format!("duration `{text}`: {error}")))
    }
}

/// A versioned definition. Immutable once published: a changed one gets a new version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Its name.
    pub name: WorkflowName,
    /// Its version, counted from 1. A submission that names none gets the newest.
    pub version: u32,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How long a task may take as a whole, as `90s`, `15m`, `2h`, `1d`.
    #[serde(default = "default_task_within", with = "friendly")]
    #[schemars(with = "String")]
    pub complete_within: Duration,
    /// What is done with a task that is not done by then. While it is undone, it has as much time
    /// again.
    #[serde(default)]
    pub overdue: Then,
    /// Whether the end of each task is also an event on the bus. Off unless wanted: each event costs
    /// as much as two writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lifecycle_events: bool,
    /// The steps by name, in the order in which people read them.
    pub steps: IndexMap<StepName, StepDefinition>,
}

/// One step of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// The logical agent that carries it out.
    pub agent: AgentName,
    /// The steps that must have completed before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepName>,
    /// How long one attempt may take, its time in the agent's queue included.
    #[serde(default = "default_step_within", with = "friendly")]
    #[schemars(with = "String")]
    pub complete_within: Duration,
    /// What is done when an attempt fails.
    #[serde(default)]
    pub recovery: Recovery,
    /// Whether the remote service recognises a repeated call by its idempotency key. If not, the
    /// attempt is recorded before the call and never repeated by itself: a step with an unknown
    /// outcome goes straight to `recovery.then`.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub idempotent: bool,
    /// Whether the task can no longer be undone once this step has completed: from then on it is
    /// only driven forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub point_of_no_return: bool,
    /// What the agent asks of its remote service.
    pub request: RequestTemplate,
    /// How it is undone; passed over if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDefinition>,
}

/// The compensating action of a step. It must do no harm if the step has not run: a step that may
/// have run is undone too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoDefinition {
    /// How long one attempt may take, its time in the agent's queue included.
    #[serde(default = "default_step_within", with = "friendly")]
    #[schemars(with = "String")]
    pub complete_within: Duration,
    /// What is done when an attempt fails; in the end there is only an alert.
    #[serde(default)]
    pub recovery: Recovery,
    /// What the agent asks of its remote service.
    pub request: RequestTemplate,
}

/// What doing a step and undoing it have in common.
#[derive(Debug, Clone, Copy)]
pub struct ActionDefinition<'a> {
    /// How long one attempt may take.
    pub complete_within: Duration,
    /// What is done when an attempt fails.
    pub recovery: &'a Recovery,
    /// What the agent asks of its remote service.
    pub request: &'a RequestTemplate,
}

impl StepDefinition {
    /// How the step is done, or undone; nothing if it has no undo.
    #[must_use]
    pub fn action(&self, action: Action) -> Option<ActionDefinition<'_>> {
        let Self { complete_within, recovery, request, undo, .. } = self;
        match action {
            Action::Do => {
                Some(ActionDefinition { complete_within: *complete_within, recovery, request })
            }
            Action::Undo => {
                undo.as_ref().map(|UndoDefinition { complete_within, recovery, request }| {
                    ActionDefinition { complete_within: *complete_within, recovery, request }
                })
            }
        }
    }
}

/// The request that an agent makes, with expressions over the task's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestTemplate {
    /// The HTTP method.
    #[serde(default)]
    pub method: Method,
    /// The path under the agent's base URL; must render to a text that starts with `/`.
    pub path: Template,
    /// The JSON body; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Template>,
}

/// The HTTP methods a request may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "RFC 9110 defines them")]
pub enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

fn default_task_within() -> Duration {
    Duration::from_secs(24 * 3600)
}

fn default_step_within() -> Duration {
    Duration::from_secs(60)
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_true(value: &bool) -> bool {
    *value
}

/// Something wrong with a definition: where, and what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The key it is about, as `steps.charge.after`.
    pub at: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

impl std::error::Error for Problem {}

impl RequestTemplate {
    /// The parts that hold expressions.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.path).chain(&self.body)
    }
}

impl Workflow {
    /// The steps that can start now: not started, and everything before them completed or skipped.
    pub fn ready<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = &'a StepName> {
        self.steps
            .iter()
            .filter(|(name, step)| {
                !task.steps.contains_key(*name)
                    && step.after.iter().all(|before| task.has_passed(before))
            })
            .map(|(name, _)| name)
    }

    /// Whether every step has completed or was skipped.
    #[must_use]
    pub fn is_complete(&self, task: &Task) -> bool {
        self.steps.keys().all(|name| task.has_passed(name))
    }

    /// The shortest time that any attempt may take: until then a new task cannot be past due.
    #[must_use]
    pub fn shortest_within(&self) -> Duration {
        self.steps
            .values()
            .fold(self.complete_within, |least, step| least.min(step.complete_within))
    }

    /// Everything that is wrong with this definition beyond its syntax; empty if it can run.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut say = |at: String, message: String| found.push(Problem { at, message });
        if self.version == 0 {
            say("version".into(), "versions count from 1".into());
        }
        check_within("complete_within", self.complete_within, limits::TASK_WITHIN_MAX, &mut say);
        if self.steps.is_empty() {
            say("steps".into(), "a workflow needs at least one step".into());
        }
        if self.steps.len() > limits::STEPS_MAX {
            let count = self.steps.len();
            say("steps".into(), format!("{count} steps; the limit is {}", limits::STEPS_MAX));
        }
        let before = self.ancestors();
        for (name, step) in &self.steps {
            self.check_step(name, step, &before, &mut say);
        }
        if let Some(cycle) = self.cycle() {
            say("steps".into(), format!("these steps wait for each other: {cycle}"));
        }
        found.sort();
        found
    }

    fn check_step(
        &self,
        name: &StepName,
        step: &StepDefinition,
        before: &BTreeMap<&StepName, BTreeSet<&StepName>>,
        say: &mut impl FnMut(String, String),
    ) {
        let at = |key: &str| format!("steps.{name}.{key}");
        for action in [Action::Do, Action::Undo] {
            self.check_action(name, step, action, before, say);
        }
        if !step.idempotent && step.recovery.extended_wait.is_some() {
            say(at("recovery"), "a step that is not idempotent is never repeated by itself".into());
        }
        let mut seen = BTreeSet::new();
        for other in &step.after {
            if !self.steps.contains_key(other) {
                let known = self.steps.keys().map(StepName::as_str).collect::<Vec<_>>().join(", ");
                say(at("after"), format!("there is no step `{other}`; there are {known}"));
            }
            if !seen.insert(other) {
                say(at("after"), format!("`{other}` is named twice"));
            }
        }
    }

    fn check_action(
        &self,
        name: &StepName,
        step: &StepDefinition,
        action: Action,
        before: &BTreeMap<&StepName, BTreeSet<&StepName>>,
        say: &mut impl FnMut(String, String),
    ) {
        let Some(definition) = step.action(action) else { return };
        let at = |key: &str| match action {
            Action::Do => format!("steps.{name}.{key}"),
            Action::Undo => format!("steps.{name}.undo.{key}"),
        };
        let within = definition.complete_within;
        check_within(&at("complete_within"), within, limits::STEP_WITHIN_MAX, say);
        for (key, message) in definition.recovery.problems(action) {
            say(at(&format!("recovery.{key}")), message);
        }
        if !definition.request.path.source().is_string() {
            say(at("request.path"), "must be a text that starts with `/`".into());
        }
        let reads = definition.request.templates().flat_map(|template| &template.reads().steps);
        for read in reads.collect::<BTreeSet<_>>() {
            let comes_before = before.get(name).is_some_and(|before| before.contains(read))
                || (action == Action::Undo && read == name);
            if !self.steps.contains_key(read) {
                say(at("request"), format!("`steps.{read}.output`: there is no step `{read}`"));
            } else if !comes_before {
                say(
                    at("request"),
                    format!(
                        "`steps.{read}.output`: step `{read}` does not come before this one; name it in `after`"
                    ),
                );
            }
        }
    }

    /// Every step that comes before each step, directly or not.
    pub(crate) fn ancestors(&self) -> BTreeMap<&StepName, BTreeSet<&StepName>> {
        let mut ancestors: BTreeMap<_, _> =
            self.steps.keys().map(|name| (name, BTreeSet::new())).collect();
        loop {
            let mut grew = false;
            for (name, step) in &self.steps {
                let more: BTreeSet<_> = step
                    .after
                    .iter()
                    .flat_map(|other| {
                        ancestors.get(other).into_iter().flatten().copied().chain([other])
                    })
                    .collect();
                let known = ancestors.entry(name).or_default();
                let count = known.len();
                known.extend(more);
                grew |= known.len() > count;
            }
            if !grew {
                return ancestors;
            }
        }
    }

    /// A cycle, as `a → b → a`.
    fn cycle(&self) -> Option<String> {
        let ancestors = self.ancestors();
        let in_cycle = |name: &StepName| ancestors.get(name).is_some_and(|set| set.contains(name));
        let start = self.steps.keys().find(|name| in_cycle(name))?;
        let mut path = vec![start];
        let mut at = start;
        // Each step of the cycle comes after another step that `start` comes before or is.
        while path.len() <= self.steps.len() {
            let step = self.steps.get(at)?;
            at = step.after.iter().find(|other| {
                *other == start
                    || (!path.contains(other)
                        && ancestors.get(other).is_some_and(|before| before.contains(start)))
            })?;
            path.push(at);
            if at == start {
                break;
            }
        }
        path.reverse();
        Some(path.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" → "))
    }
}

fn check_within(at: &str, given: Duration, max: Duration, say: &mut impl FnMut(String, String)) {
    if given < limits::WITHIN_MIN || given > max {
        let days = max.as_secs() / (24 * 3600);
        let least = limits::WITHIN_MIN.as_millis();
        say(at.to_owned(), format!("must be from {least}ms to {days}d"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workflow(steps: Value) -> Result<Workflow, String> {
        serde_json::from_value(json!({ "name": "w", "version": 1, "steps": steps }))
            .map_err(|error| error.to_string())
    }

    fn problems(steps: Value) -> Vec<String> {
        workflow(steps).unwrap().problems().iter().map(ToString::to_string).collect()
    }

    fn step(after: &[&str]) -> Value {
        json!({ "agent": "a", "after": after, "request": { "path": "/" } })
    }

    #[test]
    fn a_diamond_is_fine() {
        let steps = json!({
            "a": step(&[]), "b": step(&["a"]), "c": step(&["a"]), "d": step(&["b", "c"]),
        });
        assert_eq!(problems(steps), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_shown() {
        let steps = json!({
            "z": step(&[]), "a": step(&["c", "z"]), "b": step(&["a"]), "c": step(&["b"]),
        });
        assert_eq!(problems(steps), ["steps: these steps wait for each other: a → b → c → a"]);
        let alone = json!({ "a": step(&["a"]) });
        assert_eq!(problems(alone), ["steps: these steps wait for each other: a → a"]);
    }

    #[test]
    fn unknown_and_repeated_after_are_named() {
        let steps = json!({ "a": step(&[]), "b": step(&["x"]), "c": step(&["a", "a"]) });
        assert_eq!(
            problems(steps),
            [
                "steps.b.after: there is no step `x`; there are a, b, c",
                "steps.c.after: `a` is named twice",
            ]
        );
    }

    #[test]
    fn a_step_reads_only_what_comes_before_it() {
        let mut later = step(&[]);
        later["request"]["body"] = json!("${ steps.b.output }");
        let steps = json!({ "a": later, "b": step(&["a"]) });
        assert_eq!(
            problems(steps),
            [
                "steps.a.request: `steps.b.output`: step `b` does not come before this one; name it in `after`"
            ]
        );
    }

    #[test]
    fn sizes_and_times_have_limits() {
        let mut slow = step(&[]);
        slow["complete_within"] = json!("31d");
        slow["recovery"] = json!({ "attempts": 0 });
        assert_eq!(
            problems(json!({ "a": slow })),
            [
                "steps.a.complete_within: must be from 100ms to 30d",
                "steps.a.recovery.attempts: must be from 1 to 100",
            ]
        );
        assert_eq!(problems(json!({})), ["steps: a workflow needs at least one step"]);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let mut wrong = step(&[]);
        wrong["atempts"] = json!(3);
        let error = workflow(json!({ "a": wrong })).unwrap_err();
        assert!(error.starts_with("unknown field `atempts`, expected one of"), "{error}");
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        let mut quick = step(&[]);
        quick["complete_within"] = json!("1m 30s");
        let workflow = workflow(json!({ "a": quick })).unwrap();
        assert_eq!(workflow.shortest_within(), Duration::from_secs(90));
        assert_eq!(workflow.complete_within, Duration::from_secs(86_400));
    }
}
