//! The world of these tests: a service that does as it is told, instances that share a state store,
//! and ports that can be counted and made to fail.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_agent::attempt::{Attempted, Delivered, Fault, Guard, RemoteService, attempt};
use steward_core::{
    breaker::Settings,
    model::{
        attempt::Action,
        document::{Document, DocumentKey, Kept, Owner},
        events::BusEvent,
        messages::{Method, Outcome, StepRequest},
        names::TaskId,
        responses::Responses,
        task::{ProcessState, Task},
        time::Timing,
    },
};
use steward_runtime::ports::{
    Clock, Created, DueCursor, DuePage, Ended, EndedPage, EventBus, PortError, Ports, Put, Saved,
    Shared, SharedKey, SharedKind, SharedSaved, StateStore,
};
use steward_testkit::memory::{
    ManualClock, MemoryBus, MemoryChannel, MemoryDefinitions, MemoryPorts, MemoryStore,
};
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const SETTINGS: Settings = Settings {
    failures: NonZeroU32::MIN.saturating_add(2),
    open_for: Duration::from_secs(10),
    probe_within: Duration::from_secs(30),
};

/// One instance of agent `a`, in the world that all of them share.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) ports: TestPorts,
    pub(crate) service: Arc<Service>,
    guard: Arc<Guard>,
}

impl Instance {
    /// The first instance of a world, whose service answers as told.
    pub(crate) fn new(first: impl IntoIterator<Item = Answer>, then: Answer) -> Self {
        let timing = Timing {
            pickup_within: 60 * SECOND,
            clock_skew: 2 * SECOND,
            retention: Timing::RETENTION,
        };
        let memory = MemoryPorts::new(timing, NonZeroU32::MIN).with_instance("one");
        let start = Instant::now();
        let ports = TestPorts {
            store: Store {
                inner: memory.store().clone(),
                reads: Arc::default(),
                saves: Arc::default(),
                is_down: Arc::default(),
            },
            bus: Bus { inner: memory.bus().clone(), is_stalled: Arc::default() },
            clock: TokioClock { start, zero: memory.clock().clone() },
            memory,
        };
        let service = Service {
            first: Mutex::new(first.into_iter().collect()),
            then: Mutex::new(then),
            calls: Mutex::default(),
            start,
        };
        Self { ports, service: Arc::new(service), guard: Arc::new(guard()) }
    }

    /// Another instance in the same world.
    pub(crate) fn another(&self, name: &str) -> Self {
        let ports =
            TestPorts { memory: self.ports.memory.with_instance(name), ..self.ports.clone() };
        Self { ports, service: self.service.clone(), guard: Arc::new(guard()) }
    }

    /// A request with 60 seconds to go, and an hour of the function's own time.
    pub(crate) async fn attempt(&self, request: &StepRequest) -> Attempted {
        self.deliver(request, false, 3_600 * SECOND).await
    }

    pub(crate) async fn redelivered(&self, request: &StepRequest) -> Attempted {
        self.deliver(request, true, 3_600 * SECOND).await
    }

    pub(crate) async fn deliver(
        &self,
        request: &StepRequest,
        redelivered: bool,
        own_time: Duration,
    ) -> Attempted {
        let delivered = Delivered {
            request,
            traceparent: None,
            redelivered,
            sent_at: Some(Timestamp::UNIX_EPOCH),
        };
        let deadline = self.ports.clock.now() + own_time;
        attempt(&self.ports, &self.guard, &*self.service, delivered, deadline).await
    }

    pub(crate) fn request(&self, task: &str, attempt: u32) -> StepRequest {
        StepRequest {
            task_id: task.parse().unwrap(),
            step: "s".parse().unwrap(),
            action: Action::Do,
            attempt,
            complete_by: self.ports.clock.now() + 60 * SECOND,
            idempotency_key: format!("{task}/s/do"),
            idempotent: true,
            call_within_ms: Some(60_000),
            responses: Responses::NONE,
            may_have_run: false,
            agent: "a".parse().unwrap(),
            method: Method::Post,
            path: "/".into(),
            body: None,
            incarnation: None,
        }
    }

    pub(crate) fn request_once(&self, task: &str, attempt: u32) -> StepRequest {
        StepRequest { idempotent: false, ..self.request(task, attempt) }
    }

    /// Lets the breaker open: one attempt, whose calls all fail.
    pub(crate) async fn open(&self) {
        self.service.now(down());
        let deferred = deferred(self.attempt(&self.request("opener", 1)).await);
        assert_eq!(self.service.take_calls(), 3, "{deferred:?}");
    }

    pub(crate) async fn breaker(&self) -> Option<Shared> {
        let key = SharedKey { kind: SharedKind::Breaker, name: "a".to_owned() };
        self.ports.memory.store().shared(&key).await.unwrap()
    }

    pub(crate) fn published(&self) -> Vec<&'static str> {
        let events = self.ports.bus.inner.take();
        events.into_iter().map(|event| event.metadata.event).collect()
    }
}

fn guard() -> Guard {
    Guard::new("a".parse().unwrap(), SETTINGS)
}

/// What an attempt was deferred with: for how long, and whether it may have run.
pub(crate) fn deferred(attempted: Attempted) -> (Duration, bool) {
    match outcome(attempted) {
        Outcome::Deferred { retry_after_ms, may_have_run, .. } => {
            (Duration::from_millis(retry_after_ms), may_have_run)
        }
        other @ (Outcome::Completed { .. } | Outcome::Failed { .. } | Outcome::Unknown { .. }) => {
            panic!("{other:?}")
        }
    }
}

pub(crate) fn outcome(attempted: Attempted) -> Outcome {
    match attempted {
        Attempted::Reply(reply) => reply.outcome,
        Attempted::Silent | Attempted::GivenBack => panic!("{attempted:?}"),
    }
}

pub(crate) fn completed() -> Outcome {
    Outcome::Completed { output: Value::Null, may_continue: false }
}

/// The same, after an earlier call that may still be in progress.
pub(crate) fn completed_beside_another() -> Outcome {
    Outcome::Completed { output: Value::Null, may_continue: true }
}

/// An answer of the service, after a time.
pub(crate) type Answer = (Duration, Result<Value, Fault>);

pub(crate) fn done() -> Answer {
    (Duration::ZERO, Ok(Value::Null))
}

/// A fault of a service that is not there: it cannot have run.
pub(crate) fn down() -> Answer {
    transient("no connection", None, false)
}

/// A fault in the middle of things.
pub(crate) fn broken() -> Answer {
    transient("the connection broke", None, true)
}

/// A service that answers that the request conflicts with another one.
pub(crate) fn conflict() -> Answer {
    (Duration::ZERO, Err(Fault::Conflict { reason: "HTTP 409".to_owned() }))
}

pub(crate) fn busy(retry_after: Duration) -> Answer {
    transient("HTTP 429", Some(retry_after), false)
}

pub(crate) fn refused() -> Answer {
    let reason = "HTTP 402".to_owned();
    (Duration::ZERO, Err(Fault::Permanent { reason, may_have_run: false }))
}

/// Nobody waits this long.
pub(crate) fn hangs() -> Answer {
    (1_000_000 * SECOND, Ok(Value::Null))
}

fn transient(reason: &str, retry_after: Option<Duration>, may_have_run: bool) -> Answer {
    let reason = reason.to_owned();
    (Duration::ZERO, Err(Fault::Transient { reason, retry_after, may_have_run }))
}

/// A remote service that notes when it was called.
pub(crate) struct Service {
    first: Mutex<VecDeque<Answer>>,
    then: Mutex<Answer>,
    calls: Mutex<Vec<Duration>>,
    start: Instant,
}

impl Service {
    /// From now on it answers like this.
    pub(crate) fn now(&self, answer: Answer) {
        *self.then.lock().unwrap() = answer;
    }

    /// How often it was called since the last time.
    pub(crate) fn take_calls(&self) -> usize {
        std::mem::take(&mut *self.calls.lock().unwrap()).len()
    }

    pub(crate) fn called_at(&self) -> Vec<Duration> {
        self.calls.lock().unwrap().clone()
    }
}

impl RemoteService for Service {
    async fn call(&self, _: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        self.calls.lock().unwrap().push(self.start.elapsed());
        let first = self.first.lock().unwrap().pop_front();
        let (time, answer) = first.unwrap_or_else(|| self.then.lock().unwrap().clone());
        tokio::time::sleep(time).await;
        answer
    }
}

/// Ports in memory, but for the clock: it is the one that tokio's pauses move.
#[derive(Clone)]
pub(crate) struct TestPorts {
    pub(crate) memory: MemoryPorts,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) clock: TokioClock,
}

impl Ports for TestPorts {
    type Store = Store;
    type Definitions = MemoryDefinitions;
    type Channel = MemoryChannel;
    type Bus = Bus;
    type Clock = TokioClock;

    fn store(&self) -> &Store {
        &self.store
    }
    fn definitions(&self) -> &MemoryDefinitions {
        self.memory.definitions()
    }
    fn channel(&self) -> &MemoryChannel {
        self.memory.channel()
    }
    fn bus(&self) -> &Bus {
        &self.bus
    }
    fn clock(&self) -> &TokioClock {
        &self.clock
    }
    fn timing(&self) -> Timing {
        self.memory.timing()
    }
    fn instance(&self) -> &str {
        self.memory.instance()
    }
}

#[derive(Clone)]
pub(crate) struct TokioClock {
    start: Instant,
    zero: ManualClock,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.zero.now() + self.start.elapsed()
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A bus on which publishing may never end.
#[derive(Clone)]
pub(crate) struct Bus {
    inner: MemoryBus,
    pub(crate) is_stalled: Arc<AtomicBool>,
}

impl EventBus for Bus {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        if self.is_stalled.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.publish(events).await
    }
}

/// A state store that counts what breakers cost, and can be down.
#[derive(Clone)]
pub(crate) struct Store {
    inner: MemoryStore,
    pub(crate) reads: Arc<AtomicU32>,
    pub(crate) saves: Arc<AtomicU32>,
    pub(crate) is_down: Arc<AtomicBool>,
}

impl Store {
    fn check(&self) -> Result<(), PortError> {
        if !self.is_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PortError { operation: "test".into(), retryable: true, source: "down".into() })
    }
}

impl StateStore for Store {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        self.inner.load(id).await
    }
    async fn create(&self, task: &Task, submitted: &Document) -> Result<Created, PortError> {
        self.inner.create(task, submitted).await
    }
    async fn save(&self, task: &Task) -> Result<Saved, PortError> {
        self.inner.save(task).await
    }
    async fn put_document(
        &self,
        owner: &Owner,
        kept: Kept,
        document: &Document,
    ) -> Result<Put, PortError> {
        self.check()?;
        self.inner.put_document(owner, kept, document).await
    }
    async fn extend_documents(&self, owner: &Owner, kept: Kept) -> Result<(), PortError> {
        self.inner.extend_documents(owner, kept).await
    }
    async fn documents(
        &self,
        owner: &Owner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        self.check()?;
        self.inner.documents(owner, keys).await
    }
    async fn due(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        self.inner.due(shard, until, after).await
    }
    async fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> Result<EndedPage, PortError> {
        self.inner.ended(state, part, within, after).await
    }

    fn shards(&self) -> u32 {
        self.inner.shards()
    }
    async fn shared(&self, key: &SharedKey) -> Result<Option<Shared>, PortError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        // Whoever else wants to ask gets to run.
        tokio::task::yield_now().await;
        self.check()?;
        self.inner.shared(key).await
    }
    async fn save_shared(&self, shared: &Shared) -> Result<SharedSaved, PortError> {
        self.saves.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.check()?;
        self.inner.save_shared(shared).await
    }
    async fn all_shared(&self, kind: SharedKind) -> Result<Vec<Shared>, PortError> {
        self.inner.all_shared(kind).await
    }
}
