//! Accounts of CPU time: whoever works is charged, and nobody for another. The accounts are the whole
//! process's, so this test has one of its own. The clock is the processor's: waiting does not count.

#![allow(
    clippy::indexing_slicing,
    reason = "clippy.toml allows it in tests, and means test functions"
)]

use std::time::Duration;

use steward_emulator::cpu::{Account, charged, read, start, thread};

/// Works for so long, by the processor's own clock.
fn work(time: Duration) {
    let until = thread() + time;
    while thread() < until {
        std::hint::spin_loop();
    }
}

#[tokio::test]
async fn what_runs_for_another_is_charged_to_that_one() {
    let whole = Duration::from_millis(20);
    work_for_both(whole).await;
    assert!(read().values().all(Duration::is_zero), "charged before the start");
    start();
    work_for_both(whole).await;
    let charged = read();
    let (outer, inner) = (charged["supervisor"], charged["EventBridge"]);
    assert!(outer >= whole && outer < whole * 2, "{outer:?}");
    assert!(inner >= whole * 2 && inner < whole * 3, "{inner:?}");
}

/// The inner one works twice as long.
async fn work_for_both(whole: Duration) {
    charged(Account::Supervisor, async {
        work(whole / 2);
        charged(Account::EventBridge, async {
            work(whole);
            tokio::task::yield_now().await;
            work(whole);
        })
        .await;
        work(whole / 2);
    })
    .await;
}
