//! Writes a decision as the right-hand side of a story's line: first the changes that are saved, then the effects.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    correlation::EventSubscription,
    definition::workflow::Workflow,
    engine::effect::Effect,
    model::{
        attempt::{Action, AttemptId},
        document::{Document, DocumentKey},
        events::{BusEvent, EventData, TaskAlert},
        lifecycle::LifecycleEventContent,
        messages::{ChildEnded, ChildOutcome, StepRequest, Submission},
        names::{Part, StepName},
        step::{Progress, StepState},
        task::Task,
    },
};

/// The documents of a decision that are not described yet.
type NewDocuments<'a> = BTreeMap<DocumentKey, &'a Document>;

/// Describes the changes that a decision saves.
pub(super) fn saved_changes(
    workflow: &Workflow,
    before: &Task,
    after: &Task,
    documents: &[Document],
    effects: &[Effect],
    now: Timestamp,
) -> Vec<String> {
    let mut texts = task_changes(before, after);
    let mut new_documents: NewDocuments<'_> =
        documents.iter().map(|document| (document.key.clone(), document)).collect();
    for name in workflow.steps.keys() {
        texts.extend(step_with_items(name, before, after));
        let parts = after.steps.get(name).into_iter().flat_map(|record| record.parts(name));
        for (part, action) in
            parts.flat_map(|(part, _)| [(part.clone(), Action::Do), (part, Action::Undo)])
        {
            let (old, new) = (before.progress(&part, action), after.progress(&part, action));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                let requested = is_requested(effects, &part, action, new.state.attempt_count());
                let of = AttemptId { step: part, action, number: new.state.attempt_count() };
                texts.extend(progress_change(of, old, new, &mut new_documents, requested, now));
            }
        }
    }
    texts.extend(new_documents.values().map(|Document { key, body, .. }| match key {
        DocumentKey::Input(_) => format!("input {} kept", body["input"]),
        DocumentKey::Result(_) => format!("returns {body}"),
        DocumentKey::Items { .. } => format!("items kept in {key}"),
        DocumentKey::Submission
        | DocumentKey::Output(_)
        | DocumentKey::OperatorOutput(..)
        | DocumentKey::Failure(_)
        | DocumentKey::Deferral(_)
        | DocumentKey::Claim(_) => format!("document {key}"),
    }));
    if before.locked_by.is_some() && after.locked_by.is_none() && !after.process_state.has_stopped()
    {
        texts.push("unlocked".to_owned());
    }
    if after.due != before.due {
        texts.push(due(after));
    }
    if texts.is_empty() && effects.is_empty() {
        texts.push("nothing".to_owned());
    }
    texts
}

/// Describes the changes of the task as a whole.
fn task_changes(before: &Task, after: &Task) -> Vec<String> {
    let mut texts = Vec::new();
    let reason = after.undo_reason.as_ref().filter(|_| after.undo_reason != before.undo_reason);
    let reason = reason.map(|reason| format!(" because \"{reason}\"")).unwrap_or_default();
    if after.process_state != before.process_state || !reason.is_empty() {
        texts.push(format!("{}{reason}", after.process_state));
    }
    if after.complete_by != before.complete_by {
        texts.push(format!("task by {}", since_start(after.complete_by)));
    }
    if after.paused_at.is_some() != before.paused_at.is_some() {
        texts
            .push(if after.paused_at.is_some() { "paused" } else { "no longer paused" }.to_owned());
    }
    if after.late_at != before.late_at {
        texts.push("late".to_owned());
    }
    if after.resolved_at != before.resolved_at {
        let settled = after.resolved_at.is_some();
        texts.push(if settled { "settled" } else { "no longer settled" }.to_owned());
    }
    if after.undo_is_final != before.undo_is_final {
        texts.push("the undo is final".to_owned());
    }
    texts
}

/// Describes the change of a step with items as a whole: `ship completed, 3 items`.
fn step_with_items(name: &StepName, before: &Task, after: &Task) -> Option<String> {
    let record = after.steps.get(name)?;
    let items = record.items.as_ref()?;
    let old = before.steps.get(name).map(|record| &record.forward.state);
    let count = items.count();
    (old != Some(&record.forward.state))
        .then(|| format!("{name} {}, {count} items", record.forward.state.name()))
}

/// Whether the effects request an attempt.
fn is_requested(effects: &[Effect], part: &Part, of: Action, number: u32) -> bool {
    effects.iter().any(|effect| match effect {
        Effect::Request(StepRequest { step, action, attempt, .. }) => {
            step == part && *action == of && *attempt == number
        }
        Effect::Submit(submission) => {
            let action = if submission.undo { Action::Undo } else { Action::Do };
            submission.parent.as_ref().is_some_and(|parent| parent.step == *part) && action == of
        }
        Effect::AwaitEvent(EventSubscription { waiter, .. }) => {
            waiter.step == *part && of == Action::Do && waiter.attempt == number
        }
        Effect::ParentRequest(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Notification { .. }
        | Effect::Reject { .. }
        | Effect::Publish(_) => false,
    })
}

/// Describes the change of a part: `reserve waiting until 25s (failures 1, may have run, reason kept)`. `None` for an
/// attempt that starts, because its request describes it.
fn progress_change(
    of: AttemptId,
    old: Option<&Progress>,
    new: &Progress,
    new_documents: &mut NewDocuments<'_>,
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
    let until = new.call_may_run_until;
    if until != old.and_then(|old| old.call_may_run_until) {
        details.extend(
            until.map(|until| format!("call may be in progress until {}", since_start(until))),
        );
    }
    let by_hand =
        new.completed_by_hand.clone().map(|by| DocumentKey::OperatorOutput(of.clone(), by));
    if new_documents.remove(&by_hand.unwrap_or_else(|| DocumentKey::Output(of.clone()))).is_some() {
        details.push("output kept".to_owned());
    }
    let mut reason_kept = new_documents.remove(&DocumentKey::Failure(of.clone())).is_some();
    reason_kept |= new_documents.remove(&DocumentKey::Deferral(of.clone())).is_some();
    if reason_kept {
        details.push("reason kept".to_owned());
    }
    if requested && details.is_empty() {
        return None;
    }
    let mut text = state(&of, &new.state);
    match &new.state {
        StepState::Running { attempt, .. } if !requested => text.push_str(&format!(" #{attempt}")),
        StepState::Waiting { until, .. } if *until != now => {
            text.push_str(&format!(" until {}", since_start(*until)));
        }
        StepState::AwaitingCallback { complete_by, .. } => {
            text.push_str(&format!(" until {}", since_start(*complete_by)));
        }
        StepState::Running { .. }
        | StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => {}
    }
    if !details.is_empty() {
        text.push_str(&format!(" ({})", details.join(", ")));
    }
    Some(text)
}

fn state(of: &AttemptId, state: &StepState) -> String {
    match (of.action, state) {
        (Action::Do, _) => format!("{} {}", of.step, state.name()),
        (Action::Undo, StepState::Completed { .. }) => format!("{} undone", of.step),
        (Action::Undo, _) => format!("undo of {} {}", of.step, state.name()),
    }
}

/// Describes effects, sorted by kind and step, because the core does not define their order.
pub(super) fn effects_sent(workflow: &Workflow, effects: &[Effect]) -> Vec<String> {
    let sort_key = |effect: &Effect| match effect {
        Effect::Request(StepRequest { step, .. }) => {
            (0, workflow.steps.get_index_of(&step.step), step.item)
        }
        Effect::Submit(Submission { parent, .. }) => {
            let part = parent.as_ref().map(|parent| &parent.step);
            let step = part.and_then(|part| workflow.steps.get_index_of(&part.step));
            (0, step, part.and_then(|part| part.item))
        }
        Effect::AwaitEvent(EventSubscription { waiter, .. }) => {
            (0, workflow.steps.get_index_of(&waiter.step.step), waiter.step.item)
        }
        Effect::Notification { .. } => (1, None, None),
        Effect::Publish(event) if event.alerted_end().is_some() => (2, None, None),
        Effect::Publish(_) => (3, None, None),
        Effect::ChildEnded(_) => (4, None, None),
        Effect::Wake { .. }
        | Effect::Reply(_)
        | Effect::Reject { .. }
        | Effect::ParentRequest(_) => (5, None, None),
    };
    let mut effects: Vec<_> = effects.iter().collect();
    effects.sort_by_key(|effect| sort_key(effect));
    effects.into_iter().map(effect_text).collect()
}

fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::Request(request) => request_text(request),
        Effect::Wake { after, .. } if after.is_zero() => "wake scheduler".to_owned(),
        Effect::Wake { after, .. } => {
            format!("wake scheduler in {}s", after.as_secs_f64())
        }
        Effect::Notification { queue, notice } => {
            let status = json!(notice.status);
            let status = status.as_str().unwrap_or_default();
            let reason = notice.reason.iter().map(|reason| format!(" \"{reason}\""));
            let output = notice.output.iter().map(|output| format!(" with {output}"));
            let more: String = reason.chain(output).collect();
            format!("notification to {queue}: {status}{more}")
        }
        Effect::Publish(BusEvent::Operator(event)) => event_text(&event.data),
        Effect::Publish(BusEvent::Lifecycle(event)) => lifecycle_text(&event.content),
        Effect::Submit(Submission { task_id, workflow, input, undo, rerun, .. }) => {
            let undo = if *undo { ", undo" } else { "" };
            let kept = rerun.iter().map(|rerun| &rerun.kept).filter(|kept| !kept.is_empty());
            let kept: String = kept.map(|kept| format!(", keeps {}", json!(kept))).collect();
            format!("submit {task_id} to {workflow} with {input}{undo}{kept}")
        }
        Effect::AwaitEvent(EventSubscription { waiter, .. }) => {
            format!("{} awaits its event (attempt {})", waiter.step, waiter.attempt)
        }
        Effect::ChildEnded(ChildEnded { task_id, step, outcome, .. }) => {
            let outcome = match outcome {
                ChildOutcome::Processed { output } => format!("Processed with {output}"),
                ChildOutcome::Undone { reason } => format!("Undone \"{reason}\""),
                ChildOutcome::Error { reason, not_undone, was_processed } => {
                    let not_undone = if *not_undone { ", not undone" } else { "" };
                    let was_processed = if *was_processed { ", was Processed" } else { "" };
                    format!("in Error \"{reason}\"{not_undone}{was_processed}")
                }
                ChildOutcome::Refused { reason, .. } => format!("refused \"{reason}\""),
            };
            format!("report to {step} of {task_id}: {outcome}")
        }
        Effect::ParentRequest(_) | Effect::Reply(_) | Effect::Reject { .. } => {
            format!("{effect:?}")
        }
    }
}

fn lifecycle_text(content: &LifecycleEventContent) -> String {
    let number = |attempt: &Option<u32>| attempt.map_or(String::new(), |n| format!(" #{n}"));
    match content {
        LifecycleEventContent::Submitted(_)
        | LifecycleEventContent::Processed(_)
        | LifecycleEventContent::Undone(_)
        | LifecycleEventContent::Error(_) => format!("event: {}", content.kind()),
        LifecycleEventContent::StepCompleted(data) => {
            let by = data.command_id.as_ref().map_or("", |_| " by an operator");
            format!("event: {}{} completed{by}", data.step, number(&data.attempt))
        }
        LifecycleEventContent::StepFailed(data) => {
            let may_have_run = if data.may_have_run { ", may have run" } else { "" };
            format!("event: {}{} failed{may_have_run}", data.step, number(&data.attempt))
        }
    }
}

fn event_text(event: &EventData) -> String {
    let trouble = |TaskAlert { steps, reason, .. }: &TaskAlert| {
        let steps: Vec<_> = steps.iter().map(ToString::to_string).collect();
        let steps = if steps.is_empty() { String::new() } else { format!(" {}", steps.join(", ")) };
        format!("{steps} \"{reason}\"")
    };
    match event {
        EventData::TaskInError(error) => format!("alert{}", trouble(error)),
        EventData::UndoFailed(error) => format!("alert: left to undo{}", trouble(error)),
        EventData::OperatorCommand { command, refused: None, .. } => {
            format!("published: {command}")
        }
        EventData::OperatorCommand { refused: Some(refused), .. } => format!("refused: {refused}"),
        EventData::TaskLate { steps, .. } => {
            let steps: Vec<_> = steps.iter().map(ToString::to_string).collect();
            format!("alert: late {}", steps.join(", ")).trim_end().to_owned()
        }
        EventData::BreakerOpened(_)
        | EventData::SubmissionRefused { .. }
        | EventData::MessageCorrupt { .. }
        | EventData::DeadLetterSeen { .. }
        | EventData::AgentMissing { .. }
        | EventData::AgentClockWrong { .. }
        | EventData::ErrorsUnresolved { .. }
        | EventData::OperatorRedrive { .. }
        | EventData::BreakerClosed(_) => format!("{event:?}"),
    }
}

/// Describes a request: `request charge #1 by 35s at /path with {"body":1}`. Omits the default path (`/STEP` or
/// `/STEP/undo`) and the default idempotency key.
fn request_text(request: &StepRequest) -> String {
    let StepRequest { step, action, attempt, complete_by, path, body, .. } = request;
    let (of, default_path) = match action {
        Action::Do => ("", format!("/{}", step.step)),
        Action::Undo => ("undo of ", format!("/{}/undo", step.step)),
    };
    let mut text = format!("request {of}{step} #{attempt}");
    if request.agent.as_str() != format!("{}-agent", step.step) {
        text.push_str(&format!(" to {}", request.agent));
    }
    text.push_str(&format!(" by {}", since_start(*complete_by)));
    if *path != default_path {
        text.push_str(&format!(" at {path}"));
    }
    if let Some(body) = body {
        text.push_str(&format!(" with {body}"));
    }
    let key = &request.idempotency_key;
    if *key != format!("{}/{step}/{}", request.task_id, action.name()) {
        text.push_str(&format!(" under key {key}"));
    }
    text
}

/// Describes the due time.
pub(super) fn due(task: &Task) -> String {
    task.due.map_or("no longer due".to_owned(), |due| format!("due {}", since_start(due)))
}

/// A time as seconds since the start: `63s`.
fn since_start(time: Timestamp) -> String {
    let millis = time.as_millisecond();
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}
