//! The remote service of the benchmarks: it answers every POST with 200 bytes of JSON, after a while. On
//! a thread of its own, so that its CPU time can be told from Steward's.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use axum::{Router, http::header::CONTENT_TYPE, routing::post};
use tokio::net::TcpListener;

use super::thread::{Thread, named, on_a_thread};

/// Bytes of each reply.
const REPLY_BYTES: usize = 200;

/// A running service.
pub(super) struct Mock {
    pub(super) address: SocketAddr,
    pub(super) thread: Thread,
}

impl Mock {
    /// Starts one that takes `delay` for each answer.
    pub(super) async fn start(delay: Duration) -> Result<Self> {
        let (address, started) = tokio::sync::oneshot::channel();
        let (thread, _) = on_a_thread(named("mock"), async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let _ = address.send(listener.local_addr()?);
            axum::serve(listener, router(delay)).await.context("the mock")
        })?;
        Ok(Self { address: started.await.context("start the mock")?, thread })
    }
}

fn router(delay: Duration) -> Router {
    let around = r#"{"id":""}"#.len();
    let reply = format!(r#"{{"id":"{}"}}"#, "x".repeat(REPLY_BYTES - around));
    let answer = async move || {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        ([(CONTENT_TYPE, "application/json")], reply.clone())
    };
    Router::new().route("/{step}", post(answer))
}
