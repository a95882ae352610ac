//! The client of the benchmarks: submits over `POST /tasks`, so many at once, and hears the ends of its
//! tasks on a reply queue.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use steward_core::model::messages::{NoticeStatus, StatusNotice};
use steward_emulator::{embedded::EmbeddedAws, event_source::EventSource, host::Host, resources};
use tokio::{sync::Semaphore, task::JoinSet};

/// The longest latency that is told apart, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Latencies, in microseconds.
pub(super) type Latencies = Histogram<u64>;

pub(super) fn latencies() -> Result<Latencies> {
    Ok(Histogram::new_with_max(LATENCY_MAX_US, 3)?)
}

/// A quantile in milliseconds.
pub(super) fn ms(latencies: &Latencies, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1_000.0
}

/// About 500 bytes.
pub(super) fn input(n: usize) -> Value {
    let item = |n| json!({ "sku": format!("article-{n:03}"), "count": n + 1 });
    json!({
        "customer": format!("customer-{n:08}"),
        "address": "1 Main Street, 12345 Springfield",
        "amount": 4_200 + n,
        "currency": "EUR",
        "items": (0..8).map(item).collect::<Vec<_>>(),
        "note": "leave it with the neighbour if nobody answers the door",
    })
}

/// What is said of time that has passed.
pub(super) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

pub(super) struct Client {
    aws: EmbeddedAws,
    reply_to: String,
    address: String,
    workflow: &'static str,
    heard: Arc<Heard>,
}

impl Client {
    /// A client with room for so many tasks under way.
    pub(super) async fn new(host: &Host, workflow: &'static str, room: usize) -> Result<Self> {
        let sdk = host.aws.sdk_config();
        let reply_to = resources::create_queue(&sdk, "client-bench", None).await?;
        let address = host.address.context("the host does not listen")?;
        let under_way = UnderWay { since: HashMap::new(), latencies: latencies()? };
        let heard = Heard { room: Semaphore::new(room), under_way: Mutex::new(under_way) };
        let (aws, address) = (host.aws.clone(), format!("http://{address}/tasks"));
        Ok(Self { aws, reply_to, address, workflow, heard: Arc::new(heard) })
    }

    /// Hears notices until the set is dropped.
    pub(super) fn listen(&self, listeners: &mut JoinSet<()>) {
        let heard = self.heard.clone();
        let handler = move |event: SqsEvent| {
            for message in &event.records {
                heard.notice(message.body.as_deref().unwrap_or_default());
            }
            std::future::ready(SqsBatchResponse::default())
        };
        let queue_url = self.reply_to.clone();
        EventSource { queue_url, concurrency: 2 }.spawn(&self.aws, handler, listeners);
    }

    /// Submits `count` tasks as there is room for them, and waits for their ends. Returns how long each
    /// took.
    pub(super) async fn run(&self, name: &str, count: usize) -> Result<Latencies> {
        let room = u32::try_from(self.heard.room.available_permits())?;
        let (http, mut posting) = (reqwest::Client::new(), JoinSet::new());
        for n in 0..count {
            self.heard.room.acquire().await?.forget();
            let id = format!("{name}-{n:08}");
            let post = http.post(&self.address).body(self.submission(&id, n).to_string());
            self.heard.lock().since.insert(id, Instant::now());
            posting.spawn(async move { Ok::<_, anyhow::Error>(post.send().await?.status()) });
            while let Some(posted) = posting.try_join_next() {
                let status = posted??;
                ensure!(status == reqwest::StatusCode::ACCEPTED, "answered {status}");
            }
        }
        // The room is whole again when the last has ended.
        drop(self.heard.room.acquire_many(room).await?);
        let latencies = &mut self.heard.lock().latencies;
        let measured = latencies.clone();
        latencies.reset();
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

struct Heard {
    /// A permit for each task that may be under way.
    room: Semaphore,
    under_way: Mutex<UnderWay>,
}

struct UnderWay {
    since: HashMap<String, Instant>,
    latencies: Latencies,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A notice may come more than once; only the first end of a task counts.
    fn notice(&self, body: &str) {
        let Ok(StatusNotice { task_id: Some(id), status: NoticeStatus::Processed, .. }) =
            serde_json::from_str(body)
        else {
            return;
        };
        let mut under_way = self.lock();
        let Some(since) = under_way.since.remove(&id) else { return };
        under_way.latencies.saturating_record(micros(since));
        self.room.add_permits(1);
    }
}
