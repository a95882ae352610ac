//! The state store in memory. It has the same contract as the tables and indices of the DynamoDB adapter.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    ops::{Bound, Range},
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use steward_aws::items::{
    ITEM_BYTES_MAX, ItemAttributes, Items, TRANSACTION_BYTES_MAX, expires_at, size,
};
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey, DocumentOwner},
    names::TaskId,
    retention::DocumentRetention,
    task::{ProcessState, Task},
};
use steward_runtime::ports::{
    Clock, CreateOutcome, DueCursor, DuePage, EndedTask, EndedTaskPage, ItemTooLarge, PortError,
    PutOutcome, SaveOutcome, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore, ended_index_partitions, shard_of,
};

use super::{
    clock::WorldClock,
    storage::{corrupt, lock, stored},
};

/// The number of tasks in a page of an index. On AWS a page has 100 of the index `due`, and 4,000 of the index `ended`.
const PAGE_SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);

/// The state store in memory.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    items: Items,
    page_size: NonZeroUsize,
    clock: WorldClock,
}

impl MemoryStore {
    /// Empty tables. `clock` decides which items have expired.
    pub(super) fn new(shards: NonZeroU32, retention: Duration, clock: WorldClock) -> Self {
        let items = Items { shards, retention };
        Self { tables: Arc::default(), items, page_size: PAGE_SIZE, clock }
    }

    /// The same tables, with this many tasks in a page of an index.
    pub(super) fn with_page_size(&self, tasks: NonZeroUsize) -> Self {
        Self { page_size: tasks, ..self.clone() }
    }

    /// The same tables, read by another clock.
    #[must_use]
    pub fn with_clock(&self, clock: WorldClock) -> Self {
        Self { clock, ..self.clone() }
    }

    /// The tasks and documents that have expired at `now`. DynamoDB may delete each of them at any moment, or only days
    /// later.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> Vec<ExpiredItem> {
        let tables = lock(&self.tables);
        let has_expired = |at: Option<i64>| at.is_some_and(|at| at <= now.as_second());
        let tasks = tables.tasks.iter().filter(|(_, stored)| has_expired(stored.expires_at));
        let tasks = tasks.map(|(id, _)| ExpiredItem::Task(id.clone()));
        let documents =
            tables.documents.iter().filter(|(_, stored)| has_expired(stored.expires_at));
        let documents =
            documents.map(|((owner, key), _)| ExpiredItem::Document(owner.clone(), key.clone()));
        tasks.chain(documents).collect()
    }

    /// Deletes an item of [`expired`](Self::expired), as DynamoDB deletes expired items. Does not check the expiry.
    pub fn delete_expired(&self, item: &ExpiredItem) {
        let mut tables = lock(&self.tables);
        match item {
            ExpiredItem::Task(id) => tables.remove(id, self.items.shards),
            ExpiredItem::Document(owner, key) => {
                tables.documents.remove(&(owner.clone(), key.clone()));
            }
        }
    }

    /// Adds a shared record that the deployment has had before.
    pub fn insert_shared(&self, record: SharedRecord) {
        lock(&self.tables).shared.insert(record.key.clone(), record);
    }

    /// The size of a task's item as DynamoDB counts it. `None` if there is no such task.
    #[must_use]
    pub fn task_bytes(&self, id: &TaskId) -> Option<usize> {
        lock(&self.tables).tasks.get(id).map(|stored| stored.bytes)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// An item that has expired and is not deleted yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExpiredItem {
    /// A task.
    Task(TaskId),
    /// A document of a task.
    Document(DocumentOwner, DocumentKey),
}

/// A stored value, with its expiry in seconds since the epoch and the size of its item in bytes.
#[derive(Debug, Clone)]
struct StoredItem<T> {
    value: T,
    expires_at: Option<i64>,
    bytes: usize,
}

impl<T> StoredItem<T> {
    /// The value, unless it has expired.
    fn present(&self, now: Timestamp) -> Option<&T> {
        let has_expired = self.expires_at.is_some_and(|at| at <= now.as_second());
        (!has_expired).then_some(&self.value)
    }
}

#[derive(Debug, Default)]
struct Tables {
    tasks: BTreeMap<TaskId, StoredItem<Task>>,
    documents: BTreeMap<(DocumentOwner, DocumentKey), StoredItem<Document>>,
    shared: BTreeMap<SharedRecordKey, SharedRecord>,
    /// The due tasks of each shard, earliest first.
    due: BTreeMap<u32, BTreeSet<(Timestamp, TaskId)>>,
    /// The ended tasks by final state and partition of the index, earliest first.
    ended: BTreeMap<(ProcessState, u32), BTreeSet<(Timestamp, TaskId)>>,
}

impl Tables {
    /// Inserts or replaces a task, also in the indices.
    fn put(&mut self, stored: StoredItem<Task>, shards: NonZeroU32) {
        let id = stored.value.task_id.clone();
        self.remove(&id, shards);
        let (shard, partition) =
            (shard_of(&id, shards), shard_of(&id, ended_index_partitions(shards)));
        if let Some((state, at)) = ended(&stored.value) {
            self.ended.entry((state, partition)).or_default().insert((at, id.clone()));
        }
        if let Some(at) = stored.value.due {
            self.due.entry(shard).or_default().insert((at, id.clone()));
        }
        self.tasks.insert(id, stored);
    }

    /// Removes a task, also from the indices.
    fn remove(&mut self, id: &TaskId, shards: NonZeroU32) {
        let Some(StoredItem { value: before, .. }) = self.tasks.remove(id) else { return };
        let (shard, partition) =
            (shard_of(id, shards), shard_of(id, ended_index_partitions(shards)));
        if let Some(at) = before.due {
            self.due.entry(shard).or_default().remove(&(at, id.clone()));
        }
        if let Some((state, at)) = ended(&before) {
            self.ended.entry((state, partition)).or_default().remove(&(at, id.clone()));
        }
    }
}

/// The size of an item in bytes, as DynamoDB counts it.
///
/// # Errors
/// The item is larger than [`ITEM_BYTES_MAX`].
fn checked_size(item: &ItemAttributes, operation: impl Fn() -> String) -> Result<usize, PortError> {
    match size(item) {
        bytes if bytes <= ITEM_BYTES_MAX => Ok(bytes),
        bytes => {
            let source = ItemTooLarge(format!(
                "the item has {bytes} bytes; the maximum is {ITEM_BYTES_MAX}"
            ));
            Err(PortError { operation: operation(), retryable: false, source: source.into() })
        }
    }
}

/// The error of a write that AWS would refuse on every attempt.
fn refused(operation: impl Fn() -> String, reason: &str) -> PortError {
    PortError { operation: operation(), retryable: false, source: reason.into() }
}

/// The final state of a task and when it ended; `None` if it has not ended.
fn ended(task: &Task) -> Option<(ProcessState, Timestamp)> {
    let state = Some(task.process_state).filter(|state| state.has_stopped())?;
    // An Error that is settled has a partition of its own, which no handler reads.
    task.resolved_at.is_none().then_some((state, task.ended_at?))
}

impl MemoryStore {
    /// The item that stores a task.
    fn task(
        &self,
        task: &Task,
        operation: impl Fn() -> String,
    ) -> Result<StoredItem<Task>, PortError> {
        let item = self.items.task(task)?;
        let bytes = checked_size(&item, &operation)?;
        Ok(StoredItem { value: stored(task, operation)?, expires_at: expires_at(&item), bytes })
    }

    /// The item that stores a document.
    fn document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
        operation: impl Fn() -> String,
    ) -> Result<StoredItem<Document>, PortError> {
        let item = self.items.document(owner, retention, document);
        let bytes = checked_size(&item, &operation)?;
        let value = stored_document(document, operation)?;
        Ok(StoredItem { value, expires_at: expires_at(&item), bytes })
    }
}

impl StateStore for MemoryStore {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        let tables = lock(&self.tables);
        Ok(tables.tasks.get(id).and_then(|stored| stored.present(self.now())).cloned())
    }

    async fn create(
        &self,
        task: &Task,
        separate: Option<&Document>,
    ) -> Result<CreateOutcome, PortError> {
        let operation = || format!("create task {}", task.task_id);
        let (owner, retention) = (task.document_owner(), task.document_retention());
        let new = self.task(task, operation)?;
        let separate = match separate {
            Some(document) => {
                let stored = self.document(&owner, retention, document, operation)?;
                if new.bytes + stored.bytes > TRANSACTION_BYTES_MAX {
                    return Err(refused(operation, "the transaction is larger than 4 MB"));
                }
                Some(((owner, document.key.clone()), stored))
            }
            None => None,
        };
        let mut tables = lock(&self.tables);
        if let Some(existing) = tables.tasks.get(&task.task_id)
            && !existing.value.may_be_replaced_by(existing.expires_at, &new.value)
        {
            return Ok(CreateOutcome::Exists(Some(Box::new(existing.value.clone()))));
        }
        if let Some((key, document)) = separate {
            if tables.documents.contains_key(&key) {
                return Ok(CreateOutcome::Exists(None));
            }
            tables.documents.insert(key, document);
        }
        tables.put(new, self.items.shards);
        Ok(CreateOutcome::Created)
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        let task = self.task(task, || format!("save task {}", task.task_id))?;
        let mut tables = lock(&self.tables);
        match tables.tasks.get(&task.value.task_id) {
            // A later task with the same id may have reached the same revision.
            Some(current)
                if current.value.revision == task.value.revision.saturating_sub(1)
                    && current.value.submitted_at == task.value.submitted_at =>
            {
                tables.put(task, self.items.shards);
                Ok(SaveOutcome::Saved)
            }
            current => {
                Ok(SaveOutcome::Conflict(current.map(|current| Box::new(current.value.clone()))))
            }
        }
    }

    async fn put_document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
    ) -> Result<PutOutcome, PortError> {
        let operation = || format!("write {} of {}", document.key, owner.task_id);
        let key = (owner.clone(), document.key.clone());
        let document = self.document(owner, retention, document, operation)?;
        let mut tables = lock(&self.tables);
        if let Some(existing) = tables.documents.get(&key) {
            return Ok(PutOutcome::Existing(existing.value.body.clone()));
        }
        tables.documents.insert(key, document);
        Ok(PutOutcome::Stored)
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let (tables, now) = (lock(&self.tables), self.now());
        let found =
            keys.iter().filter_map(|key| tables.documents.get(&(owner.clone(), key.clone())));
        Ok(found.filter_map(|stored| stored.present(now)).cloned().collect())
    }

    async fn extend_documents(&self, task: &Task) -> Result<(), PortError> {
        let until = self.items.expires_at(task.document_retention()).as_second();
        let (owner, mut tables) = (task.document_owner(), lock(&self.tables));
        let of_owner = tables.documents.iter_mut().filter(|((of, _), _)| *of == owner);
        for (_, stored) in of_owner {
            stored.expires_at = stored.expires_at.map(|at| at.max(until));
        }
        Ok(())
    }

    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        let tables = lock(&self.tables);
        let Some(index) = tables.due.get(&shard) else {
            return Ok(DuePage::default());
        };
        let start = after.map_or(Bound::Unbounded, |cursor| {
            Bound::Excluded((cursor.due, cursor.task_id.clone()))
        });
        let page: Vec<_> = index
            .range((start, Bound::Unbounded))
            .take_while(|(due, _)| *due <= until)
            .take(self.page_size.get())
            .collect();
        // A full page has a cursor even if it is the last: DynamoDB does not look ahead either.
        let last = if page.len() == self.page_size.get() { page.last() } else { None };
        let next = last.map(|(due, id)| DueCursor { due: *due, task_id: id.clone() });
        let task_ids = page.iter().map(|(_, id)| id.clone()).collect();
        Ok(DuePage { task_ids, next })
    }

    fn shards(&self) -> u32 {
        self.items.shards.get()
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        partition: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        let tables = lock(&self.tables);
        let Some(index) = tables.ended.get(&(state, partition)) else {
            return Ok(EndedTaskPage::default());
        };
        let start =
            after.map_or(Bound::Unbounded, |last| Bound::Excluded((last.at, last.task_id.clone())));
        let found = index.range((start, Bound::Unbounded));
        let page = found.filter(|(at, _)| within.contains(at)).take(self.page_size.get());
        let ended: Vec<_> = page
            .filter_map(|(at, task_id)| {
                let workflow = tables.tasks.get(task_id)?.value.workflow.clone();
                Some(EndedTask { at: *at, task_id: task_id.clone(), workflow })
            })
            .collect();
        let full = ended.len() == self.page_size.get();
        let next = ended.last().filter(|_| full).cloned();
        Ok(EndedTaskPage { ended, next })
    }

    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        Ok(lock(&self.tables).shared.get(key).cloned())
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        let mut tables = lock(&self.tables);
        let current = tables.shared.get(&shared.key);
        if current.map_or(0, |current| current.revision) != shared.revision.saturating_sub(1) {
            return Ok(SharedSaveOutcome::Conflict(current.cloned()));
        }
        tables.shared.insert(shared.key.clone(), to_the_second(shared)?);
        Ok(SharedSaveOutcome::Saved)
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        let tables = lock(&self.tables);
        Ok(tables.shared.values().filter(|shared| shared.key.kind == kind).cloned().collect())
    }
}

/// The record as a read returns it: the store keeps whole seconds of its expiry.
fn to_the_second(shared: &SharedRecord) -> Result<SharedRecord, PortError> {
    let operation = || format!("save {} {}", shared.key.kind.name(), shared.key.name);
    let expires_at = shared.expires_at.map(|at| Timestamp::from_second(at.as_second()));
    let expires_at = expires_at.transpose().map_err(|error| corrupt(operation, error))?;
    Ok(SharedRecord { expires_at, ..shared.clone() })
}

/// The document as a read returns it: the store keeps milliseconds of its times.
fn stored_document(
    document: &Document,
    operation: impl Fn() -> String,
) -> Result<Document, PortError> {
    let stored_at = |at: Timestamp| {
        Timestamp::from_millisecond(at.as_millisecond()).map_err(|error| corrupt(&operation, error))
    };
    let stored_time = |at: Option<Timestamp>| at.map(stored_at).transpose();
    let AttemptTimes { queued_at, called_at, answered_at } = document.times;
    Ok(Document {
        key: document.key.clone(),
        at: stored_at(document.at)?,
        body: stored(&document.body, &operation)?,
        times: AttemptTimes {
            queued_at: stored_time(queued_at)?,
            called_at: stored_time(called_at)?,
            answered_at: stored_time(answered_at)?,
        },
    })
}
