//! Effects: what is told to whom once a decision is saved, and how it goes out in batches.
//!
//! Store first, send second. Any effect may be lost or repeated: a lost request or wake is made good
//! by the supervisor after the due time, a repeated one is fenced by its attempt.

use std::time::Duration;

use crate::{
    limits,
    model::{
        events::BusEvent,
        messages::{Ask, ChildEnded, StatusNotice, StepReply, StepRequest, Submission, Wake},
    },
};

/// What must be told to whom.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a step to its agent.
    Request(StepRequest),
    /// Submit the task of a step, or ask for it.
    Submit(Submission),
    /// Ask the scheduler for the task of a step.
    Ask(Ask),
    /// Tell a task how the task of its step ended.
    ChildEnded(ChildEnded),
    /// Send an agent's answer to the scheduler.
    Reply(StepReply),
    /// Ask the scheduler to look at a task.
    Wake {
        /// The task, and why.
        wake: Wake,
        /// When, from now.
        after: Duration,
    },
    /// Tell a client, on the queue named.
    Notice {
        /// The queue's URL.
        queue: String,
        /// What to tell.
        notice: StatusNotice,
    },
    /// Keep a refused submission.
    Reject {
        /// What was submitted, as it came.
        submission: String,
        /// Why it was refused.
        reason: String,
    },
    /// Publish on the bus.
    Publish(BusEvent),
}

impl Effect {
    /// The same as something that may have been sent before: a call that an earlier request made may be in
    /// progress.
    pub(crate) fn sent_again(mut self) -> Self {
        if let Self::Request(request) = &mut self {
            request.may_have_run = true;
        }
        self
    }

    /// About how much memory it takes until it is sent.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Request(request) => {
                request.path.len() + request.body.as_ref().map_or(0, |body| body.as_str().len())
            }
            Self::Submit(submission) => limits::bytes_in_memory(&submission.input),
            Self::Ask(_)
            | Self::ChildEnded(_)
            | Self::Reply(_)
            | Self::Wake { .. }
            | Self::Notice { .. }
            | Self::Reject { .. }
            | Self::Publish(_) => 0,
        }
    }
}
