//! What the invariants read from tasks, workflows and effects, without the core's own functions.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use steward_core::{
    definition::workflow::Workflow,
    engine::{effect::Effect, event::Event},
    model::{
        attempt::Action,
        events::BusEvent,
        inline_documents::InlineDocuments,
        messages::{ChildOutcome, StepReply, StepRequest, Submission},
        names::{Part, StepName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

pub(super) fn requests(effects: &[Effect]) -> impl Iterator<Item = &StepRequest> {
    effects.iter().filter_map(|effect| {
        let Effect::Request(request) = effect else { return None };
        Some(request)
    })
}

pub(super) fn events(effects: &[Effect]) -> impl Iterator<Item = &BusEvent> {
    effects.iter().filter_map(|effect| {
        let Effect::Publish(event) = effect else { return None };
        Some(event)
    })
}

pub(super) fn has_stopped(task: &Task) -> bool {
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => false,
        ProcessState::Processed | ProcessState::Undone | ProcessState::Error => true,
    }
}

pub(super) fn is_undoing(task: &Task) -> bool {
    task.process_state == ProcessState::Undoing
}

pub(super) fn has_passed(state: &StepState) -> bool {
    matches!(state, StepState::Completed { .. } | StepState::Skipped { .. })
}

/// Until when a call of a part, or of its completed undo, may be in progress. An undo that is not complete is
/// waited for anyway.
pub(super) fn in_progress_until(record: &StepRecord) -> Option<Timestamp> {
    let undo = record.undo.as_ref().filter(|undo| has_passed(&undo.state));
    record.forward.call_may_run_until.max(undo.and_then(|undo| undo.call_may_run_until))
}

/// Whether a report says that a step of an Undone task took effect, or may have. The task then changes to Error.
pub(super) fn ran_although_undone(before: &Task, after: &Task, event: &Event) -> bool {
    let step = match event {
        Event::ReplyReceived(StepReply { step, action: Action::Do, outcome, .. })
            if outcome.may_have_run() =>
        {
            step
        }
        Event::ChildEnded {
            step,
            outcome: ChildOutcome::Processed { .. } | ChildOutcome::Error { .. },
            ..
        }
        // The call that contains the token was made.
        | Event::CallbackReceived { step, .. } => step,
        Event::Wake
        | Event::Swept
        | Event::ReplyReceived(_)
        | Event::CommandReceived(_)
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. }
        | Event::AlertPublished { .. } => return false,
    };
    let had_ended = matches!(before.process_state, ProcessState::Undone | ProcessState::Processed);
    let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return false };
    let is_passed = |undo: &Option<Progress>| {
        undo.as_ref().is_some_and(|undo| undo.state.is_completed_or_skipped())
    };
    let shows_effect = !old.forward.may_have_run && new.forward.may_have_run
        || old.forward.stray_effects != new.forward.stray_effects
        || is_passed(&old.undo) && !is_passed(&new.undo)
        // Its child task was Processed, and another effect came to light.
        || old.forward.child_revision != new.forward.child_revision;
    had_ended && after.process_state == ProcessState::Error && shows_effect
}

pub(super) fn has_effect(record: &StepRecord) -> bool {
    matches!(record.forward.state, StepState::Completed { .. }) || record.forward.may_have_run
}

/// Whether a part has an undo, may have run, and is neither undone nor was its undo skipped.
pub(super) fn is_left(workflow: &Workflow, name: &StepName, record: &StepRecord) -> bool {
    workflow.steps.get(name).is_some_and(|step| step.undo.is_some() || step.workflow.is_some())
        && has_effect(record)
        && !record.undo.as_ref().is_some_and(|undo| has_passed(&undo.state))
}

pub(super) fn left_to_undo(workflow: &Workflow, task: &Task) -> Vec<Part> {
    let records = workflow.steps.keys().filter_map(|name| Some((name, task.steps.get(name)?)));
    let parts = records.flat_map(|(name, record)| record.parts(name));
    parts.filter(|(part, r)| is_left(workflow, &part.step, r)).map(|(part, _)| part).collect()
}

/// Whether an agent or a callback is awaited.
pub(super) fn is_awaited(record: &StepRecord) -> bool {
    matches!(record.forward.state, StepState::Running { .. } | StepState::AwaitingCallback { .. })
}

/// Whether the submission of a child task belongs to the running step and has the child's id.
pub(super) fn matches_running_step(
    workflow: &Workflow,
    task: &Task,
    submission: &Submission,
) -> bool {
    let Some(parent) = &submission.parent else { return false };
    let action = if submission.undo { Action::Undo } else { Action::Do };
    let item = parent.step.item.map(|item| format!(":{item}")).unwrap_or_default();
    let definition = workflow.steps.get(&parent.step.step).and_then(|step| step.workflow.as_ref());
    parent.task_id == task.task_id
        && definition.is_some_and(|child| child.name == submission.workflow)
        && submission
            .task_id
            .as_str()
            .starts_with(&format!("{}:{}{item}", task.task_id, parent.step.step))
        && task.running_attempts().any(|(step, of, ..)| (step, of) == (parent.step.clone(), action))
}

/// All direct and indirect successors of `step`.
pub(super) fn descendants<'a>(workflow: &'a Workflow, step: &StepName) -> Vec<&'a StepName> {
    let mut found: Vec<&StepName> = Vec::new();
    let mut open = vec![step];
    while let Some(before) = open.pop() {
        for (name, definition) in &workflow.steps {
            if definition.after.contains(before) && !found.contains(&name) {
                found.push(name);
                open.push(name);
            }
        }
    }
    found
}

/// The values of a task that no decision may change; all others are replaced by constants.
pub(super) fn submitted_values(task: &Task) -> Task {
    Task {
        process_state: ProcessState::Pending,
        revision: 0,
        locked_by: None,
        complete_by: task.submitted_at + Duration::from_secs(1),
        failure_count: 0,
        ended_at: None,
        due: None,
        retention_start: task.submitted_at,
        error: None,
        undo_reason: None,
        undo_is_final: false,
        paused_at: None,
        input_edit_id: None,
        commands: Vec::new(),
        documents: InlineDocuments::default(),
        steps: BTreeMap::new(),
        ..task.clone()
    }
}

pub(super) fn attempts_grow(before: &Task, after: &Task) -> bool {
    after.started_actions().all(|(step, action, new)| {
        let old = before.progress(&step, action).map_or(0, |old| old.state.attempt_count());
        new.state.attempt_count() == old || new.state.attempt_count() == old + 1
    })
}

/// Whether a request is sent for every attempt that starts.
pub(super) fn all_sent(before: &Task, after: &Task, effects: &[Effect]) -> bool {
    after.running_attempts().all(|(step, action, attempt, _)| {
        // Another agent may still have a delivery of a deferred request: the attempt runs again.
        let was = before.progress(&step, action).map(|progress| &progress.state);
        let ran = was.is_some_and(|was| {
            matches!(
                was,
                StepState::Running { .. } | StepState::Waiting { complete_by: Some(_), .. }
            ) && was.attempt_count() == attempt
        });
        let sent = |r: &StepRequest| (&r.step, r.action, r.attempt) == (&step, action, attempt);
        let submitted = |effect: &Effect| {
            matches!(effect, Effect::Submit(submission)
            if submission.parent.as_ref().is_some_and(|parent| parent.step == step)
                && submission.undo == (action == Action::Undo))
        };
        ran || requests(effects).any(sent) || effects.iter().any(submitted)
    })
}

pub(super) fn keeps_steps(before: &Task, after: &Task) -> bool {
    let never_began =
        |progress: &Progress| progress.state.is_failed() && progress.state.attempt_count() == 0;
    before.started_actions().all(|(step, action, progress)| {
        after.progress(&step, action).is_some()
            || after.steps.get(&step.step).is_some_and(|record| record.items.is_some())
            || never_began(progress)
    })
}

/// Whether a request belongs to the running attempt, goes to the step's agent, and has the right idempotency key.
pub(super) fn matches_running_attempt(
    workflow: &Workflow,
    task: &Task,
    request: &StepRequest,
) -> bool {
    let StepRequest { task_id, step, action, attempt, complete_by, .. } = request;
    let Some(definition) = workflow.steps.get(&step.step) else { return false };
    let method = match action {
        Action::Do => definition.request.as_ref().map(|request| request.method),
        Action::Undo => {
            definition.undo.as_ref().and_then(|undo| Some(undo.request.as_ref()?.method))
        }
    };
    let edit = task.progress(step, *action).and_then(|progress| progress.input_edit_id.as_ref());
    let edit = edit.map(|edit| format!("/{edit}")).unwrap_or_default();
    let verb = match action {
        Action::Do => "do",
        Action::Undo => "undo",
    };
    *task_id == task.task_id
        && request.idempotency_key == format!("{task_id}/{step}/{verb}{edit}")
        && definition.agents().contains(&request.agent)
        && method == Some(request.method)
        && task
            .running_attempts()
            .any(|running| running == (step.clone(), *action, *attempt, *complete_by))
}
