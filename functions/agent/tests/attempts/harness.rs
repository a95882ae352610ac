//! Test harness: a scripted service, agent instances that share a state store, and ports that count calls and can fail.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::attempt::{
    AttemptResult, CallFault, CircuitBreaker, DeliveredRequest, RateLimiter, RemoteService,
    run_attempt,
};
use steward_agent::response::CallResponse;
use steward_core::{
    breaker::BreakerSettings,
    model::{
        error_detail::ErrorDetail,
        events::BusEvent,
        messages::{ReplyOutcome, StepRequest},
        time::Timing,
    },
    rate::RateLimit,
};
use steward_runtime::ports::{
    Clock, EventBus, PortError, SharedRecord, SharedRecordKey, SharedRecordKind, StateStore,
};
use steward_test_world::{
    InterceptedPorts, Interceptor, MemoryPorts, PortCall, PortReply, WorldClock, step_request,
};
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const SETTINGS: BreakerSettings = BreakerSettings {
    failures: NonZeroU32::MIN.saturating_add(2),
    open_for: Duration::from_secs(10),
    probe_within: Duration::from_secs(30),
};

pub(crate) type AgentTestPorts = InterceptedPorts<CallCounter>;

/// An instance of agent `a`. All instances of a test share the state store and the service.
#[derive(Clone)]
pub(crate) struct AgentInstance {
    pub(crate) ports: AgentTestPorts,
    pub(crate) service: Arc<ScriptedService>,
    breaker: Arc<CircuitBreaker>,
    rate: Arc<RateLimiter>,
    /// How far the clock of the queue is ahead of the instance's.
    pub(crate) queue_is_ahead_by: Duration,
}

impl AgentInstance {
    /// The first instance. Its service gives the responses of `first`, and after them `then` for every call.
    pub(crate) fn new(
        first: impl IntoIterator<Item = ScriptedResponse>,
        then: ScriptedResponse,
    ) -> Self {
        let timing = Timing {
            pickup_within: 60 * SECOND,
            clock_skew: 2 * SECOND,
            retention: Timing::RETENTION,
        };
        let clock = WorldClock::running(Timestamp::UNIX_EPOCH);
        let memory = MemoryPorts::with_clock(timing, NonZeroU32::MIN, clock).with_instance("one");
        let ports = MemoryPorts { has_bucket: false, ..memory }.intercepted(CallCounter::default());
        let start = Instant::now();
        let service = ScriptedService {
            first: Mutex::new(first.into_iter().collect()),
            then: Mutex::new(then),
            calls: Mutex::default(),
            failing: Mutex::default(),
            start,
        };
        Self {
            ports,
            service: Arc::new(service),
            breaker: Arc::new(breaker()),
            rate: unlimited(),
            queue_is_ahead_by: Duration::ZERO,
        }
    }

    /// Another instance with the same state store and service.
    pub(crate) fn another(&self, name: &str) -> Self {
        let ports = AgentTestPorts { instance: name.into(), ..self.ports.clone() };
        let (service, breaker) = (self.service.clone(), Arc::new(breaker()));
        Self {
            ports,
            service,
            breaker,
            rate: unlimited(),
            queue_is_ahead_by: self.queue_is_ahead_by,
        }
    }

    /// The same instance with a rate limit.
    pub(crate) fn with_rate(self, per_second: f64, burst: u32) -> Self {
        let limit = RateLimit::new(per_second.try_into().unwrap(), NonZeroU32::new(burst));
        Self { rate: Arc::new(RateLimiter::new("a".parse().unwrap(), Some(limit))), ..self }
    }

    /// Runs an attempt, with an hour of the function's own time.
    pub(crate) async fn attempt(&self, request: &StepRequest) -> AttemptResult {
        self.deliver(request, 0, 3_600 * SECOND).await
    }

    /// The same, for a request that the queue delivered before.
    pub(crate) async fn attempt_redelivered(&self, request: &StepRequest) -> AttemptResult {
        self.deliver(request, 1, 3_600 * SECOND).await
    }

    /// Runs an attempt of a request that the queue delivered this often before.
    pub(crate) async fn deliver(
        &self,
        request: &StepRequest,
        earlier: u32,
        own_time: Duration,
    ) -> AttemptResult {
        let delivered = DeliveredRequest {
            request,
            traceparent: None,
            redelivered: earlier > 0,
            redelivered_again: earlier > 1,
            sent_at: Some(Timestamp::UNIX_EPOCH),
            first_received_at: Some(Timestamp::UNIX_EPOCH + self.queue_is_ahead_by),
        };
        let deadline = self.ports.clock.now() + own_time;
        let Self { ports, breaker, rate, service, .. } = self;
        run_attempt(ports, breaker, rate, &**service, delivered, deadline).await
    }

    pub(crate) fn request(&self, task: &str, attempt: u32) -> StepRequest {
        let complete_by = self.ports.clock.now() + 60 * SECOND;
        let request = step_request(&json!({
            "task_id": task, "step": "s", "attempt": attempt, "idempotency_key": format!("{task}/s/do"),
            "call_within_ms": 60_000,
        }));
        StepRequest { complete_by, ..request.unwrap() }
    }

    pub(crate) fn request_once(&self, task: &str, attempt: u32) -> StepRequest {
        StepRequest { idempotent: false, ..self.request(task, attempt) }
    }

    /// Lets calls for different requests fail: one less than opens the breaker.
    pub(crate) async fn almost_open_breaker(&self) {
        self.service.respond_with(unavailable(None));
        for task in ["first", "second"] {
            let failed = outcome(self.attempt(&self.request_once(task, 1)).await);
            assert!(matches!(failed, ReplyOutcome::Failed { .. }), "{failed:?}");
        }
        assert_eq!(self.service.take_calls(), 2);
    }

    /// Opens the breaker by an attempt whose calls all fail.
    pub(crate) async fn open_breaker(&self) {
        self.service.respond_with(down());
        let deferred = deferred(self.attempt(&self.request("opener", 1)).await);
        assert_eq!(self.service.take_calls(), 3, "{deferred:?}");
    }

    pub(crate) async fn breaker(&self) -> Option<SharedRecord> {
        let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: "a".to_owned() };
        self.ports.store.inner.shared_record(&key).await.unwrap()
    }

    pub(crate) fn published(&self) -> Vec<&'static str> {
        let events = self.ports.bus.inner.take();
        events.iter().filter_map(|event| Some(event.operator_event()?.metadata.event)).collect()
    }
}

fn unlimited() -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new("a".parse().unwrap(), None))
}

fn breaker() -> CircuitBreaker {
    CircuitBreaker::new("a".parse().unwrap(), SETTINGS)
}

/// The delay of a deferred attempt, and whether it may have run.
pub(crate) fn deferred(attempted: AttemptResult) -> (Duration, bool) {
    match outcome(attempted) {
        ReplyOutcome::Deferred { retry_after_ms, may_have_run, .. } => {
            (Duration::from_millis(retry_after_ms), may_have_run)
        }
        other @ (ReplyOutcome::Completed { .. }
        | ReplyOutcome::Failed { .. }
        | ReplyOutcome::Unknown { .. }) => {
            panic!("{other:?}")
        }
    }
}

pub(crate) fn outcome(attempted: AttemptResult) -> ReplyOutcome {
    match attempted {
        AttemptResult::Reply(reply) => reply.outcome,
        AttemptResult::Overdue | AttemptResult::Silent | AttemptResult::Requeued => {
            panic!("{attempted:?}")
        }
    }
}

pub(crate) fn completed() -> ReplyOutcome {
    ReplyOutcome::Completed { output: Value::Null, may_continue: false }
}

/// The same, after a call with an unknown outcome, which may still be in progress.
pub(crate) fn completed_after_unknown_call() -> ReplyOutcome {
    ReplyOutcome::Completed { output: Value::Null, may_continue: true }
}

/// A response of the service, and the delay before it.
pub(crate) type ScriptedResponse = (Duration, Result<Value, CallFault>);

pub(crate) fn done() -> ScriptedResponse {
    (Duration::ZERO, Ok(Value::Null))
}

/// A failed connection: the call had no effect.
pub(crate) fn down() -> ScriptedResponse {
    transient("no connection", None, false)
}

/// A connection that broke during the call: the call may have taken effect.
pub(crate) fn broken() -> ScriptedResponse {
    transient("the connection broke", None, true)
}

/// A response of a service that fails, with what it says.
pub(crate) fn unavailable(detail: Option<ErrorDetail>) -> ScriptedResponse {
    let reason = "HTTP 503".to_owned();
    let fault = CallFault::Transient { reason, retry_after: None, may_have_run: true, detail };
    (Duration::ZERO, Err(fault))
}

/// A response that says that the request conflicts with another one.
pub(crate) fn conflict() -> ScriptedResponse {
    conflict_for(None)
}

/// The same, which asks for a pause.
pub(crate) fn conflict_for(retry_after: Option<Duration>) -> ScriptedResponse {
    let reason = "HTTP 409".to_owned();
    (Duration::ZERO, Err(CallFault::Conflict { reason, retry_after, detail: None }))
}

pub(crate) fn busy(retry_after: Duration) -> ScriptedResponse {
    transient("HTTP 429", Some(retry_after), false)
}

pub(crate) fn refused() -> ScriptedResponse {
    let reason = "HTTP 402".to_owned();
    (Duration::ZERO, Err(CallFault::Permanent { reason, may_have_run: false, detail: None }))
}

/// A response that comes later than any timeout.
pub(crate) fn hangs() -> ScriptedResponse {
    (1_000_000 * SECOND, Ok(Value::Null))
}

fn transient(reason: &str, retry_after: Option<Duration>, may_have_run: bool) -> ScriptedResponse {
    let reason = reason.to_owned();
    (Duration::ZERO, Err(CallFault::Transient { reason, retry_after, may_have_run, detail: None }))
}

/// A remote service with scripted responses, which records the times of its calls.
pub(crate) struct ScriptedService {
    first: Mutex<VecDeque<ScriptedResponse>>,
    then: Mutex<ScriptedResponse>,
    calls: Mutex<Vec<Duration>>,
    /// The idempotency key to which the service has stored HTTP 503 as its response.
    failing: Mutex<Option<String>>,
    start: Instant,
}

impl ScriptedService {
    /// Sets the response to all later calls.
    pub(crate) fn respond_with(&self, response: ScriptedResponse) {
        *self.then.lock().unwrap() = response;
    }

    /// Stores HTTP 503 as the response to all calls with the key of this request.
    pub(crate) fn store_failure(&self, request: &StepRequest) {
        *self.failing.lock().unwrap() = Some(request.idempotency_key.clone());
    }

    /// The number of calls since the last `take_calls`.
    pub(crate) fn take_calls(&self) -> usize {
        std::mem::take(&mut *self.calls.lock().unwrap()).len()
    }

    pub(crate) fn called_at(&self) -> Vec<Duration> {
        self.calls.lock().unwrap().clone()
    }
}

impl RemoteService for ScriptedService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        self.calls.lock().unwrap().push(self.start.elapsed());
        if self.failing.lock().unwrap().as_ref() == Some(&request.idempotency_key) {
            return unavailable(None).1.map(CallResponse::from);
        }
        let first = self.first.lock().unwrap().pop_front();
        let (delay, response) = first.unwrap_or_else(|| self.then.lock().unwrap().clone());
        tokio::time::sleep(delay).await;
        response.map(CallResponse::from)
    }
}

/// Counts the reads and saves of shared records in the state store, which can be down. Publishing can be stalled.
#[derive(Clone, Default)]
pub(crate) struct CallCounter {
    pub(crate) reads: Arc<AtomicU32>,
    pub(crate) saves: Arc<AtomicU32>,
    /// The reads and saves of rate limits.
    pub(crate) rate_requests: Arc<AtomicU32>,
    pub(crate) is_down: Arc<AtomicBool>,
    /// While it is set, publishing never ends.
    pub(crate) is_stalled: Arc<AtomicBool>,
}

impl CallCounter {
    fn check(&self) -> Result<(), PortError> {
        if !self.is_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PortError { operation: "test".into(), retryable: true, source: "down".into() })
    }
}

impl Interceptor for CallCounter {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if matches!(call, PortCall::SharedRecord(_)) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        } else if matches!(call, PortCall::SaveSharedRecord(_)) {
            self.saves.fetch_add(1, Ordering::Relaxed);
        }
        let is_rate = |key: &SharedRecordKey| key.kind == SharedRecordKind::Rate;
        if matches!(call, PortCall::SharedRecord(key) if is_rate(key))
            || matches!(call, PortCall::SaveSharedRecord(record) if is_rate(&record.key))
        {
            self.rate_requests.fetch_add(1, Ordering::Relaxed);
        }
        // Lets concurrent calls run.
        tokio::task::yield_now().await;
        self.check()?;
        effect.await
    }
    async fn publish(
        &self,
        bus: &impl EventBus,
        events: Vec<BusEvent>,
    ) -> Vec<Result<(), PortError>> {
        if self.is_stalled.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        bus.publish(events).await
    }
}
