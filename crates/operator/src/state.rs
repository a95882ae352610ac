//! States of tasks and of their steps as people see them. Each state has a name, a symbol and a CSS class. Pages show the
//! symbol beside the name, so that states are distinguishable without colours.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steward_core::model::{
    items::ItemRecords,
    step::{Progress, StepRecord, StepState},
    task::ProcessState,
};

/// The state of a step, or of one of its items. Once its undo has started, this is the state of the undo.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum PartState {
    /// It has no record yet.
    #[serde(rename = "not started")]
    NotStarted,
    /// An agent or a child task works on it, or at least one of its items has started.
    #[serde(rename = "running")]
    Running,
    /// The call is done; a callback completes the step.
    #[serde(rename = "awaiting callback")]
    AwaitingCallback,
    /// A pause: afterwards it starts, is retried or, for a `wait`, completes.
    #[serde(rename = "waiting")]
    Waiting,
    /// It completed: its call, child task or items succeeded, its `wait` ended, or an operator completed it.
    #[serde(rename = "completed")]
    Completed,
    /// Steward does not retry it any more.
    #[serde(rename = "failed")]
    Failed,
    /// Its `when` was false, an operator skipped it, or the task goes on without it.
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

/// Whether an item has failed, and none is in progress.
fn items_have_failed(items: &ItemRecords<StepRecord>) -> bool {
    let mut states = items.spans().map(|(_, item)| &item.forward.state);
    let is_over = |state: &StepState| state.is_failed() || state.is_completed_or_skipped();
    states.clone().any(StepState::is_failed) && states.all(is_over)
}

impl PartState {
    /// The state of a step or item. A step with items has failed if one of them has, and none is in progress. For a step with
    /// items whose undo has started: the state of the first undo, in the
    /// order of the items, that is neither completed nor skipped; of the first undo if there is none. Items whose undo
    /// has not started are ignored.
    #[must_use]
    pub fn of(record: &StepRecord) -> Self {
        let have_failed = record.items.as_ref().is_some_and(items_have_failed);
        match record.shown_undo() {
            Some(undo) => Self::of_undo(undo),
            None if have_failed => Self::Failed,
            None => Self::of_run(&record.forward),
        }
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
        matches!(self, Self::Completed | Self::Skipped)
    }

    /// The rank of the state among those of many items. If there are too many to show, items with a lower rank come first.
    #[must_use]
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Failed | Self::UndoFailed => 0,
            Self::Waiting | Self::UndoWaiting => 1,
            Self::Running | Self::AwaitingCallback | Self::Undoing => 2,
            Self::NotStarted
            | Self::Completed
            | Self::Skipped
            | Self::Undone
            | Self::UndoSkipped => 3,
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

/// The CSS class of a task's state, such as `state-processing`.
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
        let running = json!({ "s": "r", "a": 1, "b": 0 });
        assert_eq!(state(json!({ "s": "c", "a": 1, "x": running })), PartState::Undoing);
        let (done, waiting) = (json!({ "s": "c", "a": 1 }), json!({ "s": "w", "a": 1, "u": 0 }));
        let failed = json!({ "s": "f", "a": 1 });
        let of_items = |undos: &[Option<&Value>]| {
            let item = |undo: &Option<&Value>| match undo {
                Some(undo) => json!({ "s": "c", "a": 1, "x": undo }),
                None => json!({ "s": "c", "a": 1 }),
            };
            let items: Vec<_> = undos.iter().map(item).collect();
            let letters = &"abc"[..items.len()];
            state(json!({ "s": "e", "p": { "n": items.len(), "d": items, "l": letters } }))
        };
        // The first unfinished undo in the order of the items.
        assert_eq!(of_items(&[Some(&done), Some(&waiting)]), PartState::UndoWaiting);
        assert_eq!(of_items(&[Some(&running), Some(&waiting)]), PartState::Undoing);
        assert_eq!(of_items(&[Some(&failed), Some(&waiting)]), PartState::UndoFailed);
        // Items whose undo has not started are ignored.
        assert_eq!(of_items(&[None, Some(&done)]), PartState::Undone);
    }

    #[test]
    fn a_step_with_a_failed_item_has_failed_once_no_item_is_in_progress() {
        let state = |items: [Value; 2]| {
            let record = json!({ "s": "e", "p": { "n": 3, "d": items, "l": "ab" } });
            PartState::of(&serde_json::from_value(record).unwrap())
        };
        let (done, failed) = (json!({ "s": "c", "a": 1 }), json!({ "s": "f", "a": 1 }));
        let running = json!({ "s": "r", "a": 1, "b": 0 });
        assert_eq!(state([done.clone(), failed.clone()]), PartState::Failed);
        assert_eq!(state([running, failed]), PartState::Running);
        assert_eq!(
            state([done, json!({ "s": "c", "a": 2 })]),
            PartState::Running,
            "one has not started"
        );
    }
}
