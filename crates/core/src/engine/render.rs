//! The second phase of a decision: renders the requests of the started parts.

use crate::{
    engine::{
        agent_choice,
        effect::Effect,
        outcome,
        request::render_request,
        task_change::{StartedPart, TaskChange},
        values::ValueError,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        names::Part,
        step::Progress,
    },
};

/// Renders the requests of the started parts. If one of them cannot be rendered, its step fails, and nothing starts.
pub(crate) fn render_requests(change: &mut TaskChange<'_>) -> Vec<Effect> {
    // The submission of a child task contains the child's retention.
    change.extend_retention();
    let starts = std::mem::take(&mut change.starts);
    let mut unrenderable = std::mem::take(&mut change.unrenderable);
    let (mut requests, mut postponed, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for start in &starts {
        if bytes >= limits::DECISION_BYTES_MAX {
            postponed.push(start);
            continue;
        }
        let StartedPart { part, action, .. } = start;
        let rendered = agent_choice::choose(change, part, *action)
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
        cancel_starts(change, &starts, unrenderable);
        return Vec::new();
    }
    if !postponed.is_empty() {
        // The requests exceed the memory limit of one decision. The next decision continues with the rest.
        postponed.into_iter().for_each(|start| revert_start(change, start));
        change.wakes.at_once();
    }
    requests
}

/// Fails the steps whose request cannot be rendered permanently, and cancels all other starts.
fn cancel_starts(
    change: &mut TaskChange<'_>,
    starts: &[StartedPart],
    unrenderable: Vec<(Part, Action, String)>,
) {
    for start in starts {
        if !unrenderable.iter().any(|(part, of, _)| (part, *of) == (&start.part, start.action)) {
            revert_start(change, start);
        }
    }
    for (step, action, reason) in unrenderable {
        let number = change.task.progress(&step, action).map_or(1, |p| p.state.attempt_count());
        outcome::fail(change, AttemptId { step, action, number }, &reason, false);
    }
    // The documents for an undo are not loaded yet, so the scheduler continues with the next wake.
    change.wakes.at_once();
}

/// Restores the progress of a part just before its start. What the decision recorded of it before stays: a reply, or an
/// operator's command; and so does what the end of its child task's retention means.
fn revert_start(change: &mut TaskChange<'_>, StartedPart { part, action, before }: &StartedPart) {
    match (action, before, change.task.part_record_mut(part)) {
        (Action::Do, Some(before), Some(record)) => {
            let child_revision = record.forward.child_revision;
            record.forward = Progress { child_revision, ..before.clone() };
        }
        (Action::Undo, before, Some(record)) => record.undo.clone_from(before),
        (Action::Do, None, _) => drop(change.task.steps.remove(&part.step)),
        (_, _, None) => {}
    }
}
