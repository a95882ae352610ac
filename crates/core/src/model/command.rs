//! Operators' commands to a task. A command goes through the commands queue, to which only operators may send, and
//! [`transition`](crate::engine::transition::transition) decides on it as on every other event. The task records each
//! command with its verified caller and its reason, including refused commands.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    limits::SENDER_ID_CHARS_MAX,
    model::names::{InvalidName, Part, StepName, TaskId},
};

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
    /// The operator who sends the command, as stated by the sender. [`Caller`] says how far the name is verified.
    pub by: String,
    /// The operator's reason, for the record.
    pub why: String,
    /// What the task is to do.
    #[serde(rename = "order")]
    pub action: CommandAction,
    /// When it was issued, by the sender's clock. A task keeps the ids of its newest commands only. So a command that is
    /// older than every command in a full record is refused: it may be a duplicate.
    #[schemars(with = "String")]
    pub issued_at: Timestamp,
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
        /// A JSON merge patch (RFC 7396) of the task's input. This step and later steps use the patched input. The request
        /// has a new idempotency key, also if the patch is empty.
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
    /// Record that the Error of the task is settled: it is reported no more, and expires after its retention time.
    Resolve,
    /// Start nothing more until the task is resumed.
    Pause,
    /// Continue after a pause.
    Resume,
    /// Submit a new task that repeats this one, which has ended.
    Rerun {
        /// The id of the new task. If absent, it [follows from that of this task](default_rerun_id).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<TaskId>,
        /// The step from which the new task runs: the others keep their outputs, except those after this step. If absent, the new
        /// task runs all steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<StepName>,
        /// The version of the workflow. The newest if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
    },
}

/// The id of the task that repeats `task`: `order-1-rerun-1` of `order-1`, and `order-1-rerun-2` of that. So the same command again
/// names the same task.
///
/// # Errors
/// The id would be too long.
pub fn default_rerun_id(task: &TaskId) -> Result<TaskId, InvalidName> {
    const SUFFIX: &str = "-rerun-";
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|n| n.to_string() == digits);
    let numbered = task.as_str().rsplit_once(SUFFIX);
    let numbered = numbered.and_then(|(id, digits)| Some((id, number(digits)?.checked_add(1)?)));
    let (id, next) = numbered.unwrap_or((task.as_str(), 1));
    format!("{id}{SUFFIX}{next}").parse()
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
            Self::Resubmit { step, input: Some(patch), .. } => {
                let is_same = patch.as_object().is_some_and(|patch| patch.is_empty());
                let with = if is_same { "a new key" } else { "edited input" };
                format!("{} with {with}", with_steps("resubmit", step))
            }
            Self::Skip { step, .. } => with_steps("skip", step),
            Self::Complete { step, .. } => with_steps("complete", step),
            Self::Approve { step, .. } => with_steps("approve", step),
            Self::Reject { step } => with_steps("reject", step),
            Self::Undo => "undo".to_owned(),
            Self::Cancel => "cancel".to_owned(),
            Self::Resolve => "resolve".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Resume => "resume".to_owned(),
            Self::Rerun { id, from, version } => {
                let part = |word: &str, value: Option<String>| {
                    value.map(|value| format!(" {word} {value}")).unwrap_or_default()
                };
                let from = part("from", from.as_ref().map(StepName::to_string));
                let version = part("with version", version.map(|version| version.to_string()));
                format!("rerun{from}{version}{}", part("as", id.as_ref().map(TaskId::to_string)))
            }
        }
    }
}

impl Command {
    /// The command as received from its operator.
    #[must_use]
    pub fn received_from(self, sender: SenderId) -> ReceivedCommand {
        ReceivedCommand { command: self, caller: Caller { sender, via: CommandSource::Direct } }
    }

    /// The command for a dry run: no operator has sent it. The caller appears only in the command's record.
    #[must_use]
    pub fn for_dry_run(self) -> ReceivedCommand {
        self.received_from(SenderId("dry-run".to_owned()))
    }
}

/// A command as the scheduler received it: with its verified caller, who is not part of the message.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedCommand {
    /// The command.
    pub command: Command,
    /// Who sent it.
    pub caller: Caller,
}

/// Who sent a command, as far as it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// The sender of the message, as SQS reports it.
    pub sender: SenderId,
    /// How the command came from the operator to the sender.
    pub via: CommandSource,
}

/// How a command came from the operator to the sender of its message. It says what the name in the command is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandSource {
    /// The sender is the operator. The name is what the sender stated.
    Direct,
    /// The console is the sender. The name is that of the person whom it authenticated.
    Console,
    /// The sender sent a dead letter back. The name is what the first sender stated, who is not known.
    Redrive,
}

/// SQS's id of the sender of a message: `AIDA…` for a user, `AROA…:SESSION` for a session of a role, and the account's id
/// for its root. The sender cannot choose it, except for the name of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct SenderId(#[schemars(length(min = 1, max = SENDER_ID_CHARS_MAX))] String);

/// A text is not the id of a sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sender's id is not 1 to {SENDER_ID_CHARS_MAX} printable ASCII characters without spaces"
)]
pub struct InvalidSenderId;

impl SenderId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The unique id of the role, if the sender is a session of one.
    #[must_use]
    pub fn role_id(&self) -> Option<&str> {
        self.0.split_once(':').map(|(role_id, _)| role_id)
    }
}

impl FromStr for SenderId {
    type Err = InvalidSenderId;

    fn from_str(text: &str) -> Result<Self, InvalidSenderId> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for SenderId {
    type Error = InvalidSenderId;

    fn try_from(text: String) -> Result<Self, InvalidSenderId> {
        let is_valid = (1..=SENDER_ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid { Ok(Self(text)) } else { Err(InvalidSenderId) }
    }
}

impl From<SenderId> for String {
    fn from(id: SenderId) -> Self {
        id.0
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A command in a task's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRecord {
    /// The command's id.
    pub id: CommandId,
    /// The command as text, such as `resubmit charge`.
    pub command: String,
    /// The operator who sent it, as stated by the sender.
    pub by: String,
    /// Who sent it, as far as it is verified.
    pub caller: Caller,
    /// The operator's reason.
    pub why: String,
    /// When the scheduler decided on it.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub at: Timestamp,
    /// Why it was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The new task that it submitted, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<TaskId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_sender_is_short_plain_text() {
        let longest = "x".repeat(SENDER_ID_CHARS_MAX);
        for text in ["AIDAEXAMPLE", "AROAEXAMPLE:ann@example.com", "000000000000", &longest] {
            assert_eq!(text.parse::<SenderId>().unwrap().as_str(), text);
        }
        for text in ["", "a b", "a\n", "\u{e9}", &format!("{longest}x")] {
            assert_eq!(text.parse::<SenderId>(), Err(InvalidSenderId), "{text:?}");
        }
    }

    #[test]
    fn the_id_of_a_rerun_counts_on() {
        for (task, rerun) in [
            ("order-1", "order-1-rerun-1"),
            ("order-1-rerun-1", "order-1-rerun-2"),
            ("order-1-rerun-99", "order-1-rerun-100"),
            ("order-1-rerun-01", "order-1-rerun-01-rerun-1"),
            ("order-rerun-x", "order-rerun-x-rerun-1"),
        ] {
            assert_eq!(default_rerun_id(&task.parse().unwrap()).unwrap().as_str(), rerun);
        }
        assert!(default_rerun_id(&"x".repeat(128).parse().unwrap()).is_err());
    }

    #[test]
    fn only_a_session_has_the_id_of_a_role() {
        let role = |id: &str| id.parse::<SenderId>().unwrap().role_id().map(str::to_owned);
        assert_eq!(role("AROAEXAMPLE:steward-console").as_deref(), Some("AROAEXAMPLE"));
        assert_eq!(role("AROAEXAMPLE:a:b").as_deref(), Some("AROAEXAMPLE"));
        assert_eq!(role("AIDAEXAMPLE"), None);
    }
}
