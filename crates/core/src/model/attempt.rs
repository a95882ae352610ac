//! Attempts at a step or at its undo.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::names::Part;

/// Whether a step is run or undone.
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
    /// The name in messages and idempotency keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }
}

/// When the phases of an attempt began and ended, for display only. Each time is by the clock of the process that
/// recorded it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptTimes {
    /// When the scheduler sent the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// When the agent first called the remote service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at: Option<Timestamp>,
    /// When the agent had the outcome: from the response of the service, or its own decision to stop calling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Timestamp>,
}

impl AttemptTimes {
    /// Whether no time is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Identifies an attempt at a step or at its undo.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The step, or one item of it.
    pub step: Part,
    /// Whether the step is run or undone.
    pub action: Action,
    /// The number of the attempt, counted from 1. Zero identifies the failure of a step that could not start, because
    /// its `when`, its items or its wait could not be evaluated.
    pub number: u32,
}

impl AttemptId {
    /// The number of the attempt. `None` if the step could not start.
    #[must_use]
    pub fn started(&self) -> Option<u32> {
        (self.number > 0).then_some(self.number)
    }
}
