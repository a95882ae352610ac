//! `steward demo --chaos`: instances are killed at random and a service goes down, while tasks run.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use steward_demo::services::{MockServices, Service};
use steward_emulator::host::Host;
use tokio::time::{Instant, sleep};

use crate::demo::Heard;

/// How often an instance is killed.
const KILL_EVERY: Duration = Duration::from_millis(500);

/// How long the service stays down after its breaker has opened.
const DOWN_FOR: Duration = Duration::from_secs(3);

/// How long the breaker is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often what is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What has been done to the function set.
pub(crate) struct Chaos {
    random: Mutex<fastrand::Rng>,
    killed: AtomicU64,
}

impl Chaos {
    pub(crate) fn new(seed: u64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { random, killed: AtomicU64::new(0) }
    }

    /// How many instances were killed.
    pub(crate) fn killed(&self) -> u64 {
        self.killed.load(Ordering::SeqCst)
    }

    /// Goes on until it is dropped. The service goes down once a quarter of the tasks have ended.
    pub(crate) async fn wreak(
        &self,
        host: &Host,
        services: &MockServices,
        heard: &Heard,
        (goes_down, tasks): (Service, usize),
    ) {
        let killing = async {
            loop {
                sleep(KILL_EVERY).await;
                self.kill_one(host);
            }
        };
        let outage = async {
            wait_until(Duration::MAX, || heard.ended() * 4 >= tasks).await;
            services.set_down(goes_down, true);
            wait_until(PATIENCE, || heard.events("breaker_opened") > 0).await;
            sleep(DOWN_FOR).await;
            services.set_down(goes_down, false);
        };
        tokio::join!(killing, outage);
    }

    fn kill_one(&self, host: &Host) {
        let n = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.usize(0..host.instances().count().max(1))
        };
        if let Some(role) = host.kill(n) {
            tracing::info!(role, "killed an instance");
            self.killed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn wait_until(patience: Duration, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() && started.elapsed() < patience {
        sleep(LOOK_EVERY).await;
    }
}
