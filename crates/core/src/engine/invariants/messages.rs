//! The invariants of messages: what is sent matches the saved task, and is sent only when it may be.

use jiff::Timestamp;

use super::{
    decision::{Decision, requested_attempt},
    record::{
        ViolatedInvariant, has_begun_undo, has_effect, has_passed, is_awaited, is_left_to_undo,
        require,
    },
};
use crate::{
    definition::{plan::Plan, step::StepWork},
    engine::{effect::Effect, event::Event},
    limits,
    model::{
        attempt::{Action, AttemptId},
        events::{BusEvent, EventData, OperatorEvent, TaskAlert},
        lifecycle::{LifecycleEvent, LifecycleEventContent},
        messages::{ChildEnded, ChildOutcome, StepRequest, Submission},
        names::Part,
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
};

pub(super) fn check(decision: &Decision<'_>) -> Result<(), ViolatedInvariant> {
    for effect in decision.effects {
        check_message(decision, effect)?;
        let Some(attempt) = requested_attempt(decision.after, effect) else { continue };
        let subject = || {
            let AttemptId { step, action, number } = &attempt;
            format!("request {} {step} #{number}", action.name())
        };
        require(subject, &request_invariants(decision, &attempt))?;
        if attempt.action == Action::Undo {
            require(subject, &undo_invariants(decision, &attempt.step))?;
        }
    }
    Ok(())
}

/// A message is about what the saved task shows.
fn check_message(decision: &Decision<'_>, effect: &Effect) -> Result<(), ViolatedInvariant> {
    let task = decision.after;
    let subject = |kind: &'static str| move || format!("{kind} of task {}", task.task_id);
    match effect {
        Effect::Request(request) => {
            require(subject("request"), &agent_request_invariants(decision, request))
        }
        Effect::AwaitEvent(subscription) => {
            let waiter = &subscription.waiter;
            let run = task.progress(&waiter.step, Action::Do).map(|run| &run.state);
            let state = StepState::Running { attempt: waiter.attempt, complete_by: waiter.until };
            let is_so = waiter.task_id == task.task_id && run == Some(&state);
            require(subject("subscription"), &[("it is of a running attempt", is_so)])
        }
        Effect::Submit(submission) => {
            let is_so = match &submission.rerun {
                Some(rerun) => {
                    let is_link = |id: &_| *id == submission.task_id;
                    rerun.task_id == task.task_id
                        && submission.parent.is_none()
                        && task.process_state.has_stopped()
                        && task.reruns().any(is_link)
                }
                None => matches_running_step(decision, submission),
            };
            require(
                subject("submission"),
                &[("it is of a running step, or a recorded rerun", is_so)],
            )
        }
        Effect::Notification { notice, .. } => {
            let is_so =
                is_end(task, notice.at) && notice.task_id.as_deref() == Some(task.task_id.as_str());
            require(subject("notification"), &[("it is about the end of the task", is_so)])
        }
        Effect::ChildEnded(ended) => {
            require(subject("report"), &report_invariants(decision, ended))
        }
        Effect::Wake { wake, .. } => {
            let is_so = wake.task_id == task.task_id;
            require(subject("wake"), &[("it is for the task", is_so)])
        }
        Effect::Publish(BusEvent::Lifecycle(event)) => {
            // Those of the task before may have been lost.
            let is_so = is_shown(task, event) || is_shown(decision.before, event);
            require(
                || format!("lifecycle event {}", event.id),
                &[("the task shows what it is about", is_so)],
            )
        }
        Effect::Publish(BusEvent::Operator(event)) => {
            require(subject("event"), &event_invariants(decision, event))
        }
        Effect::ParentRequest(_) | Effect::Reply(_) | Effect::Reject { .. } => {
            require(subject("message"), &[("no decision sends it", false)])
        }
    }
}

/// When a request may be sent: to an agent, to a child task, or for an event.
fn request_invariants(decision: &Decision<'_>, attempt: &AttemptId) -> [(&'static str, bool); 9] {
    let Decision { before, after, event, context, .. } = decision;
    let AttemptId { step: part, action, number } = attempt;
    let (old, new) = (before.progress(part, *action), after.progress(part, *action));
    let (is_saved, is_undo) = (decision.ignored.is_none(), *action == Action::Undo);
    let backward = after.undo_reason.is_some();
    let passed = |name| after.steps.get(name).is_some_and(|of| has_passed(&of.forward.state));
    let step = decision.plan.find(&part.step);
    let commanded = matches!(event, Event::CommandReceived(_));
    let keys = |task: &Task| task.record(part).map(|record| record.earlier.clone());
    // The undo of another key of the part, or of one that took effect again.
    let has_other_key = old.zip(new).is_some_and(|(old, new)| new.key_since != old.key_since);
    let is_of_next_key = is_undo && (has_other_key || keys(before) != keys(after));
    let may_begin = old.is_none_or(|old| match old.state {
        StepState::Waiting { until, .. } => {
            until <= later(context.now, context.timing.clock_skew) || commanded || is_of_next_key
        }
        StepState::Running { .. } => true,
        StepState::Failed { .. } => commanded,
        StepState::Completed { .. } | StepState::Skipped { .. } => is_of_next_key,
        StepState::AwaitingCallback { .. } | StepState::RunningItems => false,
    });
    let is_new = old.map(|old| old.state.attempt_count()) != Some(*number);
    let is_repeated = new.is_some_and(|new| new.may_have_run);
    [
        (
            "after the end of the task only what has started goes on, in Error",
            !after.process_state.has_stopped() || after.goes_on() && (!is_new || *number > 1),
        ),
        ("the direction of the task is that of its requests", backward == is_undo),
        ("no step is requested once an undo has begun", is_undo || !has_begun_undo(after)),
        (
            "a step starts after its predecessors",
            is_undo || step.is_some_and(|step| step.definition.after.iter().all(passed)),
        ),
        ("nothing is requested in a paused task", !is_saved || after.paused_at.is_none()),
        (
            "nothing is requested past the task's complete-by",
            !is_saved || context.now < after.complete_by,
        ),
        ("a sweep requests nothing", **event != Event::Swept),
        (
            "no attempt begins before the end of a wait, or for a part that has passed",
            !is_saved || may_begin,
        ),
        (
            "what may have run is repeated only if it is idempotent",
            !is_saved
                || !is_new
                || !is_repeated
                || step.is_some_and(|step| step.is_repeatable(*action)),
        ),
    ]
}

/// When an undo may be requested.
fn undo_invariants(decision: &Decision<'_>, part: &Part) -> [(&'static str, bool); 4] {
    let Decision { plan, before, after, .. } = decision;
    let is_later = |name| plan.find(name).is_some_and(|of| of.ancestors.contains(&part.step));
    // Later effects may come to light after this undo has begun, and the clock of another instance may be behind.
    let repeats = before.progress(part, Action::Undo).is_some();
    let later_is_undone =
        after.part_spans().filter(|(span, _)| is_later(span.step)).all(|(span, record)| {
            let step = plan.find(span.step);
            !is_awaited(&record.forward.state)
                && !decision.may_be_in_progress(record)
                && !step.is_some_and(|step| is_left_to_undo(step, record))
        });
    let own = after.record(part);
    let is_call = plan.find(&part.step).is_some_and(|step| step.agents().is_some());
    let is_past_return = after.part_spans().any(|(span, record)| {
        let step = plan.find(span.step);
        step.is_some_and(|step| step.definition.point_of_no_return)
            && (has_effect(record) || is_awaited(&record.forward.state))
    });
    [
        ("an undo waits for later steps and their undos", repeats || later_is_undone),
        ("only what may have run is undone", !is_call || own.is_some_and(has_effect)),
        (
            "an undo waits for the attempt and the calls of its step",
            own.is_some_and(|own| {
                !is_awaited(&own.forward.state) && (repeats || !decision.may_be_in_progress(own))
            }),
        ),
        (
            "nothing is undone past the point of no return",
            !is_past_return || has_begun_undo(before) || after.undo_is_final,
        ),
    ]
}

/// The content of a request to an agent.
fn agent_request_invariants(
    decision: &Decision<'_>,
    request: &StepRequest,
) -> [(&'static str, bool); 5] {
    let StepRequest { task_id, step, action, attempt, complete_by, .. } = request;
    let progress = decision.after.progress(step, *action);
    let running = StepState::Running { attempt: *attempt, complete_by: *complete_by };
    let edit = progress.and_then(|progress| progress.input_edit_id.as_ref());
    let edit = edit.map(|edit| format!("/{edit}")).unwrap_or_default();
    let key = format!("{task_id}/{step}/{}{edit}", action.name());
    let definition = decision.plan.find(&step.step);
    let work = definition.and_then(|of| of.action(*action)).map(|of| of.work);
    let (agents, method) = match work {
        Some(StepWork::Call { agents, request, .. }) => (agents.names(), Some(request.method)),
        Some(StepWork::Child(_) | StepWork::Wait(_) | StepWork::Event(_)) | None => (&[][..], None),
    };
    let is_running = progress.is_some_and(|progress| progress.state == running);
    [
        ("it is of a running attempt", *task_id == decision.after.task_id && is_running),
        ("its idempotency key is that of the part", request.idempotency_key == key),
        ("it goes to an agent of the step", agents.contains(&request.agent)),
        ("it has the method of the definition", method == Some(request.method)),
        (
            "only a step with several agents has exclusive requests",
            !request.exclusive || agents.len() > 1 && *action == Action::Do,
        ),
    ]
}

/// Whether the submission of a child task belongs to a running step.
fn matches_running_step(decision: &Decision<'_>, submission: &Submission) -> bool {
    let (task, Some(parent)) = (decision.after, &submission.parent) else { return false };
    let action = if submission.undo { Action::Undo } else { Action::Do };
    let item = parent.step.item.map(|item| format!(":{item}")).unwrap_or_default();
    let id = format!("{}:{}{item}", task.task_id, parent.step.step);
    let step = decision.plan.find(&parent.step.step);
    let child = step.and_then(|step| step.definition.workflow.as_ref());
    parent.task_id == task.task_id
        && child.is_some_and(|child| child.name == submission.workflow)
        && submission.task_id.as_str().starts_with(&id)
        && task.progress(&parent.step, action).is_some_and(|of| of.state.is_running())
}

/// The report of a child task to its parent.
fn report_invariants(decision: &Decision<'_>, ended: &ChildEnded) -> [(&'static str, bool); 2] {
    let task = decision.after;
    let parent = task.parent.as_ref();
    let is_so = match (&ended.outcome, task.process_state) {
        // The output of a task may be impossible to read again.
        (ChildOutcome::Processed { .. } | ChildOutcome::Error { .. }, state) => {
            matches!(state, ProcessState::Processed | ProcessState::Error)
                && (matches!(ended.outcome, ChildOutcome::Error { .. })
                    || state == ProcessState::Processed)
        }
        (ChildOutcome::Undone { .. }, state) => state == ProcessState::Undone,
        (ChildOutcome::Refused { .. }, _) => false,
    };
    [
        (
            "it goes to the step of the parent",
            parent.is_some_and(|parent| {
                (&parent.task_id, &parent.step) == (&ended.task_id, &ended.step)
            }),
        ),
        ("it says how the task ended", is_so),
    ]
}

/// An alert names the parts that failed, or those that are left to undo. That of the end before is sent again if it may be lost.
fn event_invariants(decision: &Decision<'_>, event: &OperatorEvent) -> [(&'static str, bool); 3] {
    let own = invariants_of_event(decision.plan, decision.after, event);
    let holds = own.iter().all(|(_, holds)| *holds);
    if holds || !decision.before.is_alert_due {
        return own;
    }
    invariants_of_event(decision.plan, decision.before, event)
}

fn invariants_of_event(
    plan: &Plan,
    task: &Task,
    event: &OperatorEvent,
) -> [(&'static str, bool); 3] {
    let backward = task.undo_reason.is_some();
    let (alert, is_undo) = match &event.data {
        EventData::TaskInError(alert) => (alert, false),
        EventData::UndoFailed(alert) => (alert, true),
        EventData::OperatorCommand { task_id, .. } => {
            return [("it is about the task", *task_id == task.task_id); 3];
        }
        EventData::TaskLate { task_id, .. } => {
            let about_it = ("it is about the task", *task_id == task.task_id);
            return [about_it, ("the task is recorded as late", task.late_at.is_some()), about_it];
        }
        EventData::BreakerOpened(_)
        | EventData::BreakerClosed(_)
        | EventData::SubmissionRefused { .. }
        | EventData::MessageCorrupt { .. }
        | EventData::DeadLetterSeen { .. }
        | EventData::AgentMissing { .. }
        | EventData::AgentClockWrong { .. }
        | EventData::ErrorsUnresolved { .. }
        | EventData::OperatorRedrive { .. } => return [("no decision sends it", false); 3],
    };
    let TaskAlert { task_id, steps, more_steps, .. } = alert;
    let names = plan
        .steps()
        .filter_map(|(name, step)| task.steps.get(name).map(|record| (name, step, record)));
    let parts = names.flat_map(|(name, step, record)| {
        record.part_spans(name).map(move |(span, record)| (span, step, record))
    });
    let wanted = parts.filter(|(_, step, record)| match backward {
        // A part in progress may have to be undone as well.
        true => {
            is_left_to_undo(step, record)
                || step.undo().is_some() && is_awaited(&record.forward.state)
        }
        false => record.forward.state.is_failed() || record.has_stray_effect(),
    });
    let mut wanted: Vec<_> = wanted.flat_map(|(span, ..)| span.parts()).collect();
    let more = wanted.len().saturating_sub(limits::ALERT_STEPS_MAX);
    let mut named = steps.clone();
    wanted.sort();
    named.sort();
    let is_all =
        if more == 0 { named == wanted } else { named.iter().all(|of| wanted.contains(of)) };
    [
        (
            "an alert is about the end of the task",
            *task_id == task.task_id && is_end(task, event.metadata.at),
        ),
        ("an alert has the direction of the task", is_undo == backward),
        ("an alert names what failed, or what is left to undo", *more_steps == more && is_all),
    ]
}

/// Whether the task ended at this time. Stored and published times have milliseconds.
fn is_end(task: &Task, at: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended| ended.as_millisecond() == at.as_millisecond())
}

/// Whether the task shows what a lifecycle event is about.
fn is_shown(task: &Task, event: &LifecycleEvent) -> bool {
    let ended = |state| task.process_state == state && is_end(task, event.time);
    let is_about = match &event.content {
        LifecycleEventContent::Submitted(_) => {
            task.process_state != ProcessState::Pending
                && event.time.as_millisecond() == task.submitted_at.as_millisecond()
        }
        LifecycleEventContent::StepCompleted(data) => task.steps.get(&data.step).is_some_and(|r| {
            let is_completed = matches!(r.forward.state, StepState::Completed { .. });
            is_completed && r.forward.state.newest_attempt() == data.attempt
        }),
        LifecycleEventContent::StepFailed(data) => task.record(&data.step).is_some_and(|r| {
            r.forward.state.is_failed() && r.forward.state.newest_attempt() == data.attempt
        }),
        LifecycleEventContent::Processed(_) => ended(ProcessState::Processed),
        LifecycleEventContent::Undone(_) => ended(ProcessState::Undone),
        LifecycleEventContent::Error(data) => {
            ended(ProcessState::Error) && data.undo_failed == task.undo_reason.is_some()
        }
    };
    is_about && event.subject == task.task_id
}
