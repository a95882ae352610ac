//! The latency of the console's pages over HTTP with many tasks in the store, one request after the other.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steward_core::model::{
    attempt::{Action, AttemptId},
    document::{Document, DocumentKey},
    task::Task,
};
use steward_demo::{example_workflow::ExampleWorkflow, scenario::Scenario};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{CreateOutcome, Ports, PutOutcome, StateStore};
use tokio::task::JoinSet;

use super::{
    client::{latencies, micros, ms},
    measurements::Measurements,
};

/// Concurrent writes while the store is filled.
const FILLING: usize = 64;

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ConsoleBench {
    /// Tasks in the store: most are Processed, some are Undone, in Error or Processing.
    stored: usize,
    /// How often each page is requested.
    requests: usize,
    /// The folder of the state.
    pub(super) data: Option<PathBuf>,
}

impl Default for ConsoleBench {
    fn default() -> Self {
        Self { stored: 100_000, requests: 200, data: None }
    }
}

impl ConsoleBench {
    pub(super) fn name(&self) -> String {
        format!("the console's pages, {} tasks stored", self.stored)
    }
}

/// The pages with typical filters. `task` is in Error.
fn pages(task: &str) -> [(&'static str, String); 9] {
    [
        ("overview", String::new()),
        ("tasks", "/tasks".to_owned()),
        ("tasks in Error", "/tasks?state=Error".to_owned()),
        ("tasks, by workflow and step", "/tasks?workflow=order&state=Error&step=ship".to_owned()),
        ("tasks, an error that none has", "/tasks?error=no+such+error".to_owned()),
        ("task", format!("/tasks/{task}")),
        ("resubmit", format!("/tasks/{task}/resubmit")),
        ("workflow", "/workflows/order".to_owned()),
        ("bulk", "/bulk?state=Error&action=resubmit".to_owned()),
    ]
}

/// Runs one case.
pub(super) async fn run(console: &ConsoleBench) -> Result<Measurements> {
    let order = ExampleWorkflow::Order.scenario();
    let host = Host::start(HostOptions {
        fast_path: true,
        data: console.data.clone(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: vec![order.workflow()?],
        ..HostOptions::default()
    })
    .await?;
    fill(&host, order, console.stored).await?;
    let address = host.address.context("the host does not listen")?;
    let client = Client::new();
    let mut measurements = Measurements::new();
    let in_error = (0..console.stored)
        .find(|n| StoredTaskState::of(*n) == StoredTaskState::Error)
        .unwrap_or_default();
    for (name, page) in pages(&order.task_id(in_error)) {
        let url = format!("http://{address}{}{page}", steward_console::ROOT);
        let mut latencies = latencies()?;
        for _ in 0..console.requests {
            let started = Instant::now();
            let response = client.get(&url).send().await?;
            let status = response.status();
            let size = response.bytes().await?.len();
            latencies.saturating_record(micros(started));
            ensure!(status.is_success() && size > 1_000, "{page}: {status}, {size} bytes");
        }
        for (quantile, value) in [("p50", 0.5), ("p99", 0.99)] {
            measurements.insert(format!("{name}, {quantile} ms"), ms(&latencies, value));
        }
    }
    Ok(measurements)
}

/// The state of a stored task.
#[derive(PartialEq, Eq)]
enum StoredTaskState {
    Processed,
    Undone,
    Error,
    Processing,
}

impl StoredTaskState {
    fn of(n: usize) -> Self {
        match n % 100 {
            7 | 57 => Self::Error,
            3 | 33 | 63 => Self::Undone,
            11 => Self::Processing,
            _ => Self::Processed,
        }
    }
}

/// Stores tasks with their documents, as the functions would have over the last day.
async fn fill(host: &Host, order: &'static dyn Scenario, count: usize) -> Result<()> {
    let now = Timestamp::now();
    let mut filling = JoinSet::new();
    for n in 0..count {
        if filling.len() >= FILLING {
            filling.join_next().await.transpose()?.transpose()?;
        }
        let ports = host.ports.clone();
        filling.spawn(async move {
            let back = i64::try_from((count - n) * 86_000 / count)?;
            let submitted_at = now - SignedDuration::from_secs(back);
            let task = task(order, n, submitted_at)?;
            let submission =
                json!({ "task_id": task.task_id, "workflow": "order", "input": order.input(n) });
            let submitted = document(DocumentKey::Submission, submitted_at, submission);
            let created = ports.store().create(&task, Some(&submitted)).await?;
            ensure!(created == CreateOutcome::Created, "{} already exists", task.task_id);
            for (at, step) in ["reserve", "charge", "ship"].into_iter().enumerate() {
                let attempt = AttemptId { step: step.parse()?, action: Action::Do, number: 1 };
                let body = json!({ "id": format!("{step}-{n}"), "status": "ok" });
                let at = submitted_at + SignedDuration::from_millis(50 * (i64::try_from(at)? + 1));
                let (retention, output) =
                    (task.document_retention(), document(DocumentKey::Output(attempt), at, body));
                let put =
                    ports.store().put_document(&task.document_owner(), retention, &output).await?;
                ensure!(put == PutOutcome::Stored, "{} already exists", output.key);
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(filled) = filling.join_next().await {
        filled??;
    }
    Ok(())
}

fn document(key: DocumentKey, at: Timestamp, body: Value) -> Document {
    Document::new(key, at, body)
}

fn task(order: &dyn Scenario, n: usize, submitted_at: Timestamp) -> Result<Task> {
    let millis = submitted_at.as_millisecond();
    let done = json!({ "s": "c", "a": 1 });
    let stored = StoredTaskState::of(n);
    let (state, ship) = match stored {
        StoredTaskState::Processed => ("Processed", done.clone()),
        StoredTaskState::Undone => {
            ("Undone", json!({ "s": "f", "a": 1, "x": { "s": "c", "a": 1 } }))
        }
        StoredTaskState::Error => ("Error", json!({ "s": "f", "a": 5, "f": 5 })),
        StoredTaskState::Processing => {
            ("Processing", json!({ "s": "r", "a": 1, "b": millis + 172_800_000 }))
        }
    };
    let task = json!({
        "task_id": order.task_id(n), "workflow": "order", "v": 2, "i": millis, "k": millis / 1_000 + 172_800, "process_state": state,
        "revision": 5, "complete_by": millis + 172_800_000, "submitted_at": millis,
        "steps": { "reserve": done, "charge": done, "ship": ship },
    });
    let ended_after_ms = match stored {
        StoredTaskState::Processing => None,
        StoredTaskState::Error => Some(400),
        StoredTaskState::Processed | StoredTaskState::Undone => Some(200),
    };
    let mut task: Task = serde_json::from_value(task)?;
    task.ended_at = ended_after_ms.map(|after| submitted_at + SignedDuration::from_millis(after));
    if stored == StoredTaskState::Processing {
        task.due = Some(task.complete_by);
    }
    if stored == StoredTaskState::Error {
        task.error = Some("step ship: 503 Service Unavailable".to_owned());
    }
    Ok(task)
}
