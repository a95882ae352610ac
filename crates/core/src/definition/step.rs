//! One step of a definition, and what is done at it.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    definition::{duration, recovery::Recovery},
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        messages::Method,
        names::{AgentName, StepName, WorkflowName},
        responses::Responses,
        time::later,
    },
};

/// One step of a workflow: exactly one of `agent`, `wait` and `workflow`, and what goes with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The steps that must have completed, or were skipped, before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepName>,
    /// An expression; if it is false, the step is skipped, and its output is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub when: Option<Template>,
    /// The step is done once for each item of a list, and its output is the list of what they
    /// returned, in the order of the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// The logical agent that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What the agent asks of its remote service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestTemplate>,
    /// The call only begins the step: someone answers later, with the token in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Waits: a duration as `15m`, or a time as `2026-12-24T18:00:00Z`, or an expression for either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub wait: Option<Template>,
    /// Runs a task of its own: if that fails, so does the step, and undoing it is the step's undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<ChildWorkflow>,
    /// How long one attempt may take, its time in the agent's queue included: `60s` for an agent, `1d`
    /// for a workflow, unless said.
    // Written even if absent: read again, it must not get the defaults that a `null` took away.
    #[serde(default, with = "duration::optional")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// How long one call may take at the service, also after the agent gave it up: a call that takes
    /// longer is cut, and its outcome is unknown. `complete_within` unless said, at most 100 seconds;
    /// what takes longer answers by `callback`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// What the statuses of the service's responses mean, where they mean something else than the
    /// default.
    #[serde(default, skip_serializing_if = "Responses::is_empty")]
    #[schemars(with = "Option<Responses>")]
    pub responses: Responses,
    /// What is done when an attempt fails.
    #[serde(default)]
    #[schemars(with = "Option<Recovery>")]
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
    /// How it is undone; passed over if absent. A step with a workflow always has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDefinition>,
}

/// The list that a step is done for each item of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// An expression for the list; the step's request, input and undo call an item of it `item`.
    #[schemars(with = "String")]
    pub items: Template,
    /// How many run at once.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = limits::ITEMS_MAX))]
    pub at_once: u32,
}

/// How a step is answered that its call only begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// By when after the call the answer must come.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub within: Duration,
    /// If said: a heartbeat must come this often, or the attempt counts as silent.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub heartbeat: Option<Duration>,
}

/// The task that a step runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildWorkflow {
    /// The workflow.
    pub name: WorkflowName,
    /// Which version of it; the newest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub version: Option<u32>,
    /// The task's input; null if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Template>,
}

/// The compensating action of a step. It must do no harm if the step has not run: a step that may
/// have run is undone too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoDefinition {
    /// How long one attempt may take, its time in the agent's queue included.
    // Written even if absent: read again, it must not get the defaults that a `null` took away.
    #[serde(default, with = "duration::optional")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// How long one call may take at the service, also after the agent gave it up: a call that takes
    /// longer is cut, and its outcome is unknown. `complete_within` unless said, at most 100 seconds;
    /// what takes longer answers by `callback`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// What the statuses of the service's responses mean, where they mean something else than the
    /// default.
    #[serde(default, skip_serializing_if = "Responses::is_empty")]
    #[schemars(with = "Option<Responses>")]
    pub responses: Responses,
    /// What is done when an attempt fails; in the end there is only an alert.
    #[serde(default)]
    #[schemars(with = "Option<Recovery>")]
    pub recovery: Recovery,
    /// What the agent asks of its remote service; only of a step with an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestTemplate>,
}

/// What doing a step and undoing it have in common.
#[derive(Debug, Clone, Copy)]
pub struct ActionDefinition<'a> {
    /// How long one attempt may take.
    pub complete_within: Duration,
    /// How long one call may take at the service, also after its agent gave it up. Of a step with an
    /// agent; nothing else makes calls.
    pub call_within: Duration,
    /// What the statuses of responses mean, where they mean something else than the default.
    pub responses: &'a Responses,
    /// What is done when an attempt fails.
    pub recovery: &'a Recovery,
    /// What is done.
    pub work: Work<'a>,
}

/// What is done at a step, or to undo it.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// An agent calls its remote service.
    Call {
        /// The agent.
        agent: &'a AgentName,
        /// What it asks.
        request: &'a RequestTemplate,
        /// How it is answered, if the call only begins it.
        callback: Option<&'a Callback>,
    },
    /// A task of its own runs, or is undone.
    Child(&'a ChildWorkflow),
    /// Time passes.
    Wait(&'a Template),
}

impl Work<'_> {
    /// The templates that it is made from.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let (request, single) = match self {
            Self::Call { request, .. } => (Some(request), None),
            Self::Child(child) => (None, child.input.as_ref()),
            Self::Wait(wait) => (None, Some(*wait)),
        };
        request.into_iter().flat_map(|request| request.templates()).chain(single)
    }
}

static NO_RECOVERY: std::sync::LazyLock<Recovery> = std::sync::LazyLock::new(Recovery::default);

static NO_RESPONSES: Responses = Responses::NONE;

impl StepDefinition {
    /// How the step is done, or undone; nothing if it has no undo, or in a definition that has
    /// [problems](crate::definition::workflow::Workflow::problems).
    #[must_use]
    pub fn action(&self, action: Action) -> Option<ActionDefinition<'_>> {
        match (action, self.work()?) {
            (Action::Do, work) => Some(self.run_by(work)),
            (Action::Undo, Work::Call { agent, .. }) => {
                let request = self.undo.as_ref()?.request.as_ref()?;
                Some(self.undo_by(Work::Call { agent, request, callback: None }))
            }
            (Action::Undo, work @ Work::Child(_)) => Some(self.undo_by(work)),
            (Action::Undo, Work::Wait(_)) => None,
        }
    }

    /// How the step is done, if this is its work.
    pub(super) fn run_by<'a>(&'a self, work: Work<'a>) -> ActionDefinition<'a> {
        let complete_within = self.within(self.complete_within);
        ActionDefinition {
            complete_within,
            call_within: call_within(self.call_within, complete_within),
            responses: &self.responses,
            recovery: &self.recovery,
            work,
        }
    }

    /// How the step is undone, if this is the work of its undo.
    pub(super) fn undo_by<'a>(&'a self, work: Work<'a>) -> ActionDefinition<'a> {
        let undo = self.undo.as_ref();
        let complete_within = self.within(undo.and_then(|undo| undo.complete_within));
        ActionDefinition {
            complete_within,
            call_within: call_within(undo.and_then(|undo| undo.call_within), complete_within),
            responses: undo.map_or(&NO_RESPONSES, |undo| &undo.responses),
            recovery: undo.map_or(&*NO_RECOVERY, |undo| &undo.recovery),
            work,
        }
    }

    /// What is done; nothing in a definition that has [problems](Workflow::problems).
    #[must_use]
    pub fn work(&self) -> Option<Work<'_>> {
        match (&self.agent, &self.request, &self.wait, &self.workflow) {
            (Some(agent), Some(request), None, None) => {
                Some(Work::Call { agent, request, callback: self.callback.as_ref() })
            }
            (None, None, Some(wait), None) => Some(Work::Wait(wait)),
            (None, None, None, Some(child)) => Some(Work::Child(child)),
            _ => None,
        }
    }

    fn within(&self, said: Option<Duration>) -> Duration {
        let default =
            if self.workflow.is_some() { default_task_within() } else { default_step_within() };
        said.unwrap_or(default)
    }
}

/// How long one call may take: as `said`, or as long as its attempt, up to what an agent can hold.
fn call_within(said: Option<Duration>, complete_within: Duration) -> Duration {
    said.unwrap_or(complete_within).min(limits::CALL_WITHIN_MAX)
}

/// The request that an agent makes, with expressions over the task's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestTemplate {
    /// The HTTP method.
    #[serde(default)]
    pub method: Method,
    /// The path under the agent's base URL; must render to a text that starts with `/`.
    #[schemars(with = "String")]
    pub path: Template,
    /// The JSON body; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Template>,
}

impl RequestTemplate {
    /// The parts that hold expressions.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.path).chain(&self.body)
    }
}

/// The end of a wait that begins at `now`: after a duration, or at a time.
///
/// # Errors
/// That it is neither, or too far away.
pub fn wait_until(wait: &Value, now: Timestamp) -> Result<Timestamp, String> {
    let text = wait.as_str().ok_or("must be a text: a duration as `15m`, or a time")?;
    let until = match (duration::parse(text), text.parse::<Timestamp>()) {
        (Ok(duration), _) if duration > limits::WAIT_MAX => None,
        (Ok(duration), _) => Some(later(now, duration)),
        (Err(_), Ok(time)) => Some(time).filter(|time| *time <= later(now, limits::WAIT_MAX)),
        (Err(_), Err(_)) => {
            return Err("must be a duration as `15m`, or a time as `2026-12-24T18:00:00Z`".into());
        }
    };
    let days = limits::WAIT_MAX.as_secs() / (24 * 3600);
    until.ok_or(format!("a wait of more than {days}d"))
}

fn default_step_within() -> Duration {
    Duration::from_secs(60)
}

fn ten() -> u32 {
    10
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_true(value: &bool) -> bool {
    *value
}

pub(super) fn default_task_within() -> Duration {
    Duration::from_secs(24 * 3600)
}
