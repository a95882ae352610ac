//! The right-hand sides of a story: what was saved, then what was sent, and only what changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    effects::Effect,
    events::{BusEvent, Happened, TaskTrouble},
    messages::{Action, StepRequest},
    names::StepName,
    ports::{Attempt, Document, DocumentKey},
    task::{Progress, StepState, Task},
    workflow::Workflow,
};

/// The documents of one decision that have not been said yet.
type Kept<'a> = BTreeMap<DocumentKey, &'a Document>;

pub(super) fn said_saved(
    workflow: &Workflow,
    before: &Task,
    after: &Task,
    documents: &[Document],
    effects: &[Effect],
    now: Timestamp,
) -> Vec<String> {
    let mut said = said_task(before, after);
    let mut kept: Kept<'_> = documents.iter().map(|made| (made.key.clone(), made)).collect();
    for name in workflow.steps.keys() {
        for action in [Action::Do, Action::Undo] {
            let (old, new) = (before.progress(name, action), after.progress(name, action));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                let requested = is_requested(effects, name, action, new.state.attempt());
                let of = Attempt { step: name.clone(), action, number: new.state.attempt() };
                said.extend(said_progress(of, old, new, &mut kept, requested, now));
            }
        }
    }
    said.extend(kept.values().map(|Document { key, body, .. }| match key {
        DocumentKey::Input(_) => format!("input {} kept", body["input"]),
        DocumentKey::Submission
        | DocumentKey::Output(_)
        | DocumentKey::Failure(_)
        | DocumentKey::Deferral(_)
        | DocumentKey::Claim(_) => format!("document {key}"),
    }));
    if before.locked_by.is_some() && after.locked_by.is_none() && !after.process_state.is_final() {
        said.push("unlocked".to_owned());
    }
    if after.due != before.due {
        said.push(said_due(after));
    }
    if said.is_empty() && effects.is_empty() {
        said.push("nothing".to_owned());
    }
    said
}

/// What became of the task as a whole.
fn said_task(before: &Task, after: &Task) -> Vec<String> {
    let mut said = Vec::new();
    let reason = after.undo_reason.as_ref().filter(|_| after.undo_reason != before.undo_reason);
    let reason = reason.map(|reason| format!(" because \"{reason}\"")).unwrap_or_default();
    if after.process_state != before.process_state || !reason.is_empty() {
        said.push(format!("{}{reason}", after.process_state));
    }
    if after.complete_by != before.complete_by {
        said.push(format!("task by {}", since_start(after.complete_by)));
    }
    if after.paused_at.is_some() != before.paused_at.is_some() {
        said.push(if after.paused_at.is_some() { "paused" } else { "no longer paused" }.to_owned());
    }
    said
}

fn is_requested(effects: &[Effect], name: &StepName, of: Action, number: u32) -> bool {
    effects.iter().any(|effect| {
        let Effect::Request(StepRequest { step, action, attempt, .. }) = effect else {
            return false;
        };
        step == name && *action == of && *attempt == number
    })
}

/// `reserve waiting until 25s (failures 1, may have run, reason kept)`. What runs is said by its
/// request.
fn said_progress(
    of: Attempt,
    old: Option<&Progress>,
    new: &Progress,
    kept: &mut Kept<'_>,
    requested: bool,
    now: Timestamp,
) -> Option<String> {
    let mut details = Vec::new();
    if new.failure_count != old.map_or(0, |old| old.failure_count) {
        details.push(format!("failures {}", new.failure_count));
    }
    match (old.is_some_and(|old| old.may_have_run), new.may_have_run) {
        (false, true) => details.push("may have run".to_owned()),
        (true, false) => details.push("did not run".to_owned()),
        (false, false) | (true, true) => {}
    }
    if kept.remove(&DocumentKey::Output(of.clone())).is_some() {
        details.push("output kept".to_owned());
    }
    let mut reason_kept = kept.remove(&DocumentKey::Failure(of.clone())).is_some();
    reason_kept |= kept.remove(&DocumentKey::Deferral(of.clone())).is_some();
    if reason_kept {
        details.push("reason kept".to_owned());
    }
    if requested && details.is_empty() {
        return None;
    }
    let mut said = said_state(&of, &new.state);
    match &new.state {
        StepState::Running { attempt, .. } if !requested => said.push_str(&format!(" #{attempt}")),
        StepState::Waiting { until, .. } if *until != now => {
            said.push_str(&format!(" until {}", since_start(*until)));
        }
        StepState::Running { .. }
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => {}
    }
    if !details.is_empty() {
        said.push_str(&format!(" ({})", details.join(", ")));
    }
    Some(said)
}

fn said_state(of: &Attempt, state: &StepState) -> String {
    match (of.action, state) {
        (Action::Do, _) => format!("{} {}", of.step, state.name()),
        (Action::Undo, StepState::Completed { .. }) => format!("{} undone", of.step),
        (Action::Undo, _) => format!("undo of {} {}", of.step, state.name()),
    }
}

/// What is sent, in an order of its own: the core promises none.
pub(super) fn said_sent(workflow: &Workflow, effects: &[Effect]) -> Vec<String> {
    let place = |effect: &Effect| match effect {
        Effect::Request(StepRequest { step, .. }) => (0, workflow.steps.get_index_of(step)),
        Effect::Notice { .. } => (1, None),
        Effect::Publish(event) if event.is_task_alert() => (2, None),
        Effect::Publish(_) => (3, None),
        Effect::Wake { .. } | Effect::Reply(_) | Effect::Reject { .. } => (4, None),
    };
    let mut effects: Vec<_> = effects.iter().collect();
    effects.sort_by_key(|effect| place(effect));
    effects.into_iter().map(said_effect).collect()
}

fn said_effect(effect: &Effect) -> String {
    match effect {
        Effect::Request(request) => said_request(request),
        Effect::Wake { after, .. } if after.is_zero() => "wake scheduler".to_owned(),
        Effect::Wake { after, .. } => {
            format!("wake scheduler in {}s", after.as_secs_f64())
        }
        Effect::Notice { queue, notice } => {
            let status = json!(notice.status);
            let status = status.as_str().unwrap_or_default();
            let reason = notice.reason.iter().map(|reason| format!(" \"{reason}\""));
            format!("notice to {queue}: {status}{}", reason.collect::<String>())
        }
        Effect::Publish(BusEvent { data, .. }) => said_event(data),
        Effect::Reply(_) | Effect::Reject { .. } => format!("{effect:?}"),
    }
}

fn said_event(event: &Happened) -> String {
    let trouble = |TaskTrouble { steps, reason, .. }: &TaskTrouble| {
        let steps: Vec<_> = steps.iter().map(StepName::as_str).collect();
        let steps = if steps.is_empty() { String::new() } else { format!(" {}", steps.join(", ")) };
        format!("{steps} \"{reason}\"")
    };
    match event {
        Happened::TaskInError(error) => format!("alert{}", trouble(error)),
        Happened::UndoFailed(error) => format!("alert: left to undo{}", trouble(error)),
        Happened::TaskEnded { process_state, .. } => format!("event: ended in {process_state}"),
        Happened::OperatorCommand { command, refused: None, .. } => format!("told: {command}"),
        Happened::OperatorCommand { refused: Some(refused), .. } => format!("refused: {refused}"),
        Happened::BreakerOpened(_)
        | Happened::SubmissionRefused { .. }
        | Happened::MessageCorrupt { .. }
        | Happened::DeadLetterSeen { .. }
        | Happened::BreakerClosed(_) => format!("{event:?}"),
    }
}

/// `request charge #1 by 35s at /path with {"body":1}`; a path that is just the step's name, or that
/// and `undo`, is not said, and neither is the usual idempotency key.
fn said_request(request: &StepRequest) -> String {
    let StepRequest { step, action, attempt, complete_by, path, body, .. } = request;
    let (of, usual) = match action {
        Action::Do => ("", format!("/{step}")),
        Action::Undo => ("undo of ", format!("/{step}/undo")),
    };
    let mut said = format!("request {of}{step} #{attempt} by {}", since_start(*complete_by));
    if *path != usual {
        said.push_str(&format!(" at {path}"));
    }
    if let Some(body) = body {
        said.push_str(&format!(" with {body}"));
    }
    let key = &request.idempotency_key;
    if *key != format!("{}/{step}/{}", request.task_id, action.name()) {
        said.push_str(&format!(" under key {key}"));
    }
    said
}

pub(super) fn said_due(task: &Task) -> String {
    task.due.map_or("no longer due".to_owned(), |due| format!("due {}", since_start(due)))
}

/// A time as stories write it: `63s` after the start.
fn since_start(time: Timestamp) -> String {
    let millis = time.as_millisecond();
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}
