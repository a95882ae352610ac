//! The request to run a workflow as a task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    names::{Incarnation, Part, TaskId, Tenant, WorkflowName},
    payload::PayloadPlace,
    rerun::RerunSource,
    retention::DocumentRetention,
};

/// A client's request to run a task. It is idempotent: the same submission again has no effect. A submission with the
/// same id and other content is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Chosen by the client, for example an order number.
    pub task_id: TaskId,
    /// The workflow to run.
    pub workflow: WorkflowName,
    /// The version of the workflow. The newest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The value that expressions read as `input`.
    #[serde(default)]
    pub input: Value,
    /// The tenant of the task. A child task has the tenant of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// URL of the client's queue for [`StatusNotification`](super::StatusNotification)s. It must be on the list of allowed reply
    /// queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The parent task and its step, if this is a child task. Only the scheduler sets this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStep>,
    /// Whether the child task is to be undone. If it has not begun, it never runs. Only the scheduler sets this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
    /// The attempt at the parent's step that sends this submission. A refusal returns it. Only the scheduler sets this
    /// field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Whether the child task has begun, or may have begun and expired. If such a task is to be undone and has no
    /// record, its undo fails, because its effects are unknown. Only the scheduler sets this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_begun: bool,
    /// How long the parent may need the child task. Only the scheduler sets this field.
    #[serde(rename = "keep", default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<DocumentRetention>,
    /// The task that this one repeats, at an operator's command. Only the scheduler sets this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<RerunSource>,
}

/// The parent of a child task: the task and the step that the child runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParentStep {
    /// The parent task.
    pub task_id: TaskId,
    /// The step of the parent task.
    pub step: Part,
    /// The nesting depth of the child task. A client's own task has depth 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// The incarnation of the parent task. The child's messages return it unchanged.
    pub incarnation: Incarnation,
    /// The place of the parent's payloads, if the parent is a child task itself. Otherwise it follows from the fields above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_place: Option<PayloadPlace>,
}

impl ParentStep {
    /// The place of the parent's payloads.
    #[must_use]
    pub fn place(&self) -> PayloadPlace {
        let own = || PayloadPlace::of_task(&self.task_id, self.incarnation);
        self.payload_place.clone().unwrap_or_else(own)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submission_with_an_unknown_key_is_refused() {
        let text = r#"{"task_id":"o-1","workflow":"order","inputs":{}}"#;
        let error = serde_json::from_str::<Submission>(text).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `inputs`"), "{error}");
    }
}
