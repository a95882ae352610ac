//! Continues a task in its current direction, forward or backward.

use crate::{
    engine::{documents::LoadedDocuments, task_change::Inputs},
    engine::{forward, task_change::TaskChange, undo, values::DocumentCache},
    model::{
        messages::WakeCause,
        task::{ProcessState, Task},
    },
};

/// Starts the steps or undos that can start, and ends the task if nothing remains. In Error, only what has started goes on.
/// Nothing starts in a paused task.
pub(crate) fn advance(change: &mut TaskChange<'_>) {
    if !change.task.goes_on() {
        return;
    }
    match change.task.process_state {
        ProcessState::Pending | ProcessState::Processing => forward::advance(change),
        ProcessState::Undoing => undo::advance(change),
        ProcessState::Error => continue_started_parts(change),
        ProcessState::Processed | ProcessState::Undone => {}
    }
}

/// Starts the next attempts of the parts that have started.
fn continue_started_parts(change: &mut TaskChange<'_>) {
    let action = change.task.direction();
    if change.now() >= change.task.complete_by {
        return;
    }
    for part in change.parts_ready_to_start(action) {
        let run = change.task.progress(&part, action);
        if run.is_some_and(|run| run.state.newest_attempt().is_some()) {
            change.start(part, action);
        }
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
