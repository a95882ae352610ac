//! Requests that waited in the queue until complete-by: the agent does no work for them.

use std::time::Duration;

use steward_agent::attempt::AttemptResult;
use steward_core::{limits, model::messages::StepRequest};
use steward_runtime::ports::Clock;

use crate::harness::*;

/// A request that was sent 90 seconds ago, and whose complete-by was 30 seconds ago.
async fn waited_request(one: &AgentInstance, idempotent: bool) -> StepRequest {
    let request = StepRequest { idempotent, ..one.request("t", 1) };
    tokio::time::sleep(90 * SECOND).await;
    assert!(one.ports.clock.now() > request.complete_by);
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_past_complete_by_is_deferred_and_not_called() {
    for idempotent in [true, false] {
        let one = AgentInstance::new([], done());
        let request = waited_request(&one, idempotent).await;
        let (pause, may_have_run) = deferred(one.attempt(&request).await);
        assert_eq!(one.service.take_calls(), 0);
        assert_eq!(may_have_run, idempotent, "only a claim excludes another message's call");
        // As long as it waited, and a jitter.
        assert!((90 * SECOND..=90 * SECOND + SETTINGS.open_for).contains(&pause), "{pause:?}");
    }
}

/// The earlier delivery may have called, so the agent cannot know that the attempt only waited.
#[tokio::test(start_paused = true)]
async fn a_later_delivery_past_complete_by_stays_silent() {
    let one = AgentInstance::new([], done());
    let request = waited_request(&one, true).await;
    assert_eq!(one.attempt_redelivered(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 0);
}

/// One of the earlier deliveries may have replied, and another may have died during its call.
#[tokio::test(start_paused = true)]
async fn a_delivery_past_complete_by_after_several_others_reports_a_call() {
    let one = AgentInstance::new([], done());
    let request = waited_request(&one, true).await;
    assert_eq!(one.deliver(&request, 2, 3_600 * SECOND).await, AttemptResult::Overdue);
    let sent_before = StepRequest { may_have_run: true, ..request.clone() };
    assert_eq!(one.attempt_redelivered(&sent_before).await, AttemptResult::Overdue);
    let once = waited_request(&one, false).await;
    assert_eq!(one.deliver(&once, 2, 3_600 * SECOND).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 0);
}

/// The task may have ended and expired. Then the scheduler would report the reply as corrupt.
#[tokio::test(start_paused = true)]
async fn a_request_long_past_complete_by_is_dropped() {
    let one = AgentInstance::new([], done());
    let request = one.request("t", 1);
    tokio::time::sleep(60 * SECOND + limits::RETENTION_MIN / 2).await;
    assert_eq!(one.attempt(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 0);
}

/// Another delivery of the same request is calling.
#[tokio::test(start_paused = true)]
async fn a_late_duplicate_of_a_claimed_call_stays_silent() {
    let one = AgentInstance::new([], hangs());
    let request = one.request_once("t", 1);
    let calling = tokio::time::timeout(5 * SECOND, one.attempt(&request));
    assert!(calling.await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(one.another("two").attempt(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 1);
}
