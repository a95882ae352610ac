//! The fake service of a test world. What it does with a call is data: a [`CallPlan`]. Who runs the world draws the plans, or
//! reads them from a script; the agent's own code decides what a reply means. The [ledger](EffectLedger) recognises a repeated
//! call by its idempotency key.
//!
//! A call continues at its service, whether or not its caller still waits: it begins, may take effect, and ends.
//!
//! ```text
//! call ──► begins ─────────► takes effect ──────► ends
//!   │        │                                     │
//!   │        └─ repeated idempotency key: 409, or another execution without a new effect
//!   └────────── gateway timeout (504), broken connection, complete-by passes: the execution continues, or stops
//! ```

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_agent::{
    attempt::{CallFault, RemoteService},
    response::CallResponse,
};
use steward_core::model::messages::StepRequest;

use tokio::time::Instant;

pub use super::call_plan::{AfterDisconnect, Body, CallPlan, KeyMemory, Millis, Reply};
use super::{ledger::EffectLedger, storage::lock};

/// The world that a fake service is in: it decides what the service does with each call, and keeps the ledger.
pub trait ServiceHost: Send + Sync {
    /// What the host remembers from the start of a call until its reply.
    type Memo: Send + Sync;

    /// Decides what the service does with a call.
    ///
    /// # Errors
    /// The agent could not make the call.
    fn receive(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> impl Future<Output = Result<(CallPlan, Self::Memo), CallFault>> + Send;

    /// Reads or changes the ledger.
    fn with_ledger<T>(&self, act: impl FnOnce(&mut EffectLedger) -> T) -> T;

    /// The time since the start of the run.
    fn now(&self) -> Millis;

    /// The time of day, which the agent compares with times in answers.
    fn time(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Lets a call take effect, unless it already has. Returns what the call returned.
    fn commit(&self, number: u64) -> Option<Value> {
        let now = self.now();
        self.with_ledger(|ledger| {
            let (request, output) = ledger.commit(number)?;
            Some(ledger.take_effect(&request, output, now))
        })
    }

    /// Lets a call whose caller has disconnected take effect at this time: by default at once.
    fn commit_later(&self, number: u64, _at: Millis) {
        self.commit(number);
    }

    /// Learns that the caller no longer waits, at its end of the call or before.
    fn disconnected(&self, _request: &StepRequest, _memo: &Self::Memo, _is_over: bool) {}

    /// Learns what the agent makes of a reply, and may replace it.
    ///
    /// # Errors
    /// The fault that the reply stands for.
    fn replied(
        &self,
        _request: &StepRequest,
        _memo: &Self::Memo,
        answer: Result<CallResponse, CallFault>,
    ) -> impl Future<Output = Result<CallResponse, CallFault>> + Send {
        std::future::ready(answer)
    }
}

/// A fake service in the world of this host.
#[derive(Debug, Clone)]
pub struct FakeService<H>(pub H);

impl<H: ServiceHost> RemoteService for FakeService<H> {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let host = &self.0;
        let (plan, memo) = host.receive(request, traceparent).await?;
        let answer = {
            let mut call = AwaitedCall { host, request, memo: &memo, number: None, is_over: false };
            let answer = call.run(plan).await;
            call.is_over = true;
            answer
        };
        host.replied(request, &memo, answer).await
    }
}

type PlanOfCall = dyn Fn(&StepRequest, &EffectLedger) -> CallPlan + Send + Sync;

/// Services of a test: what they do with a call is a function of the request and of what they did before.
#[derive(Clone)]
pub struct PlannedServices {
    plan: Arc<PlanOfCall>,
    ledger: Arc<Mutex<EffectLedger>>,
    start: Instant,
}

impl FakeService<PlannedServices> {
    /// A service that does this with each call.
    #[must_use]
    pub fn planned(
        plan: impl Fn(&StepRequest, &EffectLedger) -> CallPlan + Send + Sync + 'static,
    ) -> Self {
        Self(PlannedServices {
            plan: Arc::new(plan),
            ledger: Arc::default(),
            start: Instant::now(),
        })
    }

    /// A service that completes every call at once with this output.
    #[must_use]
    pub fn completing(output: Value) -> Self {
        Self::planned(move |_, _| CallPlan::success(0, output.clone()))
    }

    /// What the service did.
    pub fn ledger(&self) -> MutexGuard<'_, EffectLedger> {
        lock(&self.0.ledger)
    }
}

impl ServiceHost for PlannedServices {
    type Memo = ();

    async fn receive(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<(CallPlan, ()), CallFault> {
        Ok(((self.plan)(request, &lock(&self.ledger)), ()))
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut EffectLedger) -> T) -> T {
        act(&mut lock(&self.ledger))
    }

    fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }
}

/// A call that its caller waits for. Dropping it disconnects the caller: the service may continue.
struct AwaitedCall<'a, H: ServiceHost> {
    host: &'a H,
    request: &'a StepRequest,
    memo: &'a H::Memo,
    /// The call's number in the ledger, if the service was reached.
    number: Option<u64>,
    /// Whether its caller has the reply.
    is_over: bool,
}

impl<H: ServiceHost> AwaitedCall<'_, H> {
    async fn run(&mut self, plan: CallPlan) -> Result<CallResponse, CallFault> {
        let (host, request) = (self.host, self.request);
        if plan.reply == Reply::NoConnection {
            pause(plan.replies_after).await;
            return plan.reply.interpret(request, None, host.time()).await;
        }
        let plan = host.with_ledger(|ledger| ledger.recall_key(request, plan, host.now()));
        let CallPlan { commits_after, replies_after, caller_waits, .. } = plan;
        let reply = plan.reply.clone();
        let number = host.with_ledger(|ledger| ledger.begin_call(request, plan, host.now()));
        self.number = Some(number);
        let is_timeout = caller_waits
            .is_some_and(|waits| replies_after.is_none_or(|replies_after| replies_after > waits));
        let until = if is_timeout { caller_waits } else { replies_after };
        let effect_first = commits_after.filter(|after| until.is_none_or(|until| *after <= until));
        let mut output = None;
        if let Some(after) = effect_first {
            pause(Some(after)).await;
            output = host.commit(number);
        }
        pause(until.map(|until| until.saturating_sub(effect_first.unwrap_or_default()))).await;
        if is_timeout {
            return Err(CallFault::TimedOut { reason: "the call timed out".to_owned() });
        }
        reply.interpret(request, output, host.time()).await
    }
}

impl<H: ServiceHost> Drop for AwaitedCall<'_, H> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let now = self.host.now();
        let disconnect = |ledger: &mut EffectLedger| ledger.disconnect(self.request, number, now);
        let commits_at = self.host.with_ledger(disconnect);
        self.host.disconnected(self.request, self.memo, self.is_over);
        if let Some(at) = commits_at {
            self.host.commit_later(number, at.max(now));
        }
    }
}

/// Waits, or for ever.
async fn pause(time: Option<Millis>) {
    match time {
        Some(0) => {}
        Some(time) => tokio::time::sleep(Duration::from_millis(time)).await,
        None => std::future::pending().await,
    }
}
