//! Threads for the parts of a benchmark that are not Steward. Each has its own tokio runtime, and its CPU time is
//! counted separately.

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

/// How often a thread updates its CPU time.
const UPDATE_EVERY: Duration = Duration::from_millis(20);

/// The CPU time of a running thread.
#[derive(Debug, Clone, Default)]
pub(super) struct MeasuredThread(Arc<AtomicU64>);

impl MeasuredThread {
    /// The CPU time that the thread has used, with a delay of some milliseconds.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A builder for a thread with this name.
pub(super) fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

/// Runs `work` on a new thread. Returns its CPU time and a receiver for its result.
///
/// # Errors
/// The thread cannot be created.
pub(super) fn spawn_measured<T: Send + 'static>(
    thread: std::thread::Builder,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> io::Result<(MeasuredThread, tokio::sync::oneshot::Receiver<Result<T>>)> {
    let (measured, (done, result)) = (MeasuredThread::default(), tokio::sync::oneshot::channel());
    let cpu_time = measured.clone();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let updates = async {
                loop {
                    tokio::time::sleep(UPDATE_EVERY).await;
                    let nanos = u64::try_from(cpu::thread().as_nanos()).unwrap_or(u64::MAX);
                    cpu_time.0.store(nanos, Ordering::Relaxed);
                }
            };
            tokio::select! { done = work => done, () = updates => unreachable!("the update loop does not end") }
        })
    };
    thread.spawn(move || done.send(run()))?;
    Ok((measured, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_created_is_an_error() {
        let too_large_stack = std::thread::Builder::new().stack_size(1 << 46);
        assert!(spawn_measured(too_large_stack, async { Ok(()) }).is_err());
    }
}
