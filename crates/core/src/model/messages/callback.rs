//! Callbacks: messages that complete a step after the agent's call has only begun it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::names::CallbackToken;

/// A callback of a step. Its sender is any program that has the token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallbackMessage {
    /// The token from the step's request.
    pub token: CallbackToken,
    /// The outcome of the step.
    #[serde(flatten)]
    pub outcome: CallbackOutcome,
}

/// The outcome that a callback reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CallbackOutcome {
    /// The step completed.
    Completed {
        /// The output of the step.
        #[serde(default)]
        output: Value,
    },
    /// The step failed permanently.
    Failed {
        /// The reason, for people.
        reason: String,
    },
    /// The step is still in progress, and another callback will follow.
    Heartbeat,
}

impl CallbackOutcome {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Heartbeat => "heartbeat",
        }
    }
}
