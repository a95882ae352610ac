//! Why a submission is refused, in text that is short, and valid in a message attribute.

use crate::{
    limits,
    model::names::{ValueName, WorkflowName},
};

/// Why a submission is refused. A retry of the same submission would be refused too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionRefusal {
    /// The text is not a valid submission.
    #[error("not a submission: {0}")]
    Malformed(String),
    /// It exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// The workflow is not published.
    #[error("there is no workflow `{0}`")]
    UnknownWorkflow(String),
    /// The input does not match the workflow's schema.
    #[error("{0}")]
    InvalidInput(String),
    /// A label of the workflow cannot be computed.
    #[error("labels.{name}: {reason}")]
    Label {
        /// The label.
        name: ValueName,
        /// Why. Contains no values.
        reason: String,
    },
    /// No published workflow has a trigger for the event.
    #[error("no workflow is triggered by source `{source_name}` and detail-type `{detail_type}`")]
    NoTrigger {
        /// The event's source.
        source_name: String,
        /// The event's detail-type.
        detail_type: String,
    },
    /// A workflow's trigger cannot turn the event into a submission.
    #[error("workflow `{workflow}`: trigger.{key}: {reason}")]
    Trigger {
        /// The workflow.
        workflow: WorkflowName,
        /// The trigger's template that failed.
        key: &'static str,
        /// Why it failed. Contains no values.
        reason: String,
    },
    /// `reply_to` is not one of the allowed queues.
    #[error("reply_to is not on the list of allowed reply queues")]
    ReplyQueueNotAllowed,
    /// The input refers to a payload that cannot be used.
    #[error("input{pointer}: {reason}")]
    InvalidPayload {
        /// Where the reference is in the input: a JSON pointer.
        pointer: String,
        /// Why it cannot be used. Contains no values.
        reason: String,
    },
    /// The id belongs to another task.
    #[error("task `{0}` exists already, with other content")]
    IdTaken(String),
    /// What a rerun keeps of the task that it repeats does not fit the workflow.
    #[error("{0}")]
    Rerun(String),
    /// The submission of a child task arrived so late that the parent task may have expired.
    #[error("the submission arrived so late that the parent task may have expired")]
    TooLate,
}

/// The refusal of a submission of `bytes` bytes, which exceeds the limit.
pub(super) fn too_large(bytes: usize) -> SubmissionRefusal {
    let max = limits::DOCUMENT_BYTES_MAX;
    SubmissionRefusal::TooLarge(format!("a submission of {bytes} bytes; the limit is {max}"))
}

/// Replaces the characters that SQS refuses in a message attribute, and shortens the text to `chars_max` characters.
pub(super) fn attribute_text(text: &str, chars_max: usize) -> String {
    let allowed = |c: char| {
        if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }
    };
    let text: String = text.chars().map(allowed).collect();
    limits::short_line(&text, chars_max)
}
