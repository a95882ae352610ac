//! The format of a test file. The doc comments are what editors show.

use std::{collections::BTreeMap, sync::LazyLock};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use steward_core::{definition::duration::WrittenDuration, model::messages::HttpMethod};
use steward_definition_file::FileFormat;
use steward_operator::state::PartState;

/// The largest number of cases of a file.
const CASES_MAX: usize = 1_000;

/// The largest number of entries of a list in a case.
const ENTRIES_MAX: usize = 1_000;

/// How often one answer may be repeated.
const TIMES_MAX: u32 = 10_000;

/// The format, for the reader.
pub(super) static FORMAT: LazyLock<FileFormat> = LazyLock::new(|| FileFormat::new(json_schema()));

/// The JSON Schema of test files (draft 2020-12). Editors use it for completion and validation.
#[must_use]
pub fn json_schema() -> Value {
    schemars::schema_for!(TestFile).into()
}

/// Tests of a workflow, for `steward workflow test`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestFile {
    /// The definition, as a path from this file. If absent: `order.yaml` for `order.test.yaml`.
    #[serde(default)]
    pub workflow: Option<String>,
    /// The definitions of child tasks, as paths from this file. The answers of a case say how the other child tasks end.
    #[serde(default)]
    pub with: Vec<String>,
    /// The input of each case that has none. If absent too, an input is generated from the schema of the workflow.
    #[serde(default)]
    pub input: Option<Value>,
    /// What the services answer in each case that says nothing else about the step.
    #[serde(default)]
    pub services: IndexMap<String, ServiceScript>,
    /// The tests, each of one task.
    #[schemars(length(min = 1, max = CASES_MAX))]
    pub cases: Vec<TestCase>,
}

/// One test: a task, what happens to it, and what it is expected to do.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestCase {
    /// A sentence that says what holds. Each case has another one.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// The task's id. If absent: `test`.
    #[serde(default)]
    pub task_id: Option<String>,
    /// The input of the task.
    #[serde(default)]
    pub input: Option<Value>,
    /// What the services answer, by step: `charge`, or `packing.pack` for a step of a child workflow. The service of a step
    /// that is not listed answers each call with 200 and the fields that the workflow's expressions read.
    #[serde(default)]
    pub services: IndexMap<String, ServiceScript>,
    /// Commands of operators.
    #[serde(default)]
    #[schemars(length(max = ENTRIES_MAX))]
    pub commands: Vec<TimedCommand>,
    /// Events on the event bus, for steps with `wait.event`.
    #[serde(default)]
    #[schemars(length(max = ENTRIES_MAX))]
    pub events: Vec<TimedEvent>,
    /// Stops the test at this time after the submission, also if the task has not ended.
    #[serde(default)]
    pub until: Option<WrittenDuration>,
    /// What the task is expected to do. `--update` writes it if it is absent.
    #[serde(default)]
    pub expect: Option<Expectation>,
}

/// What the service of a step does, and what else completes the step.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceScript {
    /// The answers to the calls that do the step, in order. The last one is repeated. Each item of `for_each`, and each round of
    /// `repeat`, starts with the first.
    #[serde(rename = "do", default)]
    pub run: Option<Answers>,
    /// The answers to the calls that undo the step.
    #[serde(default)]
    pub undo: Option<Answers>,
    /// Answers for single items of `for_each`, or rounds of `repeat`, by index from 0.
    #[serde(default)]
    pub items: IndexMap<String, ItemScript>,
    /// The answers of one of several agents, by its name.
    #[serde(default)]
    pub agents: IndexMap<String, Answers>,
    /// What arrives for the step's `callback`. If absent, nothing does.
    #[serde(default)]
    pub callback: Vec<CallbackAnswer>,
    /// How the child task ends whose definition is not in `with`. If absent, it is Processed after one second.
    #[serde(default)]
    pub child: Option<ChildScript>,
}

/// What the service of one item does.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemScript {
    /// The answers to the calls that do the item.
    #[serde(rename = "do", default)]
    pub run: Option<Answers>,
    /// The answers to the calls that undo the item.
    #[serde(default)]
    pub undo: Option<Answers>,
    /// What arrives for the item's callback.
    #[serde(default)]
    pub callback: Vec<CallbackAnswer>,
}

/// One answer, or a list of answers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Answers {
    /// The answer to every call.
    One(Answer),
    /// The answers to the first calls; the last one is repeated.
    Many(Vec<Answer>),
}

impl Answers {
    /// The answers, in order.
    #[must_use]
    pub fn list(&self) -> &[Answer] {
        match self {
            Self::One(answer) => std::slice::from_ref(answer),
            Self::Many(answers) => answers,
        }
    }
}

/// An answer of a service to a call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The HTTP status. If absent: 200.
    #[serde(default)]
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<u16>,
    /// The body, as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// The body, as a text that need not be JSON.
    #[serde(default)]
    pub text: Option<String>,
    /// The headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How long the service takes. If absent: 100 ms.
    #[serde(default)]
    pub after: Option<WrittenDuration>,
    /// To how many calls in a row. If absent: one, or all remaining calls if it is the last answer.
    #[serde(default)]
    #[schemars(range(min = 1, max = TIMES_MAX))]
    pub times: Option<u32>,
    /// There is no response, for this reason.
    #[serde(default)]
    pub fault: Option<AnswerFault>,
}

/// Why a call gets no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFault {
    /// The service never answers. The agent aborts the call after `call_within`, or at complete-by.
    Silent,
    /// The service cannot be reached: it certainly did not get the call.
    NoConnection,
    /// The connection breaks during the call, which may have taken effect.
    BrokenConnection,
}

/// What arrives for a callback: exactly one of `completed`, `failed` and `heartbeat`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallbackAnswer {
    /// The time after the service's response to the call. If absent: at once.
    #[serde(default)]
    pub after: Option<WrittenDuration>,
    /// After which successful call it is sent, from 1. If absent: the first.
    #[serde(default)]
    #[schemars(range(min = 1, max = TIMES_MAX))]
    pub call: Option<u32>,
    /// The step is completed, with this output.
    #[serde(default, deserialize_with = "present")]
    pub completed: Option<Value>,
    /// The step has failed, for this reason.
    #[serde(default)]
    pub failed: Option<String>,
    /// The work is still in progress.
    #[serde(default)]
    pub heartbeat: bool,
}

/// A value that is present even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// How a child task ends whose definition is not given.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildScript {
    /// How it ends. If absent: `processed`.
    #[serde(default)]
    pub ends: ChildEnd,
    /// How long it takes. If absent: one second.
    #[serde(default)]
    pub after: Option<WrittenDuration>,
    /// Its output. If absent, one with the fields that the workflow's expressions read.
    #[serde(default)]
    pub output: Option<Value>,
    /// How its undo ends. If absent: `undone`.
    #[serde(default)]
    pub undo: ChildUndoEnd,
}

/// The end of the undo of a child task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildUndoEnd {
    /// It is undone.
    #[default]
    Undone,
    /// It cannot be undone.
    Error,
    /// It never ends.
    Never,
}

/// The end of a child task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildEnd {
    /// It completed.
    #[default]
    Processed,
    /// It undid itself.
    Undone,
    /// It needs an operator.
    Error,
    /// It never ends.
    Never,
}

/// A command of an operator.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimedCommand {
    /// The time after the submission.
    pub at: WrittenDuration,
    /// The command.
    pub command: CommandName,
    /// The step, or one item of it.
    #[serde(default)]
    pub step: Option<String>,
    /// `resubmit`: a JSON merge patch of the task's input.
    #[serde(default)]
    pub input: Option<Value>,
    /// `complete`: the output of the step.
    #[serde(default)]
    pub output: Option<Value>,
    /// `approve`: the answer, which is the output of the step.
    #[serde(default)]
    pub answer: Option<Value>,
    /// `resubmit` and `skip`: the operator has checked that no attempt took effect.
    #[serde(default)]
    pub did_not_run: Option<bool>,
    /// The operator. If absent: `operator`.
    #[serde(default)]
    pub by: Option<String>,
    /// The operator's reason. If absent: `test`.
    #[serde(default)]
    pub why: Option<String>,
}

/// The name of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandName {
    Resubmit,
    Skip,
    Complete,
    Approve,
    Reject,
    Undo,
    Cancel,
    Resolve,
    Pause,
    Resume,
}

/// An event on the event bus.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimedEvent {
    /// The time after the submission.
    pub at: WrittenDuration,
    /// The source of the event.
    pub source: String,
    /// The detail-type of the event.
    pub detail_type: String,
    /// The content of the event.
    pub detail: Value,
}

/// What a task is expected to do. Keys that are absent are not compared.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The state of the task at the end; `Refused` if its submission is refused.
    #[serde(default)]
    pub state: Option<ExpectedState>,
    /// A part of the reason: of the Error, of the undo, or of the refusal.
    #[serde(default)]
    pub reason: Option<String>,
    /// The states of steps.
    #[serde(default)]
    pub steps: IndexMap<String, PartState>,
    /// The output of the task. A mapping needs only the keys to compare.
    #[serde(default)]
    pub output: Option<Value>,
    /// All calls to services, in order, and no others.
    #[serde(default)]
    pub calls: Option<Vec<ExpectedCall>>,
    /// All alerts, in order, and no others.
    #[serde(default)]
    pub alerts: Option<Vec<AlertName>>,
    /// All notifications of the client, in order, and no others.
    #[serde(default)]
    pub notifications: Option<Vec<NotificationName>>,
    /// How long the task takes, from its submission to its end.
    #[serde(default)]
    pub took: Option<ExpectedTime>,
}

/// The state of a task at the end of a test; `Refused` if its submission was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ExpectedState {
    Pending,
    Processing,
    Undoing,
    Processed,
    Undone,
    Error,
    Refused,
}

/// An expected call: of a step (`do`), of its undo (`undo`), or several in any order.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    /// The step, or one item of it, such as `ship[2]`.
    #[serde(rename = "do", default)]
    pub run: Option<String>,
    /// The step, or one item of it, whose undo is called.
    #[serde(default)]
    pub undo: Option<String>,
    /// The method.
    #[serde(default)]
    pub method: Option<HttpMethod>,
    /// The path.
    #[serde(default)]
    pub path: Option<String>,
    /// The body. A mapping needs only the keys to compare.
    #[serde(default)]
    pub body: Option<Value>,
    /// How many such calls in a row. If absent: one.
    #[serde(default)]
    #[schemars(range(min = 1, max = TIMES_MAX))]
    pub times: Option<u32>,
    /// Calls whose order does not matter, such as those of parallel branches.
    #[serde(default)]
    pub any_order: Option<Vec<ExpectedCall>>,
}

/// The names of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertName {
    TaskInError,
    UndoFailed,
    BreakerOpened,
    SubmissionRefused,
    MessageCorrupt,
    AgentMissing,
}

impl AlertName {
    /// The name in the event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TaskInError => "task_in_error",
            Self::UndoFailed => "undo_failed",
            Self::BreakerOpened => "breaker_opened",
            Self::SubmissionRefused => "submission_refused",
            Self::MessageCorrupt => "message_corrupt",
            Self::AgentMissing => "agent_missing",
        }
    }
}

/// The statuses of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationName {
    Received,
    Refused,
    Processed,
    Undone,
    Error,
}

/// The limits of a time.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTime {
    /// The shortest time.
    #[serde(default)]
    pub at_least: Option<WrittenDuration>,
    /// The longest time.
    #[serde(default)]
    pub at_most: Option<WrittenDuration>,
}
