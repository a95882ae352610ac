//! Operators' commands to a task. A command goes through the scheduler's queue, and
//! [`transition`](crate::engine::transition::transition) decides on it as on every other event. The task records each
//! command with its author and reason, including refused commands.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::names::{Part, TaskId};

pub use crate::model::names::CommandId;

/// An operator's command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Chosen by the sender, unique for the task. It makes the command idempotent: a command that is delivered twice is
    /// carried out once.
    pub command_id: CommandId,
    /// The task.
    pub task_id: TaskId,
    /// The operator who sends the command.
    pub by: String,
    /// The operator's reason, for the record.
    pub why: String,
    /// What the task is to do.
    pub order: CommandAction,
    /// When it was issued, by the sender's clock. A task keeps the ids of its newest commands only. So a command that is
    /// older than every command in a full record is refused: it may be a duplicate. Absent in messages of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub issued_at: Option<Timestamp>,
}

/// What a command does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandAction {
    /// Retry a failed step with new attempts, or end the pause before a retry. If the task failed while it was being undone,
    /// retry the failed undo.
    Resubmit {
        /// The step, or one item of it; its `wait` ends too. If absent: all failed steps, and steps that pause before a
        /// retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// A JSON merge patch (RFC 7396) of the task's input. This step and later steps use the patched input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// The operator has checked that no earlier attempt took effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        did_not_run: bool,
    },
    /// Continue without a step, or without its undo.
    Skip {
        /// The step, or one item of it. The only failed one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// The operator has checked that no attempt took effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        did_not_run: bool,
    },
    /// Record a step, or its undo, as completed manually.
    Complete {
        /// The step, or one item of it. The only failed one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// The output that later steps read.
        #[serde(default)]
        output: Value,
    },
    /// Answer the callback of a step: the step completes.
    Approve {
        /// The step, or one item of it. The only one that awaits a callback if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// The answer, which is the output of the step.
        #[serde(default)]
        answer: Value,
    },
    /// Answer the callback of a step: the step fails, with the operator's reason.
    Reject {
        /// The step, or one item of it. The only one that awaits a callback if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
    },
    /// Undo the whole task.
    Undo,
    /// Stop the task and put it in Error: nothing more is sent, nothing is undone.
    Cancel,
    /// Start nothing more until the task is resumed.
    Pause,
    /// Continue after a pause.
    Resume,
}

impl CommandAction {
    /// The command as text, such as `resubmit charge`. `steps` are the steps that the command affected; if empty, the
    /// text names the step of the command.
    #[must_use]
    pub fn describe(&self, steps: &[Part]) -> String {
        let with_steps = |name: &str, step: &Option<Part>| {
            let steps = if steps.is_empty() { step.as_slice() } else { steps };
            let names: Vec<_> = steps.iter().map(Part::to_string).collect();
            format!("{name} {}", names.join(", ")).trim_end().to_owned()
        };
        match self {
            Self::Resubmit { step, input: None, .. } => with_steps("resubmit", step),
            Self::Resubmit { step, input: Some(_), .. } => {
                format!("{} with edited input", with_steps("resubmit", step))
            }
            Self::Skip { step, .. } => with_steps("skip", step),
            Self::Complete { step, .. } => with_steps("complete", step),
            Self::Approve { step, .. } => with_steps("approve", step),
            Self::Reject { step } => with_steps("reject", step),
            Self::Undo => "undo".to_owned(),
            Self::Cancel => "cancel".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Resume => "resume".to_owned(),
        }
    }
}

/// A command in a task's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRecord {
    /// The command's id.
    pub id: CommandId,
    /// The command as text, such as `resubmit charge`.
    pub command: String,
    /// The operator who sent it.
    pub by: String,
    /// The operator's reason.
    pub why: String,
    /// When the scheduler decided on it.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub at: Timestamp,
    /// Why it was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
