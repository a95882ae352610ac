//! `steward demo --chaos`: while tasks run, instances are killed at random and one service is taken down.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use aws_sdk_sqs::types::QueueAttributeName;
use steward_demo::services::{DemoService, MockServices};
use steward_emulator::{
    host::Host,
    resources::{COMMANDS_QUEUE, EVENTS_QUEUE, SCHEDULER_QUEUE, SUBMISSIONS_QUEUE},
};
use tokio::time::{Instant, sleep};

use super::progress::DemoProgress;

/// How often an instance is killed.
const KILL_EVERY: Duration = Duration::from_millis(500);

/// How often an instance is killed in a run at a steady rate, which shows growth, not crashes: a machine that is busy with other
/// work still completes its batches in between.
const KILL_EVERY_STEADILY: Duration = Duration::from_secs(5);

/// After how many seconds the messages of a killed instance are delivered again. With the template's settings it is three
/// minutes. Answers to callbacks and commands of operators would wait for that, because no deadline recovers them sooner.
const REDELIVERED_AFTER_SECONDS: u32 = 15;

/// How long the service stays down after its circuit breaker has opened.
const OUTAGE: Duration = Duration::from_secs(3);

/// How long the outage waits for the circuit breaker to open.
const BREAKER_TIMEOUT: Duration = Duration::from_secs(30);

/// The polling interval.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Injects crashes and an outage into a running demo.
pub(super) struct Chaos {
    random: Mutex<fastrand::Rng>,
    killed: AtomicU64,
}

impl Chaos {
    pub(super) fn new(seed: u64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { random, killed: AtomicU64::new(0) }
    }

    /// How many instances were killed.
    pub(super) fn killed(&self) -> u64 {
        self.killed.load(Ordering::SeqCst)
    }

    /// Kills instances until the future is dropped. Takes the service down after a quarter of the tasks
    /// have ended.
    pub(super) async fn run(
        &self,
        host: &Host,
        services: &MockServices,
        progress: &DemoProgress,
        (outage_service, tasks): (DemoService, usize),
    ) {
        let killing = self.kill_instances(host, KILL_EVERY);
        let outage = async {
            wait_until(Duration::MAX, || progress.ended() * 4 >= tasks).await;
            services.set_down(outage_service, true);
            wait_until(BREAKER_TIMEOUT, || progress.events("breaker_opened") > 0).await;
            sleep(OUTAGE).await;
            services.set_down(outage_service, false);
        };
        tokio::join!(killing, outage);
    }

    /// Makes the queues deliver the messages of killed instances again soon.
    pub(super) async fn shorten_redelivery(&self, host: &Host) -> Result<()> {
        let (sqs, timeout) = (host.sqs(), REDELIVERED_AFTER_SECONDS.to_string());
        for queue in [SUBMISSIONS_QUEUE, SCHEDULER_QUEUE, COMMANDS_QUEUE, EVENTS_QUEUE] {
            let set = sqs.set_queue_attributes().queue_url(host.queue_url(queue));
            let set = set.attributes(QueueAttributeName::VisibilityTimeout, &timeout);
            set.send().await.with_context(|| format!("set the visibility timeout of {queue}"))?;
        }
        Ok(())
    }

    /// Like [`run`](Self::run), but takes the service down again and again: for [`OUTAGE`], every `outage_every`.
    pub(super) async fn run_steadily(
        &self,
        host: &Host,
        services: &MockServices,
        outage_service: DemoService,
        outage_every: Duration,
    ) {
        let outages = async {
            loop {
                sleep(outage_every).await;
                services.set_down(outage_service, true);
                sleep(OUTAGE).await;
                services.set_down(outage_service, false);
            }
        };
        tokio::join!(self.kill_instances(host, KILL_EVERY_STEADILY), outages);
    }

    /// Kills instances until the future is dropped.
    async fn kill_instances(&self, host: &Host, every: Duration) {
        loop {
            sleep(every).await;
            self.kill_one(host);
        }
    }

    fn kill_one(&self, host: &Host) {
        let index = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.usize(0..host.instance_roles().count().max(1))
        };
        if let Some(role) = host.restart_instance(index) {
            tracing::info!(role, "killed an instance");
            self.killed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn wait_until(timeout: Duration, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() && started.elapsed() < timeout {
        sleep(POLL_EVERY).await;
    }
}
