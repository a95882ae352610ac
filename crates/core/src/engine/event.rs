//! The events that can happen to a task.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    command::{CommandId, ReceivedCommand},
    messages::{CallbackOutcome, ChildOutcome, ReplyOutcome, StepReply},
    names::{AgentName, Part, TaskId},
};

/// An event that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A wake: the scheduler continues the task as far as possible.
    Wake,
    /// An agent replied to a request.
    ReplyReceived(StepReply),
    /// The supervisor found the task in the due index.
    Swept,
    /// An operator sent a command.
    CommandReceived(ReceivedCommand),
    /// A callback arrived: its sender had the token of a step.
    CallbackReceived {
        /// The step.
        step: Part,
        /// The edit of the input whose request had the token, if any.
        edit: Option<CommandId>,
        /// The outcome.
        outcome: CallbackOutcome,
    },
    /// The parent task requests that this child task is done or undone.
    ParentRequested(Action),
    /// The child task of a step has ended, or its submission was refused.
    ChildEnded {
        /// The step.
        step: Part,
        /// How it ended.
        outcome: ChildOutcome,
        /// For a refusal: the attempt whose submission was refused, if the message contains it.
        attempt: Option<u32>,
        /// The id of the child task, if the message contains it.
        child: Option<TaskId>,
        /// The revision of the child task, if the message contains it.
        revision: Option<u64>,
    },
    /// The alert of a task in Error has been published.
    AlertPublished {
        /// The end that the alert reports. The task may have continued since then and ended again.
        ended_at: Timestamp,
    },
}

impl Event {
    /// The name of the event in logs and traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::ReplyReceived(reply) => match reply.outcome {
                ReplyOutcome::Completed { .. } => "completed",
                ReplyOutcome::Failed { .. } => "failed",
                ReplyOutcome::Deferred { .. } => "deferred",
                ReplyOutcome::Unknown { .. } => "unknown",
            },
            Self::Swept => "swept",
            Self::CommandReceived(_) => "commanded",
            Self::CallbackReceived { outcome, .. } => match outcome {
                CallbackOutcome::Completed { .. } => "callback completed",
                CallbackOutcome::Failed { .. } => "callback failed",
                CallbackOutcome::Heartbeat => "heartbeat",
            },
            Self::ParentRequested(Action::Do) => "requested by parent",
            Self::ParentRequested(Action::Undo) => "undo requested by parent",
            Self::ChildEnded { outcome, .. } => match outcome {
                ChildOutcome::Processed { .. } => "child processed",
                ChildOutcome::Undone { .. } => "child undone",
                ChildOutcome::Error { .. } => "child in error",
                ChildOutcome::Refused { .. } => "child refused",
            },
            Self::AlertPublished { .. } => "alert_sent",
        }
    }

    /// The part that the event belongs to, if any, and its attempt, if the event is of one.
    #[must_use]
    pub fn part_and_attempt(&self) -> Option<(&Part, Option<u32>)> {
        match self {
            Self::ReplyReceived(reply) => Some((&reply.step, Some(reply.attempt))),
            Self::CallbackReceived { step, .. } | Self::ChildEnded { step, .. } => {
                Some((step, None))
            }
            Self::Wake
            | Self::Swept
            | Self::CommandReceived(_)
            | Self::ParentRequested(_)
            | Self::AlertPublished { .. } => None,
        }
    }

    /// Whether the event says that a step or its undo took effect, or may have. If nothing is known of what it is about, the effect
    /// may be one that no task accounts for.
    #[must_use]
    pub fn may_report_effect(&self) -> bool {
        match self {
            Self::ReplyReceived(reply) => reply.outcome.may_have_run(),
            Self::CallbackReceived { outcome, .. } => match outcome {
                CallbackOutcome::Completed { .. } | CallbackOutcome::Failed { .. } => true,
                CallbackOutcome::Heartbeat => false,
            },
            Self::ChildEnded { outcome, .. } => match outcome {
                ChildOutcome::Processed { .. } | ChildOutcome::Error { .. } => true,
                ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. } => false,
            },
            Self::Wake
            | Self::Swept
            | Self::CommandReceived(_)
            | Self::ParentRequested(_)
            | Self::AlertPublished { .. } => false,
        }
    }

    /// The agent whose reply the event is, if the agent is known.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::ReplyReceived(reply) => reply.agent.as_ref(),
            Self::CallbackReceived { .. }
            | Self::ChildEnded { .. }
            | Self::Wake
            | Self::Swept
            | Self::CommandReceived(_)
            | Self::ParentRequested(_)
            | Self::AlertPublished { .. } => None,
        }
    }
}
