//! Instances whose clock is behind that of their queue: they do not call, and one of them alerts.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use tokio::time::{advance, timeout};

use crate::harness::*;

fn behind_by(behind: Duration) -> AgentInstance {
    let mut instance = AgentInstance::new([], done());
    instance.queue_is_ahead_by = behind;
    instance
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_by_more_than_the_clock_skew_prevents_the_call() {
    let one = behind_by(2 * SECOND);
    assert_eq!(outcome(one.attempt(&one.request("t", 1)).await), completed());
    let one = behind_by(3 * SECOND);
    let (pause, may_have_run) = deferred(one.attempt(&one.request("t", 1)).await);
    assert!(pause >= 30 * SECOND && !may_have_run, "{pause:?} {may_have_run}");
    assert_eq!(one.service.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn instances_that_notice_it_together_alert_once() {
    let one = behind_by(3_600 * SECOND);
    let two = one.another("two");
    let requests: Vec<_> = (0..4).map(|n| one.request(&format!("t-{n}"), 1)).collect();
    let attempts = requests.iter().flat_map(|request| [one.attempt(request), two.attempt(request)]);
    for ended in join_all(attempts).await {
        deferred(ended);
    }
    assert_eq!(one.published(), ["agent_clock_wrong"]);
    advance(120 * SECOND).await;
    deferred(two.attempt(&one.request("t", 1)).await);
    assert_eq!(one.published(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn an_alert_whose_instance_died_before_it_was_published_is_published_later() {
    let one = behind_by(3_600 * SECOND);
    let is_stalled = &one.ports.store.interceptor.is_stalled;
    is_stalled.store(true, Ordering::Relaxed);
    assert!(timeout(SECOND, one.attempt(&one.request("t", 1))).await.is_err());
    is_stalled.store(false, Ordering::Relaxed);
    deferred(one.attempt(&one.request("u", 1)).await);
    assert_eq!(one.published(), Vec::<&str>::new());
    advance(60 * SECOND).await;
    deferred(one.attempt(&one.request("v", 1)).await);
    assert_eq!(one.published(), ["agent_clock_wrong"]);
}
