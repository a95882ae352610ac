//! Ingestion: submissions over the queue at a steady rate, with a spike. The client does not wait for responses before
//! it sends more, and a latency counts from the scheduled time of the submission, so that stalls are not hidden
//! (coordinated omission). The tasks only wait for a day, because other benchmarks measure their execution.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use serde::{Deserialize, Serialize};
use serde_json::json;
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use tokio::{task::JoinSet, time::sleep_until};

use super::{
    client::{Latencies, input, latencies, micros, ms},
    measured_thread::{named, spawn_measured},
    measurements::Measurements,
};

/// The number of submissions in one SQS request, which is SQS's limit.
const BATCH: u32 = 10;

/// How often the backlog is measured.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct IngestBench {
    /// Submissions per second.
    rate: u32,
    /// The duration in seconds.
    seconds: u32,
    /// The duration of the spike in seconds: five times the rate, in the middle.
    spike_seconds: u32,
    /// The folder of the state.
    pub(super) data: Option<PathBuf>,
}

impl IngestBench {
    pub(super) const fn short() -> Self {
        Self { rate: 1_000, seconds: 10, spike_seconds: 2, data: None }
    }

    pub(super) fn full() -> impl Iterator<Item = Self> {
        let rates = [1_000, 2_500, 5_000, 10_000].into_iter();
        rates.map(|rate| Self { rate, seconds: 60, spike_seconds: 10, data: None })
    }

    pub(super) fn name(&self) -> String {
        let Self { rate, seconds, spike_seconds, .. } = self;
        format!(
            "{rate} submissions/s for {seconds} s, with five times as many for {spike_seconds} s"
        )
    }

    /// The rate in this second of the run.
    fn rate_at(&self, second: u32) -> u32 {
        let spike = (self.seconds - self.spike_seconds) / 2;
        let is_spike = (spike..spike + self.spike_seconds).contains(&second);
        if is_spike { 5 * self.rate } else { self.rate }
    }

    fn submissions(&self) -> u64 {
        (0..self.seconds).map(|second| u64::from(self.rate_at(second))).sum()
    }
}

/// Runs one case.
pub(super) async fn run(ingest: &IngestBench) -> Result<Measurements> {
    let workflow = json!({
        "name": "ingest", "version": 1, "complete_within": "2d",
        "steps": { "later": { "wait": "1d" } },
    });
    let host = Host::start(HostOptions {
        fast_path: true,
        data: ingest.data.clone(),
        workflows: vec![serde_json::from_value(workflow)?],
        supervise_every: Some(Duration::from_secs(5)),
        ..HostOptions::default()
    })
    .await?;
    let (sqs, queue) = (host.sqs(), host.queue_url(resources::SUBMISSIONS_QUEUE));
    let load = ingest.clone();
    let started = Instant::now();
    let (_, mut done) = spawn_measured(named("client"), submit(load, sqs, queue))?;
    let mut backlog_max = 0;
    let accepted = loop {
        tokio::select! {
            done = &mut done => break done.context("the client's thread")??,
            () = tokio::time::sleep(POLL_EVERY) => backlog_max = backlog_max.max(backlog(&host).await?),
        }
    };
    let submitted = started.elapsed();
    while backlog(&host).await? > 0 {
        tokio::time::sleep(POLL_EVERY).await;
    }
    let drained = started.elapsed();
    let recorded = recorded(&host).await?;
    ensure!(recorded == ingest.submissions(), "{recorded} tasks of {}", ingest.submissions());
    Ok(Measurements::from([
        ("accept p50 ms".to_owned(), ms(&accepted, 0.5)),
        ("accept p99 ms".to_owned(), ms(&accepted, 0.99)),
        ("submissions/s".to_owned(), recorded as f64 / submitted.as_secs_f64()),
        ("recorded and decided/s".to_owned(), recorded as f64 / drained.as_secs_f64()),
        ("backlog, most".to_owned(), backlog_max as f64),
        ("drained after s".to_owned(), (drained - submitted).as_secs_f64()),
    ]))
}

/// Sends the submissions on schedule, without waiting for earlier responses.
async fn submit(ingest: IngestBench, sqs: aws_sdk_sqs::Client, queue: String) -> Result<Latencies> {
    let (started, accepted) = (Instant::now(), Arc::new(Mutex::new(latencies()?)));
    let mut sending = JoinSet::new();
    let mut next = 0;
    for second in 0..ingest.seconds {
        let batches = ingest.rate_at(second) / BATCH;
        for batch in 0..batches {
            let offset = Duration::from_secs(1) * batch / batches;
            let due = started + Duration::from_secs(second.into()) + offset;
            sleep_until(due.into()).await;
            let request =
                sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries(next)?));
            next += BATCH as usize;
            let accepted = accepted.clone();
            sending.spawn(async move {
                let response = request.send().await?;
                ensure!(response.failed().is_empty(), "SQS refused a submission");
                let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
                accepted.saturating_record(micros(due));
                Ok(())
            });
            while let Some(sent) = sending.try_join_next() {
                sent??;
            }
        }
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    let accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(accepted.clone())
}

fn entries(from: usize) -> Result<Vec<SendMessageBatchRequestEntry>> {
    let entries = (from..from + BATCH as usize).map(|n| {
        let body = json!({
            "task_id": format!("ingest-{n:08}"),
            "workflow": "ingest",
            "input": input(n),
        });
        let entry = SendMessageBatchRequestEntry::builder().id(n.to_string());
        Ok(entry.message_body(body.to_string()).build()?)
    });
    entries.collect()
}

/// The number of messages in the submissions queue and the scheduler queue.
async fn backlog(host: &Host) -> Result<u64> {
    let counts = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        // Intake control puts submissions back with a delay.
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let mut sum = 0;
    for queue in [resources::SUBMISSIONS_QUEUE, resources::SCHEDULER_QUEUE] {
        let request = host.sqs().get_queue_attributes().queue_url(host.queue_url(queue));
        let response = request.set_attribute_names(Some(counts.to_vec())).send().await?;
        let counts =
            response.attributes().into_iter().flatten().map(|(_, count)| count.parse::<u64>());
        sum += counts.sum::<Result<u64, _>>()?;
    }
    Ok(sum)
}

/// The number of tasks in the store whose wait has begun.
async fn recorded(host: &Host) -> Result<u64> {
    let client = aws_sdk_dynamodb::Client::new(&host.aws.sdk_config());
    let mut pages = client
        .scan()
        .table_name(&host.config.tasks_table)
        .filter_expression("revision > :accepted")
        .expression_attribute_values(
            ":accepted",
            aws_sdk_dynamodb::types::AttributeValue::N("1".into()),
        )
        .select(aws_sdk_dynamodb::types::Select::Count)
        .into_paginator()
        .send();
    let mut sum = 0;
    while let Some(page) = pages.next().await {
        sum += u64::try_from(page?.count())?;
    }
    Ok(sum)
}
