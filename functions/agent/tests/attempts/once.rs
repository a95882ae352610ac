//! Steps that are not idempotent: claimed before the call, called once.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::Value;
use steward_agent::attempt::{Attempted, Delivered, Fault, Guard, RemoteService, attempt};
use steward_core::model::{
    attempt::{Action, Attempt},
    document::{DocumentKey, Owner},
    messages::{Outcome, StepRequest},
};
use steward_runtime::ports::{Clock, Ports, StateStore};

use crate::world::*;

async fn is_claimed(ports: &TestPorts, request: &StepRequest) -> bool {
    let (step, number) = (request.step.clone(), request.attempt);
    let claim = DocumentKey::Claim(Attempt { step, action: Action::Do, number });
    let found = ports
        .memory
        .store()
        .documents(
            &Owner { task_id: request.task_id.clone(), incarnation: request.incarnation },
            &[claim],
        )
        .await
        .unwrap();
    !found.is_empty()
}

/// A service that is only called with the claim in the store.
struct Strict(TestPorts, Arc<Service>);

impl RemoteService for Strict {
    async fn call(&self, request: &StepRequest, trace: Option<&str>) -> Result<Value, Fault> {
        assert!(is_claimed(&self.0, request).await, "called before the claim");
        self.1.call(request, trace).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_call_is_on_record_before_it_is_made() {
    let one = Instance::new([], done());
    let service = Strict(one.ports.clone(), one.service.clone());
    let guard = Guard::new("a".parse().unwrap(), SETTINGS);
    let request = one.request_once("t", 1);
    let delivered =
        Delivered { request: &request, traceparent: None, redelivered: false, sent_at: None };
    let deadline = one.ports.clock().now() + 3_600 * SECOND;
    let attempted = attempt(&one.ports, &guard, &service, delivered, deadline).await;
    assert_eq!(outcome(attempted), completed());
    assert_eq!(one.service.take_calls(), 1);
    let repeatable = one.request("u", 1);
    one.attempt(&repeatable).await;
    assert!(!is_claimed(&one.ports, &repeatable).await, "a claim costs a write");
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_it_claimed_neither_calls_nor_speaks() {
    let one = Instance::new([], hangs());
    let request = one.request_once("t", 1);
    // It dies with the call under way.
    let died = tokio::time::timeout(5 * SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.service.take_calls(), 1);
    let two = one.another("two");
    one.service.now(done());
    assert_eq!(two.redelivered(&request).await, Attempted::Silent);
    // Also a copy that the queue does not know as one.
    assert_eq!(two.attempt(&request).await, Attempted::Silent);
    assert_eq!(one.service.take_calls(), 0);
    // The next attempt is the policy's to make, and has a claim of its own.
    assert_eq!(outcome(two.attempt(&two.request_once("t", 2)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn two_instances_side_by_side_make_one_call() {
    let one = Instance::new([], (SECOND, Ok(Value::Null)));
    let two = one.another("two");
    let request = one.request_once("t", 1);
    let both = tokio::join!(one.attempt(&request), two.attempt(&request));
    assert_eq!(one.service.take_calls(), 1);
    assert!([&both.0, &both.1].contains(&&Attempted::Silent), "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_said_at_once_and_what_did_not_run_is_repeated() {
    let one = Instance::new([down(), busy(SECOND), broken()], done());
    let Outcome::Failed { reason, may_have_run: true } =
        outcome(one.attempt(&one.request_once("t", 1)).await)
    else {
        panic!()
    };
    assert!(reason.starts_with("outcome unknown"), "{reason}");
    assert!(reason.ends_with("the connection broke"), "{reason}");
    assert_eq!(one.service.take_calls(), 3);

    let one = Instance::new([down()], refused());
    let refused = Outcome::Failed { reason: "HTTP 402".into(), may_have_run: false };
    assert_eq!(outcome(one.attempt(&one.request_once("t", 1)).await), refused);
}

#[tokio::test(start_paused = true)]
async fn the_functions_time_ends_it_with_what_is_known() {
    let short =
        |one: &Instance| StepRequest { call_within_ms: Some(8_000), ..one.request_once("t", 1) };
    let one = Instance::new([], hangs());
    let ended = one.deliver(&short(&one), false, 10 * SECOND).await;
    assert!(matches!(outcome(ended), Outcome::Failed { may_have_run: true, .. }));
    // Between two calls that did not run: it has not run.
    let one = Instance::new([], busy(Duration::ZERO));
    let ended = one.deliver(&short(&one), false, 10 * SECOND).await;
    assert!(!deferred(ended).1);
    // Past complete-by nothing is said.
    let one = Instance::new([], hangs());
    assert_eq!(one.attempt(&one.request_once("t", 1)).await, Attempted::Silent);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_deferred_is_claimed_so_that_no_other_delivery_makes_its_call() {
    let one = Instance::new([], down());
    one.open().await;
    one.service.take_calls();
    let request = one.request_once("t", 1);
    let (_, may_have_run) = deferred(one.deliver(&request, false, 60 * SECOND).await);
    assert!(!may_have_run);
    assert!(is_claimed(&one.ports, &request).await);
    for redelivered in [false, true] {
        let again = one.deliver(&request, redelivered, 60 * SECOND).await;
        assert_eq!(again, Attempted::Silent);
    }
    // The next attempt has a claim of its own.
    deferred(one.deliver(&one.request_once("t", 2), false, 60 * SECOND).await);
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_claim_there_is_no_call() {
    let one = Instance::new([], done());
    one.ports.store.is_down.store(true, Ordering::Relaxed);
    for redelivered in [false, true] {
        let request = one.request_once("t", 1);
        let given_back = one.deliver(&request, redelivered, 60 * SECOND).await;
        assert_eq!(given_back, Attempted::GivenBack);
    }
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_finds_the_claim_taken_leaves_its_turn_to_the_next() {
    let one = Instance::new([done()], down());
    let request = one.request_once("t", 1);
    one.attempt(&request).await;
    one.service.take_calls();
    one.open().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.now(done());
    let two = one.another("two");
    assert_eq!(two.attempt(&request).await, Attempted::Silent);
    assert_eq!(outcome(one.attempt(&one.request("u", 1)).await), completed());
}
