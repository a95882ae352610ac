//! The rate limit that instances share: when calls begin, which are deferred, what it costs, and what happens when the
//! state store is down.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use steward_agent::attempt::AttemptResult;
use steward_core::{
    model::{
        attempt::{Action, AttemptId},
        document::{DocumentKey, DocumentOwner},
        messages::{ReplyOutcome, StepRequest},
    },
    rate::RateRecord,
};
use steward_runtime::ports::{
    Clock, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};
use tokio::time::{advance, sleep};

use crate::harness::*;

/// A service that is limited to `rate` calls per second, and an instance that calls it.
fn limited(rate: f64, burst: u32) -> AgentInstance {
    AgentInstance::new([], done()).with_rate(rate, burst)
}

/// Concurrent attempts at different tasks.
async fn attempts(one: &AgentInstance, count: usize) -> Vec<AttemptResult> {
    let requests: Vec<_> = (0..count).map(|n| one.request(&format!("t{n}"), 1)).collect();
    join_all(requests.iter().map(|request| one.attempt(request))).await
}

/// The whole milliseconds at which calls were made.
fn called_at_ms(one: &AgentInstance) -> Vec<u128> {
    let mut millis: Vec<_> =
        one.service.called_at().iter().map(|at| (at.as_secs_f64() * 1e3).round() as u128).collect();
    millis.sort_unstable();
    millis
}

async fn is_claimed(one: &AgentInstance, request: &StepRequest) -> bool {
    let owner =
        DocumentOwner { task_id: request.task_id.clone(), incarnation: request.incarnation };
    let StepRequest { step, attempt, .. } = request;
    let attempt = AttemptId { step: step.clone(), action: Action::Do, number: *attempt };
    let key = DocumentKey::Claim(attempt);
    let found = one.ports.store.inner.documents(&owner, &[key]).await.unwrap();
    !found.is_empty()
}

#[tokio::test(start_paused = true)]
async fn calls_above_the_burst_wait_for_their_slots_and_the_others_are_deferred_one_after_the_other()
 {
    let one = limited(5.0, 3);
    let results = attempts(&one, 12).await;
    let (mut waits, mut done) = (Vec::new(), 0);
    for result in results {
        let outcome = outcome(result);
        if let ReplyOutcome::Deferred { reason, retry_after_ms, may_have_run, .. } = outcome {
            assert_eq!(reason, "rate limit: 5 calls per second");
            assert!(!may_have_run);
            waits.push(retry_after_ms);
        } else {
            assert_eq!(outcome, completed());
            done += 1;
        }
    }
    assert_eq!(done, 8);
    assert_eq!(called_at_ms(&one), [0, 0, 0, 200, 400, 600, 800, 1_000]);
    assert_eq!(waits, [1_200, 1_400, 1_600, 1_800], "the deferred calls return at the rate");
}

#[tokio::test(start_paused = true)]
async fn instances_share_the_rate() {
    let one = limited(10.0, 10);
    let two = one.another("two").with_rate(10.0, 10);
    assert_eq!(attempts(&one, 10).await.len(), 10);
    let results = attempts(&two, 15).await;
    let calls = one.service.called_at().len();
    // Ten at once, and ten in the next second, less those that the first instance has leased and not used.
    assert!((12..=20).contains(&calls), "{calls} calls");
    assert_eq!(results.iter().filter(|result| is_deferred(result)).count(), 25 - calls);
}

#[tokio::test(start_paused = true)]
async fn every_call_takes_a_token_also_a_retry() {
    let one = AgentInstance::new([down(), down(), busy(Duration::ZERO)], done()).with_rate(2.0, 1);
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
    let called = called_at_ms(&one);
    assert_eq!(called.len(), 4);
    for pair in called.windows(2) {
        assert!(pair[1] - pair[0] >= 499, "{called:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deferral_after_a_call_says_that_the_step_may_have_run() {
    let one = AgentInstance::new([broken()], done()).with_rate(0.1, 1);
    let (wait, may_have_run) = deferred(one.attempt(&one.request("t", 1)).await);
    assert!(may_have_run);
    assert!((9 * SECOND..=10 * SECOND).contains(&wait), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_costs_no_token() {
    let one = AgentInstance::new([], down()).with_rate(100.0, 3);
    one.open_breaker().await;
    sleep(SECOND).await;
    let saves = &one.ports.store.interceptor.saves;
    let saved = saves.load(Ordering::Relaxed);
    deferred(one.attempt(&one.request("t", 1)).await);
    assert_eq!(saves.load(Ordering::Relaxed), saved);
    // The probe takes a token, and the other calls find the burst.
    advance(20 * SECOND).await;
    one.service.take_calls();
    one.service.respond_with(done());
    assert_eq!(outcome(one.attempt(&one.request("u", 1)).await), completed());
    assert_eq!(one.service.take_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_a_token_is_given_back() {
    let one = probing_without_tokens().await;
    assert!(is_deferred(&one.attempt(&one.request("t", 1)).await));
    let breaker = one.breaker().await.unwrap();
    assert_eq!(breaker.body["state"]["is"], "open", "the probe was not made");
    sleep(9 * SECOND).await;
    assert_eq!(outcome(one.attempt(&one.request("t", 2)).await), completed());
    assert_eq!(one.breaker().await.unwrap().body["state"]["is"], "closed");
}

#[tokio::test(start_paused = true)]
async fn a_probe_takes_a_token_also_if_its_call_may_take_longer_than_the_probe() {
    let one = probing_without_tokens().await;
    // The function ends before complete-by, and a call may take 60 seconds.
    let request = one.request("t", 1);
    let late = StepRequest { complete_by: request.complete_by + 300 * SECOND, ..request };
    assert!(is_deferred(&one.deliver(&late, 0, 100 * SECOND).await));
}

/// An instance whose next call is a probe of its breaker, while another instance has leased the tokens of the next eight
/// seconds.
async fn probing_without_tokens() -> AgentInstance {
    let one = AgentInstance::new([], down()).with_rate(0.2, 3);
    one.open_breaker().await;
    sleep(11 * SECOND).await;
    one.service.respond_with(done());
    let next = one.ports.clock.now() + 8 * SECOND;
    let body = serde_json::to_value(RateRecord { next, line_end: next }).unwrap();
    let key = SharedRecordKey { kind: SharedRecordKind::Rate, name: "a".to_owned() };
    let store = &one.ports.store.inner;
    let revision = store.shared_record(&key).await.unwrap().unwrap().revision + 1;
    let leased = SharedRecord { key, revision, body, expires_at: None };
    assert_eq!(store.save_shared_record(&leased).await.unwrap(), SharedSaveOutcome::Saved);
    one
}

#[tokio::test(start_paused = true)]
async fn a_step_that_must_not_be_repeated_is_not_claimed_while_its_call_waits() {
    let one = limited(1.0, 1);
    attempts(&one, 1).await;
    sleep(SECOND / 2).await;
    let request = one.request_once("once", 1);
    // The function dies while the call waits for its slot.
    let died = tokio::time::timeout(SECOND / 4, one.attempt(&request)).await;
    assert!(died.is_err());
    assert!(!is_claimed(&one, &request).await);
    let two = one.another("two").with_rate(1.0, 1);
    sleep(5 * SECOND).await;
    assert_eq!(outcome(two.attempt_redelivered(&request).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_deferred_step_that_must_not_be_repeated_is_claimed_so_that_no_other_delivery_calls() {
    let one = limited(0.1, 1);
    attempts(&one, 1).await;
    let request = one.request_once("once", 1);
    deferred(one.attempt(&request).await);
    assert!(is_claimed(&one, &request).await);
    sleep(20 * SECOND).await;
    assert_eq!(one.attempt_redelivered(&request).await, AttemptResult::Silent);
    assert_eq!(outcome(one.attempt(&one.request_once("once", 2)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn without_the_state_store_the_limit_holds() {
    let one = limited(10.0, 5);
    attempts(&one, 2).await;
    // The instance may have leased more.
    sleep(4 * SECOND).await;
    one.ports.store.interceptor.is_down.store(true, Ordering::Relaxed);
    let results = attempts(&one, 10).await;
    assert!(results.iter().all(is_deferred), "{results:?}");
    for result in results {
        let (wait, may_have_run) = deferred(result);
        assert!((5 * SECOND..=15 * SECOND).contains(&wait) && !may_have_run, "{wait:?}");
    }
    assert_eq!(one.service.take_calls(), 2);
    one.ports.store.interceptor.is_down.store(false, Ordering::Relaxed);
    sleep(SECOND).await;
    assert_eq!(outcome(one.attempt(&one.request("after", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_at_most_half_of_its_time() {
    let one = limited(1.0, 1);
    attempts(&one, 1).await;
    let hasty = StepRequest {
        complete_by: one.request("t", 1).complete_by - 59 * SECOND,
        ..one.request("t", 1)
    };
    assert!(is_deferred(&one.attempt(&hasty).await), "its token comes after half of its time");
    assert_eq!(outcome(one.attempt(&one.request("u", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_function_that_could_not_wait_for_the_call_takes_no_token() {
    let one = limited(0.1, 1);
    // A call may take 60 seconds.
    let result = one.deliver(&one.request("t", 1), 0, 30 * SECOND).await;
    assert_eq!(result, AttemptResult::Requeued);
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_limit_reads_and_writes_no_record() {
    let one = AgentInstance::new([], done());
    attempts(&one, 5).await;
    // That of the breaker: its first success.
    assert_eq!(one.ports.store.interceptor.saves.load(Ordering::Relaxed), 1);
    assert_eq!(one.ports.store.interceptor.reads.load(Ordering::Relaxed), 1);
}

fn is_deferred(result: &AttemptResult) -> bool {
    matches!(result, AttemptResult::Reply(reply) if matches!(reply.outcome, ReplyOutcome::Deferred { .. }))
}

/// The requests to the state store for the rate limit, for each call, at half of the limit.
async fn requests_per_call(calls_per_second: u32, instances: usize) -> f64 {
    const SECONDS: u32 = 60;
    let first = limited(f64::from(calls_per_second) * 2.0, calls_per_second * 2);
    let mut all = vec![first.clone()];
    for n in 1..instances {
        all.push(
            first
                .another(&n.to_string())
                .with_rate(f64::from(calls_per_second) * 2.0, calls_per_second * 2),
        );
    }
    let interceptor = &first.ports.store.interceptor;
    for n in 0..SECONDS * calls_per_second {
        let instance = &all[n as usize % instances];
        let result = instance.attempt(&instance.request(&format!("t{n}"), 1)).await;
        assert_eq!(outcome(result), completed());
        sleep(SECOND / calls_per_second).await;
    }
    let requests = interceptor.rate_requests.load(Ordering::Relaxed);
    f64::from(requests) / f64::from(SECONDS * calls_per_second)
}

/// The table of ADR 39.
#[tokio::test(start_paused = true)]
async fn the_requests_for_each_call_fall_with_the_rate() {
    let mut table = Vec::new();
    let cases =
        [(1, 1, 0.5), (10, 1, 0.1), (100, 1, 0.01), (1, 10, 2.1), (10, 10, 1.0), (100, 10, 0.2)];
    for (calls, instances, most) in cases {
        let requests = requests_per_call(calls, instances).await;
        table.push((calls, instances, requests));
        assert!(requests <= most, "calls per second, instances, requests per call: {table:?}");
    }
    println!("calls per second, instances, requests per call: {table:?}");
}
