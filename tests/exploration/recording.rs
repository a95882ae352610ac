//! Saves a decision in a state, and records what the event tells about the attempts. The invariants use these records instead
//! of the core's own.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptId},
        command::{CommandAction, ReceivedCommand},
        messages::{ChildOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepState},
        task::{ProcessState, Task},
    },
};

use super::{
    model_state::{Dispatch, KnownOutcome, ModelState},
    progress::{is_awaited, waits_until},
    workflows::ExploredWorkflow,
};

/// Saves the task in the state, and records what the event tells about the attempts.
pub(super) fn save(
    workflow: &ExploredWorkflow,
    after: &mut ModelState,
    before: &Task,
    next: &Task,
    event: &Event,
) {
    let mut task = next.clone();
    task.revision += 1;
    for (step, action, number, complete_by) in task.running_attempts() {
        let awaits_event = workflow.awaits_event(&step);
        let edit = task.progress(&step, action).and_then(|progress| progress.input_edit_id.clone());
        let attempt = AttemptId { step, action, number };
        let dispatch = Dispatch {
            sent: false,
            // An event is no side effect of the task.
            known_outcome: match awaits_event {
                true => KnownOutcome::DidNotRun,
                false => KnownOutcome::Unknown,
            },
            decided_at: after.now,
            begins_by: complete_by,
            may_be_in_progress: !awaits_event,
            edit,
            agent: None,
            exclusive: false,
            denied: false,
            settled: false,
            refused: false,
        };
        after.dispatches.entry(attempt).or_insert(dispatch);
    }
    match event {
        Event::ReplyReceived(reply) => {
            after.ran_at_two_agents |= after.is_effect_elsewhere(workflow, reply);
            record_reply(workflow, after, before, reply);
        }
        Event::CallbackReceived { step, edit, .. } => {
            // The call that passes on the token may not have returned.
            let newest = after.dispatches.iter_mut().rfind(|(of, dispatch)| {
                (&of.step, of.action, &dispatch.edit) == (step, Action::Do, edit) && dispatch.sent
            });
            if let Some((_, dispatch)) = newest {
                dispatch.known_outcome = KnownOutcome::MayHaveRun;
            }
        }
        Event::ChildEnded { step, outcome, .. } => record_child_report(after, step, outcome),
        Event::CommandReceived(ReceivedCommand { command, .. }) => {
            after.budget.commands = after.budget.commands.saturating_sub(1);
            after.last_command = Some(command.clone());
            let obeyed = task.commands.last().is_some_and(|record| record.refused.is_none());
            let did_not_run = match &command.action {
                CommandAction::Resubmit { did_not_run, .. }
                | CommandAction::Skip { did_not_run, .. } => *did_not_run,
                CommandAction::Complete { .. }
                | CommandAction::Approve { .. }
                | CommandAction::Reject { .. }
                | CommandAction::Undo
                | CommandAction::Cancel
                | CommandAction::Resolve
                | CommandAction::Pause
                | CommandAction::Resume
                | CommandAction::Rerun { .. } => false,
            };
            if obeyed && did_not_run {
                record_did_not_run(after, before, &command.action);
            }
        }
        // A deferred attempt without a later reply may have run after all.
        Event::Swept => {
            let awaited = before.awaited_attempts();
            for (step, action, number, _) in awaited.filter(|of| !workflow.awaits_event(&of.0)) {
                let given_up = !task.progress(&step, action).is_some_and(is_awaited);
                let dispatch = after.dispatches.get_mut(&AttemptId { step, action, number });
                if let Some(dispatch) = dispatch.filter(|_| given_up) {
                    dispatch.known_outcome = KnownOutcome::Unknown;
                }
            }
        }
        Event::Wake | Event::AlertPublished { .. } | Event::ParentRequested(_) => {}
    }
    // A deferred attempt that is given up or skipped may have run after all, by another delivery.
    if !matches!(
        event,
        Event::ReplyReceived(_) | Event::CallbackReceived { .. } | Event::ChildEnded { .. }
    ) {
        for (step, action, progress) in task.started_actions() {
            let old = before.progress(&step, action);
            let now_may_have_run = progress.may_have_run
                && old.is_some_and(|old| !old.may_have_run && waits_until(old).is_some());
            let attempt = AttemptId { step, action, number: progress.state.attempt_count() };
            if let Some(dispatch) = after.dispatches.get_mut(&attempt).filter(|_| now_may_have_run)
            {
                dispatch.known_outcome = KnownOutcome::Unknown;
                dispatch.may_be_in_progress = true;
            }
        }
    }
    if task.process_state != ProcessState::Error || task.ended_at != before.ended_at {
        after.alerted = false;
    }
    after.task = Some(task);
}

/// Whether a message reports that a part which was not awaited any more took effect, or may have.
pub(super) fn brings_late_news(before: &Task, after: &Task, event: &Event) -> bool {
    let part = match event {
        Event::ReplyReceived(StepReply { step, action: Action::Do, .. })
        | Event::CallbackReceived { step, .. }
        | Event::ChildEnded { step, .. } => step,
        Event::Wake
        | Event::Swept
        | Event::ReplyReceived(_)
        | Event::CommandReceived(_)
        | Event::ParentRequested(_)
        | Event::AlertPublished { .. } => return false,
    };
    let may_have_run = |task: &Task| task.record(part).is_some_and(|r| r.forward.may_have_run);
    let is_over = before.record(part).is_some_and(|r| !is_awaited(&r.forward));
    is_over && may_have_run(after) && !may_have_run(before)
}

/// Records what an accepted reply reports about its attempt. A request may be delivered twice: after a deferral, the
/// agent with the other delivery may make a call.
fn record_reply(
    workflow: &ExploredWorkflow,
    after: &mut ModelState,
    before: &Task,
    reply: &StepReply,
) {
    let StepReply { step, action, attempt: number, outcome, .. } = reply;
    if matches!(outcome, ReplyOutcome::Deferred { .. }) {
        after.budget.deferrals = after.budget.deferrals.saturating_sub(1);
    }
    let ran = outcome.may_have_run();
    let is_over = match outcome {
        ReplyOutcome::Completed { may_continue, .. } => !may_continue,
        ReplyOutcome::Failed { may_have_run, .. } => !may_have_run,
        ReplyOutcome::Deferred { .. } | ReplyOutcome::Unknown { .. } => false,
    };
    // Only one delivery of a request that is not idempotent makes a call.
    let is_called_once = *action == Action::Do && !workflow.definition.steps[&step.step].idempotent;
    let refused = matches!(outcome, ReplyOutcome::Deferred { certain: true, .. });
    let may_act = matches!(outcome, ReplyOutcome::Deferred { .. }) && !is_called_once && !refused;
    // The reply to an attempt before the newest is late, too: an edit of the input has ended that attempt.
    let is_late = before
        .progress(step, *action)
        .is_none_or(|run| !is_awaited(run) || *number < run.state.attempt_count());
    let attempt = AttemptId { step: step.clone(), action: *action, number: *number };
    if workflow.awaits_event(step) {
        return;
    }
    let Some(dispatch) = after.dispatches.get_mut(&attempt) else { return };
    // A reported outcome stays valid when the attempt is given up later.
    dispatch.known_outcome = match dispatch.known_outcome {
        _ if ran => KnownOutcome::MayHaveRun,
        KnownOutcome::Unknown if may_act => KnownOutcome::Unknown,
        KnownOutcome::MayHaveRun => KnownOutcome::MayHaveRun,
        KnownOutcome::Unknown | KnownOutcome::DidNotRun => KnownOutcome::DidNotRun,
    };
    dispatch.may_be_in_progress = !is_over && (ran || may_act);
    dispatch.refused |= refused;
    // The other delivery was reported before.
    if is_late {
        dispatch.begins_by = dispatch.begins_by.min(after.now);
    }
}

/// Records what a child task reports.
fn record_child_report(after: &mut ModelState, step: &Part, outcome: &ChildOutcome) {
    let ran = match outcome {
        ChildOutcome::Processed { .. } | ChildOutcome::Error { .. } => true,
        // Another delivery of the submission may be accepted.
        ChildOutcome::Refused { id_taken, .. } => !id_taken,
        ChildOutcome::Undone { .. } => false,
    };
    let own = after.dispatches.iter_mut().filter(|(attempt, _)| attempt.step == *step);
    if let Some((_, dispatch)) = own.max_by_key(|(attempt, _)| (attempt.action, attempt.number)) {
        dispatch.known_outcome =
            if ran { KnownOutcome::MayHaveRun } else { KnownOutcome::DidNotRun };
    }
}

/// Records an operator's statement that the failed or waiting parts did not run. It names one of them, or concerns all.
fn record_did_not_run(after: &mut ModelState, before: &Task, action: &CommandAction) {
    let stuck = |state: &StepState| match state {
        StepState::Failed { .. } => true,
        StepState::Waiting { .. } => matches!(action, CommandAction::Resubmit { .. }),
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Skipped { .. } => false,
    };
    let named = match action {
        CommandAction::Resubmit { step, .. } | CommandAction::Skip { step, .. } => step.as_ref(),
        CommandAction::Complete { .. }
        | CommandAction::Approve { .. }
        | CommandAction::Reject { .. }
        | CommandAction::Undo
        | CommandAction::Cancel
        | CommandAction::Resolve
        | CommandAction::Pause
        | CommandAction::Resume
        | CommandAction::Rerun { .. } => None,
    };
    let concerns = |part: &Part| {
        named.is_none_or(|named| named == part || (named.item.is_none() && named.step == part.step))
    };
    for (attempt, dispatch) in &mut after.dispatches {
        let progress = before.progress(&attempt.step, attempt.action);
        // It does not concern the attempt that the command starts.
        let stated = |p: &Progress| attempt.number <= p.state.attempt_count() && stuck(&p.state);
        let is_direction = before.direction() == attempt.action;
        if is_direction && concerns(&attempt.step) && progress.is_some_and(stated) {
            dispatch.denied |= dispatch.known_outcome == KnownOutcome::MayHaveRun;
            dispatch.known_outcome = KnownOutcome::DidNotRun;
            dispatch.settled = true;
        }
    }
}
