//! Measures the CPU time of each part of the system in this process.
//!
//! Each part has an account. [`with_cpu_account`] charges every poll of a future to one account. If that future polls
//! a future of another account, the inner time is charged to the inner account only. Measurement is off until
//! [`start`]; then it costs two readings of the thread's clock for each poll. Only Unix has these clocks: on Windows all
//! times are zero.

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

/// The part of the system that CPU time is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum CpuAccount {
    /// The submission function, and `POST /tasks`.
    Submission,
    /// The scheduler function.
    Scheduler,
    /// The agents, without their side of HTTP connections.
    Agent,
    /// The supervisor.
    Supervisor,
    /// The loops between queues and functions, which Lambda runs on AWS.
    EventSource,
    /// The embedded DynamoDB.
    DynamoDb,
    /// The embedded SQS.
    Sqs,
    /// The embedded EventBridge.
    EventBridge,
}

/// All accounts with their names.
pub const CPU_ACCOUNTS: [(CpuAccount, &str); 8] = [
    (CpuAccount::Submission, "submission"),
    (CpuAccount::Scheduler, "scheduler"),
    (CpuAccount::Agent, "agent"),
    (CpuAccount::Supervisor, "supervisor"),
    (CpuAccount::EventSource, "event source"),
    (CpuAccount::DynamoDb, "DynamoDB"),
    (CpuAccount::Sqs, "SQS"),
    (CpuAccount::EventBridge, "EventBridge"),
];

static ON: AtomicBool = AtomicBool::new(false);
static NANOS: [AtomicU64; CPU_ACCOUNTS.len()] = [const { AtomicU64::new(0) }; CPU_ACCOUNTS.len()];

thread_local! {
    /// The account that this thread is charging, and the thread's clock when it started to.
    static CURRENT: Cell<Option<(CpuAccount, u64)>> = const { Cell::new(None) };
}

/// Starts the measurement, for the rest of the process.
pub fn start() {
    ON.store(true, Ordering::Relaxed);
}

/// The CPU time charged to each account so far, by the account's name.
#[must_use]
pub fn read() -> BTreeMap<&'static str, Duration> {
    let of =
        |account: CpuAccount| NANOS.get(account as usize).map_or(0, |n| n.load(Ordering::Relaxed));
    CPU_ACCOUNTS.iter().map(|(account, name)| (*name, Duration::from_nanos(of(*account)))).collect()
}

/// The CPU time of the whole process.
#[must_use]
pub fn process() -> Duration {
    clock::process()
}

/// The CPU time of the calling thread.
#[must_use]
pub fn thread() -> Duration {
    clock::thread()
}

#[cfg(unix)]
mod clock {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn process() -> Duration {
        time(ClockId::ProcessCPUTime)
    }

    pub(super) fn thread() -> Duration {
        time(ClockId::ThreadCPUTime)
    }

    fn time(clock: ClockId) -> Duration {
        let now = clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
    }
}

#[cfg(not(unix))]
mod clock {
    use std::time::Duration;

    pub(super) fn process() -> Duration {
        Duration::ZERO
    }

    pub(super) fn thread() -> Duration {
        Duration::ZERO
    }
}

/// Charges every poll of `future` to an account.
pub fn with_cpu_account<F: Future>(account: CpuAccount, future: F) -> ChargedFuture<F> {
    ChargedFuture { account, future: Box::pin(future) }
}

/// A future whose polls are charged to an account; see [`with_cpu_account`].
#[derive(Debug)]
pub struct ChargedFuture<F> {
    account: CpuAccount,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for ChargedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _guard = ChargeGuard::begin(self.account);
        self.future.as_mut().poll(context)
    }
}

/// Charges this thread's time to an account until it is dropped; then the previous account is charged again.
struct ChargeGuard {
    before: Option<CpuAccount>,
    is_on: bool,
}

impl ChargeGuard {
    fn begin(account: CpuAccount) -> Self {
        let is_on = ON.load(Ordering::Relaxed);
        let before = if is_on { switch_account(Some(account)) } else { None };
        Self { before, is_on }
    }
}

impl Drop for ChargeGuard {
    fn drop(&mut self) {
        if self.is_on {
            switch_account(self.before);
        }
    }
}

/// Charges the elapsed time to the current account and makes `next` the current one; returns the previous one.
fn switch_account(next: Option<CpuAccount>) -> Option<CpuAccount> {
    let now = u64::try_from(thread().as_nanos()).unwrap_or(u64::MAX);
    let before = CURRENT.replace(next.map(|account| (account, now)));
    let (account, since) = before?;
    if let Some(nanos) = NANOS.get(account as usize) {
        nanos.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    }
    Some(account)
}
