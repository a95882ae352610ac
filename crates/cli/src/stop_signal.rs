//! The signals on which a command that runs until it is stopped ends normally: SIGINT, which Ctrl-C sends, and SIGTERM, which
//! service managers and `docker stop` send.

use anyhow::{Context, Result};

/// Waits for a signal.
pub(crate) async fn stop_signal() -> Result<()> {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
        tokio::select! {
            interrupted = interrupt => interrupted.context("wait for Ctrl-C"),
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    interrupt.await.context("wait for Ctrl-C")
}
