//! A part of a benchmark that is not Steward, on a thread and a runtime of its own: what it takes of the
//! CPU is counted apart.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use steward_emulator::cpu;

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

/// A thread to be.
pub(super) fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

/// Runs `work` to its end, or to the end of the process.
///
/// # Errors
/// There is no thread to be had.
pub(super) fn on_a_thread<T: Send + 'static>(
    thread: std::thread::Builder,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> io::Result<(Thread, tokio::sync::oneshot::Receiver<Result<T>>)> {
    let (said, (done, end)) = (Thread::default(), tokio::sync::oneshot::channel());
    let used = said.clone();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let saying = async {
                loop {
                    tokio::time::sleep(SAY_EVERY).await;
                    let nanos = u64::try_from(cpu::thread().as_nanos()).unwrap_or(u64::MAX);
                    used.0.store(nanos, Ordering::Relaxed);
                }
            };
            tokio::select! { done = work => done, () = saying => unreachable!("it has no end") }
        })
    };
    thread.spawn(move || done.send(run()))?;
    Ok((said, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_had_is_an_error() {
        let too_much = std::thread::Builder::new().stack_size(1 << 46);
        assert!(on_a_thread(too_much, async { Ok(()) }).is_err());
    }
}
