//! Notifications to clients.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A notification to the client about its task, sent to the client's own queue. Notifications are delivered at least
/// once, in no particular order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusNotification {
    /// The task id that the client chose. Absent if a refused submission had no readable id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The status that the task has reached.
    pub status: NotificationStatus,
    /// When it reached this status.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The reason of a refusal, an undo or an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The output of the task, if its workflow defines one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The status in a [`StatusNotification`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationStatus {
    /// The task is recorded.
    Received,
    /// The submission was refused, and nothing was recorded.
    Refused,
    /// Every step completed or was skipped.
    Processed,
    /// The task was undone.
    Undone,
    /// The task is in Error. Steward has alerted the operator.
    Error,
}
