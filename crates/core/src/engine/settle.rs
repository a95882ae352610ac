//! The third phase of a decision: the conclusions that hold for every change. The end of the task, its due time, the
//! notifications of its end, and the wakes of the scheduler.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::{
    engine::{
        change::{Change, Wakes, pause_until},
        decision::Transition,
        effect::Effect,
        notify::ending,
    },
    model::{
        messages::Wake,
        task::{ProcessState, Task},
        time::later,
    },
};

/// Concludes a change of `before`, whose requests are these.
pub(crate) fn settle(
    mut change: Box<Change<'_>>,
    before: &Task,
    requests: Vec<Effect>,
) -> Transition {
    let now = change.now();
    let is_final = change.task.process_state.is_final();
    let ended = is_final && (!before.process_state.is_final() || change.ends_again);
    if ended {
        change.task.ended_at = Some(now);
        change.task.locked_by = None;
        change.task.paused_at = None;
    }
    wake_after_calls(&mut change, before);
    if is_final || change.task.paused_at.is_some() {
        change.wakes.after.clear();
    }
    change.extend_retention();
    change.task.due = due(&change, ended);
    let mut effects = requests;
    if ended {
        effects.extend(ending(change.sources()));
    }
    let Change { task, documents, notifications, wakes, .. } = *change;
    effects.extend(notifications);
    let Wakes { after, cause } = wakes;
    let wake = |after| Effect::Wake { wake: Wake { task_id: task.task_id.clone(), cause }, after };
    effects.extend(after.into_iter().map(wake));
    Transition::Apply { task: Box::new(task), documents, effects }
}

/// Adds one wake for each call that the undo has begun to wait for.
fn wake_after_calls(change: &mut Change<'_>, before: &Task) {
    let now = change.now();
    let waited_before: BTreeSet<_> = before.undo_waits(now).collect();
    let new: Vec<_> =
        change.task.undo_waits(now).filter(|until| !waited_before.contains(until)).collect();
    for until in new {
        change.wakes.after(pause_until(until, now));
    }
}

/// When the supervisor has to look at the task; never if nothing is left to look after.
fn due(change: &Change<'_>, ended: bool) -> Option<Timestamp> {
    let (task, now) = (&change.task, change.now());
    let pickup_within = change.inputs.context.timing.pickup_within;
    let mut deadline = task.earliest_deadline(now, pickup_within);
    if task.process_state == ProcessState::Pending && task.paused_at.is_none() {
        deadline = deadline.min(later(now, pickup_within));
    }
    if let Some(first) = change.wakes.after.first() {
        deadline = deadline.min(later(later(now, *first), pickup_within));
    }
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
            let before = task.due.filter(|_| !change.due_anew);
            Some(before.map_or(deadline, |due| due.min(deadline)))
        }
        ProcessState::Processed | ProcessState::Undone => None,
        // Due until the alert is published, so that the supervisor publishes it after a crash.
        ProcessState::Error if ended => Some(later(now, pickup_within)),
        ProcessState::Error => task.due,
    }
}
