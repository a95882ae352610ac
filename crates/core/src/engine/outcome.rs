//! Records the outcome of an attempt: completed, failed, deferred or unknown.
//!
//! An outcome may come from an agent's reply, a callback, the task of a step, or the supervisor, which gives an
//! attempt up. The recovery policy of the step says what follows a failure: another attempt, an extended wait, the undo of the
//! task, or Error.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    definition::{
        recovery::{Then, Verdict, seed},
        step::Callback,
    },
    engine::{change::Change, compensate, request::too_large},
    limits,
    model::{
        attempt::{Action, Attempt, AttemptTimes},
        command::CommandId,
        document::{Document, DocumentKey},
        messages::{Answer, ChildOutcome, Outcome, StepReply},
        names::Part,
        step::StepState,
        task::ProcessState,
        time::later,
    },
};

/// The reason of a failure that the supervisor records.
pub(crate) const NO_REPLY: &str = "no reply by complete-by";

/// Records an agent's reply.
pub(crate) fn record_reply(change: &mut Change<'_>, reply: &StepReply) {
    let attempt = Attempt { step: reply.step.clone(), action: reply.action, number: reply.attempt };
    let queued_at = reply.times.queued_at.or_else(|| sent_at(change, &attempt));
    match &reply.outcome {
        Outcome::Completed { output, may_continue } => {
            if *may_continue {
                wait_for_call(change, &attempt);
            }
            match callback(change, &attempt) {
                Some(callback) => await_callback(change, attempt, callback),
                None => complete_if_it_fits(change, attempt, output),
            }
        }
        Outcome::Failed { reason, may_have_run } => {
            if *may_have_run {
                wait_for_call(change, &attempt);
            }
            fail(change, attempt, reason, *may_have_run);
        }
        Outcome::Deferred { reason, retry_after_ms, may_have_run } => {
            let pause = Duration::from_millis(*retry_after_ms);
            if *may_have_run {
                wait_for_call(change, &attempt);
            }
            defer(change, attempt, reason, pause, *may_have_run);
        }
        Outcome::Unknown { reason } => give_up(change, attempt, reason),
    }
    for document in &mut change.documents {
        document.times = AttemptTimes { queued_at, ..reply.times };
    }
}

/// Records the answer to a callback.
pub(crate) fn record_callback(change: &mut Change<'_>, attempt: Attempt, answer: &Answer) {
    // The call that passes the token on may not have returned yet.
    if *answer != Answer::Heartbeat {
        wait_for_call(change, &attempt);
    }
    match answer {
        Answer::Completed { output } => complete_if_it_fits(change, attempt, output),
        Answer::Failed { reason } => fail(change, attempt, reason, true),
        Answer::Heartbeat => extend_callback(change, &attempt),
    }
}

/// Records how the task of a step ended, at this revision of that task.
pub(crate) fn record_child(
    change: &mut Change<'_>,
    attempt: Attempt,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) {
    let undoing = attempt.action == Action::Undo;
    let completes = matches!(outcome, ChildOutcome::Processed { .. });
    // An earlier report of that task may arrive later, and must not complete the step then.
    if let Some(progress) = change.task.progress_mut(&attempt.step, Action::Do)
        && !completes
    {
        progress.child_revision = revision.max(progress.child_revision);
    }
    match outcome {
        ChildOutcome::Processed { output } => complete_if_it_fits(change, attempt, output),
        ChildOutcome::Undone { .. } if undoing => complete(change, attempt, &Value::Null, None),
        ChildOutcome::Undone { reason } => {
            record_undone_child(change, &attempt.step, revision);
            fail(change, attempt, &format!("its task was undone: {reason}"), false);
        }
        ChildOutcome::Refused { reason, id_taken } => {
            fail(change, attempt, &format!("its task was refused: {reason}"), !id_taken);
        }
        ChildOutcome::Error { reason, .. } => {
            fail(change, attempt, &format!("its task is in Error: {reason}"), true);
        }
    }
}

/// The task of a step left no side effects. All attempts since the last edit of the input submitted that one task.
pub(crate) fn record_undone_child(change: &mut Change<'_>, part: &Part, revision: Option<u64>) {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.may_have_run = false;
        progress.child_revision = revision.max(progress.child_revision);
    }
}

/// An attempt took effect, or may have, although it was recorded as one that did not: its request was delivered
/// twice. If the task is Undone, that effect is left. Returns whether the task may go on now.
pub(crate) fn record_late_effect(
    change: &mut Change<'_>,
    part: &Part,
    outcome: Option<&Outcome>,
) -> bool {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.may_have_run = true;
    }
    let is_over = outcome
        .is_none_or(|outcome| matches!(outcome, Outcome::Completed { may_continue: false, .. }));
    if !is_over {
        change.wait_for_call_begun_by(change.now(), part, Action::Do);
    }
    if change.task.process_state == ProcessState::Undone {
        change.fail_task(&format!("step {part} took effect after the task was undone"));
        change.ends_again = true;
    }
    let state = change.task.progress(part, Action::Do).map(|progress| progress.state.clone());
    if let Some(StepState::Waiting { attempt, .. }) = state {
        if !change.plan().step(&part.step).definition.idempotent {
            let attempt = Attempt { step: part.clone(), action: Action::Do, number: attempt };
            fail(change, attempt, "it may have run, and must not be repeated", true);
        } else if change.task.process_state != ProcessState::Undoing {
            // The wake that ends the wait starts the next attempt. If its request is lost, it is sent again.
            return false;
        }
    }
    true
}

/// Completes an attempt, and stores what it returned.
pub(crate) fn complete(
    change: &mut Change<'_>,
    attempt: Attempt,
    output: &Value,
    by: Option<&CommandId>,
) {
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        progress.state = StepState::Completed { attempt: attempt.number };
        progress.completed_by = by.cloned();
    }
    let key = match by {
        Some(command) => DocumentKey::ByHand(attempt, command.clone()),
        None => DocumentKey::Output(attempt),
    };
    change.documents.push(Document::new(key, change.now(), output.clone()));
}

fn complete_if_it_fits(change: &mut Change<'_>, attempt: Attempt, output: &Value) {
    match too_large("output", output) {
        None => complete(change, attempt, output, None),
        // The step has run.
        Some(reason) => fail(change, attempt, &reason, true),
    }
}

/// Records a permanent failure: another attempt would fail as well.
pub(crate) fn fail(change: &mut Change<'_>, attempt: Attempt, reason: &str, may_have_run: bool) {
    let then = then(change, &attempt);
    let next = StepState::Failed { attempt: attempt.number };
    count_failure(change, &attempt, next, reason, &Verdict::Finally(then), may_have_run);
    conclude(change, &attempt, reason, then);
}

/// Gives an attempt up that is over without a final answer: whether it took effect is not known.
pub(crate) fn give_up(change: &mut Change<'_>, attempt: Attempt, reason: &str) {
    wait_for_call(change, &attempt);
    let (verdict, queued_at) = (verdict(change, &attempt), sent_at(change, &attempt));
    let (now, number) = (change.now(), attempt.number);
    let wait = match verdict {
        Verdict::Again { pause, .. } => Some(pause),
        Verdict::ExtendedWait { wait, .. } => Some(wait),
        Verdict::Finally(_) => None,
    };
    let next = match wait {
        Some(wait) => StepState::waiting(number, later(now, wait)),
        None => StepState::Failed { attempt: number },
    };
    count_failure(change, &attempt, next, reason, &verdict, true);
    if let Some(failure) = change.documents.last_mut() {
        failure.times.queued_at = queued_at;
    }
    match verdict {
        Verdict::Again { pause: wait, .. } | Verdict::ExtendedWait { wait, .. } => {
            change.wakes.after(wait);
        }
        Verdict::Finally(then) => {
            conclude(change, &attempt, &format!("{reason}, attempt {number}"), then);
        }
    }
}

/// The task is past its own complete-by.
pub(crate) fn expire(change: &mut Change<'_>) {
    match (change.task.process_state, change.plan().overdue) {
        (ProcessState::Pending | ProcessState::Processing, Then::Alert) => {
            change.fail_task("the task was not done by its complete-by");
        }
        (ProcessState::Pending | ProcessState::Processing, Then::Undo) => {
            compensate::begin(change, "the task was not done by its complete-by");
        }
        (ProcessState::Undoing, _) => {
            change.fail_task("the task was not undone by its complete-by");
        }
        (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
    }
}

/// The agent's circuit breaker is open, so it made no call: no failure is counted.
fn defer(
    change: &mut Change<'_>,
    attempt: Attempt,
    reason: &str,
    pause: Duration,
    may_have_run: bool,
) {
    let repeatable = change.plan().step(&attempt.step.step).is_repeatable(attempt.action);
    // Another delivery of an earlier attempt's request may have made a call.
    let progress = change.task.progress(&attempt.step, attempt.action);
    let may_have_run = may_have_run || progress.is_some_and(|progress| progress.may_have_run);
    if may_have_run && !repeatable {
        return fail(change, attempt, reason, may_have_run);
    }
    let pause = pause.clamp(limits::WITHIN_MIN, limits::WAIT_MAX);
    let until = later(change.now(), pause);
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        let complete_by = match progress.state {
            StepState::Running { complete_by, .. } => Some(complete_by),
            StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => None,
        };
        progress.state = StepState::Waiting { attempt: attempt.number, until, complete_by };
        progress.may_have_run |= may_have_run;
    }
    let verdict = format!("not counted; again after {}", humantime::format_duration(pause));
    store_reason(change, DocumentKey::Deferral(attempt), reason, &verdict);
    change.wakes.after(pause);
}

/// The call has begun the step, and its callback is awaited. While a task is being undone no callback is
/// awaited, except that of the point of no return.
fn await_callback(change: &mut Change<'_>, attempt: Attempt, callback: &Callback) {
    let is_point_of_no_return =
        change.plan().step(&attempt.step.step).definition.point_of_no_return;
    if change.task.process_state == ProcessState::Undoing && !is_point_of_no_return {
        return fail(change, attempt, "begun, and given up", true);
    }
    let answer_by = later(change.now(), callback.within).min(change.task.complete_by);
    let complete_by = callback_due(change.now(), callback, answer_by);
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        let attempt = attempt.number;
        progress.state = StepState::HandedOut { attempt, complete_by, answer_by };
    }
}

fn extend_callback(change: &mut Change<'_>, attempt: &Attempt) {
    let Some(callback) = callback(change, attempt) else { return };
    let now = change.now();
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action)
        && let StepState::HandedOut { complete_by, answer_by, .. } = &mut progress.state
    {
        *complete_by = callback_due(now, callback, *answer_by);
    }
}

/// By when the answer or the next heartbeat of a callback must arrive.
fn callback_due(now: Timestamp, callback: &Callback, answer_by: Timestamp) -> Timestamp {
    callback.heartbeat.map_or(answer_by, |heartbeat| later(now, heartbeat).min(answer_by))
}

fn callback<'a>(change: &Change<'a>, attempt: &Attempt) -> Option<&'a Callback> {
    let callback = change.plan().step(&attempt.step.step).callback();
    callback.filter(|_| attempt.action == Action::Do)
}

fn sent_at(change: &Change<'_>, Attempt { step, action, .. }: &Attempt) -> Option<Timestamp> {
    change.plan().sent_at(&change.task, step, *action)
}

/// An attempt ended, and whether it took effect is not known: a call of it may still be in progress
/// at the service. Its undo, and those of what came before it, wait for that.
fn wait_for_call(change: &mut Change<'_>, Attempt { step, action, .. }: &Attempt) {
    // Another agent may still work on a deferred attempt.
    let Some(
        StepState::Running { complete_by, .. }
        | StepState::Waiting { complete_by: Some(complete_by), .. },
    ) = change.task.progress(step, *action).map(|progress| &progress.state)
    else {
        return;
    };
    change.wait_for_call_begun_by(*complete_by, step, *action);
}

/// What the recovery policy decides on a failure of this attempt that is not permanent.
fn verdict(change: &Change<'_>, attempt: &Attempt) -> Verdict {
    let Attempt { step, action, number } = attempt;
    let definition = change.plan().step(&step.step);
    let Some(policy) = definition.action(*action) else { return Verdict::Finally(Then::Alert) };
    if !definition.is_repeatable(*action) || is_given_up(change, attempt) {
        return Verdict::Finally(policy.recovery.then);
    }
    let failures = change.task.progress(step, *action).map_or(0, |p| p.failure_count) + 1;
    policy.recovery.verdict(failures, seed(&change.task.task_id, step, *action, *number))
}

fn then(change: &Change<'_>, attempt: &Attempt) -> Then {
    let policy = change.plan().step(&attempt.step.step).action(attempt.action);
    policy.map_or(Then::Alert, |policy| policy.recovery.then)
}

/// Whether it is a step of a task that is being undone: it is only waited for.
fn is_given_up(change: &Change<'_>, attempt: &Attempt) -> bool {
    attempt.action == Action::Do && change.task.direction() == Action::Undo
}

fn count_failure(
    change: &mut Change<'_>,
    attempt: &Attempt,
    next: StepState,
    reason: &str,
    verdict: &Verdict,
    may_have_run: bool,
) {
    if let Some(progress) = change.task.progress_mut(&attempt.step, attempt.action) {
        progress.state = next;
        progress.failure_count += 1;
        progress.may_have_run |= may_have_run;
    }
    change.task.failure_count += 1;
    let verdict = match is_given_up(change, attempt) {
        true => "the task is being undone".to_owned(),
        false => verdict.to_string(),
    };
    store_reason(change, DocumentKey::Failure(attempt.clone()), reason, &verdict);
}

fn store_reason(change: &mut Change<'_>, key: DocumentKey, reason: &str, verdict: &str) {
    let reason = limits::shorten(reason, limits::REASON_CHARS_MAX);
    let body = json!({ "reason": reason, "verdict": verdict });
    change.documents.push(Document::new(key, change.now(), body));
}

/// Nothing is left to try: the task is undone, or ends in Error.
fn conclude(change: &mut Change<'_>, attempt: &Attempt, reason: &str, then: Then) {
    let step = &attempt.step;
    match (change.task.process_state, attempt.action) {
        (ProcessState::Pending | ProcessState::Processing, _) => {
            let reason = format!("step {step}: {reason}");
            match then {
                Then::Alert => change.fail_task(&reason),
                Then::Undo => compensate::begin(change, &reason),
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
mod tests {
    use super::*;
    use crate::definition::plan::Plan;
    use crate::engine::decision::Context;
    use crate::engine::decision::Transition;
    use crate::engine::documents::Documents;

    use crate::{
        engine::{event::Event, transition::transition},
        model::time::Timing,
        submission::{accept, parse},
    };

    /// What is made of a task of one step that has 30 seconds, by what happens after so many seconds.
    fn documents(happens: &[(i64, Event)]) -> Vec<Document> {
        let workflow: Plan = serde_json::from_value(json!({
            "name": "w", "version": 1, "complete_within": "10m",
            "steps": { "a": { "agent": "a", "complete_within": "30s", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission = parse(r#"{ "task_id": "t", "workflow": "w" }"#).unwrap();
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let (mut task, submitted) =
            accept(&submission, &workflow, None, Timestamp::UNIX_EPOCH, timing);
        let (at_hand, mut made) = (Documents::from([(submitted.key, submitted.body)]), Vec::new());
        for (seconds, event) in happens {
            let now = Timestamp::from_second(*seconds).unwrap();
            let context = Context { now, actor: "test", redelivered: false, timing };
            match transition(&workflow, &task, &at_hand, event, context).unwrap() {
                Transition::Apply { task: next, documents, .. } => {
                    task = *next;
                    made.extend(documents);
                }
                other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
            }
        }
        made
    }

    fn completed(times: AttemptTimes) -> Event {
        Event::Replied(StepReply {
            task_id: "t".parse().unwrap(),
            step: "a".parse().unwrap(),
            action: Action::Do,
            attempt: 1,
            outcome: Outcome::Completed { output: Value::Null, may_continue: false },
            incarnation: None,
            times,
        })
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn the_times_that_an_agent_says_are_kept_with_its_answer() {
        let times = AttemptTimes { queued_at: at(6), called_at: at(7), answered_at: at(8) };
        let made = documents(&[(5, Event::Wake), (9, completed(times))]);
        assert_eq!(made.iter().map(|made| made.times).collect::<Vec<_>>(), [times]);
    }

    #[test]
    fn when_an_attempt_was_sent_is_known_also_of_an_agent_that_does_not_say_or_is_silent() {
        let sent = AttemptTimes { queued_at: at(5), ..AttemptTimes::default() };
        for end in [(9, completed(AttemptTimes::default())), (36, Event::Swept)] {
            let made = documents(&[(5, Event::Wake), end]);
            assert_eq!(made.iter().map(|made| made.times).collect::<Vec<_>>(), [sent]);
        }
    }
}
