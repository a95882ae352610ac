//! The cold start of a function: the time from the start of its process until it requests its first event from Lambda's
//! runtime API, and its memory at that time. It measures the binaries that `infra/build` built, on this machine.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, process::Command, sync::Notify, task::JoinSet, time::timeout};

use super::{
    client::{latencies, micros, ms},
    measurements::{Measurements, peak_mib},
};

/// Where `infra/build` puts the functions.
pub(super) const BUILT: &str = "target/deploy/functions";

/// The longest start before the case fails.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The environment of the functions. The names in it do not exist; no function uses them before its first event.
const ENVIRONMENT: [(&str, &str); 16] = [
    ("AWS_REGION", "us-east-1"),
    ("AWS_ACCESS_KEY_ID", "none"),
    ("AWS_SECRET_ACCESS_KEY", "none"),
    ("AWS_LAMBDA_FUNCTION_NAME", "measured"),
    ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
    ("STEWARD_AGENT_NAME", "agent"),
    ("STEWARD_AGENT_BASE_URL", "http://127.0.0.1:9"),
    ("STEWARD_AGENT_QUEUE_URL", "http://127.0.0.1:9/{agent}"),
    ("STEWARD_TASKS_TABLE", "tasks"),
    ("STEWARD_DOCUMENTS_TABLE", "documents"),
    ("STEWARD_WORKFLOWS_TABLE", "workflows"),
    ("STEWARD_SUBMISSIONS_QUEUE_URL", "http://127.0.0.1:9/submissions"),
    ("STEWARD_SCHEDULER_QUEUE_URL", "http://127.0.0.1:9/scheduler"),
    ("STEWARD_REJECTED_QUEUE_URL", "http://127.0.0.1:9/rejected"),
    ("STEWARD_EVENT_BUS", "bus"),
];

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ColdStartBench {
    /// The function's folder, with its `bootstrap`.
    function: PathBuf,
    starts: usize,
}

impl ColdStartBench {
    pub(super) fn name(&self) -> String {
        let name = self.function.file_name().unwrap_or_default().to_string_lossy();
        format!("cold start of {name}, {} times", self.starts)
    }
}

/// A case for each built function in `folder`, ordered by name.
///
/// # Errors
/// The folder has no functions.
pub(super) fn built(folder: &Path) -> Result<Vec<ColdStartBench>> {
    let none = || format!("no functions in {}: infra/build builds them", folder.display());
    let entries = folder.read_dir().with_context(none)?;
    let mut folders: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    folders.sort();
    ensure!(!folders.is_empty(), none());
    Ok(folders.into_iter().map(|function| ColdStartBench { function, starts: 20 }).collect())
}

/// Runs one case.
pub(super) async fn run(case: &ColdStartBench) -> Result<Measurements> {
    let bootstrap = case.function.join("bootstrap");
    let size = bootstrap.metadata().with_context(|| bootstrap.display().to_string())?.len();
    let (mut starts, mut measurements) = (latencies()?, Measurements::new());
    for _ in 0..case.starts {
        let (start_us, peak) = start(&bootstrap).await?;
        starts.saturating_record(start_us);
        measurements.extend(peak.map(|peak| ("memory MiB".to_owned(), peak)));
    }
    measurements.insert("start ms, p50".to_owned(), ms(&starts, 0.5));
    measurements.insert("start ms, longest".to_owned(), ms(&starts, 1.0));
    measurements.insert("size MB".to_owned(), size as f64 / 1e6);
    Ok(measurements)
}

/// Starts a function once. Returns the microseconds until it requests its first event, and its peak memory in MiB.
async fn start(bootstrap: &Path) -> Result<(u64, Option<f64>)> {
    let requested = Arc::new(Notify::new());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let on_request = requested.clone();
    // A runtime API that never returns an event.
    let api = Router::new().fallback(move || {
        on_request.notify_one();
        std::future::pending::<&'static str>()
    });
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, api).await });
    let mut command = Command::new(bootstrap);
    command.env_clear().envs(ENVIRONMENT).env("AWS_LAMBDA_RUNTIME_API", address);
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let started = Instant::now();
    let mut process = command.spawn().with_context(|| bootstrap.display().to_string())?;
    let name = bootstrap.display();
    tokio::select! {
        request = timeout(START_TIMEOUT, requested.notified()) => {
            request.with_context(|| format!("{name} did not request an event within {START_TIMEOUT:?}"))?;
        }
        status = process.wait() => bail!("{name} exited: {}", status?),
    }
    let start_us = micros(started);
    let peak = process.id().and_then(|id| peak_mib(&id.to_string()));
    process.kill().await?;
    Ok((start_us, peak))
}
