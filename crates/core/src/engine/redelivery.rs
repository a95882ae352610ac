//! What is sent again when a message arrives once more.
//!
//! A message that was delivered before may have been acted on by a process that died after its save and before its effects were
//! sent. So the effects that the first delivery may have lost are sent again. What comes twice is fenced: a request by its
//! attempt and idempotency key, a wake by the state of the task.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{change::waits, effect::Effect},
    limits,
    model::{
        attempt::Action,
        messages::{Wake, WakeCause},
        names::Part,
        task::Task,
    },
};
use jiff::Timestamp;

/// The attempts in progress that `wanted` accepts: their requests are sent again. None in a task that has stopped, and no
/// step of a task that is being undone: if its request was lost, it has no effect.
pub(crate) fn in_progress(
    task: &Task,
    wanted: impl Fn(&Part, Action, u32) -> bool,
) -> Vec<(Part, Action)> {
    if task.process_state.is_final() {
        return Vec::new();
    }
    let direction = task.direction();
    task.running()
        .filter(|(name, action, number, _)| *action == direction && wanted(name, *action, *number))
        .map(|(name, action, ..)| (name, action))
        .collect()
}

/// The wakes that the last save of a task may have sent: one for each wait, and one for what a scheduler left to the next
/// decision.
pub(crate) fn wakes(task: &Task, now: Timestamp) -> Vec<Effect> {
    if task.process_state.is_final() || task.paused_at.is_some() {
        return Vec::new();
    }
    let waits = waits(task, now);
    let idle = task.awaited().next().is_none() && waits.is_empty();
    let left = idle.then_some(Duration::ZERO);
    let afters: BTreeSet<_> =
        waits.into_iter().chain(left).filter(|after| *after <= limits::QUEUE_DELAY_MAX).collect();
    afters.into_iter().map(|after| wake(task, WakeCause::Waited, after)).collect()
}

/// A wake of the scheduler for `task`.
pub(crate) fn wake(task: &Task, cause: WakeCause, after: Duration) -> Effect {
    Effect::Wake { wake: Wake { task_id: task.task_id.clone(), cause }, after }
}
