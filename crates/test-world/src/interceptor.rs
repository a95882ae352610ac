//! Ports whose calls are intercepted: the only decorator of ports. The simulation injects faults with it, the forecast counts
//! what AWS bills, and tests count calls, fail them, or make others at the same time.

use std::{fmt, future::Future, ops::Range, sync::Arc, time::Duration};

use jiff::Timestamp;
use steward_core::{
    definition::plan::Plan,
    model::{
        document::{Document, DocumentKey, DocumentOwner},
        events::BusEvent,
        names::{TaskId, WorkflowName},
        payload::{PayloadKey, PayloadReference},
        retention::DocumentRetention,
        task::{ProcessState, Task},
    },
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome, PayloadFuture, PayloadPage, PayloadStore, UploadRequest},
    ports::{
        Channel, CreateOutcome, Definitions, DueCursor, DuePage, EndedTask, EndedTaskPage,
        EventBus, OutgoingMessage, PortError, PutOutcome, Queue, SaveOutcome, SharedRecord,
        SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
    },
};

/// A call of a port, with the arguments that interceptors use. Its text is the operation of a [`PortError`].
#[derive(Debug, Clone, Copy)]
pub enum PortCall<'a> {
    /// [`StateStore::load`].
    Load(&'a TaskId),
    /// [`StateStore::create`].
    Create(&'a Task, Option<&'a Document>),
    /// [`StateStore::save`].
    Save(&'a Task),
    /// [`StateStore::put_document`].
    PutDocument(&'a DocumentOwner, DocumentRetention, &'a Document),
    /// [`StateStore::extend_documents`].
    ExtendDocuments(&'a DocumentOwner),
    /// [`StateStore::documents`].
    Documents(&'a DocumentOwner, &'a [DocumentKey]),
    /// [`StateStore::due_tasks`] of this shard.
    DueTasks(u32),
    /// [`StateStore::ended_tasks`] of this partition.
    EndedTasks(u32),
    /// [`StateStore::shared_record`].
    SharedRecord(&'a SharedRecordKey),
    /// [`StateStore::save_shared_record`].
    SaveSharedRecord(&'a SharedRecord),
    /// [`StateStore::shared_records`].
    SharedRecords(SharedRecordKind),
    /// [`Definitions::workflow`].
    Workflow(&'a WorkflowName),
    /// [`Definitions::published`].
    Published(&'a WorkflowName),
    /// [`Definitions::triggered`] by events of this source.
    Triggered(&'a str),
    /// [`Definitions::awaiting`] events of this source.
    Awaiting(&'a str),
    /// [`PayloadStore::claim`].
    Claim(&'a Claim),
    /// [`PayloadStore::task_payloads`].
    ListPayloads,
    /// [`PayloadStore::delete`].
    DeletePayloads(&'a [PayloadKey]),
}

impl fmt::Display for PortCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(id) => write!(f, "load {id}"),
            Self::Create(task, _) => write!(f, "create {}", task.task_id),
            Self::Save(task) => write!(f, "save {} revision {}", task.task_id, task.revision),
            Self::PutDocument(of, _, document) => {
                write!(f, "write {} {}", of.task_id, document.key)
            }
            Self::ExtendDocuments(of) => {
                write!(f, "extend the retention of the documents of {}", of.task_id)
            }
            Self::Documents(of, _) => write!(f, "read documents of {}", of.task_id),
            Self::DueTasks(shard) => write!(f, "read the due index, shard {shard}"),
            Self::EndedTasks(part) => write!(f, "read the ended tasks, part {part}"),
            Self::SharedRecord(key) => write!(f, "read {}", key.name),
            Self::SaveSharedRecord(shared) => write!(f, "save {}", shared.key.name),
            Self::SharedRecords(kind) => write!(f, "read all {}", kind.name()),
            Self::Workflow(name) => write!(f, "read workflow {name}"),
            Self::Published(name) => write!(f, "read workflow {name} for a new task"),
            Self::Triggered(source) => write!(f, "read the workflows that {source} triggers"),
            Self::Awaiting(source) => {
                write!(f, "read the workflows that wait for events of {source}")
            }
            Self::Claim(claim) => write!(f, "copy payload {}", claim.source.key),
            Self::ListPayloads => f.write_str("list payloads"),
            Self::DeletePayloads(keys) => write!(f, "delete {} payloads", keys.len()),
        }
    }
}

/// What a call returned, as far as interceptors use it.
#[derive(Debug, Clone, Copy)]
pub enum PortReply<'a> {
    /// The task that was read.
    Loaded(Option<&'a Task>),
    /// The outcome of creating a task.
    Created(&'a CreateOutcome),
    /// The outcome of saving a task.
    Saved(&'a SaveOutcome),
    /// The documents that were read.
    Documents(&'a [Document]),
    /// The outcome of claiming a payload.
    Claimed(&'a ClaimOutcome),
    /// What any other call returned.
    Other,
}

/// Intercepts the calls of ports.
pub trait Interceptor: Send + Sync {
    /// Makes a call of the store, the definitions or the bucket. `effect` makes it at the decorated port when it is awaited:
    /// the interceptor may do something before and after that, may not await it, and may return an error although it took
    /// effect. `view` shows what the call returned.
    fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        view: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> impl Future<Output = Result<T, PortError>> + Send;

    /// Sends messages.
    fn send(
        &self,
        channel: &impl Channel,
        messages: Vec<OutgoingMessage>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send {
        channel.send(messages)
    }

    /// Publishes events.
    fn publish(
        &self,
        bus: &impl EventBus,
        events: Vec<BusEvent>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send {
        bus.publish(events)
    }
}

/// A port whose calls pass an interceptor.
#[derive(Debug, Clone)]
pub struct Intercepted<P, I> {
    /// The decorated port.
    pub inner: P,
    /// Intercepts all calls that take effect or read something.
    pub interceptor: I,
}

impl<S: StateStore, I: Interceptor> StateStore for Intercepted<S, I> {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        let (call, effect) = (PortCall::Load(id), self.inner.load(id));
        self.interceptor.intercept(call, effect, |task| PortReply::Loaded(task.as_ref())).await
    }

    async fn create(
        &self,
        task: &Task,
        separate: Option<&Document>,
    ) -> Result<CreateOutcome, PortError> {
        let (call, effect) = (PortCall::Create(task, separate), self.inner.create(task, separate));
        self.interceptor.intercept(call, effect, |created| PortReply::Created(created)).await
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        let (call, effect) = (PortCall::Save(task), self.inner.save(task));
        self.interceptor.intercept(call, effect, |saved| PortReply::Saved(saved)).await
    }

    async fn put_document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
    ) -> Result<PutOutcome, PortError> {
        let call = PortCall::PutDocument(owner, retention, document);
        let effect = self.inner.put_document(owner, retention, document);
        self.interceptor.intercept(call, effect, other).await
    }

    async fn extend_documents(&self, task: &Task) -> Result<(), PortError> {
        let (owner, effect) = (task.document_owner(), self.inner.extend_documents(task));
        self.interceptor.intercept(PortCall::ExtendDocuments(&owner), effect, other).await
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let (call, effect) = (PortCall::Documents(owner, keys), self.inner.documents(owner, keys));
        self.interceptor.intercept(call, effect, |found| PortReply::Documents(found)).await
    }

    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        let effect = self.inner.due_tasks(shard, until, after);
        self.interceptor.intercept(PortCall::DueTasks(shard), effect, other).await
    }

    fn shards(&self) -> u32 {
        self.inner.shards()
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        partition: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        let effect = self.inner.ended_tasks(state, partition, within, after);
        self.interceptor.intercept(PortCall::EndedTasks(partition), effect, other).await
    }

    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        let effect = self.inner.shared_record(key);
        self.interceptor.intercept(PortCall::SharedRecord(key), effect, other).await
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        let effect = self.inner.save_shared_record(shared);
        self.interceptor.intercept(PortCall::SaveSharedRecord(shared), effect, other).await
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        let effect = self.inner.shared_records(kind);
        self.interceptor.intercept(PortCall::SharedRecords(kind), effect, other).await
    }
}

impl<D: Definitions, I: Interceptor> Definitions for Intercepted<D, I> {
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let effect = self.inner.workflow(name, version);
        self.interceptor.intercept(PortCall::Workflow(name), effect, other).await
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let effect = self.inner.published(name, version);
        self.interceptor.intercept(PortCall::Published(name), effect, other).await
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        let effect = self.inner.triggered(source, detail_type);
        self.interceptor.intercept(PortCall::Triggered(source), effect, other).await
    }

    async fn awaiting(&self, source: &str, detail_type: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        let effect = self.inner.awaiting(source, detail_type);
        self.interceptor.intercept(PortCall::Awaiting(source), effect, other).await
    }
}

/// The counts of messages are not intercepted.
impl<C: Channel, I: Interceptor> Channel for Intercepted<C, I> {
    async fn send(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<(), PortError>> {
        self.interceptor.send(&self.inner, messages).await
    }

    fn configured_dead_letter_queues(&self) -> Vec<String> {
        self.inner.configured_dead_letter_queues()
    }

    async fn dead_letters(&self, queues: &[String]) -> Vec<(String, Result<u64, PortError>)> {
        self.inner.dead_letters(queues).await
    }

    async fn unread(&self, queues: &[Queue]) -> Vec<Result<bool, PortError>> {
        self.inner.unread(queues).await
    }
}

impl<B: EventBus, I: Interceptor> EventBus for Intercepted<B, I> {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        self.interceptor.publish(&self.inner, events).await
    }
}

/// The signing of an upload is not intercepted: it makes no request.
impl<P: PayloadStore, I: Interceptor> PayloadStore for Intercepted<P, I> {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        let (call, effect) = (PortCall::Claim(claim), self.inner.claim(claim));
        Box::pin(self.interceptor.intercept(call, effect, |claimed| PortReply::Claimed(claimed)))
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        self.inner.upload_request(reference, valid_for)
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        let effect = self.inner.task_payloads(after);
        Box::pin(self.interceptor.intercept(PortCall::ListPayloads, effect, other))
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        let (call, effect) = (PortCall::DeletePayloads(keys), self.inner.delete(keys));
        Box::pin(self.interceptor.intercept(call, effect, other))
    }
}

fn other<T>(_: &T) -> PortReply<'_> {
    PortReply::Other
}
