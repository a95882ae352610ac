//! The signals on which a command that runs until it is stopped ends normally: SIGINT, which Ctrl-C sends, and SIGTERM, which
//! service managers and `docker stop` send.

use std::thread;

use anyhow::{Context, Result};
use tokio::{runtime::Builder, sync::oneshot};

/// Waits for a signal, on a thread of its own: the threads of the caller's runtime may all be busy, for example with the
/// validation of inputs, and would then notice the signal late.
pub(crate) async fn stop_signal() -> Result<()> {
    let (sender, received) = oneshot::channel();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || sender.send(wait_for_signal()))
        .context("start the thread that waits for signals")?;
    received.await.context("the thread that waits for signals has ended")?
}

fn wait_for_signal() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build();
    runtime.context("wait for signals")?.block_on(first_signal())
}

async fn first_signal() -> Result<()> {
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
