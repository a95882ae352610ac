//! The breaker's alerts: at least once, also when the instance dies before it tells.

use std::sync::atomic::Ordering;

use steward_runtime::breaker::tell_untold;

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn opening_and_closing_are_told_once_each() {
    let one = Instance::new([], down());
    one.open().await;
    assert_eq!(one.published(), ["breaker_opened"]);
    for seconds in [11, 21] {
        tokio::time::advance(seconds * SECOND).await;
        deferred(one.attempt(&one.request(&format!("t{seconds}"), 1)).await);
        assert!(one.published().is_empty(), "a failed probe is no news");
    }
    tokio::time::advance(41 * SECOND).await;
    one.service.now(done());
    one.attempt(&one.request("t", 1)).await;
    assert_eq!(one.published(), ["breaker_closed"]);
    tokio::time::advance(300 * SECOND).await;
    assert_eq!(tell_untold(&one.ports).await.unwrap(), 0);
    assert!(one.published().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_died_between_save_and_publish_is_told_by_the_supervisor() {
    let one = Instance::new([], down());
    one.ports.bus.is_stalled.store(true, Ordering::Relaxed);
    let request = one.request("t", 1);
    let died = tokio::time::timeout(5 * SECOND, one.attempt(&request)).await;
    assert!(died.is_err());
    assert_eq!(one.breaker().await.unwrap().revision, 1, "saved");
    one.ports.bus.is_stalled.store(false, Ordering::Relaxed);

    let supervisor = one.another("supervisor").ports;
    // Until then the instance itself may be about to tell.
    assert_eq!(tell_untold(&supervisor).await.unwrap(), 0);
    tokio::time::advance(63 * SECOND).await;
    assert_eq!(tell_untold(&supervisor).await.unwrap(), 1);
    assert_eq!(one.published(), ["breaker_opened"]);
    assert_eq!(tell_untold(&supervisor).await.unwrap(), 0);
    assert!(one.published().is_empty());

    // What the supervisor noted is in nobody's way.
    one.service.now(done());
    let two = one.another("two");
    assert_eq!(outcome(two.attempt(&two.request("u", 1)).await), completed());
    assert_eq!(one.published(), ["breaker_closed"]);
}

#[tokio::test(start_paused = true)]
async fn two_supervisors_at_once_tell_at_least_once_and_forget_nothing() {
    let one = Instance::new([], down());
    one.ports.bus.is_stalled.store(true, Ordering::Relaxed);
    let request = one.request("t", 1);
    assert!(tokio::time::timeout(5 * SECOND, one.attempt(&request)).await.is_err());
    one.ports.bus.is_stalled.store(false, Ordering::Relaxed);
    tokio::time::advance(63 * SECOND).await;
    let (two, three) = (one.another("two").ports, one.another("three").ports);
    let told = tokio::join!(tell_untold(&two), tell_untold(&three));
    assert!(told.0.unwrap() + told.1.unwrap() >= 1);
    assert!(!one.published().is_empty());
    assert!(one.breaker().await.unwrap().body.get("untold").is_none());
}
