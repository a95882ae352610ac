//! The signals on which a command that runs until it is stopped ends normally: SIGINT, which Ctrl-C sends, and SIGTERM, which
//! service managers and `docker stop` send.

use std::{sync::mpsc, thread};

use anyhow::{Context, Result};
use tokio::{runtime::Builder, sync::oneshot};

/// Waits for a signal.
pub(crate) async fn stop_signal() -> Result<()> {
    listen()?.await.context("the thread that waits for signals has ended")?
}

/// Listens for a signal from now on, on a thread of its own: the threads of the caller's runtime may all be busy, for example
/// with the validation of inputs, and would then notice the signal late.
pub(crate) fn listen() -> Result<oneshot::Receiver<Result<()>>> {
    let (sender, received) = oneshot::channel();
    let (report, listening) = mpsc::channel();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || sender.send(wait_for_signal(&report)))
        .context("start the thread that waits for signals")?;
    // If the thread has failed to listen, the receiver gets its error.
    let _ = listening.recv();
    Ok(received)
}

fn wait_for_signal(listening: &mpsc::Sender<()>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build();
    runtime.context("wait for signals")?.block_on(first_signal(listening))
}

#[cfg(unix)]
async fn first_signal(listening: &mpsc::Sender<()>) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("wait for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    let _ = listening.send(());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn first_signal(listening: &mpsc::Sender<()>) -> Result<()> {
    let _ = listening.send(());
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[test]
    fn a_signal_is_noticed_while_all_threads_of_the_runtime_are_busy() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Until `stop_signal` waits, the signal would end this process.
        let _handled = runtime.block_on(async { signal(SignalKind::terminate()) }).unwrap();
        let ((report, busy), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        runtime.spawn(async move {
            report.send(()).unwrap();
            released.recv().unwrap_err();
        });
        busy.recv().unwrap();

        let (report, stopped) = mpsc::channel();
        let waiting = thread::spawn(move || {
            report.send(runtime.block_on(stop_signal())).unwrap();
            runtime.shutdown_background();
        });
        let id = std::process::id().to_string();
        let deadline = Instant::now() + Duration::from_secs(20);
        let stopped = loop {
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
            match stopped.recv_timeout(Duration::from_millis(100)) {
                Err(_) => assert!(Instant::now() < deadline, "the signal was not noticed"),
                Ok(stopped) => break stopped,
            }
        };
        stopped.unwrap();
        drop(release);
        waiting.join().unwrap();
    }
}
