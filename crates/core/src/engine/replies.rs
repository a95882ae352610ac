//! Decisions on replies: an agent's reply, a callback, and the end of a child task.
//!
//! The scheduler ignores a duplicate, and a reply to an attempt that was superseded or abandoned. A late reply counts
//! while its attempt is the newest: any reply until the attempt is abandoned, and a reply that it completed also
//! while the step waits for the next attempt.

use crate::{
    definition::plan::{CompiledStep, Plan},
    engine::{
        advance::advance,
        agent_in_use, child_outcome,
        decision::IgnoreReason,
        decision_input::{DecisionInput, PendingDecision},
        lifecycle::MayHaveLost,
        outcome,
        request::child_id,
        task_change::TaskChange,
    },
    model::{
        attempt::{Action, AttemptId},
        command::CommandId,
        messages::{CallbackOutcome, ChildOutcome, ReplyOutcome, StepReply},
        names::{Part, TaskId},
        step::{Progress, StepState, StrayEffect},
        task::Task,
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
    if !awaits_event && agent_in_use::is_of_earlier_key(input.task, reply) {
        return reply_of_earlier_key(input, reply);
    }
    if !awaits_event && is_late_reply_of_earlier_attempt(input.inputs.plan, input.task, reply) {
        let progress = input.task.progress(step, *action);
        if progress.is_some_and(|progress| progress.completed_by_hand.is_none()) {
            return late_effect(input, step, Some(&reply.outcome));
        }
        let mut change = input.change();
        agent_in_use::record_stray_reply(&mut change, reply);
        return PendingDecision::Change(change);
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
                && !progress.may_have_run
                && !awaits_event
                && proves_effect(&reply.outcome, &progress.state) =>
        {
            late_effect(input, step, Some(&reply.outcome))
        }
        StepState::Waiting { .. } => input.stale(step, *action),
        StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => input.duplicate(step),
    }
}

/// Decides on a reply to an attempt with another idempotency key: at an agent that the step does not use any more, or before an
/// edit of the input.
fn reply_of_earlier_key<'a>(
    input: &DecisionInput<'a, '_>,
    reply: &StepReply,
) -> PendingDecision<'a> {
    if agent_in_use::reveals_stray_effect(input, reply) {
        let mut change = input.change();
        agent_in_use::record_stray_reply(&mut change, reply);
        PendingDecision::Change(change)
    } else if agent_in_use::has_moved_on(input.task, reply) {
        input.stale_and_own_next(&reply.step, reply.action)
    } else {
        input.stale(&reply.step, reply.action)
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
        Err(_)
            if let Some(attempt) = agent_in_use::refused_before_edit(input.task, step, answer) =>
        {
            let mut change = input.change();
            agent_in_use::record_stray_effect(
                &mut change,
                step,
                StrayEffect::new(attempt, true),
                None,
            );
            change.block_undo_on_call_started_by(change.now(), step, Action::Do);
            return PendingDecision::Change(change);
        }
        Err(decision) => return decision,
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
            if !heartbeat && !progress.may_have_run =>
        {
            late_effect(input, step, None)
        }
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => input.duplicate(step),
    }
}

/// What a child task reports about its end, and what the message says about its sender.
#[derive(Clone, Copy)]
pub(crate) struct ChildReport<'e> {
    /// How it ended.
    pub(crate) outcome: &'e ChildOutcome,
    /// For a refusal: the attempt whose submission was refused.
    pub(crate) refused: Option<u32>,
    /// The child task, if the message names it.
    pub(crate) child: Option<&'e TaskId>,
    /// The revision of the child task, if the message has it.
    pub(crate) revision: Option<u64>,
}

/// Decides on the end of a child task. The report counts for all attempts that submitted this child, and no matter
/// how late it arrives. It does not count if an edit of the input has started another child, or if the child has sent
/// a later report. A refusal concerns one submission only, and a later one may have been accepted.
pub(crate) fn child_ended<'a>(
    input: &DecisionInput<'a, '_>,
    step: &Part,
    report: ChildReport<'_>,
) -> PendingDecision<'a> {
    let ChildReport { outcome, refused, child, revision } = report;
    let runs_task = input.inputs.plan.find(&step.step).is_some_and(|step| step.runs_child());
    let Some(record) = input.task.record(step).filter(|_| runs_task) else {
        return PendingDecision::Illegal(format!("step `{step}` runs no child task"));
    };
    let (action, progress) =
        record.undo.as_ref().map_or((Action::Do, &record.forward), |undo| (Action::Undo, undo));
    let forward = matches!(
        outcome,
        ChildOutcome::Processed { .. }
            // The submission to do it was refused. Another delivery of it may have been accepted.
            | ChildOutcome::Refused { .. }
            | ChildOutcome::Error { not_undone: false, .. }
    );
    if record.forward.child_revision.is_some_and(|last| revision.is_some_and(|now| now < last))
        || child.is_some_and(|child| child_id(input.task, step).ok().as_ref() != Some(child))
        || action == Action::Do && is_refusal_of_another(outcome, refused, progress)
    {
        return input.stale(step, action);
    }
    match &progress.state {
        // The child task has not received the request to undo it yet, or this report started the undo.
        StepState::Running { .. } | StepState::Waiting { .. }
            if forward && action == Action::Undo =>
        {
            if input.redelivered() {
                return input.duplicate(step);
            }
            PendingDecision::ignore(IgnoreReason::StaleReply)
        }
        StepState::Running { .. } | StepState::Waiting { .. } => {
            // The report counts as the first attempt if it arrives before the request to the child.
            let number = progress.state.attempt_count().max(1);
            let mut change = input.change();
            let step = step.clone();
            let attempt = AttemptId { step, action, number };
            child_outcome::record_child(&mut change, attempt, outcome, revision);
            advance(&mut change);
            PendingDecision::Change(change)
        }
        StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => match action {
            Action::Do => child_changed(input, (step, progress), outcome, revision),
            Action::Undo => child_changed_after_undo(
                input,
                (step, &record.forward, progress),
                outcome,
                revision,
            ),
        },
    }
}

/// Decides on a report of a child task whose end the part has recorded, or gave up: an effect has come to light since, or it is gone.
fn child_changed<'a>(
    input: &DecisionInput<'a, '_>,
    (step, run): (&Part, &Progress),
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> PendingDecision<'a> {
    let has_effect = matches!(outcome, ChildOutcome::Processed { .. } | ChildOutcome::Error { .. });
    let may_change = counts_as_not_run(&run.state, run);
    let mut change = input.change();
    if has_effect && may_change && !run.may_have_run {
        child_outcome::record_revision(&mut change, step, revision);
        record_late_effect(change, step, None)
    } else if matches!(outcome, ChildOutcome::Undone { .. })
        && matches!(run.state, StepState::Failed { .. } | StepState::Skipped { .. })
        && run.may_have_run
    {
        child_outcome::record_undone_child(&mut change, step, revision);
        PendingDecision::Change(change)
    } else if matches!(run.state, StepState::Completed { .. })
        && child_outcome::is_effect_after_end(run, outcome, revision)
    {
        child_outcome::record_effect_after_end(&mut change, step, outcome, revision);
        PendingDecision::Change(change)
    } else {
        input.duplicate(step)
    }
}

/// Decides on a report of a child task whose undo has ended.
fn child_changed_after_undo<'a>(
    input: &DecisionInput<'a, '_>,
    (step, run, undo): (&Part, &Progress, &Progress),
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> PendingDecision<'a> {
    let is_undone = matches!(undo.state, StepState::Completed { .. });
    let mut change = input.change();
    if is_undone && child_outcome::is_effect_after_undo(run, outcome, revision) {
        child_outcome::record_effect_after_undo(&mut change, step, revision);
    } else if matches!(outcome, ChildOutcome::Undone { .. })
        && child_outcome::is_newer(run, revision)
    {
        // An effect that it reported before is gone.
        child_outcome::record_revision(&mut change, step, revision);
    } else {
        return input.duplicate(step);
    }
    PendingDecision::Change(change)
}

/// Whether a submission was refused that is not the one of the newest attempt.
fn is_refusal_of_another(
    outcome: &ChildOutcome,
    refused: Option<u32>,
    progress: &Progress,
) -> bool {
    matches!(outcome, ChildOutcome::Refused { .. })
        && refused.is_some_and(|number| Some(number) != progress.state.newest_attempt())
}

fn record_reply<'a>(input: &DecisionInput<'a, '_>, reply: &StepReply) -> PendingDecision<'a> {
    let mut change = input.change();
    outcome::record_reply(&mut change, reply);
    advance(&mut change);
    PendingDecision::Change(change)
}

/// Decides on an attempt that took effect, or may have, although it was recorded as one that did not.
fn late_effect<'a>(
    input: &DecisionInput<'a, '_>,
    step: &Part,
    outcome: Option<&ReplyOutcome>,
) -> PendingDecision<'a> {
    record_late_effect(input.change(), step, outcome)
}

fn record_late_effect<'a>(
    mut change: Box<TaskChange<'a>>,
    step: &Part,
    outcome: Option<&ReplyOutcome>,
) -> PendingDecision<'a> {
    if outcome::record_late_effect(&mut change, step, outcome) {
        advance(&mut change);
    }
    PendingDecision::Change(change)
}

/// Whether a part counts as one that no agent ran: it failed, was skipped, or an operator completed it in another way.
fn counts_as_not_run(state: &StepState, progress: &Progress) -> bool {
    match state {
        StepState::Failed { .. } | StepState::Skipped { .. } => true,
        StepState::Completed { .. } => progress.completed_by_hand.is_some(),
        StepState::Running { .. }
        | StepState::Waiting { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems => false,
    }
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
    late_effect(input, step, None)
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
            && !progress.may_have_run
            && (completed_in_another_way || !matches!(progress.state, StepState::Completed { .. }))
            && proves_effect(&reply.outcome, &StepState::Failed { attempt: Some(reply.attempt) })
    })
}

/// Whether an outcome shows that a step ran, or may have, which was recorded as one that did not. A second refusal of
/// a failed step shows nothing new: an agent that receives a request again assumes that the first delivery may have
/// made a call, and the reply to the first delivery was recorded.
fn proves_effect(outcome: &ReplyOutcome, state: &StepState) -> bool {
    match outcome {
        ReplyOutcome::Completed { .. } | ReplyOutcome::Unknown { .. } => true,
        ReplyOutcome::Failed { .. } | ReplyOutcome::Deferred { .. } => {
            outcome.may_have_run() && matches!(state, StepState::Waiting { .. })
        }
    }
}

/// Whether the reply defers a forward step of a task that is being undone.
fn is_deferral_during_undo(task: &Task, reply: &StepReply) -> bool {
    let deferred = matches!(reply.outcome, ReplyOutcome::Deferred { .. });
    deferred && reply.action == Action::Do && task.direction() == Action::Undo
}
