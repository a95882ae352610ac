//! The commands that an operator can send to a task from the console.

use serde_json::Value;
use steward_core::model::{
    command::{CommandAction, CommandId},
    names::Part,
};

use crate::page::Failure;

/// A command for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleCommand {
    Resubmit,
    Skip,
    Complete,
    Approve,
    Reject,
    Undo,
    Cancel,
    Resolve,
    Pause,
    Resume,
}

impl ConsoleCommand {
    pub(crate) const ALL: [Self; 10] = [
        Self::Resubmit,
        Self::Skip,
        Self::Complete,
        Self::Approve,
        Self::Reject,
        Self::Undo,
        Self::Cancel,
        Self::Resolve,
        Self::Pause,
        Self::Resume,
    ];

    /// The name in URLs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resubmit => "resubmit",
            Self::Skip => "skip",
            Self::Complete => "complete",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Undo => "undo",
            Self::Cancel => "cancel",
            Self::Resolve => "resolve",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// The label of its button.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Resubmit => "Resubmit",
            Self::Skip => "Skip",
            Self::Complete => "Complete",
            Self::Approve => "Approve",
            Self::Reject => "Reject",
            Self::Undo => "Undo",
            Self::Cancel => "Cancel",
            Self::Resolve => "Resolve",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
        }
    }

    /// What the command does.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Resubmit => {
                "Retries failed steps with new attempts, and ends the pause before a retry. With a step, it also ends its wait."
            }
            Self::Skip => "Continues without a step, or without its undo.",
            Self::Complete => "Marks a step, or its undo, as completed by hand.",
            Self::Approve => "Answers the callback of a step: the step completes.",
            Self::Reject => "Answers the callback of a step: the step fails, with your reason.",
            Self::Undo => "Undoes the whole task.",
            Self::Cancel => {
                "Stops the task and puts it in Error. Nothing more is sent, nothing is undone. Resubmit or Undo continue from there."
            }
            Self::Resolve => {
                "Records that the Error is settled: the task is reported no more, and expires after its retention time. Nothing is sent."
            }
            Self::Pause => "Starts nothing more until the task is resumed.",
            Self::Resume => "Continues a paused task.",
        }
    }

    /// Whether the command replaces the result of one step.
    pub(crate) fn is_by_hand(self) -> bool {
        matches!(self, Self::Skip | Self::Complete)
    }

    /// Whether the command answers a callback.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::Approve | Self::Reject)
    }

    /// Whether its form has a step.
    pub(crate) fn takes_step(self) -> bool {
        self == Self::Resubmit || self.is_by_hand() || self.is_answer()
    }

    /// The choice of no step in its form.
    pub(crate) fn default_step(self) -> &'static str {
        match self {
            Self::Skip | Self::Complete => "the failed step (if only one failed)",
            Self::Approve | Self::Reject => "the step that awaits a callback (if only one does)",
            Self::Resubmit
            | Self::Undo
            | Self::Cancel
            | Self::Resolve
            | Self::Pause
            | Self::Resume => "all failed steps, and steps that pause before a retry",
        }
    }

    /// An action whose dry run shows whether the command is possible, whatever the operator enters in its form.
    pub(crate) fn probe(self, step: Option<Part>) -> CommandAction {
        match self {
            // The answer of an approval may have to obey a schema.
            Self::Approve | Self::Reject => CommandAction::Reject { step },
            Self::Resubmit
            | Self::Skip
            | Self::Complete
            | Self::Undo
            | Self::Cancel
            | Self::Resolve
            | Self::Pause
            | Self::Resume => self.action(step, None, Value::Null, true),
        }
    }

    /// Whether its form may ask the operator to confirm that no earlier attempt took effect.
    pub(crate) fn takes_did_not_run(self) -> bool {
        matches!(self, Self::Resubmit | Self::Skip)
    }

    /// Whether its button warns of the effects.
    pub(crate) fn is_danger(self) -> bool {
        matches!(self, Self::Undo | Self::Cancel | Self::Skip | Self::Reject)
    }

    /// The action of the command. Parameters that it does not have are ignored.
    pub(crate) fn action(
        self,
        step: Option<Part>,
        input: Option<Value>,
        output: Value,
        did_not_run: bool,
    ) -> CommandAction {
        match self {
            Self::Resubmit => CommandAction::Resubmit { step, input, did_not_run },
            Self::Skip => CommandAction::Skip { step, did_not_run },
            Self::Complete => CommandAction::Complete { step, output },
            Self::Approve => CommandAction::Approve { step, answer: output },
            Self::Reject => CommandAction::Reject { step },
            Self::Undo => CommandAction::Undo,
            Self::Cancel => CommandAction::Cancel,
            Self::Resolve => CommandAction::Resolve,
            Self::Pause => CommandAction::Pause,
            Self::Resume => CommandAction::Resume,
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Failure::NotFound(format!("command {name}")))
    }
}

/// A random id for a command.
pub(crate) fn new_command_id() -> Option<CommandId> {
    uuid::Uuid::new_v4().to_string().parse().ok()
}
