//! Recovery: the time until a step is called again after its agent was killed during a call, and after a call to which
//! the service does not respond. The settings are those of `template.yaml`: clock skew, visibility timeouts, schedule.
//!
//! Nothing reports the crash of an agent: a sweep of the supervisor finds that the attempt is past its deadline. If only
//! the service is silent, the agent wakes the scheduler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use axum::{Json, Router, extract::State, routing::post};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, model::time::Timing};
use steward_emulator::host::{Host, HostOptions};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use super::{
    client::{Latencies, latencies, micros, ms},
    measurements::Measurements,
};

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecoveryBench {
    /// How many agents are killed, and how many calls get no response.
    runs: usize,
    /// How long an attempt may take, in seconds.
    complete_within_s: u64,
    /// The time between two runs of the supervisor, in seconds. The faults are spread over this time.
    run_every_s: u64,
    /// The time between two sweeps, in seconds.
    sweep_every_s: u64,
    /// The clock skew that the functions expect, in seconds.
    clock_skew_s: u64,
}

/// The template's settings without and with sweeps between two runs of the supervisor.
pub(super) fn cases() -> impl Iterator<Item = RecoveryBench> {
    [60, 10].into_iter().map(|sweep_every_s| RecoveryBench {
        runs: 100,
        complete_within_s: 10,
        run_every_s: 60,
        sweep_every_s,
        clock_skew_s: 2,
    })
}

impl RecoveryBench {
    pub(super) fn name(&self) -> String {
        let Self { runs, complete_within_s, sweep_every_s, .. } = self;
        format!(
            "{runs} faults, a step may take {complete_within_s} s, a sweep every {sweep_every_s} s"
        )
    }

    /// When task `n` is submitted. The tasks of each fault are spread evenly over the time between two runs of the
    /// supervisor, each at a random moment of its share.
    fn submit_after(&self, n: usize) -> Duration {
        let share = ((n % self.runs) as f64 + fastrand::f64()) / self.runs as f64;
        Duration::from_secs(self.run_every_s).mul_f64(share)
    }

    /// How long an agent lives after it has called the service: a random part of the attempt. It dies before the end of the
    /// attempt, at which it would wake the scheduler.
    fn agent_lives_for(&self) -> Duration {
        Duration::from_secs(self.complete_within_s).mul_f64(0.8 * fastrand::f64())
    }

    /// The name of the agent and of the workflow of task `n`. Each task has its own agent, so that no circuit breaker opens.
    fn agent(n: usize) -> String {
        format!("agent-{n}")
    }
}

/// The calls of one task's step, as the service reports them.
struct CalledStep {
    was_called: AtomicBool,
    calls: mpsc::UnboundedSender<Instant>,
}

/// Runs one case: the first half of the tasks loses its agents, the second half meets a silent service.
pub(super) async fn run(bench: &RecoveryBench) -> Result<Measurements> {
    let channels = (0..2 * bench.runs).map(|_| mpsc::unbounded_channel());
    let (steps, receivers): (Vec<_>, Vec<_>) = channels
        .map(|(calls, received)| {
            (CalledStep { was_called: AtomicBool::default(), calls }, received)
        })
        .unzip();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base_url = format!("http://{}", listener.local_addr()?);
    let router = Router::new().route("/call", post(respond)).with_state(Arc::new(steps));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await });

    let host = Arc::new(start_host(bench, &base_url).await?);
    let mut running = JoinSet::new();
    for (n, mut calls) in receivers.into_iter().enumerate() {
        let (host, bench) = (host.clone(), bench.clone());
        running.spawn(async move {
            tokio::time::sleep(bench.submit_after(n)).await;
            submit(&host, n).await?;
            let mut silent_since = calls.recv().await.context("the step was not called")?;
            let is_killed = n < bench.runs;
            if is_killed {
                tokio::time::sleep(bench.agent_lives_for()).await;
                kill_agent(&host, n)?;
                silent_since = Instant::now();
            }
            calls.recv().await.context("the step was not called again")?;
            Ok::<_, anyhow::Error>((is_killed, micros(silent_since)))
        });
    }
    let (mut killed, mut silent) = (latencies()?, latencies()?);
    while let Some(run) = running.join_next().await {
        let (is_killed, delay) = run??;
        if is_killed { &mut killed } else { &mut silent }.saturating_record(delay);
    }
    Ok(measurements(&killed, &silent))
}

fn measurements(killed: &Latencies, silent: &Latencies) -> Measurements {
    let faults =
        [("after the end of its agent", killed), ("after a call without an answer", silent)];
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)];
    let values = faults.into_iter().flat_map(|(fault, delays)| {
        let value = move |(name, quantile)| {
            (format!("called again {fault}, s, {name}"), ms(delays, quantile) / 1_000.0)
        };
        quantiles.into_iter().map(value)
    });
    values.collect()
}

/// The remote service: reports each call. It answers all calls of a task but the first.
async fn respond(
    State(steps): State<Arc<Vec<CalledStep>>>,
    Json(body): Json<Value>,
) -> &'static str {
    let task = body.get("task").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    if let Some(step) = task.and_then(|n| steps.get(n)) {
        let is_first = !step.was_called.swap(true, Ordering::SeqCst);
        // The receiver is gone after the second call.
        let _ = step.calls.send(Instant::now());
        if is_first {
            std::future::pending::<()>().await;
        }
    }
    "{}"
}

async fn submit(host: &Host, n: usize) -> Result<()> {
    let address = host.address.context("the host does not listen")?;
    let submission = json!({
        "task_id": format!("task-{n}"), "workflow": RecoveryBench::agent(n), "input": { "task": n },
    });
    let post = reqwest::Client::new().post(format!("http://{address}/tasks"));
    let status = post.body(submission.to_string()).send().await?.status();
    ensure!(status == StatusCode::ACCEPTED, "POST /tasks returned {status}");
    Ok(())
}

/// Kills the `n`th agent and starts a replacement. The request that it holds stays invisible.
fn kill_agent(host: &Host, n: usize) -> Result<()> {
    let agents = host.instance_roles().enumerate().filter(|(_, role)| *role == "agent");
    let (position, _) = agents.into_iter().nth(n).context("no such agent")?;
    host.restart_instance(position).context("no such agent")?;
    Ok(())
}

async fn start_host(bench: &RecoveryBench, base_url: &str) -> Result<Host> {
    let names: Vec<_> = (0..2 * bench.runs).map(RecoveryBench::agent).collect();
    let workflows = names.iter().map(|name| bench.workflow(name));
    let agents = names.iter().map(|name| Ok((name.parse()?, base_url.parse()?)));
    let seconds = Duration::from_secs;
    Host::start(HostOptions {
        fast_path: true,
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: workflows.collect::<Result<_>>()?,
        agents: agents.collect::<Result<_>>()?,
        supervise_every: Some(seconds(bench.run_every_s)),
        sweep_every: Some(seconds(bench.sweep_every_s)),
        timing: Some(Timing {
            pickup_within: seconds(60),
            clock_skew: seconds(bench.clock_skew_s),
            retention: Timing::RETENTION,
        }),
        ..HostOptions::default()
    })
    .await
}

impl RecoveryBench {
    /// The workflow of an agent, with the same name. The first retry has no pause.
    fn workflow(&self, agent: &str) -> Result<Workflow> {
        Ok(serde_json::from_value(json!({
            "name": agent, "version": 1, "complete_within": "10m",
            "steps": { "call": {
                "agent": agent,
                "complete_within": format!("{}s", self.complete_within_s),
                "recovery": { "attempts": 5, "backoff": { "first": "0s" } },
                "request": { "path": "/call", "body": { "task": "${ input.task }" } },
            } },
        }))?)
    }
}
