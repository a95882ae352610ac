//! Decisions on what comes back: an agent's reply, the answer to a callback, and the end of the task of a step.
//!
//! A duplicate, and a reply to an attempt that was superseded or given up, are ignored. A late reply counts while its attempt is
//! the newest: any that arrives before the attempt is given up, and one that says that the attempt completed also while the
//! scheduler waits for the next attempt.

use crate::{
    engine::{
        advance::advance,
        case::{Case, Decision},
        change::Change,
        decision::Ignored,
        outcome,
        redelivery::in_progress,
        request::child_id,
    },
    model::{
        attempt::{Action, Attempt},
        messages::{Answer, ChildOutcome, Outcome, StepReply},
        names::{CallbackFence, Part, TaskId},
        step::{Progress, StepState},
        task::Task,
    },
};

/// An agent's reply.
pub(crate) fn replied<'a>(case: &Case<'a, '_>, reply: &StepReply) -> Decision<'a> {
    let StepReply { step, action, attempt, .. } = reply;
    if is_news_of_an_earlier_attempt(case.task, reply) {
        return late_effect(case, step, Some(&reply.outcome));
    }
    let progress = match case.progress(step, *action, *attempt, "a reply") {
        Ok(progress) => progress,
        Err(decision) => return decision,
    };
    match &progress.state {
        StepState::Running { .. } if is_only_awaited(case.task, reply) => {
            let redelivered = case.redelivered();
            let again = |_: &Part, action, _| redelivered && action == Action::Undo;
            let notify = if redelivered { case.wakes() } else { Vec::new() };
            Decision::ignore_and(Ignored::StillAwaited, in_progress(case.task, again), notify)
        }
        StepState::Running { .. } => record_reply(case, reply),
        // The attempt was given up or deferred, and no other has begun. The reply to a call that only
        // began a step with a callback does not complete it, and may be a second one.
        StepState::Waiting { .. }
            if matches!(reply.outcome, Outcome::Completed { .. })
                && !awaits_callback(case, step, *action) =>
        {
            record_reply(case, reply)
        }
        StepState::Waiting { .. } | StepState::Failed { .. } | StepState::Skipped { .. }
            if *action == Action::Do
                && !progress.may_have_run
                && proves_effect(&reply.outcome, &progress.state) =>
        {
            late_effect(case, step, Some(&reply.outcome))
        }
        StepState::Waiting { .. } => case.stale(step, *action),
        StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => case.duplicate(step),
    }
}

/// The answer to a callback.
pub(crate) fn answered<'a>(
    case: &Case<'a, '_>,
    step: &Part,
    fence: &CallbackFence,
    answer: &Answer,
) -> Decision<'a> {
    let definition = case.inputs.plan.find(&step.step);
    if definition.is_none_or(|step| step.callback().is_none()) {
        return Decision::Illegal(format!("an answer to step `{step}`, which has no callback"));
    }
    let number = match answered_attempt(case, step, fence) {
        Ok(number) => number,
        Err(decision) => return decision,
    };
    let progress = match case.progress(step, Action::Do, number, "an answer") {
        Ok(progress) => progress,
        Err(decision) => return decision,
    };
    let heartbeat = *answer == Answer::Heartbeat;
    match &progress.state {
        // The call that passes the token on has not returned yet.
        StepState::Running { .. } if heartbeat => Decision::ignore(Ignored::StillAwaited),
        StepState::Waiting { .. } if !matches!(answer, Answer::Completed { .. }) => {
            answered_between_attempts(case, step, progress, heartbeat)
        }
        // Between two attempts: all have the same token, so the operation that it names has completed.
        StepState::Running { .. } | StepState::HandedOut { .. } | StepState::Waiting { .. } => {
            let mut change = case.change();
            let step = step.clone();
            let attempt = Attempt { step, action: Action::Do, number };
            outcome::record_callback(&mut change, attempt, answer);
            advance(&mut change);
            if change.task == *case.task {
                return Decision::ignore(Ignored::StillAwaited);
            }
            Decision::Change(change)
        }
        StepState::Failed { .. } | StepState::Skipped { .. }
            if !heartbeat && !progress.may_have_run =>
        {
            late_effect(case, step, None)
        }
        StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => case.duplicate(step),
    }
}

/// The end of the task of a step. It holds whichever attempt submitted that task, and however late the report arrives; but
/// not if an edit of the input has made it another task, nor if that task has reported something later. A refusal is about
/// one submission only: a later one may have been accepted.
pub(crate) fn child_ended<'a>(
    case: &Case<'a, '_>,
    step: &Part,
    outcome: &ChildOutcome,
    refused: Option<u32>,
    (child, revision): (Option<&TaskId>, Option<u64>),
) -> Decision<'a> {
    let runs_task = case.inputs.plan.find(&step.step).is_some_and(|step| step.runs_child());
    let Some(record) = case.task.record(step).filter(|_| runs_task) else {
        return Decision::Illegal(format!("step `{step}` runs no task"));
    };
    let (action, progress) =
        record.undo.as_ref().map_or((Action::Do, &record.run), |undo| (Action::Undo, undo));
    let forward = matches!(
        outcome,
        ChildOutcome::Processed { .. }
            // Its submission was refused when it was to be done: another delivery may have been accepted.
            | ChildOutcome::Refused { .. }
            | ChildOutcome::Error { not_undone: false, .. }
    );
    let runs = child_id(case.task, step).ok();
    let is_earlier = |last: u64| revision.is_some_and(|revision| revision < last);
    if child.is_some_and(|child| runs.as_ref() != Some(child))
        || record.run.child_revision.is_some_and(is_earlier)
    {
        return case.stale(step, action);
    }
    let is_refusal = matches!(outcome, ChildOutcome::Refused { .. });
    let is_of_another = refused.is_some_and(|number| number != progress.state.attempt());
    if is_refusal && is_of_another && action == Action::Do {
        return case.stale(step, action);
    }
    match &progress.state {
        // The task of the step does not know yet that it is to be undone; or this report began the undo.
        StepState::Running { .. } | StepState::Waiting { .. }
            if forward && action == Action::Undo =>
        {
            if case.redelivered() {
                return case.duplicate(step);
            }
            Decision::ignore(Ignored::StaleReply)
        }
        StepState::Running { attempt, .. } | StepState::Waiting { attempt, .. } => {
            let mut change = case.change();
            let (step, number) = (step.clone(), *attempt);
            let attempt = Attempt { step, action, number };
            outcome::record_child(&mut change, attempt, outcome, revision);
            advance(&mut change);
            Decision::Change(change)
        }
        StepState::Failed { .. } | StepState::Skipped { .. }
            if action == Action::Do
                && !progress.may_have_run
                && matches!(
                    outcome,
                    ChildOutcome::Processed { .. } | ChildOutcome::Error { .. }
                ) =>
        {
            late_effect(case, step, None)
        }
        StepState::Failed { .. } | StepState::Skipped { .. }
            if action == Action::Do
                && progress.may_have_run
                && matches!(outcome, ChildOutcome::Undone { .. }) =>
        {
            let mut change = case.change();
            outcome::record_undone_child(&mut change, step, revision);
            Decision::Change(change)
        }
        StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => case.duplicate(step),
    }
}

fn record_reply<'a>(case: &Case<'a, '_>, reply: &StepReply) -> Decision<'a> {
    let mut change = case.change();
    outcome::record_reply(&mut change, reply);
    advance(&mut change);
    Decision::Change(change)
}

/// An attempt took effect, or may have, although it was recorded as one that did not.
fn late_effect<'a>(case: &Case<'a, '_>, step: &Part, outcome: Option<&Outcome>) -> Decision<'a> {
    let mut change: Box<Change<'a>> = case.change();
    if outcome::record_late_effect(&mut change, step, outcome) {
        advance(&mut change);
    }
    Decision::Change(change)
}

/// An answer that completes nothing, between two attempts. An agent passes the token on with a call, so it proves that a call
/// was made.
fn answered_between_attempts<'a>(
    case: &Case<'a, '_>,
    step: &Part,
    progress: &Progress,
    heartbeat: bool,
) -> Decision<'a> {
    if heartbeat || progress.may_have_run {
        return case.stale(step, Action::Do);
    }
    late_effect(case, step, None)
}

/// The attempt that an answer is for. All attempts that are made from one input have the same token, as
/// they have the same idempotency key: an answer is for the newest of them.
fn answered_attempt<'a>(
    case: &Case<'a, '_>,
    step: &Part,
    fence: &CallbackFence,
) -> Result<u32, Decision<'a>> {
    let edit = match fence {
        CallbackFence::Attempt(number) => return Ok(*number),
        CallbackFence::Request { edit } => edit,
    };
    match case.task.progress(step, Action::Do) {
        Some(progress) if progress.input != *edit => Err(case.stale(step, Action::Do)),
        Some(progress) => Ok(progress.state.attempt()),
        None => {
            let what = format!("an answer to step `{step}`, which never started");
            Err(Decision::Illegal(what))
        }
    }
}

/// Whether a call only begins the step, which is completed by a callback.
fn awaits_callback(case: &Case<'_, '_>, part: &Part, action: Action) -> bool {
    action == Action::Do && case.inputs.plan.step(&part.step).callback().is_some()
}

/// Whether an attempt took effect, or may have, that was recorded as one that did not, and another has
/// begun since.
fn is_news_of_an_earlier_attempt(task: &Task, reply: &StepReply) -> bool {
    let progress = task.progress(&reply.step, reply.action);
    progress.is_some_and(|progress| {
        reply.action == Action::Do
            && (1..progress.state.attempt()).contains(&reply.attempt)
            && !progress.may_have_run
            && !matches!(progress.state, StepState::Completed { .. })
            && proves_effect(&reply.outcome, &StepState::Failed { attempt: reply.attempt })
    })
}

/// Whether an outcome shows that a step ran, or may have, that was recorded as one that did not. A second refusal of a
/// step that has failed shows nothing new: an agent that receives a request again assumes that the first delivery
/// may have made a call, and the reply to that one was recorded.
fn proves_effect(outcome: &Outcome, state: &StepState) -> bool {
    match outcome {
        Outcome::Completed { .. } | Outcome::Unknown { .. } => true,
        Outcome::Failed { .. } | Outcome::Deferred { .. } => {
            outcome.may_have_run() && matches!(state, StepState::Waiting { .. })
        }
    }
}

/// Whether the reply says that a step of a task that goes backward was deferred.
fn is_only_awaited(task: &Task, reply: &StepReply) -> bool {
    let deferred = matches!(reply.outcome, Outcome::Deferred { .. });
    deferred && reply.action == Action::Do && task.direction() == Action::Undo
}
