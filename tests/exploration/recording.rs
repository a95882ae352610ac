//! Saves a decision in a state, and records what the event tells about the attempts. The invariants use these records instead
//! of the core's own.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, Attempt},
        command::Order,
        messages::{ChildOutcome, Outcome, StepReply},
        names::{CallbackFence, Part},
        step::StepState,
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
    for (step, action, number, complete_by) in task.running() {
        let attempt = Attempt { step, action, number };
        let dispatch = Dispatch {
            sent: false,
            known_outcome: KnownOutcome::Unknown,
            begins_by: complete_by,
            may_be_in_progress: true,
        };
        after.dispatches.entry(attempt).or_insert(dispatch);
    }
    match event {
        Event::Replied(reply) => record_reply(workflow, after, before, reply),
        Event::Answered { step, fence: CallbackFence::Attempt(attempt), .. } => {
            let attempt = Attempt { step: step.clone(), action: Action::Do, number: *attempt };
            // The call that passes on the token may not have returned.
            if let Some(dispatch) = after.dispatches.get_mut(&attempt) {
                dispatch.known_outcome = KnownOutcome::MayHaveRun;
            }
        }
        Event::Answered { fence: CallbackFence::Request { .. }, .. } => {}
        Event::ChildEnded { step, outcome, .. } => record_child_report(after, step, outcome),
        Event::Commanded(command) => {
            after.budget.commands = after.budget.commands.saturating_sub(1);
            after.last_command = Some(command.clone());
            let obeyed = task.commands.last().is_some_and(|record| record.refused.is_none());
            let did_not_run = match &command.order {
                Order::Resubmit { did_not_run, .. } | Order::Skip { did_not_run, .. } => {
                    *did_not_run
                }
                Order::Complete { .. }
                | Order::Undo
                | Order::Cancel
                | Order::Pause
                | Order::Resume => false,
            };
            if obeyed && did_not_run {
                record_did_not_run(after, before, &command.order);
            }
        }
        // A deferred attempt without a later reply may have run after all.
        Event::Swept => {
            for (step, action, number, _) in before.awaited() {
                let given_up = !task.progress(&step, action).is_some_and(is_awaited);
                let dispatch = after.dispatches.get_mut(&Attempt { step, action, number });
                if let Some(dispatch) = dispatch.filter(|_| given_up) {
                    dispatch.known_outcome = KnownOutcome::Unknown;
                }
            }
        }
        Event::Wake | Event::AlertSent { .. } | Event::Asked(_) => {}
    }
    // A deferred attempt that is given up or skipped may have run after all, by another delivery.
    if !matches!(event, Event::Replied(_) | Event::Answered { .. } | Event::ChildEnded { .. }) {
        for (step, action, progress) in task.actions() {
            let old = before.progress(&step, action);
            let now_may_have_run = progress.may_have_run
                && old.is_some_and(|old| !old.may_have_run && waits_until(old).is_some());
            let attempt = Attempt { step, action, number: progress.state.attempt() };
            if let Some(dispatch) = after.dispatches.get_mut(&attempt).filter(|_| now_may_have_run)
            {
                dispatch.known_outcome = KnownOutcome::Unknown;
                dispatch.may_be_in_progress = true;
            }
        }
    }
    after.late_news |= brings_late_news(before, &task, event);
    if task.process_state != ProcessState::Error || task.ended_at != before.ended_at {
        after.alerted = false;
    }
    after.task = Some(task);
}

/// Whether a message reports that a part which was not awaited any more took effect, or may have.
pub(super) fn brings_late_news(before: &Task, after: &Task, event: &Event) -> bool {
    let part = match event {
        Event::Replied(StepReply { step, action: Action::Do, .. })
        | Event::Answered { step, .. }
        | Event::ChildEnded { step, .. } => step,
        Event::Wake
        | Event::Swept
        | Event::Replied(_)
        | Event::Commanded(_)
        | Event::Asked(_)
        | Event::AlertSent { .. } => return false,
    };
    let may_have_run = |task: &Task| task.record(part).is_some_and(|r| r.run.may_have_run);
    let is_over = before.record(part).is_some_and(|r| !is_awaited(&r.run));
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
    if matches!(outcome, Outcome::Deferred { .. }) {
        after.budget.deferrals = after.budget.deferrals.saturating_sub(1);
    }
    let ran = outcome.may_have_run();
    let is_over = match outcome {
        Outcome::Completed { may_continue, .. } => !may_continue,
        Outcome::Failed { may_have_run, .. } => !may_have_run,
        Outcome::Deferred { .. } | Outcome::Unknown { .. } => false,
    };
    // Only one delivery of a request that is not idempotent makes a call.
    let is_called_once = *action == Action::Do && !workflow.definition.steps[&step.step].idempotent;
    let may_act = matches!(outcome, Outcome::Deferred { .. }) && !is_called_once;
    let is_late = !before.progress(step, *action).is_some_and(is_awaited);
    let attempt = Attempt { step: step.clone(), action: *action, number: *number };
    let Some(dispatch) = after.dispatches.get_mut(&attempt) else { return };
    // A reported outcome stays valid when the attempt is given up later.
    dispatch.known_outcome = match dispatch.known_outcome {
        _ if ran => KnownOutcome::MayHaveRun,
        KnownOutcome::Unknown if may_act => KnownOutcome::Unknown,
        KnownOutcome::MayHaveRun => KnownOutcome::MayHaveRun,
        KnownOutcome::Unknown | KnownOutcome::DidNotRun => KnownOutcome::DidNotRun,
    };
    dispatch.may_be_in_progress = !is_over && (ran || may_act);
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

/// Records an operator's statement that the failed or waiting parts did not run.
fn record_did_not_run(after: &mut ModelState, before: &Task, order: &Order) {
    let stuck = |state: &StepState| match state {
        StepState::Failed { .. } => true,
        StepState::Waiting { .. } => matches!(order, Order::Resubmit { .. }),
        StepState::Running { .. }
        | StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Completed { .. }
        | StepState::Skipped { .. } => false,
    };
    for (attempt, dispatch) in &mut after.dispatches {
        let progress = before.progress(&attempt.step, attempt.action);
        if before.direction() == attempt.action && progress.is_some_and(|p| stuck(&p.state)) {
            dispatch.known_outcome = KnownOutcome::DidNotRun;
        }
    }
}
