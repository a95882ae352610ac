//! Lets a task go on in the direction in which it goes.

use crate::{
    engine::{change::Change, compensate, forward, values::DocumentCache},
    engine::{change::Inputs, documents::Documents},
    model::{
        messages::WakeCause,
        task::{ProcessState, Task},
    },
};

/// Starts what can start, forward or backward, and ends the task if nothing is left. Nothing starts in a paused task.
pub(crate) fn advance(change: &mut Change<'_>) {
    if change.task.paused_at.is_some() {
        return;
    }
    match change.task.process_state {
        ProcessState::Pending | ProcessState::Processing => forward::advance(change),
        ProcessState::Undoing => compensate::advance(change),
        ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {}
    }
}

/// Whether there is anything to start, or to find out by reading a document. Reads no document itself.
pub(crate) fn would_go_on(inputs: Inputs<'_>, task: &Task) -> bool {
    let nothing = Documents::new();
    let cache = DocumentCache::new(&nothing);
    let mut trial = Change::of(Inputs { documents: &cache, ..inputs }, task);
    advance(&mut trial);
    let goes_on = trial.task != *task;
    drop(trial);
    goes_on || !cache.wanted().is_empty()
}

/// Has the supervisor wake the scheduler if there is anything to start. It starts nothing itself.
pub(crate) fn request_recovery(change: &mut Change<'_>) {
    change.wakes.cause = WakeCause::Recovery;
    if would_go_on(change.inputs, &change.task) {
        change.wakes.at_once();
    }
}
