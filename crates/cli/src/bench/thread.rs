//! A part of a benchmark that is not Steward, on a thread and a runtime of its own: what it takes of the
//! CPU is counted apart.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use steward_local::cpu;

/// How often the thread says what it has used.
const SAY_EVERY: Duration = Duration::from_millis(20);

/// Such a thread, while it runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Thread(Arc<AtomicU64>);

impl Thread {
    /// The CPU time that it has used, a few milliseconds ago.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Runs `work` to its end, or to the end of the process.
pub(super) fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> (Thread, tokio::sync::oneshot::Receiver<Result<T>>) {
    let (thread, (done, end)) = (Thread::default(), tokio::sync::oneshot::channel());
    let said = thread.clone();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let saying = async {
                loop {
                    tokio::time::sleep(SAY_EVERY).await;
                    let used = u64::try_from(cpu::thread().as_nanos()).unwrap_or(u64::MAX);
                    said.0.store(used, Ordering::Relaxed);
                }
            };
            tokio::select! { done = work => done, () = saying => unreachable!("it has no end") }
        })
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || done.send(run()))
        .map(|_| ())
        .unwrap_or_default();
    (thread, end)
}
