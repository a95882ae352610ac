//! Workflows: versioned definitions, and the questions the engine asks of them.
//!
//! Steps form a graph: each names the steps it comes `after`, so sequence, parallel branches and
//! joins are one thing. A step without `after` starts with the task. What a step does is one of three:
//!
//! | a step with | |
//! | --- | --- |
//! | `agent` | asks an agent to call its remote service |
//! | `wait` | waits, for a time or until one |
//! | `workflow` | runs a task of its own |
//!
//! What is wrong with a definition beyond its syntax is found by [`Workflow::problems`].

use crate::definition::problem::Problem;
use crate::definition::step::StepDefinition;
use crate::definition::step::Work;
use crate::definition::{duration, step::default_task_within};
use crate::model::names::Part;
use crate::model::step::StepState;
use crate::model::time::earlier;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    definition::{
        mask::Mask,
        recovery::{Recovery, Then},
        schema::InputSchema,
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        names::{StepName, WorkflowName},
        responses::Responses,
        task::Task,
    },
};

/// The JSON Schema of definitions (draft 2020-12): what editors complete and check by.
#[must_use]
pub fn json_schema() -> Value {
    schemars::schema_for!(Workflow).to_value()
}

/// A versioned definition. Immutable once published: a changed one gets a new version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Workflow {
    /// Its name.
    pub name: WorkflowName,
    /// Its version, counted from 1. A submission that names none gets the newest.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub version: u32,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of the input, checked when a task is submitted; anything will do if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputSchema>,
    /// What people are not shown of the input, and of what the steps and the task return: JSON pointers,
    /// as `/card/number`, with `*` for every element, as `/items/*/secret`.
    #[serde(default, skip_serializing_if = "Mask::is_empty")]
    pub mask: Mask,
    /// The events that submit tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// How long a task may take as a whole, as `90s`, `15m`, `2h`, `1d`.
    #[serde(default = "default_task_within", with = "duration")]
    #[schemars(with = "duration::Text")]
    pub complete_within: Duration,
    /// What is done with a task that is not done by then. While it is undone, it has as much time
    /// again.
    #[serde(default)]
    pub overdue: Then,
    /// How long a task and its documents are kept after its end; the deployment's retention if absent.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub retention: Option<Duration>,
    /// Whether the end of each task is also an event on the bus. Off unless wanted: each event costs
    /// as much as two writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lifecycle_events: bool,
    /// What holds for every step that does not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
    /// The steps by name, in the order in which people read them.
    pub steps: IndexMap<StepName, StepDefinition>,
    /// What the task returns once all steps are done; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Template>,
}

/// Which events submit a task, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The event's exact `source`.
    #[schemars(length(min = 1, max = limits::EVENT_TEXT_CHARS_MAX))]
    pub source: String,
    /// Its exact `detail-type`.
    #[schemars(length(min = 1, max = limits::EVENT_TEXT_CHARS_MAX))]
    pub detail_type: String,
    /// The task's id, from the `event`. Unless said, the event's own: then an event that is published
    /// twice makes two tasks.
    #[serde(default = "event_id")]
    #[schemars(with = "String")]
    pub task_id: Template,
    /// The task's input, from the `event`. Unless said, the event's detail.
    #[serde(default = "event_detail")]
    pub input: Template,
}

impl Trigger {
    /// Whether an event of this source and detail-type submits a task.
    #[must_use]
    pub fn matches(&self, source: &str, detail_type: &str) -> bool {
        self.source == source && self.detail_type == detail_type
    }

    /// Whether an event would submit two tasks with one id: only one of them could be recorded.
    #[must_use]
    pub fn collides_with(&self, other: &Self) -> bool {
        self.matches(&other.source, &other.detail_type) && self.task_id == other.task_id
    }
}

/// What holds for every step with an agent or a workflow that does not say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// How long one attempt of a step with an agent may take.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// How long one call of a step with an agent may take at the service.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// What the statuses of a service's responses mean; a step may replace single ones.
    #[serde(default, skip_serializing_if = "Responses::is_empty")]
    #[schemars(with = "Option<Responses>")]
    pub responses: Responses,
    /// What is done when an attempt fails; a step may replace single keys of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// The same for the undo of a step that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDefaults>,
}

/// What holds for every undo that does not say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoDefaults {
    /// How long one attempt at the undo of a step with an agent may take.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// How long one call of such an undo may take at the service.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// What the statuses of a service's responses mean; an undo may replace single ones.
    #[serde(default, skip_serializing_if = "Responses::is_empty")]
    #[schemars(with = "Option<Responses>")]
    pub responses: Responses,
    /// What is done when an attempt fails; in the end there is only an alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
}

fn event_id() -> Template {
    Template::parse("${ event.id }".into())
}

fn event_detail() -> Template {
    Template::parse("${ event.detail }".into())
}

impl Serialize for Workflow {
    /// Writes a definition so that reading it again gives the same: of the defaults for calls, each that
    /// a step has taken away with `null` is written as `null`. Without such defaults nothing is added,
    /// and releases that do not know them can read it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(defaults) = self.defaults.as_ref().filter(|defaults| defaults.say_of_calls())
        else {
            return Self::serialize(self, serializer);
        };
        let mut definition = Self::serialize(self, serde_json::value::Serializer)
            .map_err(serde::ser::Error::custom)?;
        let undo = defaults.undo.as_ref();
        let of_undo = undo.map(|undo| (undo.call_within.is_some(), &undo.responses));
        let steps = definition.get_mut("steps").and_then(Value::as_object_mut);
        for step in steps.into_iter().flat_map(|steps| steps.values_mut()) {
            if step.get("agent").is_none() {
                continue;
            }
            if let (Some(undo), Some((has_within, responses))) = (step.get_mut("undo"), of_undo) {
                write_taken_away(undo, has_within, responses);
            }
            write_taken_away(step, defaults.call_within.is_some(), &defaults.responses);
        }
        definition.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Workflow {
    /// Reads a definition, its defaults spread over its steps.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut definition = Value::deserialize(deserializer)?;
        spread_defaults(&mut definition);
        Self::deserialize(definition).map_err(serde::de::Error::custom)
    }
}

fn place_of(segment: &serde_path_to_error::Segment) -> String {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.clone(),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".to_owned(),
    }
}

impl Defaults {
    /// Whether there is a default for calls: `call_within` or `responses`.
    fn say_of_calls(&self) -> bool {
        let undo = self.undo.as_ref();
        self.call_within.is_some()
            || !self.responses.is_empty()
            || undo.is_some_and(|undo| undo.call_within.is_some() || !undo.responses.is_empty())
    }
}

/// Writes `null` for each default that `over`, a step or an undo, does not have.
fn write_taken_away(over: &mut Value, has_call_within: bool, responses: &Responses) {
    let Some(over) = over.as_object_mut() else { return };
    if has_call_within {
        over.entry("call_within").or_insert(Value::Null);
    }
    if responses.is_empty() {
        return;
    }
    let own = over.entry("responses").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Some(own) = own.as_object_mut() else { return };
    for (status, _) in responses.iter() {
        own.entry(status.to_string()).or_insert(Value::Null);
    }
}

/// Lets each step begin with what holds for all, as a JSON merge patch (RFC 7396) of it.
fn spread_defaults(definition: &mut Value) {
    let defaults = definition.get_mut("defaults").map(|said| {
        let mut defaults = Value::Null;
        json_patch::merge(&mut defaults, said);
        said.clone_from(&defaults);
        defaults
    });
    let steps = definition.get_mut("steps").and_then(Value::as_object_mut);
    for step in steps.into_iter().flat_map(|steps| steps.values_mut()) {
        let says = |key: &str| step.get(key).is_some_and(|said| !said.is_null());
        let (waits, runs_task) = (says("wait"), says("workflow"));
        // What one call may take is no measure for a task.
        let of_calls = &["complete_within", "call_within", "responses", "recovery"];
        let keys = if runs_task { &["recovery"][..] } else { of_calls };
        spread(defaults.as_ref().filter(|_| !waits), step, keys);
        if let Some(undo) = step.get_mut("undo") {
            spread(defaults.as_ref().and_then(|defaults| defaults.get("undo")), undo, keys);
        }
    }
}

fn spread(defaults: Option<&Value>, over: &mut Value, keys: &[&str]) {
    let Some(over) = over.as_object_mut() else { return };
    for key in keys.iter().copied() {
        let (default, said) = (defaults.and_then(|defaults| defaults.get(key)), over.get(key));
        if default.is_none() && said.is_none() {
            continue;
        }
        let mut merged = Value::Null;
        for patch in default.into_iter().chain(said) {
            json_patch::merge(&mut merged, patch);
        }
        if merged.is_null() {
            over.remove(key);
        } else {
            over.insert(key.to_owned(), merged);
        }
    }
}

impl Workflow {
    /// Reads a definition, as [`Deserialize`] does, and says at which key it cannot be read.
    ///
    /// # Errors
    /// The first problem.
    pub fn read(mut definition: Value) -> Result<Self, Problem> {
        spread_defaults(&mut definition);
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(definition, &mut track);
        Self::deserialize(tracked).map_err(|error| {
            let path: Vec<_> = track.path().iter().map(place_of).collect();
            Problem { at: path.join("."), message: error.to_string(), hint: None }
        })
    }

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

    /// When a running part was sent, if that can be told: its complete-by was as far away as its
    /// definition says, unless the task's own came first.
    #[must_use]
    pub fn sent_at(&self, task: &Task, part: &Part, action: Action) -> Option<Timestamp> {
        let StepState::Running { complete_by, .. } = task.progress(part, action)?.state else {
            return None;
        };
        let definition = self.steps.get(&part.step)?.action(action)?;
        let sent = earlier(complete_by, definition.complete_within);
        (complete_by < task.complete_by).then_some(sent)
    }

    /// The shortest time that any attempt may take: until then a new task cannot be past due.
    #[must_use]
    pub fn shortest_within(&self) -> Duration {
        let actions = self.steps.values().filter_map(|step| step.action(Action::Do));
        actions
            .filter(|action| !matches!(action.work, Work::Wait(_)))
            .fold(self.complete_within, |least, action| least.min(action.complete_within))
    }

    /// Every step that comes before each step, directly or not.
    #[must_use]
    pub fn ancestors(&self) -> BTreeMap<&StepName, BTreeSet<&StepName>> {
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
                "steps.b.after.0: there is no step `x`; there are `a`, `b` and `c`",
                "steps.c.after.1: `a` is named twice",
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
                "steps.a.request.body: `steps.b.output`: step `b` does not come before this one; add `b` to `after`"
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
    fn a_trigger_never_goes_in_a_circle() {
        for (detail_type, lifecycle_events, problem) in [
            (
                "Submission Refused",
                false,
                Some("an event that is refused would trigger itself, for ever"),
            ),
            (
                "Task Ended",
                true,
                Some("each task's end would submit another: turn `lifecycle_events` off"),
            ),
            ("Task Ended", false, None),
            ("Task In Error", true, None),
        ] {
            let workflow: Workflow = serde_json::from_value(json!({
                "name": "w", "version": 1, "lifecycle_events": lifecycle_events,
                "trigger": { "source": "steward", "detail_type": detail_type },
                "steps": { "a": step(&[]) },
            }))
            .unwrap();
            let said: Vec<_> = workflow.problems().iter().map(ToString::to_string).collect();
            let expected: Vec<_> = problem.iter().map(|said| format!("trigger: {said}")).collect();
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let mut wrong = step(&[]);
        wrong["atempts"] = json!(3);
        let error = workflow(json!({ "a": wrong })).unwrap_err();
        assert!(error.starts_with("unknown field `atempts`, expected one of"), "{error}");
    }

    #[test]
    fn what_a_call_may_take_by_default_is_no_measure_for_a_task() {
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1, "defaults": {
                "complete_within": "5s", "recovery": { "attempts": 7 }, "undo": { "complete_within": "6s" },
            },
            "steps": {
                "call": step(&[]), "task": { "workflow": { "name": "x" } }, "pause": { "wait": "1m" },
            },
        }))
        .unwrap();
        assert_eq!(workflow.problems(), []);
        let within =
            |name: &str, action| workflow.steps[name].action(action).unwrap().complete_within;
        assert_eq!(within("call", Action::Do), Duration::from_secs(5));
        assert_eq!(within("task", Action::Do), Duration::from_secs(86_400));
        assert_eq!(within("task", Action::Undo), Duration::from_secs(86_400));
        assert_eq!(workflow.steps["task"].recovery.attempts.0, 7);
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
