//! Submits sagas through the ingress and waits for their results, as many at a time as are allowed in flight.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

/// The longest latency that the histogram can record, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

pub(crate) struct SagaClient {
    http: reqwest::Client,
    url: String,
    in_flight: usize,
    has_keys: bool,
}

/// The measured values of a run.
pub(crate) struct Run {
    pub(crate) time: Duration,
    /// From the submission to the result, in microseconds.
    pub(crate) latencies: Histogram<u64>,
}

impl SagaClient {
    pub(crate) fn new(ingress: &str, in_flight: usize) -> Self {
        let url = format!("{ingress}/SagaWorker/run");
        Self { http: reqwest::Client::new(), url, in_flight, has_keys: true }
    }

    /// Uses one HTTP/2 connection for all requests, if `http2`.
    pub(crate) fn with_http2(mut self, http2: bool) -> Result<Self> {
        if http2 {
            self.http = reqwest::Client::builder().http2_prior_knowledge().build()?;
        }
        Ok(self)
    }

    /// Whether each submission has an idempotency key, as each task of Steward has an id.
    pub(crate) fn with_keys(self, has_keys: bool) -> Self {
        Self { has_keys, ..self }
    }

    /// Runs `count` sagas.
    ///
    /// # Errors
    /// A saga was not accepted or failed.
    pub(crate) async fn run(&self, name: &str, count: usize) -> Result<Run> {
        let started = Instant::now();
        let slots = Arc::new(Semaphore::new(self.in_flight));
        let mut latencies = Histogram::new_with_max(LATENCY_MAX_US, 3)?;
        let mut running = JoinSet::new();
        for n in 0..count {
            let slot = slots.clone().acquire_owned().await?;
            let id = format!("{name}-{n:08}");
            let body = json!({ "task_id": id, "input": input(n) }).to_string();
            let post = self.http.post(&self.url).header("content-type", "application/json");
            let post = if self.has_keys { post.header("idempotency-key", &id) } else { post };
            let post = post.body(body);
            running.spawn(async move {
                let submitted = Instant::now();
                let response = post.send().await?;
                let status = response.status();
                let text = response.text().await?;
                ensure!(status.is_success(), "saga `{id}` ended with {status}: {text}");
                drop(slot);
                Ok(submitted.elapsed())
            });
            while let Some(ended) = running.try_join_next() {
                latencies.saturating_record(micros(ended??));
            }
        }
        while let Some(ended) = running.join_next().await {
            latencies.saturating_record(micros(ended??));
        }
        Ok(Run { time: started.elapsed(), latencies })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The input of a saga, about 500 bytes: the input of `steward bench`.
fn input(n: usize) -> Value {
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
