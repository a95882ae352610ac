//! Attempts at doing a step or at undoing it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::names::Part;

/// Which way a step goes: it is done, or what it did is undone.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The step itself.
    #[default]
    Do,
    /// Its undo, the compensating action.
    Undo,
}

impl Action {
    /// As messages and idempotency keys say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }
}

/// When an attempt got how far, for people. Each time is by the clock of who was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptTimes {
    /// When its request was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub queued_at: Option<Timestamp>,
    /// When its agent first called the remote service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub called_at: Option<Timestamp>,
    /// When the agent had its answer: the service's, or its own if it called no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub answered_at: Option<Timestamp>,
}

impl AttemptTimes {
    /// Whether none is known.
    #[must_use]
    pub fn are_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// An attempt at doing or undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The step, or one item of it.
    pub step: Part,
    /// Whether it was done or undone.
    pub action: Action,
    /// Which attempt.
    pub number: u32,
}
