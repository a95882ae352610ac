//! How many payloads one run of the supervisor deletes: all that its time allows.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use steward_core::{
    limits,
    model::{
        payload::{PayloadKey, PayloadReference},
        time::later,
    },
};
use steward_runtime::ports::{Clock, PortError};
use steward_supervisor::payloads::delete_orphans;
use steward_test_world::{
    InterceptedPorts, Interceptor, MemoryPorts, PortCall, PortReply, WorldClock,
};

/// Objects on a page of the bucket in memory.
const PAGE: usize = 10;

const PAGES: usize = 60;

/// How long a run deletes payloads.
const TIME: Duration = Duration::from_secs(40);

/// How long a request to the bucket takes.
const REQUEST: Duration = Duration::from_secs(1);

/// Makes the bucket slow. One task may be unreadable, because its item is corrupt.
#[derive(Clone)]
struct SlowBucket {
    clock: WorldClock,
    unreadable: Option<&'static str>,
    /// Deletions in progress now, and the most at any time.
    deletions: Arc<[AtomicUsize; 2]>,
    /// The number of the deletion that fails, from 1.
    fails: Option<usize>,
    made: Arc<AtomicUsize>,
}

impl Interceptor for SlowBucket {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if matches!(call, PortCall::ListPayloads | PortCall::DeletePayloads(_)) {
            self.clock.advance(REQUEST);
        }
        if matches!(call, PortCall::DeletePayloads(_)) {
            let [now, most] = &*self.deletions;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            if Some(self.made.fetch_add(1, Ordering::SeqCst) + 1) == self.fails {
                let (operation, source) = (call.to_string(), "slow down".into());
                return Err(PortError { operation, retryable: true, source });
            }
        }
        if matches!(call, PortCall::Load(id) if self.unreadable == Some(id.as_str())) {
            let (operation, source) = (call.to_string(), "corrupt".into());
            return Err(PortError { operation, retryable: false, source });
        }
        effect.await
    }
}

/// A supervisor, and a bucket with payloads of tasks that do not exist.
struct Supervisor(InterceptedPorts<SlowBucket>);

impl Supervisor {
    fn new(unreadable: Option<&'static str>, fails: Option<usize>) -> Self {
        let ports = MemoryPorts::default();
        for n in 0..PAGES * PAGE {
            let key = format!("tasks/t-{n:06}@000000001/output/s/do/1");
            let key = PayloadKey::try_from(key).unwrap();
            let sha256 = format!("{n:064x}").parse().unwrap();
            let text = "text/plain".parse().unwrap();
            ports.payloads.put(&PayloadReference::new(key, 1, sha256, text));
        }
        ports.clock.advance(2 * limits::ORPHANED_PAYLOAD_AGE);
        let (deletions, made) = Default::default();
        let clock = ports.clock.clone();
        Self(ports.intercepted(SlowBucket { clock, unreadable, deletions, fails, made }))
    }

    /// Makes one run. Returns the number of deleted objects, and how long it took.
    async fn run(&self) -> (usize, Duration) {
        let start = self.0.clock.now();
        let deleted = delete_orphans(&self.0, start, later(start, TIME)).await.unwrap();
        (deleted, self.0.clock.now().duration_since(start).unsigned_abs())
    }

    fn left(&self) -> Vec<PayloadKey> {
        self.0.payloads.inner.keys()
    }
}

#[tokio::test]
async fn a_run_deletes_pages_until_its_time_is_up_and_the_next_one_continues_there() {
    let bucket = Supervisor::new(None, None);
    let before = bucket.left();
    let (first, took) = bucket.run().await;
    // A list and a deletion for each page. Pages that were listed before the time was up are deleted.
    let pages = (TIME.as_secs() / 2) as usize;
    assert!((pages..pages + 4).contains(&(first / PAGE)), "{first}");
    assert!((TIME..=TIME + 4 * REQUEST).contains(&took), "{took:?}");
    assert_eq!(bucket.left(), before[first..], "the first ones are deleted");

    let (mut deleted, mut runs) = (first, 1);
    while deleted < before.len() {
        deleted += bucket.run().await.0;
        runs += 1;
    }
    assert!(runs <= PAGES.div_ceil(pages), "{runs}");
    assert_eq!(bucket.left(), []);
    // The next pass begins a day later.
    bucket.0.payloads.inner.put(&PayloadReference::new(
        before[0].clone(),
        1,
        "0".repeat(64).parse().unwrap(),
        "text/plain".parse().unwrap(),
    ));
    let (none, took) = bucket.run().await;
    assert_eq!((none, took), (0, Duration::ZERO));
}

#[tokio::test]
async fn several_pages_are_deleted_at_once_and_a_failed_one_is_handled_again() {
    let bucket = Supervisor::new(None, Some(3));
    let start = bucket.0.clock.now();
    let failed = delete_orphans(&bucket.0, start, later(start, TIME)).await;
    assert!(failed.is_err());
    let [_, most] = &*bucket.0.payloads.interceptor.deletions;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert!(bucket.left().len() > (PAGES - 8) * PAGE);
    while !bucket.left().is_empty() {
        assert!(bucket.run().await.0 > 0);
    }
}

#[tokio::test]
async fn an_unreadable_task_keeps_its_payloads_and_delays_no_others() {
    let bucket = Supervisor::new(Some("t-000007"), None);
    while bucket.run().await.0 > 0 {}
    let left: Vec<_> = bucket.left().iter().map(ToString::to_string).collect();
    assert_eq!(left, ["tasks/t-000007@000000001/output/s/do/1"]);
}

#[tokio::test]
async fn without_time_a_run_reads_nothing() {
    let bucket = Supervisor::new(None, None);
    let now = bucket.0.clock.now();
    assert_eq!(delete_orphans(&bucket.0, now, now).await.unwrap(), 0);
    assert_eq!(bucket.0.clock.now(), now);
    assert_eq!(bucket.left().len(), PAGES * PAGE);
}
