//! The messages in the scheduler's queue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    agent::{ReplyOutcome, StepReply},
    callback::CallbackMessage,
    child::{ChildEnded, ExtendRetention, ParentRequest},
};
use crate::model::{
    attempt::{Action, AttemptTimes},
    command::Command,
    names::{AgentName, Incarnation, Part, TaskId},
};

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
    /// For the cause `overdue`: the attempt, one of whose calls has no known outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<OverdueCall>,
}

impl Wake {
    /// A wake without a call.
    #[must_use]
    pub fn new(task_id: TaskId, cause: WakeCause) -> Self {
        Self { task_id, cause, call: None }
    }
}

/// A delivery of a request called the service, or may have, and its outcome will not be known: its complete-by has passed.
/// Another delivery may have been refused, and the task may have ended since, so the scheduler records that the attempt may
/// have run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverdueCall {
    /// The step, or one item of it, of the request.
    pub step: Part,
    /// The action of the request.
    #[serde(default)]
    pub action: Action,
    /// The attempt of the request.
    pub attempt: u32,
    /// The incarnation in the request.
    pub incarnation: Incarnation,
    /// The agent that sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// The reason of a failure whose attempt has no outcome.
pub(crate) const NO_REPLY: &str = "no reply by complete-by";

impl OverdueCall {
    /// What it says about its attempt.
    #[must_use]
    pub fn into_reply(self, task_id: TaskId) -> StepReply {
        let Self { step, action, attempt, incarnation, agent } = self;
        let outcome = ReplyOutcome::Unknown { reason: NO_REPLY.to_owned(), detail: None };
        let times = AttemptTimes::default();
        StepReply { task_id, step, action, attempt, outcome, incarnation, times, agent }
    }
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
    /// An agent stopped at complete-by and does not know the outcome. The scheduler records the outcome of the call as
    /// unknown. Without a call, it recovers what is past due, as if the supervisor had found it.
    Overdue,
}
