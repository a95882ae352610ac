//! How invariants are checked, and what they read from the records of a task.

use jiff::Timestamp;

use crate::{
    definition::plan::CompiledStep,
    model::{
        earlier_key::EarlierKey,
        step::{Progress, StepRecord, StepState},
        task::Task,
    },
};

/// An invariant that a task or a decision violates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {invariant}")]
pub struct ViolatedInvariant {
    /// The task, a step, a part of a step, or a message.
    subject: String,
    /// What does not hold.
    invariant: &'static str,
}

/// Each invariant's text, and whether it holds.
pub(super) type Invariants<'a> = &'a [(&'static str, bool)];

pub(super) fn require(
    subject: impl Fn() -> String,
    invariants: Invariants<'_>,
) -> Result<(), ViolatedInvariant> {
    match invariants.iter().find(|(_, holds)| !holds) {
        Some((invariant, _)) => Err(ViolatedInvariant { subject: subject(), invariant }),
        None => Ok(()),
    }
}

/// Whether a part took effect, or may have.
pub(super) fn has_effect(record: &StepRecord) -> bool {
    ran(record) || record.earlier.iter().any(EarlierKey::has_effect)
}

fn ran(record: &StepRecord) -> bool {
    matches!(record.forward.state, StepState::Completed { .. }) || record.forward.may_have_run
}

/// Whether a part has an undo, took effect or may have, and is not undone yet. Each idempotency key has its own undo. That of
/// the key in use comes last, and a completion by hand shares it.
pub(super) fn is_left_to_undo(step: &CompiledStep, record: &StepRecord) -> bool {
    let StepRecord { forward, earlier, undo, .. } = record;
    let is_in_use = |key: &&EarlierKey| {
        (key.agent, &key.input_edit_id) == (forward.agent, &forward.input_edit_id)
    };
    let has_passed = |undo: &Progress| undo.key_since.is_none() && has_passed(&undo.state);
    let is_undone = undo.as_ref().is_some_and(has_passed)
        || earlier.iter().filter(is_in_use).any(|key| key.undone);
    let is_other_left = earlier.iter().any(|key| !is_in_use(&key) && key.has_effect());
    step.undo().is_some() && (is_other_left || ran(record) && !is_undone)
}

pub(super) fn has_passed(state: &StepState) -> bool {
    matches!(state, StepState::Completed { .. } | StepState::Skipped { .. })
}

/// The deadline of the awaited reply, callback or heartbeat, if one is awaited.
pub(super) fn awaited_by(state: &StepState) -> Option<Timestamp> {
    match state {
        StepState::Running { complete_by, .. }
        | StepState::AwaitingCallback { complete_by, .. } => Some(*complete_by),
        StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    }
}

pub(super) fn is_awaited(state: &StepState) -> bool {
    awaited_by(state).is_some()
}

/// Whether an undo has begun. Then nothing cancels it.
pub(super) fn has_begun_undo(task: &Task) -> bool {
    task.undo_is_final || task.part_spans().any(|(_, record)| record.undo.is_some())
}
