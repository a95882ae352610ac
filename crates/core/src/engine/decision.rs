//! What a decision needs beside the task, and what comes of it.

use jiff::Timestamp;

use crate::{
    engine::effect::Effect,
    model::{
        document::Document,
        task::Task,
        time::{Timing, later},
    },
};

/// What a decision needs to know beside the task.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// Who decides, for `locked_by`.
    pub actor: &'a str,
    /// Whether this message may have been acted on before: the queue delivered it before, or a save
    /// was lost to one that may have been our own.
    pub redelivered: bool,
    /// The deployment's times.
    pub timing: Timing,
}

impl Context<'_> {
    /// Whether `time` has passed by every clock.
    pub(crate) fn is_past(&self, time: Timestamp) -> bool {
        later(time, self.timing.clock_skew) <= self.now
    }
}

/// Why an event changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The reply has been recorded before.
    DuplicateReply,
    /// The reply is of an attempt that has been superseded or given up.
    StaleReply,
    /// There is nothing to start.
    NothingReady,
    /// The step is only waited for, until its complete-by: a deferral does not end the attempt, for
    /// its request may have been delivered twice.
    StillAwaited,
    /// Nothing is past due.
    NotDue,
    /// The task has ended.
    Ended,
    /// The command is on the task's record.
    DuplicateCommand,
    /// The message is about an earlier task with the same id, or about a later one.
    AnotherIncarnation,
    /// The task has stopped, and its item has no room for what would be put on record.
    NoRoom,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Write the documents, save the task, then carry out the effects; in this order.
    Apply {
        /// The task as it becomes; its revision is the caller's to set.
        task: Box<Task>,
        /// What the new state refers to.
        documents: Vec<Document>,
        /// What to tell whom.
        effects: Vec<Effect>,
    },
    /// Save nothing; carry out the effects, which an earlier delivery may have lost.
    Ignore {
        /// Why.
        reason: Ignored,
        /// What may have been lost.
        effects: Vec<Effect>,
    },
    /// The event cannot have happened to this task: corruption, or a foreign message.
    Illegal(String),
}
