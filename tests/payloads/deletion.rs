//! How many payloads one run of the supervisor deletes: all that its time allows.

use std::{num::NonZeroU32, time::Duration};

use steward_core::{
    limits,
    model::{
        payload::{PayloadKey, PayloadReference},
        time::{Timing, later},
    },
};
use steward_memory_ports::{
    ManualClock, MemoryBus, MemoryChannel, MemoryDefinitions, MemoryPorts, MemoryStore,
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome, PayloadFuture, PayloadPage, PayloadStore, UploadRequest},
    ports::{Clock, Ports},
};
use steward_supervisor::payloads::delete_orphans;

/// Objects on a page of the bucket in memory.
const PAGE: usize = 10;

const PAGES: usize = 60;

/// How long a run deletes payloads.
const TIME: Duration = Duration::from_secs(40);

/// How long a request to the bucket takes.
const REQUEST: Duration = Duration::from_secs(1);

/// Ports in memory whose bucket is slow.
struct SlowBucket(MemoryPorts);

impl Ports for SlowBucket {
    type Store = MemoryStore;
    type Definitions = MemoryDefinitions;
    type Channel = MemoryChannel;
    type Bus = MemoryBus;
    type Clock = ManualClock;

    fn store(&self) -> &MemoryStore {
        self.0.store()
    }
    fn definitions(&self) -> &MemoryDefinitions {
        self.0.definitions()
    }
    fn channel(&self) -> &MemoryChannel {
        self.0.channel()
    }
    fn bus(&self) -> &MemoryBus {
        self.0.bus()
    }
    fn clock(&self) -> &ManualClock {
        self.0.clock()
    }
    fn timing(&self) -> Timing {
        self.0.timing()
    }
    fn instance(&self) -> &str {
        self.0.instance()
    }
    fn payloads(&self) -> Option<&dyn PayloadStore> {
        Some(self)
    }
}

impl PayloadStore for SlowBucket {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        self.0.memory_payloads().claim(claim)
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        self.0.memory_payloads().upload_request(reference, valid_for)
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        self.0.clock().advance(REQUEST);
        self.0.memory_payloads().task_payloads(after)
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        self.0.clock().advance(REQUEST);
        self.0.memory_payloads().delete(keys)
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
        Self(ports)
    }

    /// Makes one run. Returns the number of deleted objects, and how long it took.
    async fn run(&self) -> (usize, Duration) {
        let start = self.clock().now();
        let deleted = delete_orphans(self, start, later(start, TIME)).await.unwrap();
        (deleted, self.clock().now().duration_since(start).unsigned_abs())
    }

    fn left(&self) -> Vec<PayloadKey> {
        self.0.memory_payloads().keys()
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
    bucket.0.memory_payloads().put(&PayloadReference::new(
        before[0].clone(),
        1,
        "0".repeat(64).parse().unwrap(),
        "text/plain".parse().unwrap(),
    ));
    let (none, took) = bucket.run().await;
    assert_eq!((none, took), (0, Duration::ZERO));
}

#[tokio::test]
async fn without_time_a_run_reads_nothing() {
    let bucket = SlowBucket::new();
    let now = bucket.clock().now();
    assert_eq!(delete_orphans(&bucket, now, now).await.unwrap(), 0);
    assert_eq!(bucket.clock().now(), now);
    assert_eq!(bucket.left().len(), PAGES * PAGE);
}
