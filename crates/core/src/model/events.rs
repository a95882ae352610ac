//! What is published on the event bus: alerts for the operator, and what became of tasks.
//!
//! The shape is stable. `metadata` says what happened, when, and under which id (the same when it is
//! published again, for every event arrives at least once); `data` says to what.
//!
//! ```json
//! { "metadata": { "event_id": "order-7/task_in_error/1795201200000", "event": "task_in_error",
//!                 "schema_version": 1, "at": "2026-11-20T19:00:00Z" },
//!   "data": { "task_id": "order-7", "workflow": "order", "steps": ["charge"],
//!             "reason": "step charge: HTTP 402 Payment Required" } }
//! ```

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::model::{
    command::CommandId,
    names::{AgentName, Part, TaskId, WorkflowName},
    task::ProcessState,
};

/// EventBridge's `source` of everything that Steward publishes.
pub const SOURCE: &str = "steward";

/// The version of every event's shape. A change that could break a reader raises it.
const SCHEMA_VERSION: u32 = 1;

/// An event, as it lies in EventBridge's `detail`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BusEvent {
    /// What happened and when.
    pub metadata: Metadata,
    /// To what.
    pub data: Happened,
}

/// What is the same for every event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Metadata {
    /// The same whenever this event is published again.
    pub event_id: String,
    /// What happened, in snake case.
    pub event: &'static str,
    /// The version of the shape.
    pub schema_version: u32,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// What happened. The first seven need a person: they are alerts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Happened {
    /// A task is in Error.
    TaskInError(TaskTrouble),
    /// A task is in Error, and what it did is not, or not wholly, undone.
    UndoFailed(TaskTrouble),
    /// An agent's circuit breaker opened: its remote service is left alone.
    BreakerOpened(BreakerTurned),
    /// A submission was refused; its text is on the rejected queue.
    SubmissionRefused {
        /// The task's id, as far as it could be read.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<String>,
        /// Why.
        reason: String,
    },
    /// A message could not be right; it goes to its queue's dead letters.
    MessageCorrupt {
        /// Which role received it.
        role: String,
        /// The queue's id of the message.
        message_id: String,
        /// Why.
        reason: String,
    },
    /// A queue of dead letters holds more than it did.
    DeadLetterSeen {
        /// The queue's name.
        queue: String,
        /// How many it holds.
        messages: u64,
    },
    /// A step names an agent that has no queue: it failed, and did not run.
    AgentMissing {
        /// The task.
        task_id: TaskId,
        /// The step.
        step: Part,
        /// The agent.
        agent: AgentName,
    },
    /// An agent's circuit breaker closed again.
    BreakerClosed(BreakerTurned),
    /// An operator's command was carried out, or refused.
    OperatorCommand {
        /// The task.
        task_id: TaskId,
        /// The command's id.
        command_id: CommandId,
        /// What was asked, as `resubmit charge`.
        command: String,
        /// Who asked.
        by: String,
        /// Why they asked.
        why: String,
        /// Why it was refused, if it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// An operator sends the messages of a queue of dead letters back.
    OperatorRedrive {
        /// The queue's name.
        queue: String,
        /// The queue that they go to; where each came from if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// How many at most.
        messages_max: u64,
        /// Who asked.
        by: String,
        /// Why they asked.
        why: String,
    },
    /// A task came to its end; only for workflows with `lifecycle_events`.
    TaskEnded {
        /// The task.
        task_id: TaskId,
        /// Its workflow.
        workflow: WorkflowName,
        /// Its version.
        version: u32,
        /// How it ended.
        process_state: ProcessState,
    },
}

/// A task that needs a person.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskTrouble {
    /// The task.
    pub task_id: TaskId,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// The steps that failed, or those that are left to undo: the first
    /// [`ALERT_STEPS_MAX`](crate::limits::ALERT_STEPS_MAX) of them.
    pub steps: Vec<Part>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_steps: usize,
    /// Why.
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A circuit breaker that opened or closed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BreakerTurned {
    /// The agent whose remote service it guards.
    pub agent: AgentName,
    /// What the last call met.
    pub reason: String,
}

impl BusEvent {
    /// An event about `subject`, at `at`: together they are its id.
    #[must_use]
    pub fn new(subject: &str, at: Timestamp, data: Happened) -> Self {
        // Whole milliseconds, as the state store keeps them: the same when it is told again.
        let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        let event = data.name();
        let event_id = format!("{subject}/{event}/{}", at.as_millisecond());
        let metadata = Metadata { event_id, event, schema_version: SCHEMA_VERSION, at };
        Self { metadata, data }
    }

    /// Whether this is the alert that a task in Error stays due for.
    #[must_use]
    pub fn is_task_alert(&self) -> bool {
        matches!(self.data, Happened::TaskInError(_) | Happened::UndoFailed(_))
    }
}

impl Happened {
    /// `metadata.event`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TaskInError(_) => "task_in_error",
            Self::UndoFailed(_) => "undo_failed",
            Self::BreakerOpened(_) => "breaker_opened",
            Self::SubmissionRefused { .. } => "submission_refused",
            Self::MessageCorrupt { .. } => "message_corrupt",
            Self::DeadLetterSeen { .. } => "dead_letter_seen",
            Self::AgentMissing { .. } => "agent_missing",
            Self::BreakerClosed(_) => "breaker_closed",
            Self::OperatorCommand { .. } => "operator_command",
            Self::OperatorRedrive { .. } => "operator_redrive",
            Self::TaskEnded { .. } => "task_ended",
        }
    }

    /// EventBridge's `detail-type`, which rules match on.
    #[must_use]
    pub fn detail_type(&self) -> &'static str {
        match self {
            Self::TaskInError(_) => "Task In Error",
            Self::UndoFailed(_) => "Undo Failed",
            Self::BreakerOpened(_) => "Breaker Opened",
            Self::SubmissionRefused { .. } => "Submission Refused",
            Self::MessageCorrupt { .. } => "Message Corrupt",
            Self::DeadLetterSeen { .. } => "Dead Letter Seen",
            Self::AgentMissing { .. } => "Agent Missing",
            Self::BreakerClosed(_) => "Breaker Closed",
            Self::OperatorCommand { .. } => "Operator Command",
            Self::OperatorRedrive { .. } => "Operator Redrive",
            Self::TaskEnded { .. } => "Task Ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_reads_as_the_documentation_says() {
        let at = "2026-11-20T19:00:00Z".parse().unwrap();
        let trouble = TaskTrouble {
            task_id: "order-7".parse().unwrap(),
            workflow: "order".parse().unwrap(),
            steps: vec!["charge".parse().unwrap()],
            more_steps: 0,
            reason: "step charge: HTTP 402 Payment Required".to_owned(),
        };
        let event = BusEvent::new("order-7", at, Happened::TaskInError(trouble));
        assert_eq!(
            serde_json::to_value(event).unwrap(),
            json!({
                "metadata": {
                    "event_id": "order-7/task_in_error/1795201200000", "event": "task_in_error",
                    "schema_version": 1, "at": "2026-11-20T19:00:00Z",
                },
                "data": {
                    "task_id": "order-7", "workflow": "order", "steps": ["charge"],
                    "reason": "step charge: HTTP 402 Payment Required",
                },
            })
        );
    }
}
