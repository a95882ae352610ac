//! The definition of a workflow, and its JSON form.
//!
//! The steps form a graph: each step lists its predecessors in `after`. This one key expresses sequences, parallel
//! branches and joins. A step without `after` starts with the task. There are four kinds of steps:
//!
//! | a step with | what it does |
//! | --- | --- |
//! | `agent` | an agent calls its remote service |
//! | `wait` | waits for a duration, until a time, or for an event |
//! | `workflow` | runs a child task |
//! | `fail` | only fails |
//!
//! [`Workflow::problems`] validates a definition beyond its syntax.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::{
    definition::{
        duration,
        mask::Mask,
        problem::DefinitionProblem,
        recovery::{Overdue, Recovery},
        schema::PayloadSchema,
        step::{StepDefinition, default_task_within},
        wait::{AwaitedEvent, EventPattern, Wait},
    },
    expression::{named_values::NamedValues, template::Template},
    hint, limits,
    model::{
        attempt::Action,
        lifecycle::LifecycleEventKinds,
        names::{AgentName, Part, StepName, ValueName, WorkflowName},
        responses::ResponseOverrides,
        step::StepState,
        task::Task,
        time::earlier,
    },
};

/// Returns the JSON Schema of definitions (draft 2020-12). Editors use it for completion and validation.
#[must_use]
pub fn json_schema() -> Value {
    schemars::schema_for!(Workflow).to_value()
}

/// A versioned definition of a workflow. A published version never changes: a changed definition gets a new version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Workflow {
    /// The name of the workflow.
    pub name: WorkflowName,
    /// The version, counted from 1. A submission without a version uses the newest.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub version: u32,
    /// A description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of the input, checked when a task is submitted. If absent, any input is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PayloadSchema>,
    /// The values that the console hides, in the input and in the outputs of the steps and the task: JSON
    /// pointers such as `/card/number`, with `*` for every element, such as `/items/*/secret`.
    #[serde(default, skip_serializing_if = "Mask::is_empty")]
    pub mask: Mask,
    /// The events that submit tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Constants that differ between deployments, as `env.NAME` in expressions: a text, a number or a boolean.
    /// `steward workflow publish --env NAME=VALUE` replaces one. One that is null has no value until then.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<ValueName, Value>,
    /// Named expressions, as `vars.NAME` in expressions. Each may use the ones before it.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    #[schemars(with = "IndexMap<ValueName, String>")]
    pub vars: IndexMap<ValueName, Template>,
    /// The labels of its tasks, by which people search for tasks: at most 10 expressions, such as `${ input.customer.id }`.
    /// They are computed once, when a task is submitted. Each costs a write unit per task.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub labels: IndexMap<ValueName, Template>,
    /// How long a task may take as a whole, such as `90s`, `15m`, `2h` or `1d`.
    #[serde(default = "default_task_within", with = "duration")]
    #[schemars(with = "duration::Text")]
    pub complete_within: Duration,
    /// After how long an unfinished task is reported as late, once, by an alert. If absent, it is not.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub warn_after: Option<Duration>,
    /// What happens to a task that exceeds `complete_within`: an alert, or its undo. The undo may take as long again.
    #[serde(default)]
    pub overdue: Overdue,
    /// How long a task and its documents are kept after its end. If absent, the deployment's retention applies.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub retention: Option<Duration>,
    /// The lifecycle events that its tasks publish on the event bus. None by default, because each event costs about as
    /// much as two writes.
    #[serde(default, skip_serializing_if = "LifecycleEventKinds::is_empty")]
    pub lifecycle_events: LifecycleEventKinds,
    /// Default values for the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<StepDefaults>,
    /// The steps by name. Their order is the order of display.
    pub steps: IndexMap<StepName, StepDefinition>,
    /// The output of the task after all steps have completed. If absent, the task has no output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Template>,
}

/// The events that submit a task, and how they do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The exact `source` of the event.
    #[schemars(length(min = 1, max = limits::EVENT_TEXT_CHARS_MAX))]
    pub source: String,
    /// The exact `detail-type` of the event.
    #[schemars(length(min = 1, max = limits::EVENT_TEXT_CHARS_MAX))]
    pub detail_type: String,
    /// The task's id, computed from the `event`. By default it is the id of the event. In that case an event that is
    /// published twice creates two tasks.
    #[serde(default = "default_trigger_task_id")]
    #[schemars(with = "String")]
    pub task_id: Template,
    /// The task's input, computed from the `event`. By default it is the detail of the event.
    #[serde(default = "default_trigger_input")]
    pub input: Template,
    /// The task's tenant, computed from the `event`. If absent, or null, the task has no tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub tenant: Option<Template>,
}

impl Trigger {
    /// Whether an event with this source and detail-type submits a task.
    #[must_use]
    pub fn matches(&self, source: &str, detail_type: &str) -> bool {
        self.source == source && self.detail_type == detail_type
    }

    /// Whether one event would submit two tasks with the same id. Only one of them could be recorded.
    #[must_use]
    pub fn collides_with(&self, other: &Self) -> bool {
        self.matches(&other.source, &other.detail_type) && self.task_id == other.task_id
    }
}

/// Default values for the steps with an `agent`, which may override each of them. Of these values, only `recovery`
/// applies to steps with a `workflow`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDefaults {
    /// How long one attempt of a step with an agent may take.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// How long one call of a step with an agent may take at the service.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// The meaning of the statuses of the service's responses. A step may override single statuses.
    #[serde(default, skip_serializing_if = "ResponseOverrides::is_empty")]
    #[schemars(with = "Option<ResponseOverrides>")]
    pub responses: ResponseOverrides,
    /// What happens when an attempt fails. A step may override single keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Default values for the undos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDefaults>,
}

/// Default values for the undos. An undo may override each of them.
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
    /// The meaning of the statuses of the service's responses. An undo may override single statuses.
    #[serde(default, skip_serializing_if = "ResponseOverrides::is_empty")]
    #[schemars(with = "Option<ResponseOverrides>")]
    pub responses: ResponseOverrides,
    /// What happens when an attempt fails. The only final action is an alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
}

fn default_trigger_task_id() -> Template {
    Template::parse("${ event.id }".into())
}

fn default_trigger_input() -> Template {
    Template::parse("${ event.detail }".into())
}

impl Serialize for Workflow {
    /// Writes a definition so that reading it again results in the same definition. If a step has removed a default
    /// that is not always written (`call_within`, `responses`, or a time limit of `recovery`) with `null`, that `null` is written.
    /// If the definition has no such defaults, nothing is added.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(defaults) =
            self.defaults.as_ref().filter(|defaults| defaults.has_removable_defaults())
        else {
            return Self::serialize(self, serializer);
        };
        let mut definition = Self::serialize(self, serde_json::value::Serializer)
            .map_err(serde::ser::Error::custom)?;
        let undo = defaults.undo.as_ref();
        let undo_defaults = undo.map(|undo| (undo.call_within.is_some(), &undo.responses));
        let steps = definition.get_mut("steps").and_then(Value::as_object_mut);
        for step in steps.into_iter().flat_map(|steps| steps.values_mut()) {
            for key in defaults.time_limits() {
                step.get_mut("undo").into_iter().for_each(|undo| write_null_limit(undo, key));
                write_null_limit(step, key);
            }
            if step.get("agent").is_none() {
                continue;
            }
            if let (Some(undo), Some((has_within, responses))) =
                (step.get_mut("undo"), undo_defaults)
            {
                write_explicit_nulls(undo, has_within, responses);
            }
            write_explicit_nulls(step, defaults.call_within.is_some(), &defaults.responses);
        }
        definition.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Workflow {
    /// Reads a definition, and applies its defaults to its steps.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut definition = Value::deserialize(deserializer)?;
        apply_defaults(&mut definition);
        let read = Self::deserialize(definition).map_err(serde::de::Error::custom)?;
        Ok(read.compile())
    }
}

fn path_segment(segment: &serde_path_to_error::Segment) -> String {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.clone(),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".to_owned(),
    }
}

impl StepDefaults {
    /// Whether there is a default that is not always written: `call_within`, `responses` or a time limit.
    fn has_removable_defaults(&self) -> bool {
        let undo = self.undo.as_ref();
        self.call_within.is_some()
            || !self.responses.is_empty()
            || undo.is_some_and(|undo| undo.call_within.is_some() || !undo.responses.is_empty())
            || self.time_limits().next().is_some()
    }

    /// The time limits that are defaults of steps or undos, by their keys in `recovery`.
    fn time_limits(&self) -> impl Iterator<Item = &'static str> {
        let undo = self.undo.as_ref().and_then(|undo| undo.recovery.as_ref());
        let limits = self.recovery.iter().chain(undo).flat_map(Recovery::time_limits);
        limits.filter_map(|(key, limit)| limit.is_some().then_some(key))
    }
}

/// Writes `null` as this time limit of `target`, a step or an undo, if it has none.
fn write_null_limit(target: &mut Value, key: &str) {
    if let Some(recovery) = target.get_mut("recovery").and_then(Value::as_object_mut) {
        recovery.entry(key).or_insert(Value::Null);
    }
}

/// Writes `null` for each default that `target`, a step or an undo, does not have.
fn write_explicit_nulls(target: &mut Value, has_call_within: bool, responses: &ResponseOverrides) {
    let Some(target) = target.as_object_mut() else { return };
    if has_call_within {
        target.entry("call_within").or_insert(Value::Null);
    }
    if responses.is_empty() {
        return;
    }
    let own_responses =
        target.entry("responses").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Some(own_responses) = own_responses.as_object_mut() else { return };
    for (status, _) in responses.iter() {
        own_responses.entry(status.to_string()).or_insert(Value::Null);
    }
}

/// Merges the defaults into the steps: `complete_within`, `call_within`, `responses` and `recovery` into a step with an
/// agent, only `recovery` into a step with a workflow, only `recovery.then` into a wait for an event or a `fail`, none into another wait; and
/// the same for their undos. A step is a JSON
/// merge patch (RFC 7396) of the defaults.
fn apply_defaults(definition: &mut Value) {
    let defaults = definition.get_mut("defaults").map(|written| {
        let mut defaults = Value::Null;
        json_patch::merge(&mut defaults, written);
        written.clone_from(&defaults);
        defaults
    });
    let steps = definition.get_mut("steps").and_then(Value::as_object_mut);
    for step in steps.into_iter().flat_map(|steps| steps.values_mut()) {
        let has = |key: &str| step.get(key).is_some_and(|value| !value.is_null());
        let awaits_event = step.get("wait").is_some_and(Value::is_object);
        let is_never_repeated = awaits_event || has("fail");
        let (waits, runs_task) = (has("wait") && !awaits_event, has("workflow"));
        // A child task makes no calls, and its default deadline is longer.
        let all_keys = &["complete_within", "call_within", "responses", "recovery"];
        let keys = if runs_task { &["recovery"][..] } else { all_keys };
        let final_action = defaults.as_ref().and_then(final_action).filter(|_| is_never_repeated);
        let of_step = if is_never_repeated { final_action.as_ref() } else { defaults.as_ref() };
        merge_defaults(of_step.filter(|_| !waits), step, keys);
        if let Some(undo) = step.get_mut("undo") {
            merge_defaults(defaults.as_ref().and_then(|defaults| defaults.get("undo")), undo, keys);
        }
    }
}

/// The default that also applies to a wait for an event and to a step that only fails: `recovery.then`.
fn final_action(defaults: &Value) -> Option<Value> {
    Some(json!({ "recovery": { "then": defaults.get("recovery")?.get("then")? } }))
}

fn merge_defaults(defaults: Option<&Value>, target: &mut Value, keys: &[&str]) {
    let Some(target) = target.as_object_mut() else { return };
    for key in keys.iter().copied() {
        let default = defaults.and_then(|defaults| defaults.get(key));
        let own_value = target.get(key);
        if default.is_none() && own_value.is_none() {
            continue;
        }
        let mut merged = Value::Null;
        for patch in default.into_iter().chain(own_value) {
            json_patch::merge(&mut merged, patch);
        }
        if merged.is_null() {
            target.remove(key);
        } else {
            target.insert(key.to_owned(), merged);
        }
    }
}

impl Workflow {
    /// Reads a definition, as [`Deserialize`] does, and reports the key that cannot be read.
    ///
    /// # Errors
    /// The first problem.
    pub fn read(mut definition: Value) -> Result<Self, DefinitionProblem> {
        apply_defaults(&mut definition);
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(definition, &mut track);
        let read = Self::deserialize(tracked).map_err(|error| {
            let path: Vec<_> = track.path().iter().map(path_segment).collect();
            DefinitionProblem { at: path.join("."), message: error.to_string(), hint: None }
        });
        read.map(Self::compile)
    }

    /// Replaces what is a short form of something else: polls, and the named values in the templates that Steward renders.
    fn compile(mut self) -> Self {
        for step in self.steps.values_mut() {
            if let Some(until) = &mut step.until {
                until.compile(&step.responses);
            }
        }
        if self.env.is_empty() && self.vars.is_empty() {
            return self;
        }
        let mut named = NamedValues::default();
        self.env.iter().for_each(|(name, value)| named.add_constant(name.as_str(), value));
        for (name, template) in &mut self.vars {
            template.resolve(&named);
            named.add_expression(name.as_str(), template.expression().unwrap_or_default());
        }
        let steps = self.steps.values_mut().flat_map(StepDefinition::templates_mut);
        let own = self.labels.values_mut().chain(&mut self.output);
        steps.chain(own).for_each(|template| template.resolve(&named));
        self
    }

    /// The same definition with these values of constants in `env`, given as text.
    ///
    /// # Errors
    /// The definition has no such constant, or the value is not of the same type as the one in the definition.
    pub fn with_env<'v>(
        &self,
        values: impl IntoIterator<Item = (&'v ValueName, &'v str)>,
    ) -> Result<Self, String> {
        let mut changed = self.clone();
        for (name, text) in values {
            let known = self.env.keys().map(ValueName::as_str);
            let value = changed.env.get_mut(name).ok_or_else(|| {
                let hint = hint::suggestion(name.as_str(), known).unwrap_or_default();
                format!("`env` has no `{name}`; {hint}")
            })?;
            *value = match value {
                Value::Number(_) | Value::Bool(_) => {
                    let is_same = |given: &Value| given.is_number() == value.is_number();
                    let given = serde_json::from_str(text).ok().filter(is_same);
                    let given =
                        given.filter(|given: &Value| given.is_number() || given.is_boolean());
                    given.ok_or_else(|| format!("env.{name} must be like {value}, not `{text}`"))?
                }
                Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => text.into(),
            };
        }
        // Read again, so that the templates have the new values.
        let definition = serde_json::to_value(&changed).map_err(|error| error.to_string())?;
        Self::read(definition).map_err(|problem| problem.to_string())
    }

    /// The constants in `env` without a value.
    pub fn unset_env(&self) -> impl Iterator<Item = &ValueName> {
        self.env.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name)
    }

    /// The same definition, in which each constant without a value has its name for one, for runs without a deployment.
    #[must_use]
    pub fn with_sample_env(self) -> Self {
        let samples: Vec<_> = self.unset_env().map(|name| (name, name.as_str())).collect();
        if samples.is_empty() {
            return self;
        }
        self.with_env(samples).unwrap_or(self)
    }

    /// The same definition, in which each step with `repeat` runs for so many rounds, for runs without services.
    #[must_use]
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        let repeated = self.steps.values_mut().filter_map(|step| step.repeat.as_mut());
        repeated.for_each(|repeat| repeat.end_after(rounds));
        self
    }

    /// The agents that steps name, each with the version of the messages that its steps need, as in
    /// [`AGENT_CONTRACT`](crate::model::registration::AGENT_CONTRACT).
    #[must_use]
    pub fn agents(&self) -> BTreeMap<&AgentName, u32> {
        let mut agents = BTreeMap::new();
        for step in self.steps.values() {
            for (agent, contract) in step.agents_with_contract() {
                let needed = agents.entry(agent).or_default();
                *needed = contract.max(*needed);
            }
        }
        agents
    }

    /// The events that steps wait for, by step.
    pub fn awaited_events(&self) -> impl Iterator<Item = (&StepName, &AwaitedEvent)> {
        self.steps.iter().filter_map(|(name, step)| {
            let wait = step.wait.as_ref().and_then(Wait::event)?;
            Some((name, &wait.event))
        })
    }

    /// What the events look like that steps wait for.
    pub fn awaited_patterns(&self) -> impl Iterator<Item = EventPattern<'_>> {
        self.awaited_events().flat_map(|(_, event)| event.patterns())
    }

    /// Whether a step waits for an event with this source and detail-type.
    #[must_use]
    pub fn awaits(&self, source: &str, detail_type: &str) -> bool {
        self.awaited_patterns().any(|of| of.is_of(source, detail_type))
    }

    /// When the request of a running part was sent: the attempt's deadline minus `complete_within`. `None` if the part
    /// is not running, or if the task's own deadline or the time limit of the part cut the attempt's deadline short.
    #[must_use]
    pub fn sent_at(&self, task: &Task, part: &Part, action: Action) -> Option<Timestamp> {
        let progress = task.progress(part, action)?;
        let StepState::Running { complete_by, .. } = progress.state else { return None };
        let definition = self.steps.get(&part.step)?.action(action)?;
        let sent = earlier(complete_by, definition.complete_within);
        let is_cut = complete_by >= task.complete_by
            || [progress.give_up_at, progress.key_valid_until].contains(&Some(complete_by));
        (!is_cut).then_some(sent)
    }

    /// The shortest deadline of any attempt, or of the task, or the time after which it is late. The supervisor has nothing to do
    /// earlier.
    #[must_use]
    pub fn shortest_deadline(&self) -> Duration {
        let actions = self.steps.values().filter_map(|step| step.action(Action::Do));
        let longest = self.complete_within.min(self.warn_after.unwrap_or(Duration::MAX));
        actions
            .filter(|action| !action.work.is_wait())
            .fold(longest, |least, action| least.min(action.complete_within))
    }

    /// When a task is to be reported as late. `None` if it never is, was already, has stopped, or is paused.
    #[must_use]
    pub fn late_from(&self, task: &Task) -> Option<Timestamp> {
        let is_open = !task.process_state.has_stopped() && task.paused_at.is_none();
        let after = self.warn_after.filter(|_| is_open && task.late_at.is_none())?;
        // What gives the task more time, as the end of a pause, or its undo, moves this too.
        Some(earlier(task.complete_by, self.complete_within.saturating_sub(after)))
    }

    /// The direct and indirect predecessors of each step.
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
mod tests;
