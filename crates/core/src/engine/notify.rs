//! Notifications of the end of a task: to the client, to operators (an alert), to the parent task, and to subscribers
//! of the event bus.

use serde_json::Value;

use crate::{
    definition::plan::Plan,
    engine::{
        effect::Effect,
        graph::{self, PointOfNoReturn},
        lifecycle,
        values::{ValueError, ValueSources},
    },
    limits,
    model::{
        attempt::Action,
        document::DocumentKey,
        events::{BusEvent, EventData, TaskAlert},
        hash::fnv1a,
        messages::{ChildEnded, ChildOutcome, NotificationStatus, ParentStep, StatusNotification},
        names::{Part, StepName},
        step::StepRecord,
        task::{ProcessState, StopCause, Task},
    },
};

/// Returns the notifications of the task's end. Returns none while the task is not finished, or after its alert was
/// published. `revision` is the one at which the task is stored with this end.
pub(crate) fn end_of_task_effects(sources: ValueSources<'_>, revision: u64) -> Vec<Effect> {
    let ValueSources { task, plan, .. } = sources;
    let at = task.ended_at.unwrap_or(task.submitted_at);
    let (status, reason) = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
            return Vec::new();
        }
        ProcessState::Error if !task.is_alert_due => return Vec::new(),
        ProcessState::Processed => (NotificationStatus::Processed, None),
        ProcessState::Undone => (NotificationStatus::Undone, task.undo_reason.clone()),
        ProcessState::Error => (NotificationStatus::Error, task.error.clone()),
    };
    let task_id = Some(task.task_id.to_string());
    let notice = task.reply_to.iter().map(|queue| Effect::Notification {
        queue: queue.clone(),
        notice: StatusNotification {
            task_id: task_id.clone(),
            status,
            at,
            reason: reason.clone(),
            output: task_output(sources).unwrap_or_default(),
        },
    });
    let alert = pending_alert(task, plan);
    let lifecycle = lifecycle::end_event(plan, task);
    notice.chain(alert).chain(lifecycle).chain(parent_notification(sources, revision)).collect()
}

/// Returns the output of the task, or `None` if its workflow defines none. The error is the reason why the output is
/// missing.
fn task_output(sources: ValueSources<'_>) -> Result<Option<Value>, String> {
    let ValueSources { task, plan, .. } = sources;
    if task.process_state != ProcessState::Processed || plan.output.is_none() {
        return Ok(None);
    }
    match sources.document(&result_key(task)) {
        Ok(output) => Ok(Some(output.into_owned())),
        // The document is loaded next, and the decision is repeated.
        Err(ValueError::NotLoaded) => Ok(None),
        Err(ValueError::Invalid(reason)) => Err(reason),
    }
}

/// Returns the key of the output of a task whose steps have all completed or were skipped. The key is derived from
/// the input and from the completed attempts, which no longer change.
pub fn result_key(task: &Task) -> DocumentKey {
    let mut fingerprint = task.input_edit_id.as_ref().map(ToString::to_string).unwrap_or_default();
    for (part, record) in task.started_parts() {
        let state = &record.forward.state;
        fingerprint.push_str(&format!("/{part} {} {}", state.name(), state.attempt_count()));
        // An operator's output differs from the output of an agent's attempt with the same number.
        if let Some(command) = &record.forward.completed_by_hand {
            fingerprint.push_str(&format!(" by {command}"));
        }
    }
    DocumentKey::Result(fnv1a(&fingerprint))
}

/// Returns the report of the task's end to its parent, if it has a parent. Returns `None` while the task is not
/// finished. `revision` is the one at which the task is stored with this end, so it orders the reports.
pub(crate) fn parent_notification(sources: ValueSources<'_>, revision: u64) -> Option<Effect> {
    let task = sources.task;
    let parent = task.parent.as_ref()?;
    let text_or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
    let outcome = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => return None,
        ProcessState::Processed => match task_output(sources) {
            Ok(output) => ChildOutcome::Processed { output: output.unwrap_or_default() },
            Err(reason) => ChildOutcome::Error { reason, not_undone: false, was_processed: false },
        },
        ProcessState::Undone => ChildOutcome::Undone { reason: text_or_empty(&task.undo_reason) },
        ProcessState::Error => {
            let point_of_no_return = graph::point_of_no_return(sources.plan, task);
            let passed = matches!(point_of_no_return, PointOfNoReturn::Passed(_));
            let not_undone = passed || task.direction() == Action::Undo;
            let was_processed = task.stop_cause == StopCause::AfterProcessed;
            ChildOutcome::Error { reason: text_or_empty(&task.error), not_undone, was_processed }
        }
    };
    Some(Effect::ChildEnded(child_ended_message(task, parent, outcome, revision)))
}

/// Returns the report to the parent that this task cannot be undone, because it is past its point of no return.
pub(crate) fn parent_notification_not_undone(task: &Task, step: &StepName) -> Option<Effect> {
    let reason = format!("not undone, past the point of no return {step}");
    let outcome = ChildOutcome::Error { reason, not_undone: true, was_processed: false };
    let parent = task.parent.as_ref()?;
    Some(Effect::ChildEnded(child_ended_message(task, parent, outcome, task.revision)))
}

/// Creates the message that reports the end of a child task to its parent.
fn child_ended_message(
    task: &Task,
    parent: &ParentStep,
    outcome: ChildOutcome,
    revision: u64,
) -> ChildEnded {
    let ParentStep { task_id, step, incarnation, .. } = parent.clone();
    let (child, revision) = (Some(task.task_id.clone()), Some(revision));
    ChildEnded { task_id, step, outcome, attempt: None, child, revision, incarnation }
}

/// The error, with the command that settles an effect of a service that may be one too many.
fn alert_reason(task: &Task, plan: &Plan) -> String {
    let error = task.error.clone().unwrap_or_default();
    let is_stray = |name: &StepName, record: &StepRecord| {
        record.has_stray_effect() && !plan.step(name).runs_child()
    };
    if task.direction() == Action::Undo
        || !task.part_spans().any(|(span, record)| is_stray(span.step, record))
    {
        return error;
    }
    let by_statement = "revert one effect at its service and `resubmit --did-not-run`";
    let is_needed_by_parent = task.parent.is_some() && task.stop_cause == StopCause::AfterProcessed;
    match graph::point_of_no_return(plan, task) {
        PointOfNoReturn::Ahead if !is_needed_by_parent => {
            format!("{error}: `undo` the task, or {by_statement}")
        }
        PointOfNoReturn::Ahead | PointOfNoReturn::Running | PointOfNoReturn::Passed(_) => {
            format!("{error}: {by_statement}")
        }
    }
}

/// The alert of a task in Error that is not recorded as sent.
pub(crate) fn pending_alert(task: &Task, plan: &Plan) -> Option<Effect> {
    let ended_at = task.ended_at.filter(|_| task.is_alert_due)?;
    let event = BusEvent::new(task.task_id.as_str(), ended_at, alert(task, plan));
    Some(Effect::Publish(event))
}

fn alert(task: &Task, plan: &Plan) -> EventData {
    let details = |mut steps: Vec<Part>| TaskAlert {
        task_id: task.task_id.clone(),
        workflow: task.workflow.clone(),
        more_steps: steps.len().saturating_sub(limits::ALERT_STEPS_MAX),
        steps: {
            steps.truncate(limits::ALERT_STEPS_MAX);
            steps
        },
        reason: alert_reason(task, plan),
    };
    match task.direction() {
        Action::Undo => EventData::UndoFailed(details(graph::outstanding(plan, task))),
        Action::Do => {
            let is_named =
                |record: &StepRecord| record.forward.state.is_failed() || record.has_stray_effect();
            let named = task.part_spans().filter(|(_, record)| is_named(record));
            EventData::TaskInError(details(named.flat_map(|(run, _)| run.parts()).collect()))
        }
    }
}
