//! Documents: the payloads of a task. A document is written once and never changes. It is stored in the task's item
//! ([`inline_documents`](super::inline_documents)) if it fits into the first kilobyte, and otherwise as an item of its own.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    attempt::{Action, AttemptId, AttemptTimes},
    command::CommandId,
    names::{Incarnation, StepName, TaskId},
};

/// Identifies a document of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DocumentKey {
    /// The submission as the client sent it.
    Submission,
    /// The input after the edit by this command of an operator.
    Input(CommandId),
    /// Successive items of the list of a step with `for_each`, if the list is long.
    Items {
        /// The step.
        step: StepName,
        /// Which list it is.
        version: ItemListVersion,
        /// The position of the slice in the list.
        slice: u32,
    },
    /// The output of the task, with a fingerprint of the state that it was made from. The fingerprint distinguishes it
    /// from results that other decisions stored without being saved.
    Result(u32),
    /// The output of an attempt at a step.
    Output(AttemptId),
    /// The output of a step that an operator's command completed. The key contains the command, so that the document of a
    /// command that was refused later is never read as the agent's output.
    OperatorOutput(AttemptId, CommandId),
    /// Why an attempt at a step failed.
    Failure(AttemptId),
    /// Why an attempt at a step was deferred.
    Deferral(AttemptId),
    /// The claim of an agent to make the only call of an attempt, for a step that is not idempotent.
    Claim(AttemptId),
}

/// A list of a step with `for_each`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemListVersion {
    /// The list with this fingerprint, with which the step started. The fingerprint distinguishes it from lists of
    /// decisions that were not saved.
    Started(u32),
    /// The list after the edit of the input by this command.
    Edited(CommandId),
}

impl DocumentKey {
    /// The attempt that a document belongs to. `None` for documents of the task as a whole.
    #[must_use]
    pub fn attempt(&self) -> Option<&AttemptId> {
        match self {
            Self::Output(attempt)
            | Self::OperatorOutput(attempt, _)
            | Self::Failure(attempt)
            | Self::Deferral(attempt)
            | Self::Claim(attempt) => Some(attempt),
            Self::Submission | Self::Input(_) | Self::Items { .. } | Self::Result(_) => None,
        }
    }
}

impl AttemptId {
    fn write_key(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        let prefix = match self.action {
            Action::Do => "step",
            Action::Undo => "undo",
        };
        write!(f, "{prefix}/{}/{}/{kind}", self.step, self.number)
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submission => f.write_str("submission"),
            Self::Input(id) => write!(f, "input/{id}"),
            Self::Items { step, version: ItemListVersion::Started(fingerprint), slice } => {
                write!(f, "items/{step}/{fingerprint:08x}/{slice}")
            }
            Self::Items { step, version: ItemListVersion::Edited(command), slice } => {
                write!(f, "items/{step}/input/{command}/{slice}")
            }
            Self::Result(fingerprint) => write!(f, "result/{fingerprint:08x}"),
            Self::Output(attempt) => attempt.write_key(f, "output"),
            Self::OperatorOutput(attempt, command) => {
                attempt.write_key(f, "output")?;
                write!(f, "/{command}")
            }
            Self::Failure(attempt) => attempt.write_key(f, "failure"),
            Self::Deferral(attempt) => attempt.write_key(f, "deferral"),
            Self::Claim(attempt) => attempt.write_key(f, "claim"),
        }
    }
}

/// The error for a text that is not a document key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a document's key")]
pub struct InvalidDocumentKey(String);

impl FromStr for DocumentKey {
    type Err = InvalidDocumentKey;

    fn from_str(text: &str) -> Result<Self, InvalidDocumentKey> {
        let invalid = || InvalidDocumentKey(text.to_owned());
        let parts: Vec<_> = text.split('/').collect();
        match parts.as_slice() {
            ["submission"] => Ok(Self::Submission),
            ["result", fingerprint] => {
                Ok(Self::Result(u32::from_str_radix(fingerprint, 16).map_err(|_| invalid())?))
            }
            ["items", step, fingerprint, slice] => {
                let fingerprint = u32::from_str_radix(fingerprint, 16).map_err(|_| invalid())?;
                let step = step.parse().map_err(|_| invalid())?;
                let slice = slice.parse().map_err(|_| invalid())?;
                Ok(Self::Items { step, version: ItemListVersion::Started(fingerprint), slice })
            }
            ["items", step, "input", command, slice] => {
                let command = command.parse().map_err(|_| invalid())?;
                let step = step.parse().map_err(|_| invalid())?;
                let slice = slice.parse().map_err(|_| invalid())?;
                Ok(Self::Items { step, version: ItemListVersion::Edited(command), slice })
            }
            ["input", id] => Ok(Self::Input(id.parse().map_err(|_| invalid())?)),
            [prefix @ ("step" | "undo"), step, number, "output", command] => {
                let action = if *prefix == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let command = command.parse().map_err(|_| invalid())?;
                Ok(Self::OperatorOutput(AttemptId { step, action, number }, command))
            }
            [prefix @ ("step" | "undo"), step, number, kind] => {
                let action = if *prefix == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let attempt = AttemptId { step, action, number };
                match *kind {
                    "output" => Ok(Self::Output(attempt)),
                    "failure" => Ok(Self::Failure(attempt)),
                    "deferral" => Ok(Self::Deferral(attempt)),
                    "claim" => Ok(Self::Claim(attempt)),
                    _ => Err(invalid()),
                }
            }
            _ => Err(invalid()),
        }
    }
}

impl TryFrom<String> for DocumentKey {
    type Error = InvalidDocumentKey;

    fn try_from(text: String) -> Result<Self, InvalidDocumentKey> {
        text.parse()
    }
}

impl From<DocumentKey> for String {
    fn from(key: DocumentKey) -> Self {
        key.to_string()
    }
}

/// The owner of documents: a task, identified by its id and incarnation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentOwner {
    /// The task.
    pub task_id: TaskId,
    /// The task's incarnation.
    pub incarnation: Incarnation,
}

/// A document's key in the state store: `INCARNATION/KEY`. The incarnation distinguishes the document from documents of
/// an earlier task with the same id, which may not have expired yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredDocumentKey {
    /// The incarnation of the document's task.
    pub incarnation: Incarnation,
    /// The document among those of the task.
    pub key: DocumentKey,
}

impl fmt::Display for StoredDocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, key } = self;
        write!(f, "{incarnation}/{key}")
    }
}

impl FromStr for StoredDocumentKey {
    type Err = InvalidDocumentKey;

    fn from_str(text: &str) -> Result<Self, InvalidDocumentKey> {
        let invalid = || InvalidDocumentKey(text.to_owned());
        let (incarnation, key) = text.split_once('/').ok_or_else(invalid)?;
        let incarnation = incarnation.parse().map_err(|_| invalid())?;
        Ok(Self { incarnation, key: key.parse()? })
    }
}

/// A payload of a task. It is written once and never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The document among those of the task.
    pub key: DocumentKey,
    /// When it was created.
    pub at: Timestamp,
    /// Its content.
    pub body: Value,
    /// For documents of an attempt: the known times of the attempt.
    pub times: AttemptTimes,
}

impl Document {
    /// Creates a document without attempt times.
    #[must_use]
    pub fn new(key: DocumentKey, at: Timestamp, body: Value) -> Self {
        Self { key, at, body, times: AttemptTimes::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::Part;

    #[test]
    fn document_key_reads_back_as_written() {
        let step: Part = "charge".parse().unwrap();
        for key in [
            DocumentKey::Submission,
            DocumentKey::Input("c-1".parse().unwrap()),
            DocumentKey::Items {
                step: "charge".parse().unwrap(),
                version: ItemListVersion::Started(0x00c0_ffee),
                slice: 299,
            },
            DocumentKey::Items {
                step: "charge".parse().unwrap(),
                version: ItemListVersion::Edited("c-1".parse().unwrap()),
                slice: 0,
            },
            DocumentKey::Output(AttemptId { step: step.clone(), action: Action::Do, number: 3 }),
            DocumentKey::OperatorOutput(
                AttemptId { step: step.clone(), action: Action::Undo, number: 3 },
                "c-1".parse().unwrap(),
            ),
            DocumentKey::Failure(AttemptId { step: step.clone(), action: Action::Undo, number: 1 }),
            DocumentKey::Deferral(AttemptId { step: step.clone(), action: Action::Do, number: 1 }),
            DocumentKey::Claim(AttemptId { step, action: Action::Do, number: 1 }),
        ] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert!("step/charge/x/output".parse::<DocumentKey>().is_err());
    }

    #[test]
    fn stored_key_begins_with_the_incarnation() {
        let incarnation = Incarnation::recorded_at(Timestamp::UNIX_EPOCH);
        let text = "000000000/step/charge/1/output";
        let key = StoredDocumentKey { incarnation, key: "step/charge/1/output".parse().unwrap() };
        assert_eq!((key.to_string().as_str(), text.parse()), (text, Ok(key)));
        for bad in ["000000000/", "submission", "step/charge/1/output"] {
            assert!(bad.parse::<StoredDocumentKey>().is_err(), "{bad:?} was accepted");
        }
    }
}
