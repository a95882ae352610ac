//! The circuit breaker between instances: who calls, who waits, what it costs.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::Value;
use steward_agent::attempt::Attempted;
use steward_core::model::messages::Outcome;

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn while_it_is_open_nobody_calls_and_the_step_waits_until_it_may_be_probed() {
    let one = Instance::new([], down());
    one.open().await;
    let (saves, reads) = (&one.ports.store.saves, &one.ports.store.reads);
    let (saved, read) = (saves.load(Ordering::Relaxed), reads.load(Ordering::Relaxed));
    for n in 0..20 {
        tokio::time::advance(SECOND / 10).await;
        let (wait, may_have_run) = deferred(one.attempt(&one.request(&format!("t{n}"), 1)).await);
        // What is left of ten seconds, and up to ten more so that not all come back at once.
        assert!((7 * SECOND..20 * SECOND).contains(&wait), "{wait:?}");
        assert!(!may_have_run);
    }
    assert_eq!(one.service.take_calls(), 0);
    assert_eq!(saves.load(Ordering::Relaxed), saved, "deferring costs no write");
    assert_eq!(reads.load(Ordering::Relaxed), read, "nor a read");
}

#[tokio::test(start_paused = true)]
async fn deferred_steps_do_not_come_back_all_at_once() {
    let one = Instance::new([], down());
    one.open().await;
    let mut waits = Vec::new();
    for n in 0..100 {
        waits.push(deferred(one.attempt(&one.request(&format!("t{n}"), 1)).await).0);
    }
    waits.sort_unstable();
    assert!(waits[75] - waits[25] > 3 * SECOND, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn instances_share_it() {
    let one = Instance::new([], down());
    let two = one.another("two");
    one.service.now(done());
    assert_eq!(outcome(two.attempt(&two.request("t", 1)).await), completed());
    one.service.take_calls();
    one.open().await;
    // The other's copy counts for a second.
    tokio::time::advance(SECOND).await;
    deferred(two.attempt(&two.request("t", 2)).await);
    let three = one.another("three");
    deferred(three.attempt(&three.request("t", 3)).await);
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_opens_within_an_attempt_and_what_was_called_may_have_run() {
    let one = Instance::new([], broken());
    let (_, may_have_run) = deferred(one.attempt(&one.request("t", 1)).await);
    assert!(may_have_run);
    assert_eq!(one.service.take_calls(), 3);
    // Of an attempt that made no call, nothing has run; unless another instance had it before.
    assert!(!deferred(one.attempt(&one.request("u", 1)).await).1);
    assert!(deferred(one.redelivered(&one.request("v", 1)).await).1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_answers_is_alive_whatever_it_answers() {
    let three = SETTINGS.failures.get() as usize;
    for alive in [done(), refused(), busy(SECOND), busy(Duration::ZERO)] {
        // Never as many in a row as it takes.
        let rounds = (0..5).flat_map(|_| {
            let downs = std::iter::repeat_with(down).take(three - 1);
            downs.chain([alive.clone()]).collect::<Vec<_>>()
        });
        let one = Instance::new(rounds, done());
        for n in 0..20 {
            one.attempt(&one.request(&format!("t{n}"), 1)).await;
        }
        assert!(one.service.take_calls() > 15, "{alive:?}");
        assert_eq!(one.breaker().await, None, "and nothing is written");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_silent_is_found_out_too() {
    let one = Instance::new([], hangs());
    for n in 0..3 {
        assert_eq!(one.attempt(&one.request(&format!("t{n}"), 1)).await, Attempted::Silent);
    }
    deferred(one.attempt(&one.request("t", 1)).await);
    // A request that comes late says nothing about the service.
    let one = Instance::new([], hangs());
    for n in 0..9 {
        let request = one.request(&format!("t{n}"), 1);
        tokio::time::advance(56 * SECOND).await;
        assert_eq!(one.attempt(&request).await, Attempted::Silent);
    }
    assert_eq!(one.breaker().await, None);
}

#[tokio::test(start_paused = true)]
async fn one_instance_probes_and_the_others_wait() {
    let one = Instance::new([], down());
    one.open().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.now((2 * SECOND, Ok(Value::Null)));
    let (two, three) = (one.another("two"), one.another("three"));
    let (a, b, c, d) =
        (one.request("a", 1), one.request("b", 1), two.request("c", 1), three.request("d", 1));
    let all = tokio::join!(one.attempt(&a), one.attempt(&b), two.attempt(&c), three.attempt(&d));
    assert_eq!(one.service.take_calls(), 1);
    let outcomes: Vec<_> = [all.0, all.1, all.2, all.3].into_iter().map(outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == completed()).count(), 1);
    // It is closed for all of them.
    tokio::time::advance(SECOND).await;
    for instance in [&one, &two, &three] {
        assert_eq!(outcome(instance.attempt(&instance.request("t", 1)).await), completed());
    }
    assert_eq!(one.service.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_opens_it_for_longer_and_is_one_call() {
    let one = Instance::new([], down());
    one.open().await;
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
    one.service.now(done());
    assert_eq!(outcome(one.attempt(&one.request("last", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn when_the_prober_dies_another_takes_over() {
    let one = Instance::new([], down());
    one.open().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.now(hangs());
    let (request, two) = (one.request("t", 1), one.another("two"));
    let died = tokio::time::timeout(SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.service.take_calls(), 1);
    one.service.now(done());
    // The probe's time is 30 seconds, and clocks may disagree by two.
    tokio::time::advance(30 * SECOND).await;
    deferred(two.attempt(&two.request("u", 1)).await);
    assert_eq!(one.service.take_calls(), 0);
    tokio::time::advance(SECOND * 2).await;
    assert_eq!(outcome(two.attempt(&two.request("v", 1)).await), completed());
}

#[tokio::test(start_paused = true)]
async fn a_probe_has_no_more_time_than_its_lease() {
    let one = Instance::new([], down());
    one.open().await;
    tokio::time::advance(11 * SECOND).await;
    one.service.now(hangs());
    let start = tokio::time::Instant::now();
    let reason = "the call that probed the service did not end in time".to_owned();
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), Outcome::Unknown { reason });
    assert_eq!(one.service.take_calls(), 1, "the service may still be at work on it");
    assert!((30..32).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn while_all_is_well_it_costs_a_read_a_second_and_no_write() {
    let one = Instance::new([], done());
    for round in 0..10 {
        for batch in 0..10 {
            let request = one.request(&format!("t{round}-{batch}"), 1);
            // A batch is carried out side by side.
            let attempts = (0..10).map(|_| one.attempt(&request));
            for attempted in futures_util::future::join_all(attempts).await {
                assert_eq!(outcome(attempted), completed());
            }
            tokio::time::advance(SECOND / 10).await;
        }
    }
    assert_eq!(one.service.take_calls(), 1_000);
    let reads = one.ports.store.reads.load(Ordering::Relaxed);
    assert!((9..=11).contains(&reads), "{reads} reads in ten seconds");
    assert_eq!(one.ports.store.saves.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_state_store_that_is_down_is_no_reason_to_leave_a_healthy_service_alone() {
    let one = Instance::new([], done());
    one.ports.store.is_down.store(true, Ordering::Relaxed);
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
    // But nobody probes without having won the right to.
    one.ports.store.is_down.store(false, Ordering::Relaxed);
    one.service.take_calls();
    tokio::time::advance(SECOND).await;
    one.open().await;
    tokio::time::advance(11 * SECOND).await;
    one.ports.store.is_down.store(true, Ordering::Relaxed);
    deferred(one.attempt(&one.request("t", 2)).await);
    assert_eq!(one.service.take_calls(), 0);
}
