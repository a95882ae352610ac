//! The remote service of `steward bench`: it answers every POST with 200 bytes of JSON, after a delay. It runs on a
//! thread of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use axum::{Router, http::header::CONTENT_TYPE, routing::post};

/// The size of each response in bytes.
const RESPONSE_BYTES: usize = 200;

/// Starts a service that waits `delay` before each response; returns its address.
pub(crate) fn start(delay: Duration) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(delay)).await
        })
    });
    Ok(address)
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
