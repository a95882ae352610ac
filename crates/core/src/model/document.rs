//! Documents: the payloads of a task, stored beside its item. Each is written once and never changes.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    limits::KEPT_MARGIN,
    model::{
        attempt::{Action, Attempt, AttemptTimes},
        command::CommandId,
        names::{Incarnation, TaskId},
        time::later,
    },
};

/// What names a document among those of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKey {
    /// What the client submitted.
    Submission,
    /// The input as an operator edited it.
    Input(CommandId),
    /// What the task returned, by a fingerprint of what it was made from: a decision that was never
    /// saved may have left one as well.
    Result(u32),
    /// What an attempt at a step returned.
    Output(Attempt),
    /// What an operator's command says that a step returned. It names its writer: a command that is refused
    /// after it was written leaves nothing that an agent's answer could be taken for.
    ByHand(Attempt, CommandId),
    /// Why an attempt at a step failed.
    Failure(Attempt),
    /// Why an attempt at a step was deferred.
    Deferral(Attempt),
    /// That an attempt at a step that must not be repeated is about to be made.
    Claim(Attempt),
}

impl Attempt {
    fn key(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        let of = match self.action {
            Action::Do => "step",
            Action::Undo => "undo",
        };
        write!(f, "{of}/{}/{}/{kind}", self.step, self.number)
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submission => f.write_str("submission"),
            Self::Input(id) => write!(f, "input/{id}"),
            Self::Result(made_from) => write!(f, "result/{made_from:08x}"),
            Self::Output(attempt) => attempt.key(f, "output"),
            Self::ByHand(attempt, command) => {
                attempt.key(f, "output")?;
                write!(f, "/{command}")
            }
            Self::Failure(attempt) => attempt.key(f, "failure"),
            Self::Deferral(attempt) => attempt.key(f, "deferral"),
            Self::Claim(attempt) => attempt.key(f, "claim"),
        }
    }
}

/// A text that is no document's key.
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
            ["result", made_from] => {
                Ok(Self::Result(u32::from_str_radix(made_from, 16).map_err(|_| invalid())?))
            }
            ["input", id] => Ok(Self::Input(id.parse().map_err(|_| invalid())?)),
            [of @ ("step" | "undo"), step, number, "output", command] => {
                let action = if *of == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let command = command.parse().map_err(|_| invalid())?;
                Ok(Self::ByHand(Attempt { step, action, number }, command))
            }
            [of @ ("step" | "undo"), step, number, kind] => {
                let action = if *of == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let attempt = Attempt { step, action, number };
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

/// Whose documents are meant: those of a task, in one incarnation of its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The task.
    pub task_id: TaskId,
    /// Its incarnation; absent of a task that an older release recorded.
    pub incarnation: Option<Incarnation>,
}

/// A document's key as it is stored: `INCARNATION/KEY`, so that documents of an earlier task with the
/// same id, which expire one by one, are never taken for this one's. Of a task that an older release
/// recorded it is the key alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredKey {
    /// The incarnation of the task that it belongs to.
    pub incarnation: Option<Incarnation>,
    /// Which of that task's documents.
    pub key: DocumentKey,
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, key } = self;
        match incarnation {
            Some(incarnation) => write!(f, "{incarnation}/{key}"),
            None => key.fmt(f),
        }
    }
}

impl FromStr for StoredKey {
    type Err = InvalidDocumentKey;

    fn from_str(text: &str) -> Result<Self, InvalidDocumentKey> {
        // No key begins as an incarnation does.
        if let Some((incarnation, key)) = text.split_once('/')
            && let Ok(incarnation) = incarnation.parse()
        {
            return Ok(Self { incarnation: Some(incarnation), key: key.parse()? });
        }
        Ok(Self { incarnation: None, key: text.parse()? })
    }
}

/// A document beside a task: written once, never changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Which of the task's documents.
    pub key: DocumentKey,
    /// When it was made.
    pub at: Timestamp,
    /// Its content.
    pub body: Value,
    /// Of an attempt's: when it got how far, as far as is known.
    pub times: AttemptTimes,
}

impl Document {
    /// A document made at `at`.
    #[must_use]
    pub fn new(key: DocumentKey, at: Timestamp, body: Value) -> Self {
        Self { key, at, body, times: AttemptTimes::default() }
    }
}

/// How long a document is kept: for the retention time after `from`, and
/// [longer by a margin](crate::limits::KEPT_MARGIN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// From when on: no earlier than the task ends.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub from: Timestamp,
    /// For how long; the deployment's retention time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
}

impl Kept {
    /// When a document that is kept so long may go, where this is the retention of the deployment.
    #[must_use]
    pub fn expires_at(self, retention: Duration) -> Timestamp {
        let retention = self.retention_s.map_or(retention, Duration::from_secs);
        later(later(self.from, retention), KEPT_MARGIN)
    }

    /// At least as long as either. The deployment's retention is not known here: where only one of the two
    /// has its own, it is longer than either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let from = self.from.max(other.from);
        match (self.retention_s, other.retention_s) {
            (None, None) => Self { from, retention_s: None },
            (Some(one), Some(another)) => Self { from, retention_s: Some(one.max(another)) },
            (Some(own), None) | (None, Some(own)) => {
                Self { from: later(from, Duration::from_secs(own)), retention_s: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::Part;

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        let step: Part = "charge".parse().unwrap();
        for key in [
            DocumentKey::Submission,
            DocumentKey::Input("c-1".parse().unwrap()),
            DocumentKey::Output(Attempt { step: step.clone(), action: Action::Do, number: 3 }),
            DocumentKey::ByHand(
                Attempt { step: step.clone(), action: Action::Undo, number: 3 },
                "c-1".parse().unwrap(),
            ),
            DocumentKey::Failure(Attempt { step: step.clone(), action: Action::Undo, number: 1 }),
            DocumentKey::Deferral(Attempt { step: step.clone(), action: Action::Do, number: 1 }),
            DocumentKey::Claim(Attempt { step, action: Action::Do, number: 1 }),
        ] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert!("step/charge/x/output".parse::<DocumentKey>().is_err());
    }

    #[test]
    fn a_stored_key_has_its_incarnation_in_front() {
        let output: DocumentKey = "step/charge/1/output".parse().unwrap();
        let incarnation = Some(Incarnation::recorded_at(Timestamp::UNIX_EPOCH));
        for (key, text) in [
            (StoredKey { incarnation, key: output.clone() }, "000000000/step/charge/1/output"),
            (StoredKey { incarnation: None, key: output }, "step/charge/1/output"),
            (StoredKey { incarnation: None, key: DocumentKey::Submission }, "submission"),
        ] {
            assert_eq!((key.to_string().as_str(), text.parse()), (text, Ok(key)));
        }
        assert!("000000000/".parse::<StoredKey>().is_err());
    }

    #[test]
    fn what_is_kept_with_two_tasks_outlives_both_whatever_the_deployments_retention() {
        let kept =
            |from, retention_s| Kept { from: Timestamp::from_second(from).unwrap(), retention_s };
        let all = [kept(10, None), kept(20, None), kept(10, Some(5)), kept(7, Some(50))];
        for (one, another) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)))
        {
            for default in [1, 100] {
                let until = |Kept { from, retention_s }: Kept| {
                    from.as_second() + i64::try_from(retention_s.unwrap_or(default)).unwrap()
                };
                assert!(until(one.and(another)) >= until(one).max(until(another)));
            }
        }
    }
}
