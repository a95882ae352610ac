//! One case of the comparison on a running Restate server: the remote service, the worker with the saga, and a client
//! that keeps a number of sagas in flight. Prints the measured values as one JSON object, with the names of
//! `steward bench`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use restate_sdk::{endpoint::Endpoint, http_server::HttpServer};
use serde_json::json;

use client::SagaClient;
use saga::SagaWorker;

mod client;
mod cpu;
mod saga;
mod service;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sagas before the measurement, as in `steward bench`: they open the connections.
const WARM_UP: usize = 64;

/// Measures one case.
#[derive(Parser)]
struct Options {
    /// The base URL of Restate's ingress.
    #[arg(long)]
    ingress: String,
    /// The base URL of Restate's admin API.
    #[arg(long)]
    admin: String,
    /// The process id of the Restate server, to measure its CPU time and memory.
    #[arg(long)]
    server_pid: u32,
    /// The number of sagas.
    #[arg(long)]
    tasks: usize,
    /// The number of sagas in flight.
    #[arg(long)]
    in_flight: usize,
    /// The latency of the remote service in milliseconds.
    #[arg(long)]
    service_ms: u64,
    /// The number of sequential steps of a saga.
    #[arg(long, default_value_t = 5)]
    steps: u32,
    /// Send no idempotency key. Restate then starts a saga again if its submission is repeated.
    #[arg(long)]
    without_keys: bool,
    /// Use one HTTP/2 connection to the ingress instead of an HTTP/1.1 connection for each saga in flight.
    #[arg(long)]
    http2: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let service = service::start(Duration::from_millis(options.service_ms))?;
    let worker = start_worker(SagaWorker::new(format!("http://{service}"), options.steps)).await?;
    register(&options.admin, &worker).await?;
    let client = SagaClient::new(&options.ingress, options.in_flight)
        .with_http2(options.http2)?
        .with_keys(!options.without_keys);
    let processes = [PathBuf::from("/proc/self"), format!("/proc/{}", options.server_pid).into()];
    let tasks = options.tasks;
    // The client has a thread of its own, as in `steward bench`.
    let client = std::thread::spawn(move || -> Result<_> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(client.run("warm-up", WARM_UP))?;
        let before = cpu::time(&processes)?;
        let run = runtime.block_on(client.run("saga", tasks))?;
        let cpu = cpu::time(&processes)?.saturating_sub(before);
        Ok((run, cpu, cpu::peak_mib(&processes)))
    });
    let ended = tokio::task::spawn_blocking(|| client.join()).await?;
    let (run, cpu, peak_mib) = ended.ok().context("the client's thread panicked")??;
    let rate = tasks as f64 / run.time.as_secs_f64();
    let steps = tasks as f64 * f64::from(options.steps);
    let ms = |quantile| run.latencies.value_at_quantile(quantile) as f64 / 1_000.0;
    println!(
        "{}",
        json!({
            "tasks/s": rate,
            "steps/s": rate * f64::from(options.steps),
            "p50 ms": ms(0.5),
            "p99 ms": ms(0.99),
            "CPU µs/step": cpu.as_secs_f64() * 1e6 / steps,
            "peak MiB": peak_mib,
        })
    );
    Ok(())
}

/// Serves the saga on a free port; returns its URL.
async fn start_worker(saga: SagaWorker) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    // The SDK's server leaves Nagle's algorithm on, which delays a small frame until the peer has acknowledged the
    // frame before it. Accepted connections inherit the option from the listener.
    socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let endpoint = Endpoint::builder().bind(saga).build();
    tokio::spawn(
        HttpServer::new(endpoint).serve_with_cancel(listener, std::future::pending::<()>()),
    );
    Ok(url)
}

/// Tells Restate where the worker is.
async fn register(admin: &str, worker: &str) -> Result<()> {
    let post = reqwest::Client::new().post(format!("{admin}/deployments"));
    let response = post.json(&json!({ "uri": worker })).send().await?;
    let status = response.status();
    let text = response.text().await?;
    anyhow::ensure!(status.is_success(), "Restate refused the worker with {status}: {text}");
    Ok(())
}
