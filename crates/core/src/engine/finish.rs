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
        notify::{end_of_task_effects, pending_alert},
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
    if before.resolved_at.is_some() && change.task.steps != before.steps {
        change.task.resolved_at = None;
        // An operator who continues the task knows what it does.
        if change.task.commands == before.commands {
            change.fail_task_again("a step changed after an operator had settled the Error");
        }
    }
    let ends = change.task.process_state.has_stopped() && !before.process_state.has_stopped();
    let ended = ends || change.ends_again();
    if ended {
        change.task.ended_at = Some(now);
        change.task.is_alert_due = change.task.process_state == ProcessState::Error;
        change.task.resolved_at = None;
        if change.task.paused_at.take().is_some() {
            change.schedule_wakes_for_waits();
        }
        if requests.is_empty() {
            change.task.locked_by = None;
        }
    }
    drop_passed_limits(&mut change.task);
    let items = change.task.steps.values_mut().filter_map(|record| record.items.as_mut());
    items.for_each(|items| items.compact(now));
    wake_after_calls(&mut change, before);
    let in_error = change.task.process_state == ProcessState::Error;
    let may_start = now < change.task.complete_by && change.task.pauses().next().is_some();
    if !change.task.goes_on() || in_error && !may_start {
        change.wakes.after.clear();
    }
    change.extend_retention();
    change.recompute_due |= ended;
    change.task.due = due(&change);
    let mut effects = requests;
    if ended {
        effects.extend(end_of_task_effects(change.sources(), before.revision.saturating_add(1)));
    }
    let plan = change.plan();
    if change.is_reopened {
        // The sender of its alert may have died before it was sent.
        effects.extend(pending_alert(before, plan));
    }
    let TaskChange { mut task, documents, ended_during_call, notifications, wakes, .. } = *change;
    let (for_agent, documents): (Vec<_>, _) = documents.into_iter().partition(|document| {
        ended_during_call.is_some() && document.key.attempt() == ended_during_call.as_ref()
    });
    let mut documents = place_documents(&mut task, plan, documents);
    documents.extend(for_agent);
    effects.extend(lifecycle::events_of_change(plan, before, &task, now));
    effects.extend(notifications);
    let Wakes { after, cause } = wakes;
    let wake = |after| Effect::Wake { wake: Wake::new(task.task_id.clone(), cause), after };
    effects.extend(after.into_iter().map(wake));
    Transition::Apply { task: Box::new(task), documents, effects }
}

/// Drops the time limits of the parts that do not go on. If an operator retries one, it gets a new limit.
fn drop_passed_limits(task: &mut Task) {
    for progress in task.progresses_mut() {
        let has_passed = progress.state.is_completed_or_skipped();
        if has_passed || progress.state.is_failed() {
            progress.give_up_at = None;
            progress.set_agent_pauses(Vec::new());
        }
        progress.key_valid_until = progress.key_valid_until.filter(|_| !has_passed);
    }
}

/// Adds one wake for each call that the undo waits for since this change.
fn wake_after_calls(change: &mut TaskChange<'_>, before: &Task) {
    let now = change.now();
    if change.task.process_state == ProcessState::Error {
        return;
    }
    let known_waits: BTreeSet<_> = before.undo_blocked_until(now).collect();
    let new: Vec<_> =
        change.task.undo_blocked_until(now).filter(|until| !known_waits.contains(until)).collect();
    for until in new {
        change.wakes.after(pause_until(until, now));
    }
}

/// Returns the time at which the supervisor has to look at the task, or `None` if the task needs no supervision.
fn due(change: &TaskChange<'_>) -> Option<Timestamp> {
    let (task, now) = (&change.task, change.now());
    let pickup_within = change.inputs.context.timing.pickup_within;
    let soon = later(now, pickup_within);
    let deadline = match task.process_state {
        ProcessState::Pending if task.paused_at.is_none() => {
            Some(task.earliest_deadline(now, pickup_within).min(soon))
        }
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
            Some(task.earliest_deadline(now, pickup_within))
        }
        // The supervisor publishes the alert if this process crashes.
        ProcessState::Error if task.is_alert_due => {
            Some(task.deadline_in_error(now, pickup_within).unwrap_or(soon).min(soon))
        }
        ProcessState::Error => task.deadline_in_error(now, pickup_within),
        ProcessState::Processed | ProcessState::Undone => None,
    };
    let late_from = change.plan().late_from(task);
    let deadline = deadline.map(|deadline| late_from.map_or(deadline, |late| late.min(deadline)));
    let woken = change.wakes.after.first().map(|first| later(later(now, *first), pickup_within));
    let before = task.due.filter(|_| !change.recompute_due);
    deadline.map(|deadline| woken.into_iter().chain(before).fold(deadline, Timestamp::min))
}
