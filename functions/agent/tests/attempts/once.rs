//! Steps that are not idempotent: the agent claims the call before it makes it, and calls once.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::Value;
use steward_agent::attempt::{
    AttemptResult, CallFault, CircuitBreaker, DeliveredRequest, RateLimiter, RemoteService,
    run_attempt,
};
use steward_agent::response::CallResponse;
use steward_core::model::{
    attempt::{Action, AttemptId},
    document::{DocumentKey, DocumentOwner},
    messages::{ReplyOutcome, StepRequest},
};
use steward_runtime::ports::{Clock, Ports, StateStore};

use crate::harness::*;

async fn is_claimed(ports: &AgentTestPorts, request: &StepRequest) -> bool {
    let (step, number) = (request.step.clone(), request.attempt);
    let claim = DocumentKey::Claim(AttemptId { step, action: Action::Do, number });
    let found = ports
        .store
        .documents(
            &DocumentOwner { task_id: request.task_id.clone(), incarnation: request.incarnation },
            &[claim],
        )
        .await
        .unwrap();
    !found.is_empty()
}

/// A service that panics if it is called before the claim is stored.
struct ClaimCheckingService(AgentTestPorts, Arc<ScriptedService>);

impl RemoteService for ClaimCheckingService {
    async fn call(
        &self,
        request: &StepRequest,
        trace: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        assert!(is_claimed(&self.0, request).await, "called before the claim");
        self.1.call(request, trace).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_claimed_before_it_is_made() {
    let one = AgentInstance::new([], done());
    let service = ClaimCheckingService(one.ports.clone(), one.service.clone());
    let breaker = CircuitBreaker::new("a".parse().unwrap(), SETTINGS);
    let request = one.request_once("t", 1);
    let delivered = DeliveredRequest {
        request: &request,
        traceparent: None,
        redelivered: false,
        redelivered_again: false,
        sent_at: None,
        first_received_at: None,
    };
    let deadline = one.ports.clock().now() + 3_600 * SECOND;
    let rate = RateLimiter::new("a".parse().unwrap(), None);
    let result = run_attempt(&one.ports, &breaker, &rate, &service, delivered, deadline).await;
    assert_eq!(outcome(result), completed());
    assert_eq!(one.service.take_calls(), 1);
    let repeatable = one.request("u", 1);
    one.attempt(&repeatable).await;
    assert!(!is_claimed(&one.ports, &repeatable).await, "a claim costs a write");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_finds_a_claim_neither_calls_nor_replies() {
    let one = AgentInstance::new([], hangs());
    let request = one.request_once("t", 1);
    // The instance dies during the call.
    let died = tokio::time::timeout(5 * SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.service.take_calls(), 1);
    let two = one.another("two");
    one.service.respond_with(done());
    assert_eq!(two.attempt_redelivered(&request).await, AttemptResult::Silent);
    // Also a duplicate that the queue does not mark as redelivered.
    assert_eq!(two.attempt(&request).await, AttemptResult::Silent);
    assert_eq!(one.service.take_calls(), 0);
    // The recovery policy starts the next attempt, which has its own claim.
    assert_eq!(outcome(two.attempt(&two.request_once("t", 2)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn two_instances_side_by_side_make_one_call() {
    let one = AgentInstance::new([], (SECOND, Ok(Value::Null)));
    let two = one.another("two");
    let request = one.request_once("t", 1);
    let both = tokio::join!(one.attempt(&request), two.attempt(&request));
    assert_eq!(one.service.take_calls(), 1);
    assert!([&both.0, &both.1].contains(&&AttemptResult::Silent), "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_said_at_once_and_what_did_not_run_is_repeated() {
    let one = AgentInstance::new([down(), busy(SECOND), broken()], done());
    let ReplyOutcome::Failed { reason, may_have_run: true, .. } =
        outcome(one.attempt(&one.request_once("t", 1)).await)
    else {
        panic!()
    };
    assert!(reason.starts_with("outcome unknown"), "{reason}");
    assert!(reason.ends_with("the connection broke"), "{reason}");
    assert_eq!(one.service.take_calls(), 3);

    let one = AgentInstance::new([down()], refused());
    let refused = ReplyOutcome::Failed {
        reason: "HTTP 402".into(),
        may_have_run: false,
        call_in_doubt: false,
        detail: None,
    };
    assert_eq!(outcome(one.attempt(&one.request_once("t", 1)).await), refused);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_functions_time_ends_the_attempt_with_the_known_outcome() {
    let short =
        |one: &AgentInstance| StepRequest { call_within_ms: 8_000, ..one.request_once("t", 1) };
    let one = AgentInstance::new([], hangs());
    let ended = one.deliver(&short(&one), 0, 10 * SECOND).await;
    assert!(matches!(outcome(ended), ReplyOutcome::Failed { may_have_run: true, .. }));
    // Between two calls that had no effect, the step has not run.
    let one = AgentInstance::new([], busy(Duration::ZERO));
    let ended = one.deliver(&short(&one), 0, 10 * SECOND).await;
    assert!(!deferred(ended).1);
    // After complete-by the agent does not reply.
    let one = AgentInstance::new([], hangs());
    assert_eq!(one.attempt(&one.request_once("t", 1)).await, AttemptResult::Overdue);
}

#[tokio::test(start_paused = true)]
async fn a_deferred_attempt_is_claimed_so_that_no_other_delivery_calls() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    one.service.take_calls();
    let request = one.request_once("t", 1);
    let (_, may_have_run) = deferred(one.deliver(&request, 0, 60 * SECOND).await);
    assert!(!may_have_run);
    assert!(is_claimed(&one.ports, &request).await);
    for earlier in [0, 1] {
        let again = one.deliver(&request, earlier, 60 * SECOND).await;
        assert_eq!(again, AttemptResult::Silent);
    }
    // The next attempt has its own claim.
    deferred(one.deliver(&one.request_once("t", 2), 0, 60 * SECOND).await);
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_store_the_claim_does_not_call() {
    let one = AgentInstance::new([], done());
    one.ports.store.interceptor.is_down.store(true, Ordering::Relaxed);
    for earlier in [0, 1] {
        let request = one.request_once("t", 1);
        let requeued = one.deliver(&request, earlier, 60 * SECOND).await;
        assert_eq!(requeued, AttemptResult::Requeued);
    }
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_finds_a_claim_releases_the_probe_for_another_call() {
    let one = AgentInstance::new([done()], down());
    let request = one.request_once("t", 1);
    one.attempt(&request).await;
    one.service.take_calls();
    one.open_breaker().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.respond_with(done());
    let two = one.another("two");
    assert_eq!(two.attempt(&request).await, AttemptResult::Silent);
    assert_eq!(outcome(one.attempt(&one.request("u", 1)).await), completed());
}
