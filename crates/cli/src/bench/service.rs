//! The remote service of the benchmarks: it answers every POST to `/STEP` with 200 bytes of JSON, after a delay. It runs on a
//! separate thread, so that its CPU time is not counted as Steward's.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use axum::{Router, http::header::CONTENT_TYPE, routing::post};
use tokio::net::TcpListener;

use super::measured_thread::{MeasuredThread, named, spawn_measured};

/// The size of each response in bytes.
const RESPONSE_BYTES: usize = 200;

/// A running service.
pub(super) struct BenchService {
    pub(super) address: SocketAddr,
    pub(super) thread: MeasuredThread,
}

impl BenchService {
    /// Starts a service that waits `delay` before each response.
    pub(super) async fn start(delay: Duration) -> Result<Self> {
        let (address, started) = tokio::sync::oneshot::channel();
        let (thread, _) = spawn_measured(named("service"), async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let _ = address.send(listener.local_addr()?);
            axum::serve(listener, router(delay)).await.context("serve the benchmark service")
        })?;
        Ok(Self { address: started.await.context("start the benchmark service")?, thread })
    }
}

fn router(delay: Duration) -> Router {
    let without_id = r#"{"id":""}"#.len();
    let response = format!(r#"{{"id":"{}"}}"#, "x".repeat(RESPONSE_BYTES - without_id));
    let respond = async move || {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        ([(CONTENT_TYPE, "application/json")], response.clone())
    };
    Router::new().route("/{step}", post(respond))
}
