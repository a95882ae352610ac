//! The events that can happen to a task.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    command::Command,
    messages::{Answer, ChildOutcome, Outcome, StepReply},
    names::{CallbackFence, Part, TaskId},
};

/// An event that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A wake: the scheduler continues the task as far as possible.
    Wake,
    /// An agent replied to a request.
    Replied(StepReply),
    /// The supervisor found the task in the due index.
    Swept,
    /// An operator sent a command.
    Commanded(Command),
    /// A callback arrived: its sender had the token of a step.
    Answered {
        /// The step.
        step: Part,
        /// The attempt or request for which the token is valid.
        fence: CallbackFence,
        /// The outcome.
        answer: Answer,
    },
    /// The parent task requests that this child task is done or undone.
    Asked(Action),
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
    AlertSent {
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
            Self::Replied(reply) => match reply.outcome {
                Outcome::Completed { .. } => "completed",
                Outcome::Failed { .. } => "failed",
                Outcome::Deferred { .. } => "deferred",
                Outcome::Unknown { .. } => "unknown",
            },
            Self::Swept => "swept",
            Self::Commanded(_) => "commanded",
            Self::Answered { answer, .. } => match answer {
                Answer::Completed { .. } => "callback completed",
                Answer::Failed { .. } => "callback failed",
                Answer::Heartbeat => "heartbeat",
            },
            Self::Asked(Action::Do) => "requested by parent",
            Self::Asked(Action::Undo) => "undo requested by parent",
            Self::ChildEnded { outcome, .. } => match outcome {
                ChildOutcome::Processed { .. } => "child processed",
                ChildOutcome::Undone { .. } => "child undone",
                ChildOutcome::Error { .. } => "child in error",
                ChildOutcome::Refused { .. } => "child refused",
            },
            Self::AlertSent { .. } => "alert_sent",
        }
    }

    /// The part and the attempt that the event belongs to, if any. Attempt 0 means the newest attempt.
    #[must_use]
    pub fn step(&self) -> Option<(&Part, u32)> {
        match self {
            Self::Replied(reply) => Some((&reply.step, reply.attempt)),
            Self::Answered { step, fence: CallbackFence::Attempt(attempt), .. } => {
                Some((step, *attempt))
            }
            Self::Answered { step, fence: CallbackFence::Request { .. }, .. } => Some((step, 0)),
            Self::ChildEnded { step, .. } => Some((step, 0)),
            Self::Wake
            | Self::Swept
            | Self::Commanded(_)
            | Self::Asked(_)
            | Self::AlertSent { .. } => None,
        }
    }
}
