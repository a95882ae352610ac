//! The alerts of a circuit breaker: published at least once, even if the instance dies before it publishes them.

use std::sync::atomic::Ordering;

use steward_runtime::breaker::publish_unpublished_changes;

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn opening_and_closing_are_published_once_each() {
    let one = AgentInstance::new([], down());
    one.open_breaker().await;
    assert_eq!(one.published(), ["breaker_opened"]);
    for seconds in [11, 21] {
        tokio::time::advance(seconds * SECOND).await;
        deferred(one.attempt(&one.request(&format!("t{seconds}"), 1)).await);
        assert!(one.published().is_empty(), "a failed probe publishes nothing");
    }
    tokio::time::advance(41 * SECOND).await;
    one.service.respond_with(done());
    one.attempt(&one.request("t", 1)).await;
    assert_eq!(one.published(), ["breaker_closed"]);
    tokio::time::advance(300 * SECOND).await;
    assert_eq!(publish_unpublished_changes(&one.ports).await.unwrap(), 0);
    assert!(one.published().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_supervisor_publishes_an_alert_whose_instance_died_after_the_save() {
    let one = AgentInstance::new([], down());
    one.ports.bus.interceptor.is_stalled.store(true, Ordering::Relaxed);
    let request = one.request("t", 1);
    let died = tokio::time::timeout(5 * SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.breaker().await.unwrap().revision, 1, "saved");
    one.ports.bus.interceptor.is_stalled.store(false, Ordering::Relaxed);

    let supervisor = one.another("supervisor").ports;
    // Until complete-by the instance itself may still publish the alert.
    assert_eq!(publish_unpublished_changes(&supervisor).await.unwrap(), 0);
    tokio::time::advance(63 * SECOND).await;
    assert_eq!(publish_unpublished_changes(&supervisor).await.unwrap(), 1);
    assert_eq!(one.published(), ["breaker_opened"]);
    assert_eq!(publish_unpublished_changes(&supervisor).await.unwrap(), 0);
    assert!(one.published().is_empty());

    // The supervisor's update of the record does not disturb another instance.
    one.service.respond_with(done());
    let two = one.another("two");
    assert_eq!(outcome(two.attempt(&two.request("u", 1)).await), completed());
    assert_eq!(one.published(), ["breaker_closed"]);
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_supervisors_publish_at_least_once() {
    let one = AgentInstance::new([], down());
    one.ports.bus.interceptor.is_stalled.store(true, Ordering::Relaxed);
    let request = one.request("t", 1);
    assert!(tokio::time::timeout(5 * SECOND, one.attempt(&request)).await.is_err());
    one.ports.bus.interceptor.is_stalled.store(false, Ordering::Relaxed);
    tokio::time::advance(63 * SECOND).await;
    let (two, three) = (one.another("two").ports, one.another("three").ports);
    let published =
        tokio::join!(publish_unpublished_changes(&two), publish_unpublished_changes(&three));
    assert!(published.0.unwrap() + published.1.unwrap() >= 1);
    assert!(!one.published().is_empty());
    assert!(one.breaker().await.unwrap().body.get("unpublished").is_none());
}
