//! Continues a task in its current direction, forward or backward.

use crate::{
    engine::{documents::LoadedDocuments, task_change::Inputs},
    engine::{forward, task_change::TaskChange, undo, values::DocumentCache},
    model::{
        messages::WakeCause,
        task::{ProcessState, Task},
    },
};

/// Starts the steps or undos that can start, and ends the task if nothing remains. Nothing starts in a paused task.
pub(crate) fn advance(change: &mut TaskChange<'_>) {
    if change.task.paused_at.is_some() {
        return;
    }
    match change.task.process_state {
        ProcessState::Pending | ProcessState::Processing => forward::advance(change),
        ProcessState::Undoing => undo::advance(change),
        ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {}
    }
}

/// Whether there is anything to start, or a document is needed to decide that. Reads no document itself.
pub(crate) fn has_work_to_start(inputs: Inputs<'_>, task: &Task) -> bool {
    let no_documents = LoadedDocuments::new();
    let cache = DocumentCache::new(&no_documents);
    let mut trial = TaskChange::new(Inputs { documents: &cache, ..inputs }, task);
    advance(&mut trial);
    let has_changed = trial.task != *task;
    drop(trial);
    has_changed || !cache.needed().is_empty()
}

/// Schedules a wake of the scheduler if there is anything to start. The supervisor itself starts nothing.
pub(crate) fn request_recovery(change: &mut TaskChange<'_>) {
    change.wakes.cause = WakeCause::Recovery;
    if has_work_to_start(change.inputs, &change.task) {
        change.wakes.at_once();
    }
}
