//! CPU time is charged to the part that uses it, and not to its caller. The accounts are global to the process,
//! so this test runs in its own process. The clock measures CPU time, so waiting does not count.

#![allow(
    clippy::indexing_slicing,
    reason = "clippy.toml allows it in tests, and means test functions"
)]

use std::time::Duration;

use steward_emulator::cpu::{CpuAccount, read, start, thread, with_cpu_account};

/// Uses the CPU for `time`.
fn work(time: Duration) {
    let until = thread() + time;
    while thread() < until {
        std::hint::spin_loop();
    }
}

#[tokio::test]
async fn inner_future_is_charged_to_its_own_account() {
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

/// The inner future uses twice as much CPU time as the outer one.
async fn work_for_both(whole: Duration) {
    with_cpu_account(CpuAccount::Supervisor, async {
        work(whole / 2);
        with_cpu_account(CpuAccount::EventBridge, async {
            work(whole);
            tokio::task::yield_now().await;
            work(whole);
        })
        .await;
        work(whole / 2);
    })
    .await;
}
