//! The definition of a step, and of its work and its undo.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    definition::{
        duration,
        recovery::Recovery,
        repeat::Repeat,
        schema::PayloadSchema,
        step_agents::StepAgents,
        until::Until,
        wait::{EventWait, Wait},
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        aws_action::AwsAction,
        call_auth::CallAuth,
        key_format::KeyFormat,
        messages::HttpMethod,
        names::{AgentName, StepName, WorkflowName},
        responses::ResponseOverrides,
        time::later,
    },
};

/// One step of a workflow. It has exactly one of `agent`, `wait` and `workflow`, and the keys for that kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// A description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The steps that must have completed or been skipped before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepName>,
    /// A condition, as an expression. If it is false, the step is skipped, and its output is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub when: Option<Template>,
    /// Runs the step once for each item of a list. The output of the step is the list of the items' outputs, in the
    /// same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// Repeats the step until a condition holds. Each round gets the output of the round before as `item`. The output of the
    /// step is that of the last round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// The agent that executes the step: its name; a list of names, of which the next is tried only if the one before
    /// certainly did not run the step; or `choose` and `of`, an expression for the name and the names that it may give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<StepAgents>,
    /// The request of the agent to its remote service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestTemplate>,
    /// The call only starts the step. A callback with the token from the request completes it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<CallbackDefinition>,
    /// The step polls: it calls until the response meets a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The step only waits: for a duration, until a time, or for an event on the event bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Runs a child task. If the child fails, the step fails. The undo of the step is the undo of the child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<ChildWorkflow>,
    /// The step only fails, for this reason, as a way out of a workflow: `recovery.then` follows. Give it a `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub fail: Option<Template>,
    /// How long one attempt may take; for an agent, including its time in the agent's queue. The default is `60s` for
    /// an agent and `1d` for a workflow. A poll takes at most `until.every`, or ten seconds.
    // Written even if absent. Otherwise a definition that removed the default with `null` would get it back when it
    // is read again.
    #[serde(default, with = "duration::optional")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// The longest time that the service works on one call, even if the agent has disconnected. The agent aborts a
    /// longer call; its outcome is then unknown. The default is `complete_within`, at most 100 seconds. For longer
    /// work, use a `callback`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// The meaning of the statuses of the service's responses, where it differs from the default.
    #[serde(default, skip_serializing_if = "ResponseOverrides::is_empty")]
    #[schemars(with = "Option<ResponseOverrides>")]
    pub responses: ResponseOverrides,
    /// The output of the step, which its agent computes from the response: `response.body`, `response.headers` (names in
    /// lower case) and `response.status`. If absent, the body. Only the output is stored, so the body may be larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Template>,
    /// What happens when an attempt fails.
    #[serde(default)]
    #[schemars(with = "Option<Recovery>")]
    pub recovery: Recovery,
    /// Whether the remote service recognises a repeated call by its idempotency key. If `false`, the agent records the
    /// attempt before the call. It repeats the call only if the service certainly did not start it: no connection, 425
    /// or 429. If the step may have run, its failure goes directly to `recovery.then`.
    #[serde(default = "default_idempotent", skip_serializing_if = "is_true")]
    pub idempotent: bool,
    /// Whether the call has no side effect, so that there is nothing to undo. If absent: yes for the method GET, no for the
    /// others. It changes nothing in how the step runs; `steward workflow failures` counts what a task leaves behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Why the side effect of the step needs no undo. It changes nothing in how the step runs: `steward workflow failures` does
    /// not count what such a step leaves behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::NO_UNDO_CHARS_MAX))]
    pub no_undo_needed: Option<String>,
    /// Whether the task can no longer be undone after this step has completed. From then on, it can only continue
    /// forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub point_of_no_return: bool,
    /// The undo of the step. If absent, the undo of a task skips the step. The child task of a step with a workflow is
    /// always undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDefinition>,
}

/// The list of items of a step with `for_each`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// An expression for the list. The request, the input and the undo of the step refer to the item as `item`.
    #[schemars(with = "String")]
    pub items: Template,
    /// How many items run concurrently.
    #[serde(default = "default_at_once")]
    #[schemars(range(min = 1, max = limits::ITEMS_AT_ONCE_MAX))]
    pub at_once: u32,
}

/// The callback of a step whose call only starts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallbackDefinition {
    /// How long after the call the callback may arrive.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub within: Duration,
    /// The longest time between two heartbeats. If none arrives in time, the attempt ends with an unknown outcome. If
    /// absent, no heartbeats are expected.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub heartbeat: Option<Duration>,
    /// Who is to answer, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<Template>,
    /// The JSON Schema of the answer, which is the output of the step. An answer that violates it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<PayloadSchema>,
}

impl CallbackDefinition {
    /// Checks an answer with which the step is to complete.
    ///
    /// # Errors
    /// It violates the schema. The error contains no value of the answer.
    pub fn check_answer(&self, output: &Value) -> Result<(), String> {
        self.answer.as_ref().map_or(Ok(()), |schema| schema.validate("answer", output))
    }
}

/// The workflow of the child task that a step runs, and the child task's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildWorkflow {
    /// The name of the workflow.
    pub name: WorkflowName,
    /// The version of the workflow. If absent, the newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub version: Option<u32>,
    /// The input of the child task. If absent, null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Template>,
}

/// The compensating action of a step. It must be harmless if the step has not run, because a step that may have run
/// is undone too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoDefinition {
    /// How long one attempt may take; for an agent, including its time in the agent's queue. The default is `60s` for
    /// an agent and `1d` for a workflow.
    // Written even if absent. Otherwise a definition that removed the default with `null` would get it back when it
    // is read again.
    #[serde(default, with = "duration::optional")]
    #[schemars(with = "Option<duration::Text>")]
    pub complete_within: Option<Duration>,
    /// The longest time that the service works on one call of the undo, even if the agent has disconnected. The agent
    /// aborts a longer call; its outcome is then unknown. The default is `complete_within`, at most 100 seconds. An
    /// undo cannot have a `callback`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub call_within: Option<Duration>,
    /// The meaning of the statuses of the service's responses, where it differs from the default.
    #[serde(default, skip_serializing_if = "ResponseOverrides::is_empty")]
    #[schemars(with = "Option<ResponseOverrides>")]
    pub responses: ResponseOverrides,
    /// What happens when an attempt fails. The only final action is an alert.
    #[serde(default)]
    #[schemars(with = "Option<Recovery>")]
    pub recovery: Recovery,
    /// The agent that undoes the step, if it is not the one that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AgentName>")]
    pub agent: Option<StepAgents>,
    /// The request of the agent to its remote service. Only for a step with an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestTemplate>,
}

impl UndoDefinition {
    /// The agents that may undo a step that one of `run` has run.
    pub(super) fn agents<'a>(&'a self, run: &'a StepAgents) -> &'a StepAgents {
        self.agent.as_ref().unwrap_or(run)
    }
}

/// The settings of one action: doing the step, or undoing it. Defaults are applied.
#[derive(Debug, Clone, Copy)]
pub struct ActionDefinition<'a> {
    /// How long one attempt may take.
    pub complete_within: Duration,
    /// The longest time that the service works on one call, even if the agent has disconnected. Only steps with an
    /// agent make calls.
    pub call_within: Duration,
    /// The meaning of the statuses of responses, where it differs from the default.
    pub responses: &'a ResponseOverrides,
    /// What happens when an attempt fails.
    pub recovery: &'a Recovery,
    /// The work.
    pub work: StepWork<'a>,
}

impl ActionDefinition<'_> {
    /// How long the service surely knows the idempotency key of a call. The key of a child task is its id, which stays known.
    #[must_use]
    pub fn key_valid_for(&self) -> Option<Duration> {
        self.recovery.key_valid_for.filter(|_| self.work.is_call())
    }

    /// How long one attempt may take, with the callback that completes it.
    pub(super) fn longest_attempt(&self) -> Duration {
        let callback = match self.work {
            StepWork::Call { callback, .. } => callback,
            StepWork::Child(_) | StepWork::Wait(_) | StepWork::Event(_) => None,
        };
        self.complete_within.saturating_add(callback.map_or(Duration::ZERO, |of| of.within))
    }
}

/// The work of a step or of its undo.
#[derive(Debug, Clone, Copy)]
pub enum StepWork<'a> {
    /// An agent calls its remote service.
    Call {
        /// The agents that may make the call.
        agents: &'a StepAgents,
        /// The request.
        request: &'a RequestTemplate,
        /// How the agent computes the output from the response. If absent, the output is the response's body.
        output: Option<&'a Template>,
        /// The callback that completes the step, if the call only starts it.
        callback: Option<&'a CallbackDefinition>,
    },
    /// A child task runs, or is undone.
    Child(&'a ChildWorkflow),
    /// The step waits until a time, or only fails.
    Wait(&'a Template),
    /// The step waits for an event.
    Event(&'a EventWait),
}

impl StepWork<'_> {
    /// Whether an agent calls its remote service.
    #[must_use]
    pub fn is_call(&self) -> bool {
        match self {
            Self::Call { .. } => true,
            Self::Child(_) | Self::Wait(_) | Self::Event(_) => false,
        }
    }

    /// Whether a child task runs.
    #[must_use]
    pub fn is_child(&self) -> bool {
        match self {
            Self::Child(_) => true,
            Self::Call { .. } | Self::Wait(_) | Self::Event(_) => false,
        }
    }

    /// Whether the step only waits until a time.
    #[must_use]
    pub fn is_wait(&self) -> bool {
        match self {
            Self::Wait(_) => true,
            Self::Call { .. } | Self::Child(_) | Self::Event(_) => false,
        }
    }

    /// The templates that are rendered before the work starts.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let (request, template) = match self {
            Self::Call { request, .. } => (Some(request), None),
            Self::Child(child) => (None, child.input.as_ref()),
            Self::Wait(wait) => (None, Some(*wait)),
            Self::Event(wait) => (None, Some(&wait.event.equals)),
        };
        request.into_iter().flat_map(|request| request.templates()).chain(template)
    }
}

static DEFAULT_RECOVERY: std::sync::LazyLock<Recovery> =
    std::sync::LazyLock::new(Recovery::default);

static NO_RESPONSES: ResponseOverrides = ResponseOverrides::NONE;

impl StepDefinition {
    /// The templates that Steward renders. Those that its agent renders read only the response.
    pub(super) fn templates_mut(&mut self) -> impl Iterator<Item = &mut Template> {
        let undo = self.undo.as_mut().and_then(|undo| undo.request.as_mut());
        let requests = self.request.iter_mut().chain(undo);
        let choice = self.agent.as_mut().and_then(StepAgents::choice_mut);
        let callback = self.callback.as_mut().and_then(|callback| callback.from.as_mut());
        let child = self.workflow.as_mut().and_then(|child| child.input.as_mut());
        let single = [self.when.as_mut(), choice, callback, child];
        let items = self.for_each.iter_mut().map(|each| &mut each.items);
        let items = items.chain(self.repeat.iter_mut().flat_map(Repeat::templates_mut));
        let waits = self.wait.iter_mut().flat_map(Wait::templates_mut);
        let requests = requests.flat_map(RequestTemplate::templates_mut);
        single.into_iter().flatten().chain(items).chain(waits).chain(requests)
    }

    /// The settings for doing or undoing the step. Returns `None` if it has no undo, or if the definition has
    /// [problems](crate::definition::workflow::Workflow::problems).
    #[must_use]
    pub fn action(&self, action: Action) -> Option<ActionDefinition<'_>> {
        match (action, self.work()?) {
            (Action::Do, work) => Some(self.do_settings(work)),
            (Action::Undo, StepWork::Call { agents, .. }) => {
                let undo = self.undo.as_ref()?;
                let (agents, request) = (undo.agents(agents), undo.request.as_ref()?);
                let (output, callback) = (None, None);
                Some(self.undo_settings(StepWork::Call { agents, request, output, callback }))
            }
            (Action::Undo, work @ StepWork::Child(_)) => Some(self.undo_settings(work)),
            (Action::Undo, StepWork::Wait(_) | StepWork::Event(_)) => None,
        }
    }

    /// The settings for doing the step, given its work.
    pub(super) fn do_settings<'a>(&'a self, work: StepWork<'a>) -> ActionDefinition<'a> {
        let complete_within = self.complete_within_or_default(self.complete_within);
        let longest = self.until.as_ref().map_or(Duration::MAX, Until::longest_attempt);
        let complete_within = complete_within.min(longest);
        ActionDefinition {
            complete_within,
            call_within: call_within(self.call_within, complete_within),
            responses: self.until.as_ref().map_or(&self.responses, Until::responses),
            recovery: &self.recovery,
            work,
        }
    }

    /// The settings for undoing the step, given the work of its undo.
    pub(super) fn undo_settings<'a>(&'a self, work: StepWork<'a>) -> ActionDefinition<'a> {
        let undo = self.undo.as_ref();
        let complete_within =
            self.complete_within_or_default(undo.and_then(|undo| undo.complete_within));
        ActionDefinition {
            complete_within,
            call_within: call_within(undo.and_then(|undo| undo.call_within), complete_within),
            responses: undo.map_or(&NO_RESPONSES, |undo| &undo.responses),
            recovery: undo.map_or(&*DEFAULT_RECOVERY, |undo| &undo.recovery),
            work,
        }
    }

    /// The work of the step. Returns `None` in a definition that has [problems](crate::definition::workflow::Workflow::problems).
    #[must_use]
    pub fn work(&self) -> Option<StepWork<'_>> {
        match (&self.agent, &self.request, &self.wait, &self.workflow, &self.fail) {
            (Some(agents), Some(request), None, None, None) => {
                let (output, callback) = (self.output.as_ref(), self.callback.as_ref());
                Some(StepWork::Call { agents, request, output, callback })
            }
            (None, None, Some(Wait::Until(until)), None, None) => Some(StepWork::Wait(until)),
            (None, None, Some(Wait::Event(event)), None, None) => Some(StepWork::Event(event)),
            (None, None, None, Some(child), None) => Some(StepWork::Child(child)),
            (None, None, None, None, Some(reason)) => Some(StepWork::Wait(reason)),
            _ => None,
        }
    }

    /// Whether a request of the step or of its undo, or the input of its child task, reads `step.started_at`.
    pub(crate) fn reads_start(&self) -> bool {
        let actions =
            [Action::Do, Action::Undo].into_iter().filter_map(|action| self.action(action));
        let reads = |template: &Template| template.required_values().names.contains("step");
        actions.into_iter().any(|action| action.work.templates().any(reads))
    }

    /// How many items of the step may run at once. Rounds run one after the other. `None` if the step runs once.
    #[must_use]
    pub fn items_at_once(&self) -> Option<u32> {
        self.for_each.as_ref().map(|each| each.at_once).or(self.repeat.as_ref().map(|_| 1))
    }

    /// Whether the step may have a side effect: its call is not [read-only](Self::read_only), or it runs a child task.
    #[must_use]
    pub fn has_side_effect(&self) -> bool {
        match self.work() {
            Some(StepWork::Call { request, .. }) => {
                let reads = request.method == HttpMethod::Get || self.until.is_some();
                !self.read_only.unwrap_or(reads)
            }
            Some(StepWork::Child(_)) => true,
            Some(StepWork::Wait(_) | StepWork::Event(_)) | None => false,
        }
    }

    /// Whether the step may have a side effect that remains unless it is undone.
    #[must_use]
    pub fn needs_undo(&self) -> bool {
        self.has_side_effect() && self.no_undo_needed.is_none()
    }

    /// The names of all agents that may execute the step or its undo.
    pub fn agents(&self) -> impl Iterator<Item = &AgentName> {
        self.agents_with_contract().map(|(agent, _)| agent)
    }

    /// The same, each with the version of the messages that it must understand, as in
    /// [`AGENT_CONTRACT`](crate::model::registration::AGENT_CONTRACT). An undo has no `output`.
    pub(super) fn agents_with_contract(&self) -> impl Iterator<Item = (&AgentName, u32)> {
        let undo = self.undo.as_ref().and_then(|undo| undo.agent.as_ref());
        let run = self.agent.as_ref().map(|agents| (agents, 1 + u32::from(self.output.is_some())));
        let with_contract = run.into_iter().chain(undo.map(|agents| (agents, 1)));
        with_contract
            .flat_map(|(agents, contract)| agents.names().iter().map(move |name| (name, contract)))
    }

    fn complete_within_or_default(&self, configured: Option<Duration>) -> Duration {
        let event = self.wait.as_ref().and_then(Wait::event).map(|wait| wait.within);
        let default =
            if self.workflow.is_some() { default_task_within() } else { default_step_within() };
        event.or(configured).unwrap_or(default)
    }
}

/// How long one call may take: `configured`, or as long as its attempt, limited by the longest call of an agent.
fn call_within(configured: Option<Duration>, complete_within: Duration) -> Duration {
    configured.unwrap_or(complete_within).min(limits::CALL_WITHIN_MAX)
}

/// The request that an agent makes, with expressions over the task's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("if" = json!({ "required": ["aws"] }), "else" = json!({ "required": ["path"] })))]
pub struct RequestTemplate {
    /// The HTTP method.
    #[serde(default)]
    pub method: HttpMethod,
    /// The path under the agent's base URL. It must render to a string that starts with `/`. Only a request with `aws` may
    /// be without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub path: Option<Template>,
    /// The operation of an AWS API that an agent of kind `aws` calls, by its name, such as `dynamodb:PutItem`; `body` is its
    /// input. The operation of a REST API, such as `batch:SubmitJob`, also needs its `method` and its `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsAction>,
    /// The JSON body. If absent, the request has no body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Template>,
    /// `aws` signs the request with the agent's own AWS credentials. Service and region follow from the agent's base
    /// URL, or are given: `{ aws: { service: s3, region: eu-west-1 } }`. If absent, the agent's setting applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<CallAuth>,
    /// How the service gets the idempotency key: the name of the header, and the form of the key. What is absent is as the
    /// agent is configured: `Idempotency-Key`, and `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<KeyFormat>,
}

impl RequestTemplate {
    /// The templates of the request.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.path.iter().chain(&self.body)
    }

    /// The path of the message to the agent, given the rendered `path`: the name of the action is part of it.
    #[must_use]
    pub fn message_path(&self, path: String) -> String {
        match &self.aws {
            Some(action) => action.request_path(&path),
            None => path,
        }
    }

    fn templates_mut(&mut self) -> impl Iterator<Item = &mut Template> {
        self.path.iter_mut().chain(&mut self.body)
    }
}

/// A value is not the end or the duration of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWait {
    /// It is no text.
    #[error("must be a string: a duration such as `15m`, or a time")]
    NoText,
    /// It is another text.
    #[error("must be a duration such as `15m`, or a time such as `2026-12-24T18:00:00Z`")]
    NeitherDurationNorTime,
    /// The wait would end later than the longest wait.
    #[error("a wait of more than {days}d", days = limits::WAIT_MAX.as_secs() / (24 * 3600))]
    TooLong,
}

/// Returns the end of a wait that starts at `now`. `wait` is a duration or a time, as a string.
///
/// # Errors
/// `wait` is neither, or is longer than the longest wait.
pub fn wait_until(wait: &Value, now: Timestamp) -> Result<Timestamp, InvalidWait> {
    let text = wait.as_str().ok_or(InvalidWait::NoText)?;
    let until = match (duration::parse(text), text.parse::<Timestamp>()) {
        (Ok(duration), _) if duration > limits::WAIT_MAX => None,
        (Ok(duration), _) => Some(later(now, duration)),
        (Err(_), Ok(time)) => Some(time).filter(|time| *time <= later(now, limits::WAIT_MAX)),
        (Err(_), Err(_)) => return Err(InvalidWait::NeitherDurationNorTime),
    };
    until.ok_or(InvalidWait::TooLong)
}

fn default_step_within() -> Duration {
    Duration::from_secs(60)
}

fn default_at_once() -> u32 {
    10
}

fn default_idempotent() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_true(value: &bool) -> bool {
    *value
}

pub(super) fn default_task_within() -> Duration {
    Duration::from_secs(24 * 3600)
}
