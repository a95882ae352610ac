//! The third phase of a decision: what every change needs. It sets the end and the due time of the task, adds the
//! notifications of the end and the wakes of the scheduler, and makes the records of items and the small documents fit
//! for the task's item.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::{
    engine::{
        decision::Transition,
        effect::Effect,
        lifecycle,
        notify::end_of_task_effects,
        placement::place_documents,
        task_change::{TaskChange, Wakes, pause_until},
    },
    model::{
        messages::Wake,
        task::{ProcessState, Task},
        time::later,
    },
};

/// Completes the change of the task `before` into a transition. `requests` are the rendered requests.
pub(crate) fn finish(
    mut change: Box<TaskChange<'_>>,
    before: &Task,
    requests: Vec<Effect>,
) -> Transition {
    let now = change.now();
    let has_stopped = change.task.process_state.has_stopped();
    let ended = has_stopped && (!before.process_state.has_stopped() || change.reports_end_again);
    if ended {
        change.task.ended_at = Some(now);
        change.task.locked_by = None;
        change.task.paused_at = None;
    }
    let items = change.task.steps.values_mut().filter_map(|record| record.items.as_mut());
    items.for_each(|items| items.compact(now));
    wake_after_calls(&mut change, before);
    if has_stopped || change.task.paused_at.is_some() {
        change.wakes.after.clear();
    }
    change.extend_retention();
    change.task.due = due(&change, ended);
    let mut effects = requests;
    if ended {
        effects.extend(end_of_task_effects(change.sources(), before.revision.saturating_add(1)));
    }
    let plan = change.plan();
    let TaskChange { mut task, documents, notifications, wakes, .. } = *change;
    let documents = place_documents(&mut task, plan, documents);
    effects.extend(lifecycle::events_of_change(plan, before, &task, now));
    effects.extend(notifications);
    let Wakes { after, cause } = wakes;
    let wake = |after| Effect::Wake { wake: Wake { task_id: task.task_id.clone(), cause }, after };
    effects.extend(after.into_iter().map(wake));
    Transition::Apply { task: Box::new(task), documents, effects }
}

/// Adds one wake for each call that the undo waits for since this change.
fn wake_after_calls(change: &mut TaskChange<'_>, before: &Task) {
    let now = change.now();
    let known_waits: BTreeSet<_> = before.undo_blocked_until(now).collect();
    let new: Vec<_> =
        change.task.undo_blocked_until(now).filter(|until| !known_waits.contains(until)).collect();
    for until in new {
        change.wakes.after(pause_until(until, now));
    }
}

/// Returns the time at which the supervisor has to look at the task, or `None` if the task needs no supervision.
fn due(change: &TaskChange<'_>, ended: bool) -> Option<Timestamp> {
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
            let before = task.due.filter(|_| !change.recompute_due);
            Some(before.map_or(deadline, |due| due.min(deadline)))
        }
        ProcessState::Processed | ProcessState::Undone => None,
        // Due until the alert is published, so that the supervisor publishes it after a crash.
        ProcessState::Error if ended => Some(later(now, pickup_within)),
        ProcessState::Error => task.due,
    }
}
