//! What can happen to a task.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    command::Command,
    messages::{Answer, ChildOutcome, Outcome, StepReply},
    names::{CallbackFence, Part, TaskId},
};

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Someone asks to see what the task needs.
    Wake,
    /// An agent answered.
    Replied(StepReply),
    /// The supervisor found the task in the due index.
    Swept,
    /// An operator asks for something.
    Commanded(Command),
    /// Someone who was handed a token answered.
    Answered {
        /// The step.
        step: Part,
        /// What the token says it must fit.
        fence: CallbackFence,
        /// What was said.
        answer: Answer,
    },
    /// The task that this one runs for asks for it, to be done or undone.
    Asked(Action),
    /// The task that ran for a step has ended.
    ChildEnded {
        /// The step.
        step: Part,
        /// How.
        outcome: ChildOutcome,
        /// Of a refusal: the attempt whose submission was refused, if its sender says so.
        attempt: Option<u32>,
        /// Which task ended, if its sender says so.
        child: Option<TaskId>,
        /// That task's revision, if its sender says so.
        revision: Option<u64>,
    },
    /// The alert of a task in Error has been published.
    AlertSent {
        /// The end that it told of: the task may have gone on since, and ended once more.
        ended_at: Timestamp,
    },
}

impl Event {
    /// The event's name, as logs say it.
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
                Answer::Completed { .. } => "answered: completed",
                Answer::Failed { .. } => "answered: failed",
                Answer::Heartbeat => "heartbeat",
            },
            Self::Asked(Action::Do) => "asked to be done",
            Self::Asked(Action::Undo) => "asked to be undone",
            Self::ChildEnded { outcome, .. } => match outcome {
                ChildOutcome::Processed { .. } => "its task processed",
                ChildOutcome::Undone { .. } => "its task undone",
                ChildOutcome::Error { .. } => "its task in error",
                ChildOutcome::Refused { .. } => "its task refused",
            },
            Self::AlertSent { .. } => "alert_sent",
        }
    }

    /// The step and attempt it is about, if it is about one; an attempt of 0 is the newest.
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
