//! Messages between a parent task and its child task, which runs for one of the parent's steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    attempt::Action,
    names::{Incarnation, Part, TaskId},
    retention::DocumentRetention,
};

/// A parent task's request to a child task that is already recorded: run and report the end, or be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParentRequest {
    /// The child task.
    pub task_id: TaskId,
    /// Whether the child task is to run or to be undone.
    pub action: Action,
    /// The incarnation of the child task. A task of another incarnation ignores the request.
    pub incarnation: Incarnation,
}

/// Extends the retention of a child task. The parent task lives longer than was known when it submitted the child, and
/// the child must not expire before the parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtendRetention {
    /// The child task.
    pub task_id: TaskId,
    /// The parent task.
    pub parent: TaskId,
    /// The incarnation of the parent task.
    pub incarnation: Incarnation,
    /// How long the parent task needs the child task.
    #[serde(rename = "kept")]
    pub retention: DocumentRetention,
}

/// A child task's report to its parent that it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildEnded {
    /// The parent task.
    pub task_id: TaskId,
    /// The step of the parent task.
    pub step: Part,
    /// How the child task ended.
    pub outcome: ChildOutcome,
    /// If the submission was refused: the attempt that sent it. The submission of a later attempt may have been accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The child task. If an operator edits the input, the same step runs another child task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<TaskId>,
    /// The revision at which the child task is stored with this end. Reports of later changes have higher revisions, and a repeated
    /// report has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The incarnation of the parent task. A task of another incarnation ignores the report.
    pub incarnation: Incarnation,
}

/// How a child task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ChildOutcome {
    /// It completed.
    Processed {
        /// Its output.
        #[serde(default)]
        output: Value,
    },
    /// It was undone: no effects are left.
    Undone {
        /// The reason, for people.
        reason: String,
    },
    /// It needs an operator. It has published its own alert.
    Error {
        /// The reason, for people.
        reason: String,
        /// Whether it cannot be undone, although it was, or is now, to be undone. If false, the request to undo it may
        /// not have arrived yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        not_undone: bool,
        /// Whether it was Processed before, and an effect came to light since.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_processed: bool,
    },
    /// Its submission was refused. Another delivery of that submission may have been accepted, unless the id belongs to
    /// another task.
    Refused {
        /// The reason, for people.
        reason: String,
        /// Whether the id belongs to another task.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        id_taken: bool,
    },
}
