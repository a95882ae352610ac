//! The inputs of a decision beside the task, and its result.

use jiff::Timestamp;

use crate::{
    callback_url::CallbackUrls,
    engine::effect::Effect,
    model::{
        attempt::{Action, AttemptId},
        document::Document,
        names::Part,
        task::Task,
        time::{Timing, later},
    },
};

/// The inputs of a decision beside the task, its workflow, its documents and the event.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The name of the deciding instance, for `locked_by`.
    pub actor: &'a str,
    /// Whether the message may have been processed before: the queue delivered it before, or the save lost a race,
    /// possibly to an earlier save of the same instance.
    pub redelivered: bool,
    /// If the save lost a race: the attempts that it would have started. Only their requests are sent again. `None` if the
    /// queue delivered the message before: any request may have been lost.
    pub lost_starts: Option<&'a [AttemptId]>,
    /// The time limits of the deployment.
    pub timing: Timing,
    /// Creates the URLs for callbacks. `None` if the deployment has no endpoint for them.
    pub callback_urls: Option<&'a CallbackUrls>,
}

impl DecisionContext<'_> {
    /// Whether the request of this attempt may have been lost when the message was processed before.
    pub(crate) fn may_have_lost(&self, part: &Part, action: Action, number: u32) -> bool {
        self.lost_starts.is_none_or(|starts| {
            starts
                .iter()
                .any(|start| (&start.step, start.action, start.number) == (part, action, number))
        })
    }

    /// Whether `time` has passed on every clock, with the clock skew taken into account.
    pub(crate) fn is_past(&self, time: Timestamp) -> bool {
        later(time, self.timing.clock_skew) <= self.now
    }
}

/// Why an event does not change the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The reply has been recorded before.
    DuplicateReply,
    /// The reply belongs to an attempt that was superseded or abandoned.
    StaleReply,
    /// There is nothing to start.
    NothingReady,
    /// The answer to a callback violates the schema of the step.
    InvalidAnswer,
    /// The task is being undone and waits for the step until its complete-by. A deferral does not end the attempt,
    /// because its request may have been delivered twice.
    StillAwaited,
    /// Nothing is past due.
    NotDue,
    /// The task has ended.
    Ended,
    /// The command is already recorded on the task.
    DuplicateCommand,
    /// The message belongs to an earlier or a later task with the same id.
    AnotherIncarnation,
    /// The task has stopped, and its item has no space left for another record.
    NoRoom,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Write the documents, save the task, then send the effects, in this order.
    Apply {
        /// The changed task. The caller sets its revision.
        task: Box<Task>,
        /// The new documents that do not fit into the task's item, although its new state refers to them.
        documents: Vec<Document>,
        /// The messages and events to send.
        effects: Vec<Effect>,
    },
    /// Save nothing. Send the effects, because an earlier delivery may have lost them.
    Ignore {
        /// Why.
        reason: IgnoreReason,
        /// The effects that may have been lost.
        effects: Vec<Effect>,
    },
    /// The event cannot have happened to this task: the message is corrupt, or belongs to another task. With the
    /// reason.
    Illegal(String),
}
