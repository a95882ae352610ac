//! The circuit breaker that instances share: which instance calls, which waits, and how many reads and writes it costs.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::Value;
use steward_agent::attempt::AttemptResult;
use steward_core::model::messages::ReplyOutcome;

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_no_instance_calls_and_steps_are_deferred() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    let (saves, reads) = (&one.ports.store.interceptor.saves, &one.ports.store.interceptor.reads);
    let (saved, read) = (saves.load(Ordering::Relaxed), reads.load(Ordering::Relaxed));
    for n in 0..20 {
        tokio::time::advance(SECOND / 10).await;
        let (wait, may_have_run) = deferred(one.attempt(&one.request(&format!("t{n}"), 1)).await);
        // The remaining open time of at most ten seconds, and a jitter of up to ten seconds.
        assert!((7 * SECOND..20 * SECOND).contains(&wait), "{wait:?}");
        assert!(!may_have_run);
    }
    assert_eq!(one.service.take_calls(), 0);
    assert_eq!(saves.load(Ordering::Relaxed), saved, "a deferral costs no write");
    assert_eq!(reads.load(Ordering::Relaxed), read, "a deferral costs no read");
}

#[tokio::test(start_paused = true)]
async fn deferred_steps_are_retried_with_jitter() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    let mut waits = Vec::new();
    for n in 0..100 {
        waits.push(deferred(one.attempt(&one.request(&format!("t{n}"), 1)).await).0);
    }
    waits.sort_unstable();
    assert!(waits[75] - waits[25] > 3 * SECOND, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn instances_share_the_breaker() {
    let one = AgentInstance::new([], down());
    let two = one.another("two");
    one.service.respond_with(done());
    assert_eq!(outcome(two.attempt(&two.request("t", 1)).await), completed());
    one.service.take_calls();
    one.open_breaker().await;
    // The other instance uses its copy for a second.
    tokio::time::advance(SECOND).await;
    deferred(two.attempt(&two.request("t", 2)).await);
    let three = one.another("three");
    deferred(three.attempt(&three.request("t", 3)).await);
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_during_an_attempt_whose_calls_may_have_run() {
    let one = AgentInstance::new([], broken());
    one.almost_open_breaker().await;
    let (_, may_have_run) = deferred(one.attempt(&one.request("t", 1)).await);
    assert!(may_have_run);
    assert_eq!(one.service.take_calls(), 1);
    // An attempt without a call did not run, unless another instance received the request before.
    assert!(!deferred(one.attempt(&one.request("u", 1)).await).1);
    assert!(deferred(one.attempt_redelivered(&one.request("v", 1)).await).1);
}

/// A service may store its first response to an idempotency key, also a 5xx.
#[tokio::test(start_paused = true)]
async fn a_request_that_always_fails_uses_up_its_attempts_and_defers_no_other() {
    let one = AgentInstance::new([], done());
    one.service.store_failure(&one.request("failing", 1));
    for number in 1..=5 {
        let (failing, other) = (one.request("failing", number), one.request("other", number));
        assert!(is_unknown(one.attempt(&failing).await), "an attempt without other calls");
        assert!(one.service.take_calls() > 3);
        assert_eq!(outcome(one.attempt(&other).await), completed());
    }
    assert_eq!(one.breaker().await.map(|record| record.revision), Some(1), "the first success");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_after_an_outage_keeps_the_breaker_open_for_no_other() {
    let one = AgentInstance::new([], done());
    let failing = |number| one.request("failing", number);
    one.service.store_failure(&failing(1));
    one.almost_open_breaker().await;
    deferred(one.attempt(&failing(1)).await);
    assert_eq!(one.service.take_calls(), 1);
    one.service.respond_with(done());
    tokio::time::advance(11 * SECOND).await;
    deferred(one.attempt(&failing(2)).await);
    assert_eq!(one.service.take_calls(), 0, "it leaves the probe to another");
    tokio::time::advance(10 * SECOND).await;
    deferred(one.attempt(&failing(3)).await);
    assert_eq!(one.service.take_calls(), 1);
    let two = one.another("two");
    assert_eq!(outcome(two.attempt(&two.request("other", 1)).await), completed());
    // The breaker is closed, and the request does not count again.
    tokio::time::advance(SECOND).await;
    assert!(is_unknown(one.attempt(&failing(4)).await));
    assert_eq!(outcome(one.attempt(&one.request("another", 1)).await), completed());
}

fn is_unknown(attempted: AttemptResult) -> bool {
    matches!(outcome(attempted), ReplyOutcome::Unknown { .. })
}

#[tokio::test(start_paused = true)]
async fn every_response_of_the_service_counts_as_available() {
    let three = SETTINGS.failures.get() as usize;
    for available in [done(), refused(), busy(SECOND), busy(Duration::ZERO)] {
        // Always one consecutive failure less than opens the breaker.
        let rounds = (0..5).flat_map(|_| {
            let downs = std::iter::repeat_with(down).take(three - 1);
            downs.chain([available.clone()]).collect::<Vec<_>>()
        });
        let one = AgentInstance::new(rounds, done());
        for n in 0..20 {
            one.attempt(&one.request(&format!("t{n}"), 1)).await;
        }
        assert!(one.service.take_calls() > 15, "{available:?}");
        // Only the first call that completes is recorded.
        assert_eq!(one.breaker().await.map(|record| record.revision), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_never_responds_opens_the_breaker() {
    let one = AgentInstance::new([], hangs());
    for n in 0..3 {
        assert_eq!(one.attempt(&one.request(&format!("t{n}"), 1)).await, AttemptResult::Overdue);
    }
    deferred(one.attempt(&one.request("t", 1)).await);
    // A call of a request that was delivered late had too little time to count as a failure.
    let one = AgentInstance::new([], hangs());
    for n in 0..9 {
        let request = one.request(&format!("t{n}"), 1);
        tokio::time::advance(56 * SECOND).await;
        assert_eq!(one.attempt(&request).await, AttemptResult::Overdue);
    }
    assert_eq!(one.breaker().await, None);
}

#[tokio::test(start_paused = true)]
async fn one_instance_probes_and_the_others_wait() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.respond_with((2 * SECOND, Ok(Value::Null)));
    let (two, three) = (one.another("two"), one.another("three"));
    let (a, b, c, d) =
        (one.request("a", 1), one.request("b", 1), two.request("c", 1), three.request("d", 1));
    let all = tokio::join!(one.attempt(&a), one.attempt(&b), two.attempt(&c), three.attempt(&d));
    assert_eq!(one.service.take_calls(), 1);
    let outcomes: Vec<_> = [all.0, all.1, all.2, all.3].into_iter().map(outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == completed()).count(), 1);
    // The breaker is closed for all instances.
    tokio::time::advance(SECOND).await;
    for instance in [&one, &two, &three] {
        assert_eq!(outcome(instance.attempt(&instance.request("t", 1)).await), completed());
    }
    assert_eq!(one.service.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_is_one_call_and_doubles_the_open_time() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    let mut waited = 10;
    for length in [20, 40, 80, 160, 300, 300] {
        tokio::time::advance(waited * SECOND).await;
        let (wait, _) = deferred(one.attempt(&one.request(&format!("t{length}"), 1)).await);
        assert_eq!(one.service.take_calls(), 1);
        let least = length * SECOND - SECOND;
        assert!((least..least + 12 * SECOND).contains(&wait), "{wait:?} of {length}");
        waited = length;
    }
    tokio::time::advance(300 * SECOND).await;
    one.service.respond_with(done());
    assert_eq!(outcome(one.attempt(&one.request("last", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn another_instance_takes_over_the_probe_of_one_that_died() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.respond_with(hangs());
    let (request, two) = (one.request("t", 1), one.another("two"));
    let died = tokio::time::timeout(SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.service.take_calls(), 1);
    one.service.respond_with(done());
    // The lease of a probe is 30 seconds; clocks may differ by two seconds.
    tokio::time::advance(30 * SECOND).await;
    deferred(two.attempt(&two.request("u", 1)).await);
    assert_eq!(one.service.take_calls(), 0);
    tokio::time::advance(SECOND * 2).await;
    assert_eq!(outcome(two.attempt(&two.request("v", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_aborted_at_the_end_of_its_lease() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.respond_with(hangs());
    let start = tokio::time::Instant::now();
    let reason = "the call that probed the service did not end in time".to_owned();
    assert_eq!(
        outcome(one.attempt(&one.request("t", 1)).await),
        ReplyOutcome::Unknown { reason, detail: None }
    );
    assert_eq!(one.service.take_calls(), 1, "the service may still process the call");
    assert!((30..32).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_closed_breaker_costs_one_read_a_second_and_one_write_ever() {
    let one = AgentInstance::new([], done());
    for round in 0..10 {
        for batch in 0..10 {
            let request = one.request(&format!("t{round}-{batch}"), 1);
            // The requests of a batch run concurrently.
            let attempts = (0..10).map(|_| one.attempt(&request));
            for attempted in futures_util::future::join_all(attempts).await {
                assert_eq!(outcome(attempted), completed());
            }
            tokio::time::advance(SECOND / 10).await;
        }
    }
    assert_eq!(one.service.take_calls(), 1_000);
    let reads = one.ports.store.interceptor.reads.load(Ordering::Relaxed);
    assert!((9..=11).contains(&reads), "{reads} reads in ten seconds");
    assert_eq!(one.ports.store.interceptor.saves.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_calls_a_healthy_service_even_if_the_state_store_is_down() {
    let one = AgentInstance::new([], done());
    one.ports.store.interceptor.is_down.store(true, Ordering::Relaxed);
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
    // But no instance probes without having recorded its probe.
    one.ports.store.interceptor.is_down.store(false, Ordering::Relaxed);
    one.service.take_calls();
    tokio::time::advance(SECOND).await;
    one.open_breaker().await;
    tokio::time::advance(11 * SECOND).await;
    one.ports.store.interceptor.is_down.store(true, Ordering::Relaxed);
    deferred(one.attempt(&one.request("t", 2)).await);
    assert_eq!(one.service.take_calls(), 0);
}
