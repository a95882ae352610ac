//! The right-hand sides of a story: what was saved, then what was sent, and only what changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    definition::workflow::Workflow,
    engine::effect::Effect,
    model::{
        attempt::{Action, Attempt},
        document::{Document, DocumentKey},
        events::{BusEvent, Happened, TaskTrouble},
        messages::{ChildEnded, ChildOutcome, StepRequest, Submission},
        names::{Part, StepName},
        step::{Progress, StepState},
        task::Task,
    },
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
        said.extend(said_items(name, before, after));
        let parts = after.steps.get(name).into_iter().flat_map(|record| record.parts(name));
        for (part, action) in
            parts.flat_map(|(part, _)| [(part.clone(), Action::Do), (part, Action::Undo)])
        {
            let (old, new) = (before.progress(&part, action), after.progress(&part, action));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                let requested = is_requested(effects, &part, action, new.state.attempt());
                let of = Attempt { step: part, action, number: new.state.attempt() };
                said.extend(said_progress(of, old, new, &mut kept, requested, now));
            }
        }
    }
    said.extend(kept.values().map(|Document { key, body, .. }| match key {
        DocumentKey::Input(_) => format!("input {} kept", body["input"]),
        DocumentKey::Result(_) => format!("returns {body}"),
        DocumentKey::Submission
        | DocumentKey::Output(_)
        | DocumentKey::ByHand(..)
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

/// `ship completed, 3 items`: of the step, not of its items.
fn said_items(name: &StepName, before: &Task, after: &Task) -> Option<String> {
    let record = after.steps.get(name)?;
    let items = record.items.as_ref()?;
    let old = before.steps.get(name).map(|record| &record.run.state);
    let count = items.count;
    (old != Some(&record.run.state))
        .then(|| format!("{name} {}, {count} items", record.run.state.name()))
}

fn is_requested(effects: &[Effect], part: &Part, of: Action, number: u32) -> bool {
    effects.iter().any(|effect| match effect {
        Effect::Request(StepRequest { step, action, attempt, .. }) => {
            step == part && *action == of && *attempt == number
        }
        Effect::Submit(submission) => {
            let asked = if submission.undo { Action::Undo } else { Action::Do };
            submission.parent.as_ref().is_some_and(|parent| parent.step == *part) && asked == of
        }
        Effect::Ask(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Notice { .. }
        | Effect::Reject { .. }
        | Effect::Publish(_) => false,
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
    let until = new.in_progress_until;
    if until != old.and_then(|old| old.in_progress_until) {
        details.extend(until.map(|until| format!("call may last until {}", since_start(until))));
    }
    let by_hand = new.completed_by.clone().map(|by| DocumentKey::ByHand(of.clone(), by));
    if kept.remove(&by_hand.unwrap_or_else(|| DocumentKey::Output(of.clone()))).is_some() {
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
        StepState::HandedOut { complete_by, .. } => {
            said.push_str(&format!(" until {}", since_start(*complete_by)));
        }
        StepState::Running { .. }
        | StepState::Each
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
        Effect::Request(StepRequest { step, .. }) => {
            (0, workflow.steps.get_index_of(&step.step), step.item)
        }
        Effect::Submit(Submission { parent, .. }) => {
            let part = parent.as_ref().map(|parent| &parent.step);
            let step = part.and_then(|part| workflow.steps.get_index_of(&part.step));
            (0, step, part.and_then(|part| part.item))
        }
        Effect::Notice { .. } => (1, None, None),
        Effect::Publish(event) if event.is_task_alert() => (2, None, None),
        Effect::Publish(_) => (3, None, None),
        Effect::ChildEnded(_) => (4, None, None),
        Effect::Wake { .. } | Effect::Reply(_) | Effect::Reject { .. } | Effect::Ask(_) => {
            (5, None, None)
        }
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
            let output = notice.output.iter().map(|output| format!(" with {output}"));
            let more: String = reason.chain(output).collect();
            format!("notice to {queue}: {status}{more}")
        }
        Effect::Publish(BusEvent { data, .. }) => said_event(data),
        Effect::Submit(Submission { task_id, workflow, input, undo, .. }) => {
            let undo = if *undo { ", to be undone" } else { "" };
            format!("submit {task_id} to {workflow} with {input}{undo}")
        }
        Effect::ChildEnded(ChildEnded { task_id, step, outcome, .. }) => {
            let outcome = match outcome {
                ChildOutcome::Processed { output } => format!("Processed with {output}"),
                ChildOutcome::Undone { reason } => format!("Undone \"{reason}\""),
                ChildOutcome::Error { reason, not_undone } => {
                    let more = if *not_undone { ", not undone" } else { "" };
                    format!("in Error \"{reason}\"{more}")
                }
                ChildOutcome::Refused { reason, .. } => format!("refused \"{reason}\""),
            };
            format!("tell {step} of {task_id}: {outcome}")
        }
        Effect::Ask(_) | Effect::Reply(_) | Effect::Reject { .. } => format!("{effect:?}"),
    }
}

fn said_event(event: &Happened) -> String {
    let trouble = |TaskTrouble { steps, reason, .. }: &TaskTrouble| {
        let steps: Vec<_> = steps.iter().map(ToString::to_string).collect();
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
        | Happened::AgentMissing { .. }
        | Happened::OperatorRedrive { .. }
        | Happened::BreakerClosed(_) => format!("{event:?}"),
    }
}

/// `request charge #1 by 35s at /path with {"body":1}`; a path that is just the step's name, or that
/// and `undo`, is not said, and neither is the usual idempotency key.
fn said_request(request: &StepRequest) -> String {
    let StepRequest { step, action, attempt, complete_by, path, body, .. } = request;
    let (of, usual) = match action {
        Action::Do => ("", format!("/{}", step.step)),
        Action::Undo => ("undo of ", format!("/{}/undo", step.step)),
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
