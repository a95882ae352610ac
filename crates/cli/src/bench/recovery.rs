//! Recovery: an agent dies with a call in hand. How long until the step is called again? Nobody tells
//! anybody: the supervisor finds the attempt past its complete-by.

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
    Figures,
    load::{Client, latencies, micros, ms},
};

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// How often an agent dies.
    deaths: usize,
    /// How long an attempt may take, in seconds.
    complete_within_s: u64,
    /// How often the supervisor looks, in milliseconds. On AWS it is a minute at least.
    supervise_every_ms: u64,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { deaths: 10, complete_within_s: 2, supervise_every_ms: 500 }
    }
}

impl Recovery {
    pub(super) fn name(&self) -> String {
        let Self { deaths, complete_within_s, supervise_every_ms } = self;
        format!(
            "{deaths} agents killed, a step may take {complete_within_s} s, supervisor each {supervise_every_ms} ms"
        )
    }
}

/// A service that keeps its first caller waiting for ever, and answers the next.
#[derive(Clone, Default)]
struct Service {
    calls: Arc<AtomicU64>,
    called: Arc<Notify>,
}

impl Service {
    async fn answer(self) -> &'static str {
        let is_first = self.calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        self.called.notify_one();
        if is_first {
            std::future::pending::<()>().await;
        }
        "{}"
    }
}

/// Runs one case.
pub(super) async fn run(recovery: &Recovery) -> Result<Figures> {
    let service = Service::default();
    let answering = service.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/call", post(async move || answering.clone().answer().await));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await });
    let host = start_host(recovery, &format!("http://{address}")).await?;
    let agent = host.instances().position(|role| role == "agent").context("no agent")?;
    let client = Client::new(&host, "recovery", 1).await?;
    let mut listeners = JoinSet::new();
    client.listen(&mut listeners);
    let mut again = latencies()?;
    for n in 0..recovery.deaths {
        let name = format!("task-{n}");
        let dying = async {
            service.called.notified().await;
            host.kill(agent);
            let killed = Instant::now();
            service.called.notified().await;
            micros(killed)
        };
        let (ended, waited) = tokio::join!(client.run(&name, 1), dying);
        ended?;
        again.saturating_record(waited);
    }
    Ok(Figures::from([
        ("called again after ms, p50".to_owned(), ms(&again, 0.5)),
        ("called again after ms, longest".to_owned(), ms(&again, 1.0)),
    ]))
}

async fn start_host(recovery: &Recovery, base_url: &str) -> Result<Host> {
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
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: vec![serde_json::from_value(workflow)?],
        agents: vec![("partner".parse()?, base_url.parse()?)],
        supervise_every: Some(Duration::from_millis(recovery.supervise_every_ms)),
        ..HostOptions::default()
    })
    .await
}
