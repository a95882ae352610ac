//! One attempt: which calls are retried, when it ends, and what it replies.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use steward_agent::attempt::AttemptResult;
use steward_core::model::{
    attempt::{Action, AttemptTimes},
    error_detail::ErrorDetail,
    messages::{ReplyOutcome, StepRequest},
};
use steward_runtime::ports::Clock;

use crate::harness::*;

fn failed(may_have_run: bool) -> ReplyOutcome {
    ReplyOutcome::Failed {
        reason: "HTTP 402".into(),
        may_have_run,
        call_in_doubt: false,
        detail: None,
    }
}

#[tokio::test(start_paused = true)]
async fn transient_faults_are_retried_until_a_response() {
    let one = AgentInstance::new([broken(), broken()], done());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed_after_unknown_call());
    assert_eq!(one.service.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reply_has_the_times_of_the_request_the_first_call_and_the_response() {
    let one = AgentInstance::new([busy(7 * SECOND)], (2 * SECOND, Ok(Value::Null)));
    tokio::time::advance(SECOND).await;
    let AttemptResult::Reply(reply) = one.attempt(&one.request("t", 1)).await else { panic!() };
    let at = |seconds: u32| Timestamp::UNIX_EPOCH + seconds * SECOND;
    let AttemptTimes { queued_at, called_at, answered_at } = reply.times;
    assert_eq!((queued_at, called_at), (Some(at(0)), Some(at(1))));
    assert!(answered_at.is_some_and(|answered| answered >= at(10)), "{answered_at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_without_a_call_has_no_call_time() {
    let one = AgentInstance::new([], done());
    one.open_breaker().await;
    let AttemptResult::Reply(reply) = one.attempt(&one.request("t", 1)).await else { panic!() };
    let AttemptTimes { called_at, answered_at, .. } = reply.times;
    assert_eq!((called_at, answered_at.is_some()), (None, true));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let one = AgentInstance::new([busy(7 * SECOND)], done());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
    let called_at = one.service.called_at();
    assert!(called_at[1] >= 7 * SECOND, "{called_at:?}");
}

/// The next pause of the backoff would last until after complete-by.
#[tokio::test(start_paused = true)]
async fn a_pause_that_fits_the_attempt_is_not_lengthened_beyond_it() {
    let one = AgentInstance::new([busy(SECOND / 20)], done());
    let complete_by = one.ports.clock.now() + SECOND / 11;
    let request = StepRequest { complete_by, ..one.request("t", 1) };
    assert_eq!(outcome(one.attempt(&request).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_may_ask_for_a_pause() {
    let second = |one: &AgentInstance| StepRequest { may_have_run: true, ..one.request("t", 2) };
    let one = AgentInstance::new([conflict_for(Some(7 * SECOND))], done());
    let ended = one.attempt(&second(&one)).await;
    assert_eq!(outcome(ended), completed_after_unknown_call());
    assert!(one.service.called_at()[1] >= 7 * SECOND);
    let one = AgentInstance::new([], conflict_for(Some(3_600 * SECOND)));
    let (wait, may_have_run) = deferred(one.attempt(&second(&one)).await);
    assert!(wait >= 3_600 * SECOND && may_have_run, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_complete_by_defers_the_step() {
    let one = AgentInstance::new([], busy(3_600 * SECOND));
    let (wait, may_have_run) = deferred(one.attempt(&one.request("t", 1)).await);
    assert!((3_600 * SECOND..=3_610 * SECOND).contains(&wait), "{wait:?}");
    assert!(!may_have_run);
    assert!(one.service.called_at()[0] < SECOND && one.service.take_calls() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_fails_at_once_and_considers_earlier_calls() {
    let one = AgentInstance::new([], refused());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), failed(false));
    let one = AgentInstance::new([down()], refused());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), failed(false));
    // The instance that received the request before may have died during its call.
    let one = AgentInstance::new([], refused());
    assert_eq!(outcome(one.attempt_redelivered(&one.request("t", 1)).await), failed(true));
    // So may the one that received another message with this request.
    let sent_before = StepRequest { may_have_run: true, ..one.request("t", 1) };
    assert_eq!(outcome(one.attempt(&sent_before).await), failed(true));
}

/// Another delivery of the request, also one at the same time, may be on record as refused. A second refusal would be taken for a
/// repeated one.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_own_call_without_an_answer_has_a_doubt_about_that_call() {
    let in_doubt = ReplyOutcome::Failed {
        reason: "HTTP 402".to_owned(),
        may_have_run: true,
        call_in_doubt: true,
        detail: None,
    };
    let one = AgentInstance::new([broken()], refused());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), in_doubt);
    let one = AgentInstance::new([broken()], refused());
    assert_eq!(outcome(one.attempt_redelivered(&one.request("t", 1)).await), in_doubt);
    let one = AgentInstance::new([broken()], refused());
    let sent_before = StepRequest { may_have_run: true, ..one.request("t", 1) };
    assert_eq!(outcome(one.attempt(&sent_before).await), in_doubt);
    // A doubt about another delivery only.
    let one = AgentInstance::new([], refused());
    let redelivered = one.attempt_redelivered(&one.request("t", 1)).await;
    assert_eq!(outcome(redelivered), failed(true));
}

/// The refusal of the first delivery may be on record, while the second died during a call that took effect.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_several_other_deliveries_says_nothing_about_them() {
    let one = AgentInstance::new([], refused());
    let is_unknown = |attempted| matches!(outcome(attempted), ReplyOutcome::Unknown { .. });
    assert!(is_unknown(one.deliver(&one.request("t", 1), 2, 3_600 * SECOND).await));
    let sent_before = StepRequest { may_have_run: true, ..one.request("t", 1) };
    assert!(is_unknown(one.attempt_redelivered(&sent_before).await));
    // Of a claimed call there is one only.
    assert_eq!(
        outcome(one.deliver(&one.request_once("t", 1), 2, 3_600 * SECOND).await),
        failed(false)
    );
}

#[tokio::test(start_paused = true)]
async fn at_complete_by_the_agent_aborts_the_call_and_does_not_reply() {
    let one = AgentInstance::new([], hangs());
    let request = one.request("t", 1);
    let start = tokio::time::Instant::now();
    assert_eq!(one.attempt(&request).await, AttemptResult::Overdue);
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(one.attempt_redelivered(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 1, "called after complete-by");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_requeued_if_the_function_cannot_wait_for_the_call() {
    let one = AgentInstance::new([], done());
    let request = one.request("t", 1);
    assert_eq!(one.deliver(&request, 0, 10 * SECOND).await, AttemptResult::Requeued);
    assert_eq!(one.service.take_calls(), 0, "a call started that the function could not wait for");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_busy_for_longer_than_the_function_runs_defers_the_step() {
    // If it were requeued repeatedly, the request would become a dead letter.
    let one = AgentInstance::new([], busy(Duration::ZERO));
    let hour = one.ports.clock.now() + 3_600 * SECOND;
    let request = StepRequest { complete_by: hour, ..one.request("t", 1) };
    let (_, may_have_run) = deferred(one.deliver(&request, 0, 115 * SECOND).await);
    assert!(!may_have_run);
    assert!(one.service.take_calls() > 3);
}

/// Every call was refused before it began, so the attempt has not failed. Otherwise a busy service would use up all attempts.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_busy_until_complete_by_defers_the_step() {
    let one = AgentInstance::new([], busy(Duration::ZERO));
    let start = tokio::time::Instant::now();
    let ended = one.attempt(&one.request("t", 1)).await;
    let AttemptResult::Reply(reply) = &ended else { panic!("{ended:?}") };
    let ReplyOutcome::Deferred { reason, may_have_run: false, certain: false, .. } = &reply.outcome
    else {
        panic!("{reply:?}")
    };
    assert!(reason.starts_with("no time is left for another call: "), "{reason}");
    assert!(start.elapsed() < 60 * SECOND && one.service.take_calls() > 3);
    // A call that may have run leaves the outcome unknown.
    let one = AgentInstance::new([broken()], busy(Duration::ZERO));
    let ended = outcome(one.attempt(&one.request("t", 1)).await);
    assert_eq!(ended, no_time_left("HTTP 429", None));
}

fn no_time_left(fault: &str, detail: Option<ErrorDetail>) -> ReplyOutcome {
    let reason = format!("no time is left for another call: {fault}");
    ReplyOutcome::Unknown { reason, detail }
}

/// The operator sees why the service did not carry out the step, and the scheduler does not wait for complete-by.
#[tokio::test(start_paused = true)]
async fn a_service_that_fails_until_complete_by_is_reported_with_its_last_error() {
    let said = ErrorDetail::of_body(b"disk full");
    let one = AgentInstance::new([broken()], unavailable(said.clone()));
    let complete_by = one.ports.clock.now() + SECOND / 2;
    let request = StepRequest { complete_by, ..one.request("t", 1) };
    let start = tokio::time::Instant::now();
    let ended = outcome(one.attempt(&request).await);
    assert_eq!(ended, no_time_left("HTTP 503", said.clone()));
    assert!(start.elapsed() < SECOND / 2 && one.service.take_calls() > 1);
    // If the calls of other requests failed before, the circuit breaker opens.
    let one = AgentInstance::new([], done());
    one.almost_open_breaker().await;
    one.service.respond_with(unavailable(said.clone()));
    let ended = outcome(one.attempt(&one.request("t", 1)).await);
    let ReplyOutcome::Deferred { detail, .. } = ended else { panic!("{ended:?}") };
    assert_eq!(detail, said);
    // A call that must not be repeated fails at once.
    let one = AgentInstance::new([], unavailable(said.clone()));
    let ReplyOutcome::Failed { may_have_run: true, detail, .. } =
        outcome(one.attempt(&one.request_once("u", 1)).await)
    else {
        panic!()
    };
    assert_eq!(detail, said);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_as_long_as_its_step_allows() {
    let one = AgentInstance::new([], (40 * SECOND, Ok(Value::Null)));
    let complete_by = one.ports.clock.now() + 300 * SECOND;
    let request = StepRequest { complete_by, call_within_ms: 100_000, ..one.request("t", 1) };
    assert_eq!(outcome(one.deliver(&request, 0, 115 * SECOND).await), completed());
    assert_eq!(one.service.take_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_longer_is_aborted_and_not_repeated() {
    let one = AgentInstance::new([], hangs());
    let request = StepRequest { call_within_ms: 20_000, ..one.request("t", 1) };
    let start = tokio::time::Instant::now();
    let reason = "the call took longer than 20s and was aborted".to_owned();
    assert_eq!(
        outcome(one.attempt(&request).await),
        ReplyOutcome::Unknown { reason, detail: None }
    );
    assert_eq!((start.elapsed().as_secs(), one.service.take_calls()), (20, 1));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_while_an_earlier_call_may_be_in_progress() {
    // A call of this delivery, of an earlier delivery, of an earlier attempt.
    let one = AgentInstance::new([broken(), conflict(), conflict()], done());
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed_after_unknown_call());
    let one = AgentInstance::new([conflict(), conflict()], done());
    assert_eq!(
        outcome(one.attempt_redelivered(&one.request("t", 1)).await),
        completed_after_unknown_call()
    );
    let one = AgentInstance::new([conflict(), conflict()], done());
    let second = StepRequest { may_have_run: true, ..one.request("t", 2) };
    assert_eq!(outcome(one.attempt(&second).await), completed_after_unknown_call());
    // Another delivery of an undo may be in progress.
    let one = AgentInstance::new([conflict(), conflict()], done());
    let undo = StepRequest { action: Action::Undo, ..one.request("t", 1) };
    assert_eq!(outcome(one.attempt(&undo).await), completed_after_unknown_call());
    // The agent retries until no time is left.
    let one = AgentInstance::new([broken()], conflict());
    let ended = outcome(one.attempt(&one.request("t", 1)).await);
    assert_eq!(ended, no_time_left("HTTP 409", None));
    assert!(one.service.take_calls() > 3);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_never_proves_that_the_step_did_not_run() {
    let one = AgentInstance::new([], conflict());
    let failed = ReplyOutcome::Failed {
        reason: "HTTP 409".to_owned(),
        may_have_run: true,
        call_in_doubt: false,
        detail: None,
    };
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), failed);
    assert_eq!(one.service.take_calls(), 1, "an ordinary conflict fails at once");
    assert_eq!(outcome(one.attempt(&one.request_once("u", 1)).await), failed);
}
