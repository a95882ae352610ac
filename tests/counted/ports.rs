//! Ports for measuring memory: they store nothing and return constant results. Each call yields first, so that the handlers
//! reach their highest concurrency.

use std::{
    ops::{Deref, Range},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    definition::plan::Plan,
    model::{
        document::{Document, DocumentKey, DocumentOwner},
        events::BusEvent,
        names::{TaskId, WorkflowName},
        retention::DocumentRetention,
        task::{ProcessState, Task},
        time::Timing,
    },
};
use steward_runtime::ports::{
    Channel, Clock, CreateOutcome, Definitions, DueCursor, DuePage, EndedTask, EndedTaskPage,
    EventBus, OutgoingMessage, PortError, PutOutcome, Queue, SaveOutcome, SharedRecord,
    SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};
use steward_test_world::{MemoryPayloads, WorldClock, WorldPorts};
use tokio::task::yield_now;

/// Ports with constant results.
pub(crate) type ConstantPorts = WorldPorts<Constant, Constant, Constant, Constant, Constant>;

/// A port with constant results, whichever it is. It is no decorator of the in-memory ports, because these allocate and
/// serialise on each call, which would count as memory of the handlers.
#[derive(Clone)]
pub(crate) struct Constant(Arc<Results>);

/// What the ports return, and what they were given.
pub(crate) struct Results {
    /// The workflow of every task.
    pub(crate) plan: Arc<Plan>,
    /// The state of every task.
    pub(crate) task: Task,
    /// The body of every document.
    pub(crate) document: Value,
    /// The due tasks of every shard.
    pub(crate) due: Vec<TaskId>,
    /// The number of sent messages.
    pub(crate) sent: AtomicU64,
}

/// The ports that return these results.
pub(crate) fn ports(results: Results) -> ConstantPorts {
    let port = Constant(Arc::new(results));
    WorldPorts {
        store: port.clone(),
        definitions: port.clone(),
        channel: port.clone(),
        bus: port.clone(),
        clock: port,
        payloads: MemoryPayloads::new(WorldClock::default()),
        has_bucket: false,
        timing: Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        },
        instance: "constant".into(),
        callback_urls: None,
    }
}

impl Deref for Constant {
    type Target = Results;

    fn deref(&self) -> &Results {
        &self.0
    }
}

impl StateStore for Constant {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        yield_now().await;
        Ok(Some(Task { task_id: id.clone(), ..self.task.clone() }))
    }

    async fn create(&self, _: &Task, _: Option<&Document>) -> Result<CreateOutcome, PortError> {
        yield_now().await;
        Ok(CreateOutcome::Created)
    }

    async fn save(&self, _: &Task) -> Result<SaveOutcome, PortError> {
        yield_now().await;
        Ok(SaveOutcome::Saved)
    }

    async fn put_document(
        &self,
        _: &DocumentOwner,
        _: DocumentRetention,
        _: &Document,
    ) -> Result<PutOutcome, PortError> {
        yield_now().await;
        Ok(PutOutcome::Stored)
    }

    async fn extend_documents(&self, _: &Task) -> Result<(), PortError> {
        yield_now().await;
        Ok(())
    }

    async fn documents(
        &self,
        _: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        yield_now().await;
        let document =
            |key: &DocumentKey| Document::new(key.clone(), self.now(), self.document.clone());
        Ok(keys.iter().map(document).collect())
    }

    async fn due_tasks(
        &self,
        _: u32,
        _: Timestamp,
        _: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        yield_now().await;
        Ok(DuePage { task_ids: self.due.clone(), next: None })
    }

    async fn ended_tasks(
        &self,
        _: ProcessState,
        _: u32,
        _: Range<Timestamp>,
        _: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        yield_now().await;
        Ok(EndedTaskPage::default())
    }

    fn shards(&self) -> u32 {
        8
    }

    async fn shared_record(&self, _: &SharedRecordKey) -> Result<Option<SharedRecord>, PortError> {
        yield_now().await;
        Ok(None)
    }

    async fn save_shared_record(&self, _: &SharedRecord) -> Result<SharedSaveOutcome, PortError> {
        yield_now().await;
        Ok(SharedSaveOutcome::Saved)
    }

    async fn shared_records(&self, _: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        yield_now().await;
        Ok(Vec::new())
    }
}

impl Definitions for Constant {
    async fn workflow(
        &self,
        _: &WorkflowName,
        _: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        yield_now().await;
        Ok(Some(self.plan.clone()))
    }

    async fn published(
        &self,
        _: &WorkflowName,
        _: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        yield_now().await;
        Ok(Some(self.plan.clone()))
    }

    async fn triggered(&self, _: &str, _: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        yield_now().await;
        Ok(vec![self.plan.clone()])
    }

    async fn awaiting(&self, _: &str, _: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        yield_now().await;
        Ok(Vec::new())
    }
}

impl Channel for Constant {
    async fn send(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<(), PortError>> {
        for _ in 0..10 {
            yield_now().await;
        }
        self.sent.fetch_add(messages.len() as u64, Ordering::Relaxed);
        messages.iter().map(|_| Ok(())).collect()
    }

    fn configured_dead_letter_queues(&self) -> Vec<String> {
        Vec::new()
    }

    async fn dead_letters(&self, _: &[String]) -> Vec<(String, Result<u64, PortError>)> {
        yield_now().await;
        Vec::new()
    }

    async fn unread(&self, queues: &[Queue]) -> Vec<Result<bool, PortError>> {
        queues.iter().map(|_| Ok(false)).collect()
    }
}

impl EventBus for Constant {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        yield_now().await;
        events.iter().map(|_| Ok(())).collect()
    }
}

impl Clock for Constant {
    fn now(&self) -> Timestamp {
        self.task.submitted_at
    }

    async fn sleep(&self, _: Duration) {
        yield_now().await;
    }
}
