//! The effects that are sent again when a message is redelivered.
//!
//! A process may have handled an earlier delivery of a message, and crashed after its save and before it sent the
//! effects. So the effects that the earlier delivery may have lost are sent again. Repeated effects are harmless: the
//! attempt number and the idempotency key identify a request, and a wake depends only on the state of the task.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{effect::Effect, task_change::remaining_waits},
    limits,
    model::{
        attempt::Action,
        messages::{Wake, WakeCause},
        names::Part,
        task::Task,
    },
};
use jiff::Timestamp;

/// Returns the attempts in progress that `accepts` accepts. Their requests are sent again. Returns none in an ended
/// task, and no forward step of a task that is being undone: if its request was lost, it has no effect.
pub(crate) fn in_progress(
    task: &Task,
    accepts: impl Fn(&Part, Action, u32) -> bool,
) -> Vec<(Part, Action)> {
    if task.process_state.is_final() {
        return Vec::new();
    }
    let direction = task.direction();
    task.running_attempts()
        .filter(|(name, action, number, _)| *action == direction && accepts(name, *action, *number))
        .map(|(name, action, ..)| (name, action))
        .collect()
}

/// Returns the wakes that the last save of a task may have sent: one for each wait, and one for starts that were
/// postponed to the next decision.
pub(crate) fn wakes(task: &Task, now: Timestamp) -> Vec<Effect> {
    if task.process_state.is_final() || task.paused_at.is_some() {
        return Vec::new();
    }
    let waits = remaining_waits(task, now);
    let idle = task.awaited_attempts().next().is_none() && waits.is_empty();
    let immediate = idle.then_some(Duration::ZERO);
    let afters: BTreeSet<_> = waits
        .into_iter()
        .chain(immediate)
        .filter(|after| *after <= limits::QUEUE_DELAY_MAX)
        .collect();
    afters.into_iter().map(|after| wake(task, WakeCause::Waited, after)).collect()
}

/// Creates a wake of the scheduler for `task`.
pub(crate) fn wake(task: &Task, cause: WakeCause, after: Duration) -> Effect {
    Effect::Wake { wake: Wake { task_id: task.task_id.clone(), cause }, after }
}
