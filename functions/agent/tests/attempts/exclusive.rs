//! Exclusive requests: the scheduler moves on to another agent if this one certainly does not call.

use steward_agent::attempt::AttemptResult;
use steward_core::model::messages::{ReplyOutcome, StepRequest};

use crate::harness::*;

fn exclusive(one: &AgentInstance, task: &str) -> StepRequest {
    let request = one.request(task, 1);
    let complete_by = request.complete_by + 3_600 * SECOND;
    StepRequest { exclusive: true, complete_by, ..request }
}

fn is_certain(attempted: AttemptResult) -> bool {
    matches!(outcome(attempted), ReplyOutcome::Deferred { certain: true, may_have_run: false, .. })
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_breaker_is_certain_and_counts_for_every_delivery() {
    let one = AgentInstance::new([], done());
    one.open_breaker().await;
    let request = exclusive(&one, "t");
    assert!(is_certain(one.attempt(&request).await));
    // The service is healthy again, but the scheduler may have moved on.
    let two = one.another("two");
    one.service.respond_with(done());
    tokio::time::sleep(SETTINGS.open_for * 2).await;
    assert!(is_certain(two.attempt(&request).await), "a duplicate repeats the refusal");
    assert!(is_certain(two.attempt_redelivered(&request).await));
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_request_that_is_not_exclusive_is_never_certain() {
    let one = AgentInstance::new([], done());
    one.open_breaker().await;
    assert!(!is_certain(one.attempt(&one.request("t", 1)).await));
    assert!(!is_certain(one.attempt(&one.request_once("u", 1)).await));
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_request_is_refused_but_not_for_certain() {
    let one = AgentInstance::new([], done());
    one.open_breaker().await;
    assert!(!is_certain(one.attempt_redelivered(&exclusive(&one, "t")).await));
}

#[tokio::test(start_paused = true)]
async fn one_delivery_of_an_exclusive_request_calls() {
    let one = AgentInstance::new([], hangs());
    let request = exclusive(&one, "t");
    // The instance dies during the call.
    let died = tokio::time::timeout(5 * SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    let two = one.another("two");
    one.service.respond_with(done());
    assert_eq!(two.attempt_redelivered(&request).await, AttemptResult::Silent);
    assert_eq!(two.attempt(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 1);
}
