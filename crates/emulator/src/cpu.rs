//! Where this process's CPU time goes: each part of the system has an account, and whatever runs is
//! charged to the account it runs for. A future that calls into another part is not charged for that
//! part's time. Off until [`start`], and then two readings of the thread's clock a poll.

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// Who the time is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Account {
    /// The submission function, and `POST /tasks`.
    Submission,
    /// The scheduler function.
    Scheduler,
    /// The agents, their side of HTTP connections apart.
    Agent,
    /// The supervisor.
    Supervisor,
    /// What Lambda does between queues and functions.
    EventSource,
    /// The embedded DynamoDB.
    DynamoDb,
    /// The embedded SQS.
    Sqs,
    /// The embedded EventBridge.
    EventBridge,
}

/// Every account, with its name.
pub const ACCOUNTS: [(Account, &str); 8] = [
    (Account::Submission, "submission"),
    (Account::Scheduler, "scheduler"),
    (Account::Agent, "agent"),
    (Account::Supervisor, "supervisor"),
    (Account::EventSource, "event source"),
    (Account::DynamoDb, "DynamoDB"),
    (Account::Sqs, "SQS"),
    (Account::EventBridge, "EventBridge"),
];

static ON: AtomicBool = AtomicBool::new(false);
static NANOS: [AtomicU64; ACCOUNTS.len()] = [const { AtomicU64::new(0) }; ACCOUNTS.len()];

thread_local! {
    /// Whom this thread works for, and the thread's clock when it began.
    static CURRENT: Cell<Option<(Account, u64)>> = const { Cell::new(None) };
}

/// Starts charging, for the rest of the process.
pub fn start() {
    ON.store(true, Ordering::Relaxed);
}

/// What each account has been charged so far.
#[must_use]
pub fn read() -> BTreeMap<&'static str, Duration> {
    let of =
        |account: Account| NANOS.get(account as usize).map_or(0, |n| n.load(Ordering::Relaxed));
    ACCOUNTS.iter().map(|(account, name)| (*name, Duration::from_nanos(of(*account)))).collect()
}

/// CPU time of the whole process.
#[must_use]
pub fn process() -> Duration {
    time(ClockId::ProcessCPUTime)
}

/// CPU time of this thread.
#[must_use]
pub fn thread() -> Duration {
    time(ClockId::ThreadCPUTime)
}

fn time(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Charges every poll of `future` to an account.
pub fn charged<F: Future>(account: Account, future: F) -> Charged<F> {
    Charged { account, future: Box::pin(future) }
}

/// See [`charged`].
#[derive(Debug)]
pub struct Charged<F> {
    account: Account,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Charged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _charging = Charging::begin(self.account);
        self.future.as_mut().poll(context)
    }
}

/// While it lives, this thread works for an account; then again for the one before.
struct Charging {
    before: Option<Account>,
    is_on: bool,
}

impl Charging {
    fn begin(account: Account) -> Self {
        let is_on = ON.load(Ordering::Relaxed);
        let before = if is_on { turn(Some(account)) } else { None };
        Self { before, is_on }
    }
}

impl Drop for Charging {
    fn drop(&mut self) {
        if self.is_on {
            turn(self.before);
        }
    }
}

/// Settles the account that was worked for, and begins with the next; returns the former.
fn turn(next: Option<Account>) -> Option<Account> {
    let now = u64::try_from(thread().as_nanos()).unwrap_or(u64::MAX);
    let before = CURRENT.replace(next.map(|account| (account, now)));
    let (account, since) = before?;
    if let Some(nanos) = NANOS.get(account as usize) {
        nanos.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    }
    Some(account)
}
