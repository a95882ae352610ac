//! Events on the event bus: alerts and other events for operators, and the [lifecycle events](super::lifecycle) of tasks.
//!
//! The format of the events for operators is stable. `metadata` has the name, the time and the id of the event. Events are published at least once,
//! and a repeated event has the same id. `data` has the details.
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
    command::{Caller, CommandId},
    lifecycle::LifecycleEvent,
    names::{AgentName, Part, TaskId, WorkflowName},
};

/// The `source` of all events that Steward publishes to EventBridge.
pub const EVENT_SOURCE: &str = "steward";

/// The version of the event format. A change that could break a consumer increases it.
const SCHEMA_VERSION: u32 = 1;

/// An event on the event bus. It is serialised as the content of EventBridge's `detail`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BusEvent {
    /// An event for operators.
    Operator(Box<OperatorEvent>),
    /// A lifecycle event of a task.
    Lifecycle(Box<LifecycleEvent>),
}

/// An event for operators.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OperatorEvent {
    /// The name, time and id of the event.
    pub metadata: EventMetadata,
    /// The details of the event.
    pub data: EventData,
}

/// The fields that all events have.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventMetadata {
    /// The id of the event. It stays the same if the event is published again.
    pub event_id: String,
    /// The name of the event, in snake case.
    pub event: &'static str,
    /// The version of the event format.
    pub schema_version: u32,
    /// When the event happened.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// The details of an event, by kind of event. The first ten kinds are alerts: they need an operator.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum EventData {
    /// A task is in Error.
    TaskInError(TaskAlert),
    /// A task is in Error, and its effects are not completely undone.
    UndoFailed(TaskAlert),
    /// An agent's circuit breaker opened: the agent does not call its remote service.
    BreakerOpened(BreakerEventData),
    /// A submission was refused. The rejected queue has its text.
    SubmissionRefused {
        /// The task id, if it could be read.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<String>,
        /// Why it was refused.
        reason: String,
    },
    /// A message is invalid. It goes to the dead-letter queue of its queue.
    MessageCorrupt {
        /// The role that received it.
        role: String,
        /// The message id that the queue assigned.
        message_id: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The number of messages in a dead-letter queue has grown.
    DeadLetterSeen {
        /// The name of the dead-letter queue.
        queue: String,
        /// The number of messages in it.
        messages: u64,
    },
    /// A step names an agent that has no queue. The step failed without running.
    AgentMissing {
        /// The task.
        task_id: TaskId,
        /// The step.
        step: Part,
        /// The agent.
        agent: AgentName,
    },
    /// An agent's clock differs from that of the queues by more than the clock skew.
    AgentClockWrong {
        /// The agent.
        agent: AgentName,
        /// By how much, at least, and in which direction.
        reason: String,
    },
    /// A task has not ended after the `warn_after` of its workflow. Published once.
    TaskLate {
        /// The task.
        task_id: TaskId,
        /// Its workflow.
        workflow: WorkflowName,
        /// When it was submitted.
        #[schemars(with = "String")]
        submitted_at: Timestamp,
        /// By when it must end.
        #[schemars(with = "String")]
        complete_by: Timestamp,
        /// The steps and undos that it waits for: at most [`ALERT_STEPS_MAX`](crate::limits::ALERT_STEPS_MAX).
        steps: Vec<Part>,
    },
    /// Tasks have been in Error for more than a day, and no operator has settled that. Published once a day.
    ErrorsUnresolved {
        /// How many tasks; more if the supervisor had no time to read all.
        tasks: u64,
        /// When the oldest of them ended in Error.
        #[schemars(with = "String")]
        since: Timestamp,
        /// The workflows with the most such tasks: at most [`ALERT_STEPS_MAX`](crate::limits::ALERT_STEPS_MAX).
        workflows: Vec<WorkflowName>,
    },
    /// An agent's circuit breaker closed again.
    BreakerClosed(BreakerEventData),
    /// An operator's command was carried out or refused.
    OperatorCommand {
        /// The task.
        task_id: TaskId,
        /// The command's id.
        command_id: CommandId,
        /// The command as text, such as `resubmit charge`.
        command: String,
        /// The operator, as stated by the sender.
        by: String,
        /// Who sent the command, as far as it is verified. Absent if no function received the command: `steward forget`
        /// erases a task itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Caller>,
        /// The operator's reason.
        why: String,
        /// Why the command was refused, if it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// An operator redrives the messages of a dead-letter queue.
    OperatorRedrive {
        /// The name of the dead-letter queue.
        queue: String,
        /// The queue to send the messages to. The original queue of each message if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The maximum number of messages.
        messages_max: u64,
        /// The operator.
        by: String,
        /// The operator's reason.
        why: String,
    },
}

/// The details of an alert about a task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskAlert {
    /// The task.
    pub task_id: TaskId,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// The steps that failed, or that remain to be undone: at most
    /// [`ALERT_STEPS_MAX`](crate::limits::ALERT_STEPS_MAX).
    pub steps: Vec<Part>,
    /// The number of further steps.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_steps: usize,
    /// Why the task is in Error.
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The details of the opening or closing of a circuit breaker.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BreakerEventData {
    /// The agent that the circuit breaker belongs to.
    pub agent: AgentName,
    /// The result of the last call, such as `HTTP 503`.
    pub reason: String,
}

impl BusEvent {
    /// Creates an event for operators about `subject` at the time `at`. The event id consists of the subject, the event name and the
    /// time.
    #[must_use]
    pub fn new(subject: &str, at: Timestamp, data: EventData) -> Self {
        Self::with_id(subject, at, &at.as_millisecond(), data)
    }

    /// The same for an event of which one a day is enough: its id has the day in place of the time.
    #[must_use]
    pub fn of_day(subject: &str, at: Timestamp, data: EventData) -> Self {
        Self::with_id(subject, at, &at.strftime("%F"), data)
    }

    fn with_id(
        subject: &str,
        at: Timestamp,
        when: &dyn std::fmt::Display,
        data: EventData,
    ) -> Self {
        // The state store keeps whole milliseconds, so the event is the same when it is published again.
        let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        let event = data.name();
        let event_id = format!("{subject}/{event}/{when}");
        let metadata = EventMetadata { event_id, event, schema_version: SCHEMA_VERSION, at };
        Self::Operator(Box::new(OperatorEvent { metadata, data }))
    }

    /// The event for operators, if it is one.
    #[must_use]
    pub fn operator_event(&self) -> Option<&OperatorEvent> {
        match self {
            Self::Operator(event) => Some(event),
            Self::Lifecycle(_) => None,
        }
    }

    /// The end of the task, if this is the alert about a task in Error. The task stays due until this alert is published.
    #[must_use]
    pub fn alerted_end(&self) -> Option<Timestamp> {
        let OperatorEvent { metadata, data } = self.operator_event()?;
        let is_alert = matches!(data, EventData::TaskInError(_) | EventData::UndoFailed(_));
        is_alert.then_some(metadata.at)
    }

    /// The id of the event. It stays the same if the event is published again.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Operator(event) => &event.metadata.event_id,
            Self::Lifecycle(event) => &event.id,
        }
    }

    /// EventBridge's `detail-type`, for the patterns of rules.
    #[must_use]
    pub fn detail_type(&self) -> &'static str {
        match self {
            Self::Operator(event) => event.data.detail_type(),
            Self::Lifecycle(event) => event.content.kind().event_type(),
        }
    }
}

impl EventData {
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
            Self::AgentClockWrong { .. } => "agent_clock_wrong",
            Self::TaskLate { .. } => "task_late",
            Self::ErrorsUnresolved { .. } => "errors_unresolved",
            Self::BreakerClosed(_) => "breaker_closed",
            Self::OperatorCommand { .. } => "operator_command",
            Self::OperatorRedrive { .. } => "operator_redrive",
        }
    }

    /// EventBridge's `detail-type`, for the patterns of rules.
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
            Self::AgentClockWrong { .. } => "Agent Clock Wrong",
            Self::TaskLate { .. } => "Task Late",
            Self::ErrorsUnresolved { .. } => "Errors Unresolved",
            Self::BreakerClosed(_) => "Breaker Closed",
            Self::OperatorCommand { .. } => "Operator Command",
            Self::OperatorRedrive { .. } => "Operator Redrive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn event_has_the_documented_format() {
        let at = "2026-11-20T19:00:00Z".parse().unwrap();
        let alert = TaskAlert {
            task_id: "order-7".parse().unwrap(),
            workflow: "order".parse().unwrap(),
            steps: vec!["charge".parse().unwrap()],
            more_steps: 0,
            reason: "step charge: HTTP 402 Payment Required".to_owned(),
        };
        let event = BusEvent::new("order-7", at, EventData::TaskInError(alert));
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
