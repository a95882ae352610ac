//! The client of the benchmarks: submits tasks with `POST /tasks`, limits the number of tasks in flight, and receives
//! notifications on a reply queue.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use steward_core::model::messages::{NotificationStatus, StatusNotification};
use steward_emulator::{embedded::EmbeddedAws, event_source::EventSource, host::Host, resources};
use tokio::{sync::Semaphore, task::JoinSet};

/// The longest latency that the histogram can record, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Latencies, in microseconds.
pub(super) type Latencies = Histogram<u64>;

pub(super) fn latencies() -> Result<Latencies> {
    Ok(Histogram::new_with_max(LATENCY_MAX_US, 3)?)
}

/// A quantile of the latencies, in milliseconds.
pub(super) fn ms(latencies: &Latencies, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1_000.0
}

/// The input of a task, about 500 bytes.
pub(super) fn input(n: usize) -> Value {
    let item = |n| json!({ "sku": format!("article-{n:03}"), "count": n + 1 });
    json!({
        "customer": format!("customer-{n:08}"),
        "address": "1 Main Street, 12345 Springfield",
        "amount": 4_200 + n,
        "currency": "EUR",
        "items": (0..8).map(item).collect::<Vec<_>>(),
        "note": "leave it with the neighbour if there is no one at home",
    })
}

/// The microseconds since a time.
pub(super) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

pub(super) struct BenchClient {
    aws: EmbeddedAws,
    reply_to: String,
    address: String,
    workflow: &'static str,
    tracker: Arc<TaskTracker>,
}

impl BenchClient {
    /// A client that keeps up to `in_flight` tasks running.
    pub(super) async fn new(host: &Host, workflow: &'static str, in_flight: usize) -> Result<Self> {
        let sdk = host.aws.sdk_config();
        let reply_to = resources::create_queue(&sdk, "client-bench", None).await?;
        let address = host.address.context("the host does not listen")?;
        let running =
            RunningTasks { started: HashMap::new(), latencies: latencies()?, failure: None };
        let tracker =
            TaskTracker { free_slots: Semaphore::new(in_flight), running: Mutex::new(running) };
        let (aws, address) = (host.aws.clone(), format!("http://{address}/tasks"));
        Ok(Self { aws, reply_to, address, workflow, tracker: Arc::new(tracker) })
    }

    /// Receives notifications until the set is dropped.
    pub(super) fn listen(&self, listeners: &mut JoinSet<()>) {
        let tracker = self.tracker.clone();
        let handler = move |event: SqsEvent| {
            for message in &event.records {
                tracker.record_notification(message.body.as_deref().unwrap_or_default());
            }
            std::future::ready(SqsBatchResponse::default())
        };
        let queue_url = self.reply_to.clone();
        EventSource { queue_url, concurrency: 2 }.spawn(&self.aws, handler, listeners);
    }

    /// Submits `count` tasks as slots become free, and waits until all have ended. Returns their latencies.
    ///
    /// # Errors
    /// A submission was not accepted, or a task did not end as Processed.
    pub(super) async fn run(&self, name: &str, count: usize) -> Result<Latencies> {
        let slots = u32::try_from(self.tracker.free_slots.available_permits())?;
        let (http, mut posting) = (reqwest::Client::new(), JoinSet::new());
        for n in 0..count {
            self.tracker.free_slots.acquire().await?.forget();
            let id = format!("{name}-{n:08}");
            let post = http.post(&self.address).body(self.submission(&id, n).to_string());
            self.tracker.lock().started.insert(id, Instant::now());
            posting.spawn(async move { Ok::<_, anyhow::Error>(post.send().await?.status()) });
            while let Some(posted) = posting.try_join_next() {
                let status = posted??;
                ensure!(status == reqwest::StatusCode::ACCEPTED, "POST /tasks returned {status}");
            }
        }
        // All slots are free when the last task has ended.
        drop(self.tracker.free_slots.acquire_many(slots).await?);
        let mut running = self.tracker.lock();
        if let Some(failure) = running.failure.take() {
            bail!(failure);
        }
        let measured = running.latencies.clone();
        running.latencies.reset();
        Ok(measured)
    }

    fn submission(&self, id: &str, n: usize) -> Value {
        json!({
            "task_id": id,
            "workflow": self.workflow,
            "reply_to": self.reply_to,
            "input": input(n),
        })
    }
}

/// Tracks the running tasks and their latencies.
struct TaskTracker {
    /// One permit for each task that may still be submitted.
    free_slots: Semaphore,
    running: Mutex<RunningTasks>,
}

struct RunningTasks {
    /// The submission times of the running tasks.
    started: HashMap<String, Instant>,
    latencies: Latencies,
    /// The first task that was refused or did not end as Processed.
    failure: Option<String>,
}

impl TaskTracker {
    fn lock(&self) -> MutexGuard<'_, RunningTasks> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a notification. Notifications may arrive more than once: only the first end of a task counts.
    fn record_notification(&self, body: &str) {
        let Ok(StatusNotification { task_id: Some(id), status, .. }) = serde_json::from_str(body)
        else {
            return;
        };
        if status == NotificationStatus::Received {
            return;
        }
        let mut running = self.lock();
        let Some(started) = running.started.remove(&id) else { return };
        if status == NotificationStatus::Processed {
            running.latencies.saturating_record(micros(started));
        } else {
            running.failure.get_or_insert(format!("task `{id}` ended as {status:?}"));
        }
        self.free_slots.add_permits(1);
    }
}
