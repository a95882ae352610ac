//! States of tasks and of their steps as people see them. Each state has a name, a symbol and a CSS class. Pages show the
//! symbol beside the name, so that states are distinguishable without colours.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steward_core::model::{
    step::{Progress, StepRecord, StepState},
    task::ProcessState,
};

/// The state of a step, or of one of its items. As soon as its undo has begun, the state of the undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PartState {
    /// It has no record yet.
    #[serde(rename = "not started")]
    NotStarted,
    /// An agent or a child task works on it, or at least one of its items has begun.
    #[serde(rename = "running")]
    Running,
    /// The call is done; a callback completes the step.
    #[serde(rename = "awaiting callback")]
    AwaitingCallback,
    /// It starts, or is retried, at a later time.
    #[serde(rename = "waiting")]
    Waiting,
    /// It took effect.
    #[serde(rename = "completed")]
    Completed,
    /// Steward does not retry it any more.
    #[serde(rename = "failed")]
    Failed,
    /// Its `when` was false, or an operator skipped it.
    #[serde(rename = "skipped")]
    Skipped,
    /// Its undo is running.
    #[serde(rename = "undoing")]
    Undoing,
    /// Its undo starts, or is retried, at a later time.
    #[serde(rename = "undo waiting")]
    UndoWaiting,
    /// Its undo completed.
    #[serde(rename = "undone")]
    Undone,
    /// Steward does not retry its undo any more.
    #[serde(rename = "undo failed")]
    UndoFailed,
    /// An operator skipped its undo.
    #[serde(rename = "undo skipped")]
    UndoSkipped,
}

impl PartState {
    /// The state of a step or item. For a step with items whose undo has begun, the state of the undo that has
    /// progressed least.
    #[must_use]
    pub fn of(record: &StepRecord) -> Self {
        let begun = record.items.iter().flat_map(|items| &items.started);
        let undos: Vec<_> = begun.chain([record]).filter_map(|one| one.undo.as_ref()).collect();
        let open =
            undos.iter().find(|undo| !undo.state.is_completed_or_skipped()).or(undos.first());
        open.map_or_else(|| Self::of_run(&record.run), |undo| Self::of_undo(undo))
    }

    fn of_run(run: &Progress) -> Self {
        match run.state {
            StepState::Running { .. } | StepState::RunningItems => Self::Running,
            StepState::AwaitingCallback { .. } => Self::AwaitingCallback,
            StepState::Waiting { .. } => Self::Waiting,
            StepState::Completed { .. } => Self::Completed,
            StepState::Failed { .. } => Self::Failed,
            StepState::Skipped { .. } => Self::Skipped,
        }
    }

    fn of_undo(undo: &Progress) -> Self {
        match undo.state {
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems => Self::Undoing,
            StepState::Waiting { .. } => Self::UndoWaiting,
            StepState::Completed { .. } => Self::Undone,
            StepState::Failed { .. } => Self::UndoFailed,
            StepState::Skipped { .. } => Self::UndoSkipped,
        }
    }

    /// Whether the step or item needs no more work, and was not undone.
    #[must_use]
    pub fn is_done(self) -> bool {
        match self {
            Self::Completed | Self::Skipped => true,
            Self::NotStarted
            | Self::Running
            | Self::AwaitingCallback
            | Self::Waiting
            | Self::Failed
            | Self::Undoing
            | Self::UndoWaiting
            | Self::Undone
            | Self::UndoFailed
            | Self::UndoSkipped => false,
        }
    }

    /// The state's name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Running => "running",
            Self::AwaitingCallback => "awaiting callback",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Undoing => "undoing",
            Self::UndoWaiting => "undo waiting",
            Self::Undone => "undone",
            Self::UndoFailed => "undo failed",
            Self::UndoSkipped => "undo skipped",
        }
    }

    /// One character that represents the state.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::NotStarted | Self::Waiting | Self::UndoWaiting => "○",
            Self::Running => "◐",
            Self::AwaitingCallback => "◇",
            Self::Completed => "✓",
            Self::Failed | Self::UndoFailed => "✕",
            Self::Undoing => "↶",
            Self::Undone => "↺",
            Self::Skipped | Self::UndoSkipped => "–",
        }
    }

    /// The CSS class: `state-`, and the name with hyphens for spaces.
    #[must_use]
    pub fn css_class(self) -> String {
        css_class(self.name())
    }
}

impl fmt::Display for PartState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One character that represents a task's state.
#[must_use]
pub fn task_symbol(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Pending => "○",
        ProcessState::Processing => "◐",
        ProcessState::Processed => "✓",
        ProcessState::Error => "✕",
        ProcessState::Undoing => "↶",
        ProcessState::Undone => "↺",
    }
}

/// The CSS class of a task's state, as `state-processing`.
#[must_use]
pub fn task_css_class(state: ProcessState) -> String {
    css_class(&state.to_string())
}

fn css_class(name: &str) -> String {
    format!("state-{}", name.to_lowercase().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_name_of_a_state_is_its_json() {
        for state in [
            PartState::NotStarted,
            PartState::Running,
            PartState::AwaitingCallback,
            PartState::Waiting,
            PartState::Completed,
            PartState::Failed,
            PartState::Skipped,
            PartState::Undoing,
            PartState::UndoWaiting,
            PartState::Undone,
            PartState::UndoFailed,
            PartState::UndoSkipped,
        ] {
            assert_eq!(json!(state), json!(state.name()));
        }
    }

    #[test]
    fn an_undo_hides_the_state_of_the_run() {
        let state = |record: Value| PartState::of(&serde_json::from_value(record).unwrap());
        assert_eq!(state(json!({ "s": "c", "a": 1 })), PartState::Completed);
        let undo_of_an_item = json!({ "s": "e", "p": { "n": 2, "l": [
            { "s": "c", "a": 1, "x": { "s": "c", "a": 1 } },
            { "s": "c", "a": 1, "x": { "s": "w", "a": 1, "u": 0 } },
        ] } });
        assert_eq!(state(undo_of_an_item), PartState::UndoWaiting);
    }
}
