//! The effects that are sent again when a message is redelivered.
//!
//! A process may have handled an earlier delivery of a message, and crashed after its save and before it sent the
//! effects. So the effects that the earlier delivery may have lost are sent again. Repeated effects are harmless: the
//! attempt number and the idempotency key identify a request, and a wake depends only on the state of the task.
//!
//! Repeated requests must not cause ever more messages. Each one causes a second reply, which may be redelivered too and then
//! repeats requests itself. If a reply repeated the requests of all items of its step, a few failures in a hundred would
//! make the messages multiply, as long as the failures last. But the reply of an item only frees the place of one item. So
//! it repeats at most [`SIBLINGS_MAX`] of them.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{effect::Effect, task_change::remaining_waits},
    limits,
    model::{
        attempt::Action,
        messages::{ReplyOutcome, StepReply, Wake, WakeCause},
        names::Part,
        task::{ProcessState, Task},
    },
};
use jiff::Timestamp;

/// Returns the attempts in progress that `accepts` accepts. Their requests are sent again. Returns none in a task of which
/// nothing goes on, and no forward step of a task that is being undone: if its request was lost, it has no effect.
pub(crate) fn in_progress(
    task: &Task,
    accepts: impl Fn(&Part, Action, u32) -> bool,
) -> Vec<(Part, Action)> {
    if !task.goes_on() && task.paused_at.is_none() {
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
    if !task.goes_on() {
        return Vec::new();
    }
    let waits = remaining_waits(task, now);
    let in_error = task.process_state == ProcessState::Error;
    let idle = !in_error && task.awaited_attempts().next().is_none() && waits.is_empty();
    let immediate = idle.then_some(Duration::ZERO);
    let afters: BTreeSet<_> = waits
        .into_iter()
        .chain(immediate)
        .filter(|after| *after <= limits::QUEUE_DELAY_MAX)
        .collect();
    afters.into_iter().map(|after| wake(task, WakeCause::Waited, after)).collect()
}

/// Whether an earlier delivery of the reply may have started the newest attempt at once: after an unknown outcome without a pause, at
/// the next agent, or at the undo of the next key.
pub(crate) fn may_have_started_next(task: &Task, reply: &StepReply) -> bool {
    let newest = task.progress(&reply.step, reply.action).map(|run| run.state.attempt_count());
    let without_pause = match reply.outcome {
        ReplyOutcome::Unknown { .. } => true,
        ReplyOutcome::Deferred { certain, .. } => certain,
        ReplyOutcome::Completed { .. } => reply.action == Action::Undo,
        ReplyOutcome::Failed { .. } => false,
    };
    without_pause && newest == reply.attempt.checked_add(1)
}

/// The items of one step whose requests the reply of another item repeats, at most.
const SIBLINGS_MAX: usize = 10;

/// The requests that the earlier delivery of a reply to `part` may have lost, among those in progress that `accepts` accepts.
/// Of the other items of the same step at most [`SIBLINGS_MAX`]. The lost one is probably among the newest. It is among
/// the oldest if the others are answered fast. The replies of one batch, which are redelivered together, add different items
/// between them. What is not repeated, the supervisor finds at its complete-by.
pub(crate) fn after_reply(
    task: &Task,
    part: &Part,
    accepts: impl Fn(&Part, Action, u32) -> bool,
) -> Vec<(Part, Action)> {
    let (mut siblings, mut requests): (Vec<_>, Vec<_>) = in_progress(task, accepts)
        .into_iter()
        .partition(|(other, _)| other.step == part.step && other.item.is_some() && other != part);
    if siblings.len() > SIBLINGS_MAX {
        let complete_by = |(part, action): &(Part, Action)| {
            task.progress(part, *action).and_then(|progress| progress.state.reply_due_by())
        };
        siblings.sort_by_key(complete_by);
        let (ends, between) = (SIBLINGS_MAX / 3, SIBLINGS_MAX - SIBLINGS_MAX / 3 * 2);
        let newest = siblings.split_off(siblings.len() - ends);
        let mut middle = siblings.split_off(ends);
        let first = part.item.map_or(0, |item| item as usize * between) % middle.len();
        middle.rotate_left(first);
        middle.truncate(between);
        siblings.extend(middle.into_iter().chain(newest));
    }
    requests.append(&mut siblings);
    requests
}

/// Creates a wake of the scheduler for `task`.
pub(crate) fn wake(task: &Task, cause: WakeCause, after: Duration) -> Effect {
    Effect::Wake { wake: Wake::new(task.task_id.clone(), cause), after }
}
