//! A state store whose calls are intercepted: the only decorator of a store. The simulation injects faults with it, the
//! forecast counts what AWS bills, and tests count calls, fail them, or make others at the same time.

use std::{fmt, future::Future, ops::Range};

use jiff::Timestamp;
use steward_core::model::{
    document::{Document, DocumentKey, DocumentOwner},
    names::TaskId,
    retention::DocumentRetention,
    task::{ProcessState, Task},
};
use steward_runtime::ports::{
    CreateOutcome, DueCursor, DuePage, EndedTask, EndedTaskPage, PortError, PutOutcome,
    SaveOutcome, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};

/// A call of a state store, with the arguments that interceptors use. Its text is the operation of a [`PortError`].
#[derive(Debug, Clone, Copy)]
pub enum StoreCall<'a> {
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
}

impl fmt::Display for StoreCall<'_> {
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
        }
    }
}

/// What a call returned, as far as interceptors use it.
#[derive(Debug, Clone, Copy)]
pub enum StoreReply<'a> {
    /// The task that was read.
    Loaded(Option<&'a Task>),
    /// The outcome of creating a task.
    Created(&'a CreateOutcome),
    /// The outcome of saving a task.
    Saved(&'a SaveOutcome),
    /// The documents that were read.
    Documents(&'a [Document]),
    /// What any other call returned.
    Other,
}

/// Intercepts the calls of a state store.
pub trait Interceptor: Send + Sync {
    /// Makes a call. `effect` makes it at the decorated store when it is awaited: the interceptor may do something before
    /// and after that, may not await it, and may return an error although it took effect. `view` shows what the call
    /// returned.
    fn intercept<T: Send + Sync>(
        &self,
        call: StoreCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        view: impl Fn(&T) -> StoreReply<'_> + Send,
    ) -> impl Future<Output = Result<T, PortError>> + Send;
}

/// A state store whose calls pass an interceptor.
#[derive(Debug, Clone)]
pub struct InterceptedStore<S, I> {
    /// The decorated store.
    pub store: S,
    /// Intercepts all calls except [`StateStore::shards`].
    pub interceptor: I,
}

impl<S: StateStore, I: Interceptor> StateStore for InterceptedStore<S, I> {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        let (call, effect) = (StoreCall::Load(id), self.store.load(id));
        self.interceptor.intercept(call, effect, |task| StoreReply::Loaded(task.as_ref())).await
    }

    async fn create(
        &self,
        task: &Task,
        separate: Option<&Document>,
    ) -> Result<CreateOutcome, PortError> {
        let (call, effect) = (StoreCall::Create(task, separate), self.store.create(task, separate));
        self.interceptor.intercept(call, effect, |created| StoreReply::Created(created)).await
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        let (call, effect) = (StoreCall::Save(task), self.store.save(task));
        self.interceptor.intercept(call, effect, |saved| StoreReply::Saved(saved)).await
    }

    async fn put_document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
    ) -> Result<PutOutcome, PortError> {
        let call = StoreCall::PutDocument(owner, retention, document);
        let effect = self.store.put_document(owner, retention, document);
        self.interceptor.intercept(call, effect, other).await
    }

    async fn extend_documents(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
    ) -> Result<(), PortError> {
        let effect = self.store.extend_documents(owner, retention);
        self.interceptor.intercept(StoreCall::ExtendDocuments(owner), effect, other).await
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let (call, effect) = (StoreCall::Documents(owner, keys), self.store.documents(owner, keys));
        self.interceptor.intercept(call, effect, |found| StoreReply::Documents(found)).await
    }

    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        let effect = self.store.due_tasks(shard, until, after);
        self.interceptor.intercept(StoreCall::DueTasks(shard), effect, other).await
    }

    fn shards(&self) -> u32 {
        self.store.shards()
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        partition: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        let effect = self.store.ended_tasks(state, partition, within, after);
        self.interceptor.intercept(StoreCall::EndedTasks(partition), effect, other).await
    }

    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        let effect = self.store.shared_record(key);
        self.interceptor.intercept(StoreCall::SharedRecord(key), effect, other).await
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        let effect = self.store.save_shared_record(shared);
        self.interceptor.intercept(StoreCall::SaveSharedRecord(shared), effect, other).await
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        let effect = self.store.shared_records(kind);
        self.interceptor.intercept(StoreCall::SharedRecords(kind), effect, other).await
    }
}

fn other<T>(_: &T) -> StoreReply<'_> {
    StoreReply::Other
}
