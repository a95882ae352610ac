//! The second phase of a decision: renders the requests of the started parts.

use crate::{
    engine::{
        agent_in_use, effect::Effect, outcome, request::render_request, task_change::TaskChange,
        values::ValueError,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        names::Part,
        step::{Progress, StepState},
        task::Task,
    },
};

/// Renders the requests of the started parts. If one of them cannot be rendered, its step fails, and nothing starts.
pub(crate) fn render_requests(change: &mut TaskChange<'_>, before: &Task) -> Vec<Effect> {
    // The submission of a child task contains the child's retention.
    change.extend_retention();
    let starts = std::mem::take(&mut change.starts);
    let mut unrenderable = std::mem::take(&mut change.unrenderable);
    let (mut requests, mut postponed, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for (part, action) in &starts {
        if bytes >= limits::DECISION_BYTES_MAX {
            postponed.push((part.clone(), *action));
            continue;
        }
        let rendered = agent_in_use::choose(change, part)
            .and_then(|()| render_request(change.sources(), part, *action));
        match rendered {
            Ok(request) => {
                bytes = bytes.saturating_add(request.estimated_bytes());
                requests.push(request);
            }
            Err(ValueError::Invalid(reason)) => unrenderable.push((part.clone(), *action, reason)),
            Err(ValueError::NotLoaded) => {}
        }
    }
    if !unrenderable.is_empty() {
        cancel_starts(change, before, &starts, unrenderable);
        return Vec::new();
    }
    if !postponed.is_empty() {
        // The requests exceed the memory limit of one decision. The next decision continues with the rest.
        postponed.iter().for_each(|(part, action)| revert_start(change, before, part, *action));
        change.wakes.at_once();
    }
    requests
}

/// Fails the steps whose request cannot be rendered permanently, and cancels all other starts.
fn cancel_starts(
    change: &mut TaskChange<'_>,
    before: &Task,
    starts: &[(Part, Action)],
    unrenderable: Vec<(Part, Action, String)>,
) {
    for (part, action) in starts {
        if unrenderable.iter().any(|(failed, of, _)| failed == part && of == action) {
            continue;
        }
        revert_start(change, before, part, *action);
    }
    for (step, action, reason) in unrenderable {
        let number = change.task.progress(&step, action).map_or(1, |p| p.state.attempt_count());
        outcome::fail(change, AttemptId { step, action, number }, &reason, false);
    }
    // The documents for an undo are not loaded yet, so the scheduler continues with the next wake.
    change.wakes.at_once();
}

/// Restores the state of a part before the change.
fn revert_start(change: &mut TaskChange<'_>, before: &Task, part: &Part, action: Action) {
    let old = before.record(part);
    let now = change.now();
    let not_started = Progress::new(StepState::waiting(None, now));
    match (action, old, change.task.part_record_mut(part)) {
        // The change recorded the reply to the attempt before.
        (Action::Do, Some(old), Some(record))
            if old.run.state.is_running()
                && old.run.state.newest_attempt() != record.run.state.newest_attempt() =>
        {
            record.run.state = StepState::waiting(old.run.state.newest_attempt(), now);
        }
        (Action::Do, Some(old), Some(record)) => record.run = old.run.clone(),
        (Action::Do, None, Some(record)) if part.item.is_some() => record.run = not_started,
        (Action::Do, None, _) => drop(change.task.steps.remove(&part.step)),
        (Action::Undo, _, Some(record)) => record.undo = old.and_then(|r| r.undo.clone()),
        (_, _, None) => {}
    }
}
