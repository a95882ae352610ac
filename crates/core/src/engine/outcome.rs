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
        recovery::{FinalAction, Overdue, RecoveryDecision, seed},
        step::CallbackDefinition,
    },
    engine::{
        agent_choice,
        graph::{self, PointOfNoReturn},
        request::size_error,
        task_change::TaskChange,
        undo,
    },
    limits,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::CommandId,
        document::{Document, DocumentKey},
        error_detail::ErrorDetail,
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, StopCause},
        time::later,
    },
};

/// Records an agent's reply.
pub(crate) fn record_reply(change: &mut TaskChange<'_>, reply: &StepReply) {
    let attempt =
        AttemptId { step: reply.step.clone(), action: reply.action, number: reply.attempt };
    let queued_at = reply.times.queued_at.or_else(|| sent_at(change, &attempt));
    let may_have_run = reply.outcome.may_have_run();
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
        ReplyOutcome::Failed { reason, detail, .. } => {
            if may_have_run {
                block_undo_on_call(change, &attempt);
            }
            fail(change, attempt.clone(), reason, may_have_run);
            keep_detail(change, attempt, detail.as_ref());
        }
        ReplyOutcome::Deferred { reason, retry_after_ms, certain, detail, .. } => {
            let pause = Duration::from_millis(*retry_after_ms);
            if may_have_run {
                block_undo_on_call(change, &attempt);
            }
            let did_not_run =
                *certain && !may_have_run && agent_choice::may_change(change, &attempt);
            // Past its time limit, it fails below.
            let is_late = time_limit_before(change, &attempt, change.now(), false).is_some();
            let next = match did_not_run && !is_late {
                true => agent_choice::move_on(change, &attempt, pause),
                false => Err(pause),
            };
            match next {
                Ok(next) => {
                    let verdict = format!("not counted as a failure; agent {next} is next");
                    store_reason(change, DocumentKey::Deferral(attempt.clone()), reason, &verdict);
                }
                Err(pause) => {
                    let certainty = match did_not_run {
                        true => Certainty::DidNotRun,
                        false if may_have_run => Certainty::MayHaveRun,
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
    if matches!(answer, CallbackOutcome::Completed { .. }) {
        change.note_answer_during_call(&attempt);
    }
    match answer {
        CallbackOutcome::Completed { output } => complete_if_it_fits(change, attempt, output, by),
        CallbackOutcome::Failed { reason } if by.is_some() => fail(change, attempt, reason, true),
        // What a service says may be data of a person: `forget` erases details, and a mask hides them.
        CallbackOutcome::Failed { reason } => {
            fail(change, attempt.clone(), "the callback reported a failure", true);
            keep_detail(change, attempt, Some(&ErrorDetail::from(reason.clone())));
        }
        CallbackOutcome::Heartbeat => extend_callback(change, &attempt),
    }
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
    if attempt.action == Action::Undo
        && let Some(record) = change.task.part_record_mut(&attempt.step)
    {
        record.complete_undo();
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
    let next = given_up(change, &attempt, attempt.started(), action);
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
    let (mut verdict, queued_at) = (recovery_decision(change, &attempt), sent_at(change, &attempt));
    let (now, number) = (change.now(), attempt.number);
    let mut reason = reason.to_owned();
    let begins = verdict.pause().map(|pause| later(now, pause));
    if let Some(limit) = begins.and_then(|at| time_limit_before(change, &attempt, at, true)) {
        verdict = RecoveryDecision::GiveUp(final_action(change, &attempt));
        reason = format!("no retry within {limit}: {reason}");
    }
    let next = match verdict {
        RecoveryDecision::Retry { pause: wait, .. }
        | RecoveryDecision::ExtendedWait { wait, .. } => {
            StepState::waiting(Some(number), later(now, wait))
        }
        RecoveryDecision::GiveUp(then) => given_up(change, &attempt, Some(number), then),
    };
    count_failure(change, &attempt, next, &reason, &verdict, true);
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

/// Fails a part that still waits after its time limit, because the scheduler was woken late, or the task was paused.
pub(crate) fn give_up(change: &mut TaskChange<'_>, attempt: &AttemptId) {
    let AttemptId { step, action, number } = attempt;
    let Some(progress) = change.task.progress(step, *action) else { return };
    let limit = time_limit_before(change, attempt, change.now(), progress.is_in_doubt());
    if let Some(complete_by) = progress.state.deferred_by() {
        change.block_undo_on_deferred_attempt(complete_by, step, *action);
    }
    let then = final_action(change, attempt);
    let next = given_up(change, attempt, Some(*number), then);
    if let Some(progress) = change.task.progress_mut(step, *action) {
        progress.state = next;
    }
    let limit = limit.unwrap_or(GIVE_UP_AFTER);
    apply_final_action(change, attempt, &format!("{limit} is over"), then);
}

/// Handles a task that is past its own complete-by.
pub(crate) fn expire(change: &mut TaskChange<'_>) {
    let done = if change.task.direction() == Action::Do { "done" } else { "undone" };
    end_late(change, &format!("the task was not {done} by its complete-by"));
}

/// Ends a task that is not done, or not undone, by its complete-by.
fn end_late(change: &mut TaskChange<'_>, reason: &str) {
    match (change.task.process_state, change.plan().overdue) {
        (ProcessState::Pending | ProcessState::Processing, Overdue::Undo) => {
            undo::begin(change, reason);
        }
        (ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing, _) => {
            change.fail_task(reason);
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
    if !repeatable && (may_have_run || has_stray_effect(change, &attempt)) {
        // Of an idempotent step, another delivery of the request may still make a call.
        let step = change.plan().step(&attempt.step.step);
        if step.is_repeatable(attempt.action) && !did_not_run {
            block_undo_on_call(change, &attempt);
        }
        return fail(change, attempt, reason, may_have_run);
    }
    let asked = humantime::format_duration(Duration::from_secs(pause.as_secs()));
    let late = |limit: &str| format!("has to wait {asked}, past {limit}: {reason}");
    let pause = pause.clamp(limits::STEP_WITHIN_MIN, limits::TASK_WITHIN_MAX);
    let until = later(change.now(), pause);
    let AttemptId { step: part, action, number } = &attempt;
    let progress = change.task.progress(part, *action);
    let awaited_by = progress.and_then(|progress| progress.state.reply_due_by());
    let complete_by = awaited_by.filter(|_| !did_not_run);
    let in_doubt = may_have_run || complete_by.is_some();
    let polls = change.plan().step(&part.step).definition.until.is_some();
    if let Some(limit) = time_limit_before(change, &attempt, until, in_doubt) {
        if let Some(complete_by) = complete_by {
            change.block_undo_on_deferred_attempt(complete_by, part, *action);
        }
        return fail(change, attempt, &late(limit), may_have_run);
    }
    if let Some(progress) = change.task.progress_mut(part, *action) {
        progress.state = StepState::Waiting { attempt: Some(*number), until, complete_by };
        progress.may_have_run |= may_have_run;
        // A poll that got an answer is one that works.
        if polls && certainty != Certainty::MayHaveRun {
            progress.failure_count = 0;
        }
    }
    if change.task.paused_at.is_none() && until >= change.task.complete_by {
        let of = if *action == Action::Undo { "undo of " } else { "" };
        end_late(change, &format!("{of}step {part}: {}", late("the task's complete-by")));
    } else {
        change.wakes.after(pause);
    }
    let verdict =
        format!("not counted as a failure; retry after {}", humantime::format_duration(pause));
    store_reason(change, DocumentKey::Deferral(attempt), reason, &verdict);
}

const GIVE_UP_AFTER: &str = "`give_up_after`";
const KEY_VALID_FOR: &str = "`key_valid_for`";

/// The time limit of the part that is over at this time, so that it gives up at once instead of waiting until then. A paused task
/// gives up nothing because of `give_up_after`, which the end of the pause moves. `in_doubt` says whether an attempt may have run.
fn time_limit_before(
    change: &TaskChange<'_>,
    attempt: &AttemptId,
    at: Timestamp,
    in_doubt: bool,
) -> Option<&'static str> {
    let progress = change.task.progress(&attempt.step, attempt.action)?;
    let key = progress.key_valid_until.filter(|_| in_doubt);
    let time = progress.give_up_at.filter(|_| change.task.paused_at.is_none());
    let is_over = |limit: &Option<Timestamp>| limit.is_some_and(|limit| limit <= at);
    let limits = [(KEY_VALID_FOR, key), (GIVE_UP_AFTER, time)];
    limits.into_iter().find(|(_, limit)| is_over(limit)).map(|(name, _)| name)
}

/// Awaits the callback of a step whose call has returned. While a task is being undone, it awaits no callback except
/// that of the point of no return.
fn await_callback(change: &mut TaskChange<'_>, attempt: AttemptId, callback: &CallbackDefinition) {
    let is_point_of_no_return =
        change.plan().step(&attempt.step.step).definition.point_of_no_return;
    if change.task.direction() == Action::Undo && !is_point_of_no_return {
        return fail(
            change,
            attempt,
            "the task is being undone, so the callback is no longer awaited",
            true,
        );
    }
    let now = change.now();
    let last = later(now, callback.within).min(change.task.complete_by);
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        let answer_by = progress.give_up_at.map_or(last, |limit| limit.min(last));
        let complete_by = callback_due(now, callback, answer_by);
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
pub(super) fn block_undo_on_call(
    change: &mut TaskChange<'_>,
    AttemptId { step, action, .. }: &AttemptId,
) {
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

/// Whether Steward may send another request after one that may have taken effect. If an earlier key ran the step, an operator
/// decides first.
fn is_repeatable(change: &TaskChange<'_>, attempt: &AttemptId) -> bool {
    change.plan().step(&attempt.step.step).is_repeatable(attempt.action)
        && !has_stray_effect(change, attempt)
}

/// Whether the attempt would do a part again that an earlier key ran.
fn has_stray_effect(change: &TaskChange<'_>, attempt: &AttemptId) -> bool {
    let record = change.task.record(&attempt.step);
    attempt.action == Action::Do && record.is_some_and(StepRecord::has_stray_effect)
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

/// The state of a part that gives up. The task goes on without it, or it stays failed.
fn given_up(
    change: &TaskChange<'_>,
    attempt: &AttemptId,
    newest: Option<u32>,
    then: FinalAction,
) -> StepState {
    match then {
        FinalAction::Continue if !is_abandoned(change, attempt) => {
            StepState::Skipped { attempt: newest }
        }
        FinalAction::Continue | FinalAction::Alert | FinalAction::Undo => {
            StepState::Failed { attempt: newest }
        }
    }
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
                FinalAction::Continue => {}
            }
        }
        (ProcessState::Undoing, Action::Undo) => {
            change.fail_task(&format!("undo of step {step}: {reason}"));
        }
        (ProcessState::Error, Action::Do) if action == FinalAction::Undo => {
            undo_after_alert(change, step, &format!("step {step}: {reason}"));
        }
        (ProcessState::Error, Action::Do) if action == FinalAction::Continue => {}
        (ProcessState::Error, direction) if direction == change.task.direction() => {
            alert_again(change, step, &format!("step {step}: {reason}"));
        }
        (ProcessState::Undoing, Action::Do)
        | (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
    }
}

/// Alerts again if a step fails that the last alert did not name. The failures of many items are one alert.
fn alert_again(change: &mut TaskChange<'_>, part: &Part, reason: &str) {
    let direction = change.task.direction();
    let has_failed = |(other, action, progress): (Part, Action, &Progress)| {
        action == direction
            && other.step == part.step
            && other != *part
            && progress.state.is_failed()
    };
    // An operator who has sent a command since waits for its result.
    let is_awaited = change.task.commands.last().is_some_and(|command| {
        command.refused.is_none() && Some(command.at) >= change.task.ended_at
    });
    let is_known =
        part.item.is_some() && !is_awaited && change.task.started_actions().any(has_failed);
    if !is_known && change.task.stop_cause == StopCause::Failure {
        change.fail_task_again(reason);
    }
}

/// Undoes a task that another step has stopped in Error: an undo wins over an alert, in whatever order the steps fail. What
/// cannot be undone, or was halted, is left to the operator.
fn undo_after_alert(change: &mut TaskChange<'_>, part: &Part, reason: &str) {
    if change.task.direction() != Action::Do || !change.task.goes_on() {
        return;
    }
    match graph::point_of_no_return(change.plan(), &change.task) {
        PointOfNoReturn::Passed(step) => {
            let passed = format!("not undone, past the point of no return {step}: {reason}");
            alert_again(change, part, &passed);
        }
        PointOfNoReturn::Ahead | PointOfNoReturn::Running => {
            change.reopen();
            undo::begin(change, reason);
        }
    }
}

#[cfg(test)]
mod tests;
