//! The messages in the scheduler's queue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    agent::StepReply,
    callback::CallbackMessage,
    child::{ChildEnded, ExtendRetention, ParentRequest},
};
use crate::model::{command::Command, names::TaskId};

/// A message to the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SchedulerMessage {
    /// A task may have something to start or to recover. Sent when the task is recorded, when a wait ends, by the
    /// supervisor for recovery, and by an agent whose attempt ended without an outcome.
    Wake(Wake),
    /// An agent reports the outcome of an attempt.
    Reply(StepReply),
    /// An operator sends a command to a task.
    Command(Command),
    /// The callback of a step that awaits one.
    Callback(CallbackMessage),
    /// A parent task requests that its child task runs, or is undone.
    #[serde(rename = "ask")]
    ParentRequest(ParentRequest),
    /// A child task reports its end to its parent.
    ChildEnded(ChildEnded),
    /// A parent task needs its child task for longer than it stated before.
    #[serde(rename = "keep")]
    ExtendRetention(ExtendRetention),
}

/// Requests that the scheduler checks what a task needs. It contains no state of the task: the scheduler reads that from
/// the state store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    /// The task to check.
    pub task_id: TaskId,
    /// The reason, for the log.
    pub cause: WakeCause,
}

/// Why a task is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeCause {
    /// Submission has just recorded the task.
    Submitted,
    /// The supervisor found the task past due (the pattern's supervisor request).
    Recovery,
    /// A wait has ended, or the scheduler left work for a later decision.
    Waited,
    /// An agent stopped at complete-by and does not know the outcome. The scheduler recovers what is past due, as if the
    /// supervisor had found it.
    Overdue,
}
