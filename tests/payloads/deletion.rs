//! How many payloads one run of the supervisor deletes: all that its time allows.

use std::{future::Future, num::NonZeroU32, time::Duration};

use steward_core::{
    limits,
    model::{
        payload::{PayloadKey, PayloadReference},
        time::{Timing, later},
    },
};
use steward_test_world::{
    ManualClock, MemoryBus, MemoryChannel, MemoryDefinitions, MemoryPorts, MemoryStore,
    intercepted_store::{InterceptedStore, Interceptor, StoreCall, StoreReply},
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome, PayloadFuture, PayloadPage, PayloadStore, UploadRequest},
    ports::{Clock, PortError, Ports},
};
use steward_supervisor::payloads::delete_orphans;

/// Objects on a page of the bucket in memory.
const PAGE: usize = 10;

const PAGES: usize = 60;

/// How long a run deletes payloads.
const TIME: Duration = Duration::from_secs(40);

/// How long a request to the bucket takes.
const REQUEST: Duration = Duration::from_secs(1);

/// Ports in memory whose bucket is slow. One task may be unreadable.
struct SlowBucket {
    ports: MemoryPorts,
    store: InterceptedStore<MemoryStore, Unreadable>,
}

/// The task whose item is corrupt.
#[derive(Debug, Default)]
struct Unreadable(Option<&'static str>);

impl Interceptor for Unreadable {
    async fn intercept<T: Send + Sync>(
        &self,
        call: StoreCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> StoreReply<'_> + Send,
    ) -> Result<T, PortError> {
        let StoreCall::Load(id) = call else { return effect.await };
        if self.0 != Some(id.as_str()) {
            return effect.await;
        }
        Err(PortError { operation: call.to_string(), retryable: false, source: "corrupt".into() })
    }
}

impl Ports for SlowBucket {
    type Store = InterceptedStore<MemoryStore, Unreadable>;
    type Definitions = MemoryDefinitions;
    type Channel = MemoryChannel;
    type Bus = MemoryBus;
    type Clock = ManualClock;

    fn store(&self) -> &Self::Store {
        &self.store
    }
    fn definitions(&self) -> &MemoryDefinitions {
        self.ports.definitions()
    }
    fn channel(&self) -> &MemoryChannel {
        self.ports.channel()
    }
    fn bus(&self) -> &MemoryBus {
        self.ports.bus()
    }
    fn clock(&self) -> &ManualClock {
        self.ports.clock()
    }
    fn timing(&self) -> Timing {
        self.ports.timing()
    }
    fn instance(&self) -> &str {
        self.ports.instance()
    }
    fn payloads(&self) -> Option<&dyn PayloadStore> {
        Some(self)
    }
}

impl PayloadStore for SlowBucket {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        self.ports.memory_payloads().claim(claim)
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        self.ports.memory_payloads().upload_request(reference, valid_for)
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        self.ports.clock().advance(REQUEST);
        self.ports.memory_payloads().task_payloads(after)
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        self.ports.clock().advance(REQUEST);
        self.ports.memory_payloads().delete(keys)
    }
}

impl SlowBucket {
    /// A bucket with payloads of tasks that do not exist.
    fn new() -> Self {
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let ports = MemoryPorts::new(timing, NonZeroU32::MIN);
        for n in 0..PAGES * PAGE {
            let key = format!("tasks/t-{n:06}@000000001/output/s/do/1");
            let key = PayloadKey::try_from(key).unwrap();
            let sha256 = format!("{n:064x}").parse().unwrap();
            let text = "text/plain".parse().unwrap();
            ports.memory_payloads().put(&PayloadReference::new(key, 1, sha256, text));
        }
        ports.clock().advance(2 * limits::ORPHANED_PAYLOAD_AGE);
        let store =
            InterceptedStore { store: ports.store().clone(), interceptor: Unreadable(None) };
        Self { ports, store }
    }

    /// Makes one run. Returns the number of deleted objects, and how long it took.
    async fn run(&self) -> (usize, Duration) {
        let start = self.clock().now();
        let deleted = delete_orphans(self, start, later(start, TIME)).await.unwrap();
        (deleted, self.clock().now().duration_since(start).unsigned_abs())
    }

    fn left(&self) -> Vec<PayloadKey> {
        self.ports.memory_payloads().keys()
    }
}

#[tokio::test]
async fn a_run_deletes_pages_until_its_time_is_up_and_the_next_one_continues_there() {
    let bucket = SlowBucket::new();
    let before = bucket.left();
    let (first, took) = bucket.run().await;
    // A list and a deletion for each page; the first page is listed in advance.
    let pages = (TIME.as_secs() / 2) as usize;
    assert_eq!(first, pages * PAGE);
    assert!((TIME..=TIME + 2 * REQUEST).contains(&took), "{took:?}");
    assert_eq!(bucket.left(), before[first..], "the first ones are deleted");

    let (mut deleted, mut runs) = (first, 1);
    while deleted < before.len() {
        deleted += bucket.run().await.0;
        runs += 1;
    }
    assert_eq!(runs, PAGES.div_ceil(pages));
    assert_eq!(bucket.left(), []);
    // The next pass begins a day later.
    bucket.ports.memory_payloads().put(&PayloadReference::new(
        before[0].clone(),
        1,
        "0".repeat(64).parse().unwrap(),
        "text/plain".parse().unwrap(),
    ));
    let (none, took) = bucket.run().await;
    assert_eq!((none, took), (0, Duration::ZERO));
}

#[tokio::test]
async fn an_unreadable_task_keeps_its_payloads_and_delays_no_others() {
    let mut bucket = SlowBucket::new();
    bucket.store.interceptor = Unreadable(Some("t-000007"));
    while bucket.run().await.0 > 0 {}
    let left: Vec<_> = bucket.left().iter().map(ToString::to_string).collect();
    assert_eq!(left, ["tasks/t-000007@000000001/output/s/do/1"]);
}

#[tokio::test]
async fn without_time_a_run_reads_nothing() {
    let bucket = SlowBucket::new();
    let now = bucket.clock().now();
    assert_eq!(delete_orphans(&bucket, now, now).await.unwrap(), 0);
    assert_eq!(bucket.clock().now(), now);
    assert_eq!(bucket.left().len(), PAGES * PAGE);
}
