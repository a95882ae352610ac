//! The second phase of a decision: makes the requests of what starts.

use crate::{
    engine::{change::Change, effect::Effect, outcome, request::request, values::NoValue},
    limits,
    model::{
        attempt::{Action, Attempt},
        names::Part,
        step::{Progress, StepState},
        task::Task,
    },
};

/// Makes the requests of what starts. If one of them cannot be made, its step fails, and nothing starts.
pub(crate) fn render(change: &mut Change<'_>, before: &Task) -> Vec<Effect> {
    // The submission of a child task says how long the child is kept.
    change.extend_retention();
    let starts = std::mem::take(&mut change.starts);
    let mut impossible = std::mem::take(&mut change.impossible);
    let (mut requests, mut put_off, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for (part, action) in &starts {
        if bytes >= limits::DECISION_BYTES_MAX {
            put_off.push((part.clone(), *action));
            continue;
        }
        match request(change.sources(), part, *action) {
            Ok(request) => {
                bytes = bytes.saturating_add(request.bytes());
                requests.push(request);
            }
            Err(NoValue::Because(reason)) => impossible.push((part.clone(), *action, reason)),
            Err(NoValue::Wanted) => {}
        }
    }
    if !impossible.is_empty() {
        withdraw(change, before, &starts, impossible);
        return Vec::new();
    }
    if !put_off.is_empty() {
        // The requests exceed what one decision may hold in memory: the next decision continues with the rest.
        put_off.iter().for_each(|(part, action)| revert_start(change, before, part, *action));
        change.wakes.at_once();
    }
    requests
}

/// A request that cannot be made is a permanent failure of its step, and then nothing else starts
/// either.
fn withdraw(
    change: &mut Change<'_>,
    before: &Task,
    starts: &[(Part, Action)],
    impossible: Vec<(Part, Action, String)>,
) {
    for (part, action) in starts {
        if impossible.iter().any(|(failed, of, _)| failed == part && of == action) {
            continue;
        }
        revert_start(change, before, part, *action);
    }
    for (step, action, reason) in impossible {
        let number = change.task.progress(&step, action).map_or(1, |p| p.state.attempt());
        outcome::fail(change, Attempt { step, action, number }, &reason, false);
    }
    // The documents that an undo reads have not been read yet: the scheduler continues from here.
    change.wakes.at_once();
}

/// Puts a part back to its state before the change.
fn revert_start(change: &mut Change<'_>, before: &Task, part: &Part, action: Action) {
    let old = before.record(part);
    let not_begun = Progress::new(StepState::waiting(0, change.now()));
    match (action, old, change.task.record_mut(part)) {
        (Action::Do, Some(old), Some(record)) => record.run = old.run.clone(),
        (Action::Do, None, Some(record)) if part.item.is_some() => record.run = not_begun,
        (Action::Do, None, _) => drop(change.task.steps.remove(&part.step)),
        (Action::Undo, _, Some(record)) => record.undo = old.and_then(|r| r.undo.clone()),
        (_, _, None) => {}
    }
}
