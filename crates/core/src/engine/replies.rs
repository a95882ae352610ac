//! Decisions on replies: an agent's reply, and a callback.
//!
//! The scheduler ignores a duplicate, and most replies to an attempt that was superseded or abandoned. A late reply counts
//! until its attempt is abandoned. A reply that it completed counts until the undo of the step is requested, also while the
//! next attempt with the same idempotency key waits or runs.

use crate::{
    definition::plan::{CompiledStep, Plan},
    engine::{
        advance::advance,
        decision::IgnoreReason,
        decision_input::{DecisionInput, PendingDecision},
        late_effect::{LateReport, callback_of_earlier_key, late_effect, reply_of_earlier_key},
        lifecycle::MayHaveLost,
        outcome,
        redelivery::may_have_started_next,
    },
    model::{
        attempt::{Action, AttemptId},
        command::CommandId,
        earlier_key::Ran,
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepState},
        task::{ProcessState, Task},
    },
};

/// Decides on an agent's reply.
pub(crate) fn reply_received<'a>(
    input: &DecisionInput<'a, '_>,
    reply: &StepReply,
) -> PendingDecision<'a> {
    let StepReply { step, action, attempt, .. } = reply;
    // An event that comes too late is no side effect.
    let awaits_event = input.inputs.plan.find(&step.step).is_some_and(CompiledStep::awaits_event);
    if let Some(decision) = reply_of_earlier_key(input, reply) {
        return decision;
    }
    if !awaits_event && is_late_reply_of_earlier_attempt(input.inputs.plan, input.task, reply) {
        return late_effect(input, step, &said_by(input.inputs.plan, reply));
    }
    if repeats_success(input.task, reply) {
        return input.duplicate(step);
    }
    if may_have_started_next(input.task, reply) {
        return input.stale_and_own_next(step, *action);
    }
    let progress = match input.progress(step, *action, *attempt, "a reply") {
        Ok(progress) => progress,
        Err(decision) => return decision,
    };
    match &progress.state {
        StepState::Running { .. } if is_deferral_during_undo(input.task, reply) => {
            let redelivered = input.redelivered();
            let again = |_: &Part, action, _| redelivered && action == Action::Undo;
            let mut notify = input.lost_events_if_redelivered(&MayHaveLost::Reply(&step.step));
            if redelivered {
                notify.extend(input.wakes());
            }
            PendingDecision::ignore_and(
                IgnoreReason::StillAwaited,
                input.lost_after_reply(step, again),
                notify,
            )
        }
        StepState::Running { .. } => record_reply(input, reply),
        // The attempt was abandoned or deferred, and no other attempt has started. In a step with a callback, the
        // reply to the call does not complete the step, and it may be a second reply.
        StepState::Waiting { .. }
            if matches!(reply.outcome, ReplyOutcome::Completed { .. })
                && !awaits_callback(input, step, *action) =>
        {
            record_reply(input, reply)
        }
        StepState::Waiting { .. } | StepState::Failed { .. } | StepState::Skipped { .. }
            if *action == Action::Do
                && !awaits_event
                && may_be_news(input.task, step, &said_by(input.inputs.plan, reply))
                && proves_effect(&reply.outcome, &progress.state) =>
        {
            late_effect(input, step, &said_by(input.inputs.plan, reply))
        }
        StepState::Waiting { .. } => input.stale(step, *action),
        StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => input.duplicate(step),
    }
}

/// Decides on a callback.
pub(crate) fn callback_received<'a>(
    input: &DecisionInput<'a, '_>,
    step: &Part,
    edit: Option<&CommandId>,
    answer: &CallbackOutcome,
) -> PendingDecision<'a> {
    let definition = input.inputs.plan.find(&step.step).and_then(|step| step.callback());
    let Some(definition) = definition else {
        return PendingDecision::Illegal(format!("a callback to step `{step}`, which awaits none"));
    };
    let number = match attempt_of_callback(input, step, edit) {
        Ok(number) => number,
        Err(decision) => {
            let CallbackOutcome::Completed { output } = answer else { return decision };
            return callback_of_earlier_key(input, step, edit, output).unwrap_or(decision);
        }
    };
    let progress = match input.progress(step, Action::Do, number, "a callback") {
        Ok(progress) => progress,
        Err(decision) => return decision,
    };
    let heartbeat = *answer == CallbackOutcome::Heartbeat;
    let completes = match answer {
        CallbackOutcome::Completed { output } => Some(definition.check_answer(output).is_ok()),
        CallbackOutcome::Failed { .. } | CallbackOutcome::Heartbeat => None,
    };
    match &progress.state {
        // The call that contains the token has not returned yet.
        StepState::Running { .. } if heartbeat => {
            PendingDecision::ignore(IgnoreReason::StillAwaited)
        }
        StepState::Running { .. } | StepState::AwaitingCallback { .. }
            if completes == Some(false) =>
        {
            PendingDecision::ignore(IgnoreReason::InvalidAnswer)
        }
        StepState::Waiting { .. } if completes != Some(true) => {
            callback_between_attempts(input, step, progress, heartbeat)
        }
        // This also counts between two attempts: all attempts have the same token, so the operation of the token has
        // completed.
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::Waiting { .. } => {
            let mut change = input.change();
            let step = step.clone();
            let attempt = AttemptId { step, action: Action::Do, number };
            outcome::record_callback(&mut change, attempt, answer, None);
            advance(&mut change);
            if change.task == *input.task {
                return PendingDecision::ignore(IgnoreReason::StillAwaited);
            }
            PendingDecision::Change(change)
        }
        StepState::Failed { .. } | StepState::Skipped { .. }
            if !heartbeat && may_be_news(input.task, step, &said_by_answer(answer, completes)) =>
        {
            late_effect(input, step, &said_by_answer(answer, completes))
        }
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => input.duplicate(step),
    }
}

fn record_reply<'a>(input: &DecisionInput<'a, '_>, reply: &StepReply) -> PendingDecision<'a> {
    let mut change = input.change();
    outcome::record_reply(&mut change, reply);
    advance(&mut change);
    PendingDecision::Change(change)
}

/// Decides on a callback between two attempts that does not complete the step. The token is sent with a call, so the
/// callback proves that a call was made.
fn callback_between_attempts<'a>(
    input: &DecisionInput<'a, '_>,
    step: &Part,
    progress: &Progress,
    heartbeat: bool,
) -> PendingDecision<'a> {
    if heartbeat || progress.may_have_run {
        return input.stale(step, Action::Do);
    }
    late_effect(input, step, &LateReport { ran: Ran::Maybe, output: None, may_continue: false })
}

/// Returns the attempt to which a callback belongs. All attempts with the same input have the same token, as they
/// have the same idempotency key. A callback belongs to the newest of them.
fn attempt_of_callback<'a>(
    input: &DecisionInput<'a, '_>,
    step: &Part,
    edit: Option<&CommandId>,
) -> Result<u32, PendingDecision<'a>> {
    match input.task.progress(step, Action::Do) {
        Some(progress) if progress.input_edit_id.as_ref() != edit => {
            Err(input.stale(step, Action::Do))
        }
        Some(progress) => Ok(progress.state.attempt_count()),
        None => {
            let what = format!("a callback to step `{step}`, which never started");
            Err(PendingDecision::Illegal(what))
        }
    }
}

/// Whether the call does not complete the step because it awaits a callback.
fn awaits_callback(input: &DecisionInput<'_, '_>, part: &Part, action: Action) -> bool {
    action == Action::Do && input.inputs.plan.step(&part.step).callback().is_some()
}

/// Whether the reply shows that an earlier attempt took effect, or may have, which was recorded as one that did not,
/// and another attempt has started since.
fn is_late_reply_of_earlier_attempt(plan: &Plan, task: &Task, reply: &StepReply) -> bool {
    // The answer to a callback by an operator completes the call of the attempt.
    let awaits_callback = plan.find(&reply.step.step).is_some_and(|step| step.callback().is_some());
    let progress = task.progress(&reply.step, reply.action);
    progress.is_some_and(|progress| {
        let completed_in_another_way = progress.completed_by_hand.is_some() && !awaits_callback;
        reply.action == Action::Do
            && (1..progress.state.attempt_count()).contains(&reply.attempt)
            && may_be_news(task, &reply.step, &said_by(plan, reply))
            && (completed_in_another_way || !matches!(progress.state, StepState::Completed { .. }))
            && proves_effect(&reply.outcome, &StepState::Failed { attempt: Some(reply.attempt) })
    })
}

/// Whether an earlier attempt ran a part that has completed, perhaps by this reply.
fn repeats_success(task: &Task, reply: &StepReply) -> bool {
    let progress = task.progress(&reply.step, reply.action).map(|progress| &progress.state);
    matches!(reply.outcome, ReplyOutcome::Completed { .. })
        && reply.action == Action::Do
        && matches!(progress, Some(StepState::Completed { attempt: Some(by) }) if reply.attempt < *by)
}

/// Whether an outcome shows that a step ran, or may have, which was recorded as one that did not. A second refusal of a failed
/// step shows nothing new, unless it has a doubt about its own call: an agent that receives a request again assumes that the first
/// delivery may have made a call, and the reply to the first delivery was recorded.
fn proves_effect(outcome: &ReplyOutcome, state: &StepState) -> bool {
    let is_certain = matches!(outcome, ReplyOutcome::Completed { .. });
    let may_be_suspicion = outcome.may_have_run() && matches!(state, StepState::Waiting { .. });
    is_certain || outcome.has_call_in_doubt() || may_be_suspicion
}

/// What a reply says to a part that does not await it. The call of a step with a callback only begins it.
fn said_by<'r>(plan: &Plan, reply: &'r StepReply) -> LateReport<'r> {
    let begins_callback = plan.find(&reply.step.step).is_some_and(|step| step.callback().is_some());
    let may_continue =
        !matches!(reply.outcome, ReplyOutcome::Completed { may_continue: false, .. });
    match &reply.outcome {
        ReplyOutcome::Completed { output, .. } if !begins_callback => {
            LateReport { ran: Ran::Yes, output: Some(output), may_continue }
        }
        ReplyOutcome::Completed { .. }
        | ReplyOutcome::Failed { .. }
        | ReplyOutcome::Deferred { .. }
        | ReplyOutcome::Unknown { .. } => {
            LateReport { ran: Ran::Maybe, output: None, may_continue }
        }
    }
}

/// The same of an answer to a callback: a valid one completes the step.
fn said_by_answer(answer: &CallbackOutcome, completes: Option<bool>) -> LateReport<'_> {
    match answer {
        CallbackOutcome::Completed { output } if completes == Some(true) => {
            LateReport { ran: Ran::Yes, output: Some(output), may_continue: false }
        }
        CallbackOutcome::Completed { .. }
        | CallbackOutcome::Failed { .. }
        | CallbackOutcome::Heartbeat => {
            LateReport { ran: Ran::Maybe, output: None, may_continue: false }
        }
    }
}

/// Whether a report about the key in use may show what a part that does not await it does not know. A success completes the part,
/// unless its undo was requested. A task that is Undone has undone what may have run.
fn may_be_news(task: &Task, part: &Part, report: &LateReport<'_>) -> bool {
    let Some(record) = task.record(part) else { return false };
    let run = &record.forward;
    let may_complete = match run.state {
        StepState::Running { .. } | StepState::Waiting { .. } | StepState::Failed { .. } => {
            !record.undo_of_key_in_use_has_begun() && task.process_state != ProcessState::Undone
        }
        StepState::Skipped { .. } => task.direction() == Action::Do,
        StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. } => false,
    };
    !run.may_have_run || run.completed_by_hand.is_some() || report.ran == Ran::Yes && may_complete
}

/// Whether the reply defers a forward step of a task that is being undone.
fn is_deferral_during_undo(task: &Task, reply: &StepReply) -> bool {
    let deferred = matches!(reply.outcome, ReplyOutcome::Deferred { .. });
    deferred && reply.action == Action::Do && task.direction() == Action::Undo
}
