//! The supervisor's checks of the queues: what it counts, and when a run is not complete.

#![cfg(test)]

use jiff::Timestamp;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::json;
use steward_core::model::registration::AgentRegistration;
use steward_runtime::{
    agents::{self, RegisterOutcome},
    metrics::{DEAD_LETTERS, QUEUES_UNREAD, SWEEPS},
    ports::{Ports, Queue},
};
use steward_supervisor::run_once;
use steward_test_world::MemoryPorts;

/// Ports in memory with an agent `a`, and the counters of this thread.
struct Supervised {
    ports: MemoryPorts,
    counters: Snapshotter,
}

impl Supervised {
    async fn new() -> (Self, impl Drop) {
        let ports = MemoryPorts::default();
        ports.channel().set_dead_letters("scheduler-dead-letters", 0);
        ports.channel().set_dead_letters("a-dead-letters", 0);
        let registration: AgentRegistration = serde_json::from_value(json!({
            "kind": "http", "queue": "a", "dead_letter_queue": "a-dead-letters", "contract": 2,
            "stack": "s", "at": 1_780_000_000_000_i64,
        }))
        .unwrap();
        let registered =
            agents::register(ports.store(), &"a".parse().unwrap(), &registration).await.unwrap();
        assert_eq!(registered, RegisterOutcome::Registered);
        // Leaked, because the guard borrows it.
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let counters = recorder.snapshotter();
        (Self { ports, counters }, metrics::set_default_local_recorder(recorder))
    }

    /// Makes a run. Returns what it counted: complete runs, unread queues, new dead letters.
    async fn run(&self) -> [u64; 3] {
        run_once(&self.ports, 0, Timestamp::MAX).await.unwrap();
        let counted = self.counters.snapshot().into_vec();
        [SWEEPS, QUEUES_UNREAD, DEAD_LETTERS].map(|name| {
            let counters = counted.iter().filter(|(key, ..)| key.key().name() == name);
            let counts = counters.map(|(.., value)| {
                let DebugValue::Counter(count) = value else { panic!("{value:?}") };
                *count
            });
            counts.sum()
        })
    }
}

/// Each new dead letter counts once, so each raises the alarm again, and letters that stay do not hide new ones.
#[tokio::test]
async fn new_dead_letters_of_any_queue_are_counted_once() {
    let (supervised, _recorder) = Supervised::new().await;
    let channel = supervised.ports.channel();
    assert_eq!(supervised.run().await, [1, 0, 0]);
    channel.set_dead_letters("scheduler-dead-letters", 2);
    channel.set_dead_letters("a-dead-letters", 3);
    assert_eq!(supervised.run().await, [1, 0, 5]);
    assert_eq!(supervised.run().await, [1, 0, 0], "they are still there");
    channel.set_dead_letters("a-dead-letters", 4);
    assert_eq!(supervised.run().await, [1, 0, 1]);
}

#[tokio::test]
async fn each_run_counts_the_queues_that_nothing_reads() {
    let (supervised, _recorder) = Supervised::new().await;
    let agent = Queue::Agent("a".parse().unwrap());
    for queue in [Queue::Submissions, Queue::Scheduler, Queue::Commands, Queue::Events, agent] {
        supervised.ports.channel().set_unread([queue.clone()]);
        assert_eq!(supervised.run().await, [1, 1, 0], "{queue:?}");
        assert_eq!(supervised.run().await, [1, 1, 0], "{queue:?} is still unread");
    }
    supervised.ports.channel().set_unread([]);
    assert_eq!(supervised.run().await, [1, 0, 0]);
}

/// Otherwise a missing permission would hide dead letters: the alarm for missing runs reports it.
#[tokio::test]
async fn a_run_that_cannot_read_a_queue_is_not_complete() {
    let (supervised, _recorder) = Supervised::new().await;
    let channel = supervised.ports.channel();
    channel.set_unreadable(true);
    assert_eq!(supervised.run().await, [0, 0, 0]);
    channel.set_unreadable(false);
    assert_eq!(supervised.run().await, [1, 0, 0]);
}
