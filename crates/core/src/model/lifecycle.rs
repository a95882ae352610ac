//! Lifecycle events: what happened to a task, for subscribers of the event bus. A workflow chooses which of them its tasks
//! publish.
//!
//! Each event is a CloudEvents 1.0 event in JSON format, in EventBridge's `detail`. Its `type` is the `detail-type`. It has
//! no payloads: no inputs, outputs or error messages. `docs/contract/lifecycle-event.schema.json` is generated from
//! these types.
//!
//! ```json
//! { "specversion": "1.0", "id": "order-7/1795201200000/charge/completed/1", "source": "/steward/workflows/order",
//!   "subject": "order-7", "time": "2026-11-20T19:00:02Z", "datacontenttype": "application/json",
//!   "type": "steward.step.completed",
//!   "data": { "task_id": "order-7", "workflow": "order", "version": 2, "submitted_at": "2026-11-20T19:00:00Z",
//!             "step": "charge", "attempt": 1 } }
//! ```

use std::{borrow::Cow, collections::BTreeSet, fmt};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::model::{
    command::CommandId,
    names::{Part, StepName, TaskId, WorkflowName},
    task::Task,
};

/// A kind of lifecycle event, as a definition names it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleEventKind {
    /// A task was submitted. Published when the scheduler starts it.
    Submitted,
    /// A step completed. A step with `for_each` completes as a whole, after all its items.
    StepCompleted,
    /// A step, or an item of a step with `for_each`, failed and is not retried.
    StepFailed,
    /// A task ended, and every step completed or was skipped.
    Processed,
    /// A task ended, and its steps are undone.
    Undone,
    /// A task stopped in Error and needs an operator.
    Error,
}

impl LifecycleEventKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Submitted,
        Self::StepCompleted,
        Self::StepFailed,
        Self::Processed,
        Self::Undone,
        Self::Error,
    ];

    /// The kinds for the ends of a task.
    pub const ENDS: [Self; 3] = [Self::Processed, Self::Undone, Self::Error];

    /// The name in a definition.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::StepCompleted => "step_completed",
            Self::StepFailed => "step_failed",
            Self::Processed => "processed",
            Self::Undone => "undone",
            Self::Error => "error",
        }
    }

    /// The CloudEvents `type`, which is also EventBridge's `detail-type`.
    #[must_use]
    pub fn event_type(self) -> &'static str {
        match self {
            Self::Submitted => "steward.task.submitted",
            Self::StepCompleted => "steward.step.completed",
            Self::StepFailed => "steward.step.failed",
            Self::Processed => "steward.task.processed",
            Self::Undone => "steward.task.undone",
            Self::Error => "steward.task.error",
        }
    }
}

impl fmt::Display for LifecycleEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kinds of lifecycle events that the tasks of a workflow publish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct LifecycleEventKinds(BTreeSet<LifecycleEventKind>);

impl LifecycleEventKinds {
    /// Whether no events are published.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether events of this kind are published.
    #[must_use]
    pub fn contains(&self, kind: LifecycleEventKind) -> bool {
        self.0.contains(&kind)
    }

    /// The kinds, in the order of a task's life.
    pub fn iter(&self) -> impl Iterator<Item = LifecycleEventKind> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<LifecycleEventKind> for LifecycleEventKinds {
    fn from_iter<I: IntoIterator<Item = LifecycleEventKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for LifecycleEventKinds {
    /// Reads a list of kinds, without repetition.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kinds = BTreeSet::new();
        for kind in Vec::<LifecycleEventKind>::deserialize(deserializer)? {
            if !kinds.insert(kind) {
                return Err(de::Error::custom(format!("`{kind}` is listed twice")));
            }
        }
        Ok(Self(kinds))
    }
}

impl JsonSchema for LifecycleEventKinds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LifecycleEventKinds".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<LifecycleEventKind>();
        json_schema!({ "type": "array", "items": items, "uniqueItems": true })
    }
}

/// A lifecycle event: a CloudEvents 1.0 event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LifecycleEvent {
    /// The version of CloudEvents.
    pub specversion: SpecVersion,
    /// The id of the event. It stays the same if the event is published again, and no other event of this `source` has it.
    pub id: String,
    /// The workflow: `/steward/workflows/NAME`.
    #[schemars(extend("format" = "uri-reference"))]
    pub source: String,
    /// The id of the task.
    pub subject: TaskId,
    /// When the task was submitted, the step completed or failed, or the task ended, in milliseconds. If an event about a
    /// step is published again, the time may be a later one.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub time: Timestamp,
    /// The format of `data`.
    pub datacontenttype: DataContentType,
    /// The `type` and the `data` of the event.
    #[serde(flatten)]
    pub content: LifecycleEventContent,
}

/// The version of CloudEvents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SpecVersion {
    /// CloudEvents 1.0.
    #[serde(rename = "1.0")]
    V1,
}

/// The format of the `data` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DataContentType {
    /// JSON.
    #[serde(rename = "application/json")]
    Json,
}

/// The `type` and the `data` of a lifecycle event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum LifecycleEventContent {
    /// A task was submitted. Published when the scheduler starts it.
    #[serde(rename = "steward.task.submitted")]
    Submitted(TaskData),
    /// A step completed. A step with `for_each` completes as a whole, after all its items.
    #[serde(rename = "steward.step.completed")]
    StepCompleted(StepCompletedData),
    /// A step, or an item of a step with `for_each`, failed and is not retried.
    #[serde(rename = "steward.step.failed")]
    StepFailed(StepFailedData),
    /// A task ended, and every step completed or was skipped.
    #[serde(rename = "steward.task.processed")]
    Processed(TaskData),
    /// A task ended, and its steps are undone.
    #[serde(rename = "steward.task.undone")]
    Undone(TaskData),
    /// A task stopped in Error and needs an operator.
    #[serde(rename = "steward.task.error")]
    Error(TaskErrorData),
}

/// The task that an event is about.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskData {
    /// The task.
    pub task_id: TaskId,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: u32,
    /// When the task was submitted.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub submitted_at: Timestamp,
    /// The parent task, if this is a child task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
}

/// The data of a completed step.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StepCompletedData {
    /// The task.
    #[serde(flatten)]
    pub task: TaskData,
    /// The step.
    pub step: StepName,
    /// The attempt that completed, from 1. Absent for a wait and for a step with `for_each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The number of items of a step with `for_each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The command by which an operator completed the step, if an operator did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
}

/// The data of a failed step.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StepFailedData {
    /// The task.
    #[serde(flatten)]
    pub task: TaskData,
    /// The step, such as `charge`, or the item, such as `charge[3]`.
    pub step: Part,
    /// The last attempt, from 1. Absent if the step could not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The number of failed attempts since the start, or since an operator resubmitted the step.
    pub failed_attempts: u32,
    /// Whether an attempt may have taken effect.
    pub may_have_run: bool,
}

/// The data of a task in Error.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskErrorData {
    /// The task.
    #[serde(flatten)]
    pub task: TaskData,
    /// Whether the task stopped while it was being undone: side effects may remain.
    pub undo_failed: bool,
}

impl LifecycleEventContent {
    /// The kind of the event.
    #[must_use]
    pub fn kind(&self) -> LifecycleEventKind {
        match self {
            Self::Submitted(_) => LifecycleEventKind::Submitted,
            Self::StepCompleted(_) => LifecycleEventKind::StepCompleted,
            Self::StepFailed(_) => LifecycleEventKind::StepFailed,
            Self::Processed(_) => LifecycleEventKind::Processed,
            Self::Undone(_) => LifecycleEventKind::Undone,
            Self::Error(_) => LifecycleEventKind::Error,
        }
    }

    /// What happened, as the last part of the event's id. The task's end is identified by `at`.
    fn occurrence(&self, at: Timestamp) -> String {
        let number = |attempt: &Option<u32>| attempt.map_or(String::new(), |n| format!("/{n}"));
        match self {
            Self::Submitted(_) => "submitted".to_owned(),
            Self::StepCompleted(StepCompletedData { step, attempt, command_id, .. }) => {
                let by = command_id.as_ref().map_or(String::new(), |id| format!("/{id}"));
                format!("{step}/completed{}{by}", number(attempt))
            }
            Self::StepFailed(StepFailedData { step, attempt, .. }) => {
                format!("{step}/failed{}", number(attempt))
            }
            Self::Processed(_) => format!("processed/{}", at.as_millisecond()),
            Self::Undone(_) => format!("undone/{}", at.as_millisecond()),
            Self::Error(_) => format!("error/{}", at.as_millisecond()),
        }
    }
}

impl LifecycleEvent {
    /// Creates an event about `task` that happened at `time`. Its id consists of the task, its submission, and what
    /// happened.
    #[must_use]
    pub fn new(task: &Task, time: Timestamp, content: LifecycleEventContent) -> Self {
        let time = whole_milliseconds(time);
        let (task_id, submitted) = (&task.task_id, task.submitted_at.as_millisecond());
        Self {
            specversion: SpecVersion::V1,
            id: format!("{task_id}/{submitted}/{}", content.occurrence(time)),
            source: format!("/steward/workflows/{}", task.workflow),
            subject: task_id.clone(),
            time,
            datacontenttype: DataContentType::Json,
            content,
        }
    }
}

impl TaskData {
    /// The data about this task.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            submitted_at: whole_milliseconds(task.submitted_at),
            parent_task_id: task.parent.as_ref().map(|parent| parent.task_id.clone()),
        }
    }
}

/// The state store keeps whole milliseconds, so a repeated event has the same times.
pub(crate) fn whole_milliseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(kinds: Value) -> Result<Vec<&'static str>, String> {
        let kinds = serde_json::from_value::<LifecycleEventKinds>(kinds);
        kinds
            .map(|kinds| kinds.iter().map(LifecycleEventKind::name).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn list_is_read_without_duplicates() {
        assert_eq!(read(json!(["undone", "submitted"])).unwrap(), ["submitted", "undone"]);
        assert_eq!(read(json!(["undone", "undone"])).unwrap_err(), "`undone` is listed twice");
        assert!(read(json!(["ended"])).unwrap_err().starts_with("unknown variant `ended`"));
        assert!(read(json!("undone")).unwrap_err().contains("expected a sequence"));
    }

    #[test]
    fn names_are_those_of_definitions() {
        for kind in LifecycleEventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), json!(kind.name()));
        }
    }
}
