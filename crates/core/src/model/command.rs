//! What an operator asks of a task. Commands go through the scheduler's queue and are decided by the
//! same [`transition`](crate::engine::transition::transition) as everything else; each is on record with who
//! asked and why, also when it is refused.

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
    /// Chosen by whoever sends it, unique for the task: a command delivered twice is carried out once.
    pub command_id: CommandId,
    /// The task.
    pub task_id: TaskId,
    /// Who asks.
    pub by: String,
    /// Why, for the record.
    pub why: String,
    /// What is asked.
    pub order: Order,
    /// When it was issued, by its sender's clock. A task forgets the ids of old commands: one that was
    /// issued before all those on a full record is refused. Absent in messages of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub issued_at: Option<Timestamp>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Try a failed step again, with its attempts renewed, or a waiting one at once. Of a task that
    /// failed while it was undone, this is the failed undo.
    Resubmit {
        /// Which step, or item of it; all that failed or wait if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// A JSON merge patch (RFC 7396) for the task's input, for this step and those after it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// The operator has seen that no earlier attempt took effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        did_not_run: bool,
    },
    /// Go on without a step, or without its undo.
    Skip {
        /// Which step, or item of it; the only one that failed if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// The operator has seen that no attempt took effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        did_not_run: bool,
    },
    /// Take a step, or its undo, as done by hand.
    Complete {
        /// Which step, or item of it; the only one that failed if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Part>,
        /// What later steps read as its output.
        #[serde(default)]
        output: Value,
    },
    /// Undo the whole task.
    Undo,
    /// Stop the task where it stands: nothing more is sent, nothing is undone.
    Cancel,
    /// Start nothing more, until resumed.
    Pause,
    /// Go on after a pause.
    Resume,
}

impl Order {
    /// As people say it: `resubmit charge`. `steps` are those that it turned out to be about.
    #[must_use]
    pub fn describe(&self, steps: &[Part]) -> String {
        let of = |name: &str, step: &Option<Part>| {
            let steps = if steps.is_empty() { step.as_slice() } else { steps };
            let names: Vec<_> = steps.iter().map(Part::to_string).collect();
            format!("{name} {}", names.join(", ")).trim_end().to_owned()
        };
        match self {
            Self::Resubmit { step, input: None, .. } => of("resubmit", step),
            Self::Resubmit { step, input: Some(_), .. } => {
                format!("{} with edited input", of("resubmit", step))
            }
            Self::Skip { step, .. } => of("skip", step),
            Self::Complete { step, .. } => of("complete", step),
            Self::Undo => "undo".to_owned(),
            Self::Cancel => "cancel".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Resume => "resume".to_owned(),
        }
    }
}

/// A command on a task's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRecord {
    /// The command's id.
    pub id: CommandId,
    /// What was asked.
    pub command: String,
    /// Who asked.
    pub by: String,
    /// Why.
    pub why: String,
    /// When it was decided.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub at: Timestamp,
    /// Why it was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
