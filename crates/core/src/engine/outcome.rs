//! Records the outcome of an attempt: completed, failed, deferred or unknown.
//!
//! An outcome comes from an agent's reply, a callback, a child task, or the supervisor, which abandons an overdue
//! attempt. The recovery policy of the step decides what follows a failure: another attempt, an extended wait, the
//! undo of the task, or Error.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    definition::{
        recovery::{FinalAction, RecoveryDecision, seed},
        step::CallbackDefinition,
    },
    engine::{agent_in_use, graph, request::size_error, task_change::TaskChange, undo},
    limits,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::CommandId,
        document::{Document, DocumentKey},
        error_detail::ErrorDetail,
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepState, StrayEffect},
        task::ProcessState,
        time::later,
    },
};

/// The reason of a failure that the supervisor records for an overdue attempt.
pub(crate) const NO_REPLY: &str = "no reply by complete-by";

/// Records an agent's reply.
pub(crate) fn record_reply(change: &mut TaskChange<'_>, reply: &StepReply) {
    let attempt =
        AttemptId { step: reply.step.clone(), action: reply.action, number: reply.attempt };
    let queued_at = reply.times.queued_at.or_else(|| sent_at(change, &attempt));
    match &reply.outcome {
        ReplyOutcome::Completed { output, may_continue } => {
            if *may_continue {
                block_undo_on_call(change, &attempt);
            }
            match callback(change, &attempt) {
                Some(callback) => await_callback(change, attempt, callback),
                None => complete_if_it_fits(change, attempt, output, None),
            }
        }
        ReplyOutcome::Failed { reason, may_have_run, detail } => {
            if *may_have_run {
                block_undo_on_call(change, &attempt);
            }
            fail(change, attempt.clone(), reason, *may_have_run);
            keep_detail(change, attempt, detail.as_ref());
        }
        ReplyOutcome::Deferred { reason, retry_after_ms, may_have_run, certain, detail } => {
            let pause = Duration::from_millis(*retry_after_ms);
            if *may_have_run {
                block_undo_on_call(change, &attempt);
            }
            let did_not_run =
                *certain && !*may_have_run && agent_in_use::may_change(change, &attempt);
            let next = match did_not_run {
                true => agent_in_use::move_on(change, &attempt),
                false => None,
            };
            match next {
                Some(next) => {
                    let verdict = format!("not counted as a failure; agent {next} is next");
                    store_reason(change, DocumentKey::Deferral(attempt.clone()), reason, &verdict);
                }
                None => {
                    let pause = match did_not_run {
                        true => pause.min(limits::AGENTS_PAUSE_MAX),
                        false => pause,
                    };
                    let certainty = match did_not_run {
                        true => Certainty::DidNotRun,
                        false if *may_have_run => Certainty::MayHaveRun,
                        false => Certainty::Unknown,
                    };
                    defer(change, attempt.clone(), reason, pause, certainty);
                }
            }
            keep_detail(change, attempt, detail.as_ref());
        }
        ReplyOutcome::Unknown { reason, detail } => {
            abandon_attempt(change, attempt.clone(), reason);
            keep_detail(change, attempt, detail.as_ref());
        }
    }
    for document in &mut change.documents {
        document.times = AttemptTimes { queued_at, ..reply.times };
    }
}

/// Records a callback. `by` is the operator's command, if an operator answered.
pub(crate) fn record_callback(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    answer: &CallbackOutcome,
    by: Option<&CommandId>,
) {
    // The call that contains the token may not have returned yet.
    if *answer != CallbackOutcome::Heartbeat {
        block_undo_on_call(change, &attempt);
    }
    match answer {
        CallbackOutcome::Completed { output } => complete_if_it_fits(change, attempt, output, by),
        CallbackOutcome::Failed { reason } => fail(change, attempt, reason, true),
        CallbackOutcome::Heartbeat => extend_callback(change, &attempt),
    }
}

/// Records that an attempt took effect, or may have, although it was recorded as one that did not: its request was
/// delivered twice. Returns whether the task may continue now.
///
/// | the task | then |
/// | --- | --- |
/// | is Undone, or in Error after its undo was final | the effect remains: Error |
/// | has a final undo, and the step is the point of no return | the effect remains: Error |
/// | has the step completed by an operator | the undo may revert only what the operator did: Error |
/// | any other | the step is undone with the others, or its next attempt goes on |
pub(crate) fn record_late_effect(
    change: &mut TaskChange<'_>,
    part: &Part,
    outcome: Option<&ReplyOutcome>,
) -> bool {
    let mut is_by_hand = false;
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.may_have_run = true;
        is_by_hand = matches!(progress.state, StepState::Completed { .. });
        if is_by_hand {
            progress.add_stray_effect(StrayEffect::new(progress.state.attempt_count(), true));
        }
    }
    let is_over = outcome.is_none_or(|outcome| {
        matches!(outcome, ReplyOutcome::Completed { may_continue: false, .. })
    });
    if !is_over {
        change.block_undo_on_call_started_by(change.now(), part, Action::Do);
    }
    let is_point_of_no_return = change.plan().step(&part.step).definition.point_of_no_return;
    let is_undone = change.task.process_state == ProcessState::Undone;
    let has_stopped_again =
        change.task.undo_is_final && change.task.process_state == ProcessState::Error;
    let cancels_nothing = is_point_of_no_return && graph::is_undo_final(&change.task);
    if is_undone || has_stopped_again || cancels_nothing {
        change.task.undo_is_final = true;
        let end = if is_undone { "task was undone" } else { "undo began" };
        change.fail_task_again(&format!("step {part} took effect after the {end}"));
    }
    // Its undo may revert only what the operator did.
    if is_by_hand && !change.task.undo_is_final {
        change.fail_task_again(&format!("step {part} took effect, and an operator completed it"));
    }
    let state = change.task.progress(part, Action::Do).map(|progress| progress.state.clone());
    if let Some(StepState::Waiting { attempt: Some(number), .. }) = state {
        if !change.plan().step(&part.step).definition.idempotent {
            let attempt = AttemptId { step: part.clone(), action: Action::Do, number };
            fail(
                change,
                attempt,
                "it may have run, and is not retried because the step is not idempotent",
                true,
            );
        } else if change.task.process_state != ProcessState::Undoing {
            // The wake at the end of the wait starts the next attempt. If its request is lost, it is sent again.
            return false;
        }
    }
    true
}

/// Completes an attempt, and stores its output. `by` is the operator's command, if an operator completed it.
pub(crate) fn complete(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    output: &Value,
    by: Option<&CommandId>,
) {
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        progress.state = StepState::Completed { attempt: Some(attempt.number) };
        progress.completed_by_hand = by.cloned();
    }
    change.task.count_output(&attempt, output);
    let key = match by {
        Some(command) => DocumentKey::OperatorOutput(attempt, command.clone()),
        None => DocumentKey::Output(attempt),
    };
    change.documents.push(Document::new(key, change.now(), output.clone()));
}

pub(super) fn complete_if_it_fits(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    output: &Value,
    by: Option<&CommandId>,
) {
    match size_error("output", output) {
        None => complete(change, attempt, output, by),
        // The step has run.
        Some(reason) => fail(change, attempt, &reason, true),
    }
}

/// Records a permanent failure: another attempt would fail as well.
pub(crate) fn fail(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    reason: &str,
    may_have_run: bool,
) {
    let action = final_action(change, &attempt);
    let next = StepState::Failed { attempt: attempt.started() };
    count_failure(change, &attempt, next, reason, &RecoveryDecision::GiveUp(action), may_have_run);
    apply_final_action(change, &attempt, reason, action);
}

/// Adds what the service said to the document of a failed or deferred attempt. Only operators see the document.
fn keep_detail(change: &mut TaskChange<'_>, attempt: AttemptId, detail: Option<&ErrorDetail>) {
    let keys = [DocumentKey::Failure(attempt.clone()), DocumentKey::Deferral(attempt)];
    let reason = change.documents.iter_mut().find(|document| keys.contains(&document.key));
    let reason_key = reason.as_ref().map(|document| document.key.clone());
    if let (Some(detail), Some(Value::Object(body))) = (detail, reason.map(|found| &mut found.body))
    {
        let detail = match reason_key {
            Some(DocumentKey::Deferral(_)) => detail.shortened(limits::DEFERRAL_DETAIL_BYTES_MAX),
            _ => detail.clone(),
        };
        body.insert("detail".to_owned(), detail.as_str().into());
    }
}

/// Abandons an attempt that ended without a final outcome. It is unknown whether it took effect.
pub(crate) fn abandon_attempt(change: &mut TaskChange<'_>, attempt: AttemptId, reason: &str) {
    block_undo_on_call(change, &attempt);
    let (verdict, queued_at) = (recovery_decision(change, &attempt), sent_at(change, &attempt));
    let (now, number) = (change.now(), attempt.number);
    let wait = match verdict {
        RecoveryDecision::Retry { pause, .. } => Some(pause),
        RecoveryDecision::ExtendedWait { wait, .. } => Some(wait),
        RecoveryDecision::GiveUp(_) => None,
    };
    let next = match wait {
        Some(wait) => StepState::waiting(Some(number), later(now, wait)),
        None => StepState::Failed { attempt: Some(number) },
    };
    count_failure(change, &attempt, next, reason, &verdict, true);
    if let Some(failure) = change.documents.last_mut() {
        failure.times.queued_at = queued_at;
    }
    match verdict {
        RecoveryDecision::Retry { pause: wait, .. }
        | RecoveryDecision::ExtendedWait { wait, .. } => {
            change.wakes.after(wait);
        }
        RecoveryDecision::GiveUp(then) => {
            apply_final_action(change, &attempt, &format!("{reason}, attempt {number}"), then);
        }
    }
}

/// Handles a task that is past its own complete-by.
pub(crate) fn expire(change: &mut TaskChange<'_>) {
    match (change.task.process_state, change.plan().overdue) {
        (ProcessState::Pending | ProcessState::Processing, FinalAction::Alert) => {
            change.fail_task("the task was not done by its complete-by");
        }
        (ProcessState::Pending | ProcessState::Processing, FinalAction::Undo) => {
            undo::begin(change, "the task was not done by its complete-by");
        }
        (ProcessState::Undoing, _) => {
            change.fail_task("the task was not undone by its complete-by");
        }
        (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
    }
}

/// What a deferral says about the deliveries of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// A delivery may have run the step.
    MayHaveRun,
    /// No delivery has run the step or will run it.
    DidNotRun,
    /// This delivery did not run the step; another may still run it.
    Unknown,
}

/// Defers an attempt: the agent could not call the service now, for example because its circuit breaker is open. This
/// does not count as a failure.
fn defer(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    reason: &str,
    pause: Duration,
    certainty: Certainty,
) {
    let did_not_run = certainty == Certainty::DidNotRun;
    let repeatable = is_repeatable(change, &attempt);
    // Another delivery of an earlier attempt's request may have made a call.
    let progress = change.task.progress(&attempt.step, attempt.action);
    let may_have_run = certainty == Certainty::MayHaveRun
        || progress.is_some_and(|progress| progress.may_have_run);
    if may_have_run && !repeatable {
        // Of an idempotent step, another delivery of the request may still make a call.
        let step = change.plan().step(&attempt.step.step);
        if step.is_repeatable(attempt.action) && !did_not_run {
            block_undo_on_call(change, &attempt);
        }
        return fail(change, attempt, reason, may_have_run);
    }
    let pause = pause.clamp(limits::STEP_WITHIN_MIN, limits::WAIT_MAX);
    let until = later(change.now(), pause);
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        let complete_by = match progress.state {
            StepState::Running { complete_by, .. } => (!did_not_run).then_some(complete_by),
            StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => None,
        };
        progress.state = StepState::Waiting { attempt: Some(attempt.number), until, complete_by };
        progress.may_have_run |= may_have_run;
    }
    let verdict =
        format!("not counted as a failure; retry after {}", humantime::format_duration(pause));
    store_reason(change, DocumentKey::Deferral(attempt), reason, &verdict);
    change.wakes.after(pause);
}

/// Awaits the callback of a step whose call has returned. While a task is being undone, it awaits no callback except
/// that of the point of no return.
fn await_callback(change: &mut TaskChange<'_>, attempt: AttemptId, callback: &CallbackDefinition) {
    let is_point_of_no_return =
        change.plan().step(&attempt.step.step).definition.point_of_no_return;
    if change.task.process_state == ProcessState::Undoing && !is_point_of_no_return {
        return fail(
            change,
            attempt,
            "the task is being undone, so the callback is no longer awaited",
            true,
        );
    }
    let answer_by = later(change.now(), callback.within).min(change.task.complete_by);
    let complete_by = callback_due(change.now(), callback, answer_by);
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        let attempt = attempt.number;
        progress.state = StepState::AwaitingCallback { attempt, complete_by, answer_by };
    }
}

fn extend_callback(change: &mut TaskChange<'_>, attempt: &AttemptId) {
    let Some(callback) = callback(change, attempt) else { return };
    let now = change.now();
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action)
        && let StepState::AwaitingCallback { complete_by, answer_by, .. } = &mut progress.state
    {
        *complete_by = callback_due(now, callback, *answer_by);
    }
}

/// Returns the time by which the callback or its next heartbeat must arrive.
fn callback_due(now: Timestamp, callback: &CallbackDefinition, answer_by: Timestamp) -> Timestamp {
    callback.heartbeat.map_or(answer_by, |heartbeat| later(now, heartbeat).min(answer_by))
}

fn callback<'a>(change: &TaskChange<'a>, attempt: &AttemptId) -> Option<&'a CallbackDefinition> {
    let callback = change.plan().step(&attempt.step.step).callback();
    callback.filter(|_| attempt.action == Action::Do)
}

fn sent_at(
    change: &TaskChange<'_>,
    AttemptId { step, action, .. }: &AttemptId,
) -> Option<Timestamp> {
    change.plan().sent_at(&change.task, step, *action)
}

/// Blocks the undo on the call of an attempt that ended with an unknown outcome: the call may still be in progress at
/// the service. The undos of the part and of its predecessors wait until the call must have ended.
fn block_undo_on_call(change: &mut TaskChange<'_>, AttemptId { step, action, .. }: &AttemptId) {
    // Another agent may still process a deferred attempt.
    let Some(
        StepState::Running { complete_by, .. }
        | StepState::Waiting { complete_by: Some(complete_by), .. },
    ) = change.task.progress(step, *action).map(|progress| &progress.state)
    else {
        return;
    };
    change.block_undo_on_call_started_by(*complete_by, step, *action);
}

/// Returns the decision of the recovery policy on a failure of this attempt that is not permanent.
fn recovery_decision(change: &TaskChange<'_>, attempt: &AttemptId) -> RecoveryDecision {
    let AttemptId { step, action, number } = attempt;
    let definition = change.plan().step(&step.step);
    let Some(policy) = definition.action(*action) else {
        return RecoveryDecision::GiveUp(FinalAction::Alert);
    };
    let is_repeated = is_repeatable(change, attempt) && !definition.awaits_event();
    if !is_repeated || is_abandoned(change, attempt) {
        return RecoveryDecision::GiveUp(policy.recovery.then);
    }
    let failures = change.task.progress(step, *action).map_or(0, |p| p.failure_count) + 1;
    policy.recovery.verdict(failures, seed(&change.task.task_id, step, *action, *number))
}

/// Whether Steward may send another request after one that may have taken effect. The agent in use does not know the key of an
/// earlier one that ran the step, so an operator decides first.
fn is_repeatable(change: &TaskChange<'_>, AttemptId { step, action, .. }: &AttemptId) -> bool {
    let progress = change.task.progress(step, *action);
    change.plan().step(&step.step).is_repeatable(*action)
        && !progress.is_some_and(Progress::has_stray_effect)
}

fn final_action(change: &TaskChange<'_>, attempt: &AttemptId) -> FinalAction {
    let policy = change.plan().step(&attempt.step.step).action(attempt.action);
    policy.map_or(FinalAction::Alert, |policy| policy.recovery.then)
}

/// Whether the attempt belongs to a forward step of a task that is being undone. Such an attempt is only awaited, and
/// never retried.
fn is_abandoned(change: &TaskChange<'_>, attempt: &AttemptId) -> bool {
    attempt.action == Action::Do && change.task.direction() == Action::Undo
}

fn count_failure(
    change: &mut TaskChange<'_>,
    attempt: &AttemptId,
    next: StepState,
    reason: &str,
    verdict: &RecoveryDecision,
    may_have_run: bool,
) {
    // A step that only waits for an event has no side effect.
    let may_have_run = may_have_run && !change.plan().step(&attempt.step.step).awaits_event();
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        progress.state = next;
        progress.failure_count += 1;
        progress.may_have_run |= may_have_run;
    }
    change.task.failure_count += 1;
    let verdict = match is_abandoned(change, attempt) {
        true => "the task is being undone".to_owned(),
        false => verdict.to_string(),
    };
    store_reason(change, DocumentKey::Failure(attempt.clone()), reason, &verdict);
}

fn store_reason(change: &mut TaskChange<'_>, key: DocumentKey, reason: &str, verdict: &str) {
    let reason = limits::short_line(reason, limits::REASON_CHARS_MAX);
    let body = json!({ "reason": reason, "verdict": verdict });
    change.documents.push(Document::new(key, change.now(), body));
}

/// Applies the final action of the recovery policy: the task is undone, or stops in Error.
fn apply_final_action(
    change: &mut TaskChange<'_>,
    attempt: &AttemptId,
    reason: &str,
    action: FinalAction,
) {
    let step = &attempt.step;
    match (change.task.process_state, attempt.action) {
        (ProcessState::Pending | ProcessState::Processing, _) => {
            let reason = format!("step {step}: {reason}");
            match action {
                FinalAction::Alert => change.fail_task(&reason),
                FinalAction::Undo => undo::begin(change, &reason),
            }
        }
        (ProcessState::Undoing, Action::Undo) => {
            change.fail_task(&format!("undo of step {step}: {reason}"));
        }
        (ProcessState::Undoing, Action::Do)
        | (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
    }
}
#[cfg(test)]
mod tests;
