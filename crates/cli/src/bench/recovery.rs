//! Recovery: an agent is killed during a call. Measures the time until the step is called again. Nothing reports the
//! crash: the supervisor finds that the attempt is past its deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use axum::{Router, routing::post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use steward_emulator::host::{Host, HostOptions};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

use super::{
    client::{BenchClient, latencies, micros, ms},
    measurements::Measurements,
};

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecoveryBench {
    /// How often an agent is killed.
    deaths: usize,
    /// How long an attempt may take, in seconds.
    complete_within_s: u64,
    /// How often the supervisor runs, in milliseconds. On AWS it runs every minute.
    supervise_every_ms: u64,
}

impl Default for RecoveryBench {
    fn default() -> Self {
        Self { deaths: 10, complete_within_s: 2, supervise_every_ms: 500 }
    }
}

impl RecoveryBench {
    pub(super) fn name(&self) -> String {
        let Self { deaths, complete_within_s, supervise_every_ms } = self;
        format!(
            "{deaths} agents killed, a step may take {complete_within_s} s, supervisor each {supervise_every_ms} ms"
        )
    }
}

/// A service that never answers odd calls, and answers even calls at once.
#[derive(Clone, Default)]
struct HangingService {
    calls: Arc<AtomicU64>,
    called: Arc<Notify>,
}

impl HangingService {
    async fn respond(self) -> &'static str {
        let is_odd = self.calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        self.called.notify_one();
        if is_odd {
            std::future::pending::<()>().await;
        }
        "{}"
    }
}

/// Runs one case.
pub(super) async fn run(recovery: &RecoveryBench) -> Result<Measurements> {
    let service = HangingService::default();
    let handler = service.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/call", post(async move || handler.clone().respond().await));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await });
    let host = start_host(recovery, &format!("http://{address}")).await?;
    let agent = host.instance_roles().position(|role| role == "agent").context("no agent")?;
    let client = BenchClient::new(&host, "recovery", 1).await?;
    let mut listeners = JoinSet::new();
    client.listen(&mut listeners);
    let mut delays = latencies()?;
    for n in 0..recovery.deaths {
        let name = format!("task-{n}");
        let kill = async {
            service.called.notified().await;
            host.restart_instance(agent);
            let killed = Instant::now();
            service.called.notified().await;
            micros(killed)
        };
        let (ended, delay) = tokio::join!(client.run(&name, 1), kill);
        ended?;
        delays.saturating_record(delay);
    }
    Ok(Measurements::from([
        ("called again after ms, p50".to_owned(), ms(&delays, 0.5)),
        ("called again after ms, longest".to_owned(), ms(&delays, 1.0)),
    ]))
}

async fn start_host(recovery: &RecoveryBench, base_url: &str) -> Result<Host> {
    let workflow = json!({
        "name": "recovery", "version": 1, "complete_within": "10m",
        "steps": { "call": {
            "agent": "partner",
            "complete_within": format!("{}s", recovery.complete_within_s),
            "recovery": { "attempts": 5, "backoff": { "first": "1ms" } },
            "request": { "path": "/call" },
        } },
    });
    Host::start(HostOptions {
        fast_path: true,
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: vec![serde_json::from_value(workflow)?],
        agents: vec![("partner".parse()?, base_url.parse()?)],
        supervise_every: Some(Duration::from_millis(recovery.supervise_every_ms)),
        ..HostOptions::default()
    })
    .await
}
