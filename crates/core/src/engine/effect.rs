//! Effects: the messages and events that a decision sends after it is saved.
//!
//! Store first, send second. Any effect may be lost or repeated. The supervisor recovers a lost request or wake after
//! the due time. The attempt number makes a repeated one harmless.

use std::time::Duration;

use crate::{
    correlation::EventSubscription,
    limits,
    model::{
        events::BusEvent,
        messages::{
            ChildEnded, ParentRequest, StatusNotification, StepReply, StepRequest, Submission, Wake,
        },
    },
};

/// A message or event to send.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a request to an agent.
    Request(StepRequest),
    /// Submit the child task of a step, or request its outcome or its undo by submitting it again.
    Submit(Submission),
    /// Request that the scheduler does or undoes a child task that exists.
    ParentRequest(ParentRequest),
    /// Wait for an event on the event bus.
    AwaitEvent(EventSubscription),
    /// Report the end of a child task to its parent.
    ChildEnded(ChildEnded),
    /// Send an agent's reply to the scheduler.
    Reply(StepReply),
    /// Wake the scheduler for a task.
    Wake {
        /// The task, and the cause of the wake.
        wake: Wake,
        /// The delay from now.
        after: Duration,
    },
    /// Notify a client.
    Notification {
        /// The URL of the client's reply queue.
        queue: String,
        /// The notification.
        notice: StatusNotification,
    },
    /// Store a refused submission in the rejected queue.
    Reject {
        /// The text of the submission, unchanged.
        submission: String,
        /// Why it was refused.
        reason: String,
    },
    /// Publish an event on the event bus.
    Publish(BusEvent),
}

impl Effect {
    /// Marks a request as one that may have been sent before: a call of the earlier request may be in progress.
    pub(crate) fn into_resent(mut self) -> Self {
        if let Self::Request(request) = &mut self {
            request.may_have_run = true;
        }
        self
    }

    /// The approximate memory that the effect uses until it is sent, in bytes.
    pub(crate) fn estimated_bytes(&self) -> usize {
        match self {
            Self::Request(request) => {
                request.path.len() + request.body.as_ref().map_or(0, |body| body.as_str().len())
            }
            Self::Submit(submission) => {
                let kept = submission.rerun.iter().flat_map(|rerun| rerun.kept.values());
                let values = std::iter::once(&submission.input).chain(kept);
                values.map(limits::estimated_memory_bytes).sum()
            }
            Self::AwaitEvent(_)
            | Self::ParentRequest(_)
            | Self::ChildEnded(_)
            | Self::Reply(_)
            | Self::Wake { .. }
            | Self::Notification { .. }
            | Self::Reject { .. }
            | Self::Publish(_) => 0,
        }
    }
}
