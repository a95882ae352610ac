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
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use steward_agent::{
    attempt::{CallFault, RemoteService},
    http::interpret_answer,
    response::CallResponse,
};
use steward_core::model::{
    messages::StepRequest,
    responses::{ClassifiedResponse, ResponseOverrides},
};

use tokio::time::Instant;

use super::{ledger::EffectLedger, storage::lock};

/// Milliseconds, in a world since the start of the run.
pub type Millis = u64;

/// What a service does with a call. Times are in milliseconds from its start.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPlan {
    /// When the call takes effect, if it does.
    pub commits_after: Option<Millis>,
    /// When the service is done with it.
    pub ends_after: Millis,
    /// When the caller gets the reply, if it does.
    pub replies_after: Option<Millis>,
    /// What the caller gets.
    pub reply: Reply,
    /// What the call returns if it takes effect.
    pub output: Value,
    /// How long the caller waits. Without it, the caller waits for ever.
    pub caller_waits: Option<Millis>,
    /// What the service does when its caller disconnects before the call takes effect.
    pub after_disconnect: AfterDisconnect,
    /// The longest time that a call may take by the service's contract.
    pub longest: Millis,
}

/// What a service does when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AfterDisconnect {
    /// It notices nothing.
    Continues,
    /// It stops: the call has no effect.
    Stops,
    /// The call takes effect after this share of its remaining time.
    TakesEffect {
        /// From 0 to 1.
        share: f64,
    },
}

/// What the caller of a service gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A response.
    Http {
        /// The status.
        status: u16,
        /// The headers.
        headers: HeaderMap,
        /// The body.
        body: Body,
    },
    /// The connection breaks: the service may have carried out the call.
    BrokenConnection,
    /// No connection: the service did not get the call.
    NoConnection,
}

/// The body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// What the call returned when it took effect, where the agent reads it.
    Output,
    /// These bytes.
    Bytes(Vec<u8>),
}

impl Reply {
    /// A successful response.
    #[must_use]
    pub fn success(body: Body) -> Self {
        Self::Http { status: 200, headers: HeaderMap::new(), body }
    }

    /// A response with this status. Its body is the output if the step's `responses` call the status a success.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Http { status, headers: HeaderMap::new(), body: Body::Output }
    }

    /// A response with the first of these statuses that has this meaning for the step.
    #[must_use]
    pub fn classified(
        responses: &ResponseOverrides,
        statuses: &[u16],
        meaning: &ClassifiedResponse,
    ) -> Option<Self> {
        let mut statuses = statuses.iter().copied();
        statuses.find(|status| responses.classify(*status) == *meaning).map(Self::status)
    }

    /// A refusal for good, unless the step's `responses` leave no status for it.
    #[must_use]
    pub fn refusal(responses: &ResponseOverrides) -> Option<Self> {
        let statuses = [422, 400, 403, 404, 409, 410];
        Self::classified(responses, &statuses, &ClassifiedResponse::Failed)
    }

    /// The same response, which asks for a pause before the next call.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        match self {
            Self::Http { status, mut headers, body } => {
                headers.insert(RETRY_AFTER, seconds.into());
                Self::Http { status, headers, body }
            }
            Self::BrokenConnection | Self::NoConnection => self,
        }
    }

    /// Whether the service says that it did not look at the call.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        matches!(self, Self::Http { status: 425 | 429, .. })
    }

    /// Whether it is a successful response with the output.
    #[must_use]
    pub fn is_plain_success(&self) -> bool {
        matches!(self, Self::Http { status: 200, body: Body::Output, .. })
    }

    /// What the agent makes of this reply to `request`. `output` is what the call returned, if it took effect.
    ///
    /// # Errors
    /// The fault that the reply stands for.
    async fn interpret(
        &self,
        request: &StepRequest,
        output: Option<Value>,
    ) -> Result<CallResponse, CallFault> {
        let (status, headers, body) = match self {
            Self::NoConnection => return transient("no connection", false),
            Self::BrokenConnection => return transient("the connection broke", true),
            Self::Http { status, headers, body } => (*status, headers.clone(), body),
        };
        let is_read = request.responses.classify(status) == ClassifiedResponse::Completed;
        let body = match (body, output) {
            (Body::Bytes(bytes), _) => bytes.clone(),
            (Body::Output, Some(output)) if is_read => output.to_string().into_bytes(),
            (Body::Output, _) => Vec::new(),
        };
        // Boxed, since the compiler cannot see through all of the agent's types.
        let answer: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(interpret_answer(status, headers, body, request));
        answer.await
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replies_after {
            Some(_) => self.reply.fmt(f),
            None => f.write_str("no answer"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, .. } => write!(f, "{status}"),
            Self::NoConnection => f.write_str("no connection"),
            Self::BrokenConnection => f.write_str("broken connection"),
        }
    }
}

impl CallPlan {
    /// A call that takes effect at once, and returns this output after a while.
    #[must_use]
    pub fn success(after: Millis, output: Value) -> Self {
        Self::without_effect(after, Reply::success(Body::Output)).with_effect(output)
    }

    /// A reply without any execution.
    #[must_use]
    pub fn without_effect(after: Millis, reply: Reply) -> Self {
        Self {
            commits_after: None,
            ends_after: after,
            replies_after: Some(after),
            reply,
            output: Value::Null,
            caller_waits: None,
            after_disconnect: AfterDisconnect::Continues,
            longest: Millis::MAX,
        }
    }

    /// The same reply, before which the call takes effect.
    #[must_use]
    pub fn with_effect(self, output: Value) -> Self {
        Self { commits_after: Some(0), output, ..self }
    }

    /// The same execution, whose caller never gets a reply.
    #[must_use]
    pub fn silent(self) -> Self {
        Self { replies_after: None, ..self }
    }
}

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

/// Services of a test: what they do with a call is a function of the request.
#[derive(Clone)]
pub struct PlannedServices {
    plan: Arc<dyn Fn(&StepRequest) -> CallPlan + Send + Sync>,
    ledger: Arc<Mutex<EffectLedger>>,
    start: Instant,
}

impl FakeService<PlannedServices> {
    /// A service that does this with each call.
    #[must_use]
    pub fn planned(plan: impl Fn(&StepRequest) -> CallPlan + Send + Sync + 'static) -> Self {
        Self(PlannedServices {
            plan: Arc::new(plan),
            ledger: Arc::default(),
            start: Instant::now(),
        })
    }

    /// A service that completes every call at once with this output.
    #[must_use]
    pub fn completing(output: Value) -> Self {
        Self::planned(move |_| CallPlan::success(0, output.clone()))
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
        Ok(((self.plan)(request), ()))
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
        let CallPlan { commits_after, replies_after, ref reply, caller_waits, .. } = plan;
        if *reply == Reply::NoConnection {
            pause(replies_after).await;
            return reply.interpret(request, None).await;
        }
        let number =
            host.with_ledger(|ledger| ledger.begin_call(request, plan.clone(), host.now()));
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
        reply.interpret(request, output).await
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

fn transient(reason: &str, may_have_run: bool) -> Result<CallResponse, CallFault> {
    let reason = reason.to_owned();
    Err(CallFault::Transient { reason, retry_after: None, may_have_run, detail: None })
}
