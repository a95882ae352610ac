//! The state store in memory: what the tables and the due index of the DynamoDB adapter promise.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    ops::{Bound, Range},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use steward_core::{
    messages::AttemptTimes,
    names::TaskId,
    ports::{
        Created, Document, DocumentKey, DueCursor, DuePage, Ended, EndedPage, Kept, PortError, Put,
        Saved, Shared, SharedKey, SharedKind, SharedSaved, StateStore, ended_parts, shard_of,
    },
    task::{ProcessState, Task},
};

use super::{corrupt, lock, stored};

/// Tasks in a page of the due index, as on AWS.
const DUE_PAGE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);

/// The state store in memory.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    shards: NonZeroU32,
    due_page: NonZeroUsize,
}

impl MemoryStore {
    /// Empty tables.
    pub(super) fn new(shards: NonZeroU32) -> Self {
        Self { tables: Arc::default(), shards, due_page: DUE_PAGE }
    }

    /// The same tables, read with this many tasks in a page.
    pub(super) fn with_due_page(&self, tasks: NonZeroUsize) -> Self {
        Self { due_page: tasks, ..self.clone() }
    }
}

#[derive(Debug, Default)]
struct Tables {
    tasks: BTreeMap<TaskId, Task>,
    documents: BTreeMap<(TaskId, DocumentKey), Document>,
    shared: BTreeMap<SharedKey, Shared>,
    /// By shard: the tasks that are due, earliest first.
    due: BTreeMap<u32, BTreeSet<(Timestamp, TaskId)>>,
    /// By how they ended and by part: the tasks that have ended, earliest first.
    ended: BTreeMap<(ProcessState, u32), BTreeSet<(Timestamp, TaskId)>>,
}

impl Tables {
    /// Puts a task in the place of the one before it, in the indices too.
    fn put(&mut self, task: Task, shards: NonZeroU32) {
        let id = task.task_id.clone();
        let (shard, part) = (shard_of(&id, shards), shard_of(&id, ended_parts(shards)));
        let (due, ended) = (task.due, ended(&task));
        let before = self.tasks.insert(id.clone(), task);
        let ended_before = before.as_ref().and_then(self::ended);
        if let Some(at) = before.and_then(|before| before.due) {
            self.due.entry(shard).or_default().remove(&(at, id.clone()));
        }
        if let Some((state, at)) = ended_before {
            self.ended.entry((state, part)).or_default().remove(&(at, id.clone()));
        }
        if let Some((state, at)) = ended {
            self.ended.entry((state, part)).or_default().insert((at, id.clone()));
        }
        if let Some(at) = due {
            self.due.entry(shard).or_default().insert((at, id));
        }
    }
}

/// How a task ended, and when.
fn ended(task: &Task) -> Option<(ProcessState, Timestamp)> {
    let state = Some(task.process_state).filter(|state| state.is_final())?;
    Some((state, task.ended_at?))
}

impl StateStore for MemoryStore {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        Ok(lock(&self.tables).tasks.get(id).cloned())
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<Created, PortError> {
        let operation = || format!("create task {}", task.task_id);
        let (task, document) = (stored(task, operation)?, stored_document(submitted, operation)?);
        let key = (task.task_id.clone(), document.key.clone());
        let mut tables = lock(&self.tables);
        if tables.tasks.contains_key(&task.task_id) || tables.documents.contains_key(&key) {
            return Ok(Created::Exists);
        }
        tables.documents.insert(key, document);
        tables.put(task, self.shards);
        Ok(Created::Created)
    }

    async fn save(&self, task: &Task) -> Result<Saved, PortError> {
        let task = stored(task, || format!("save task {}", task.task_id))?;
        let mut tables = lock(&self.tables);
        match tables.tasks.get(&task.task_id) {
            Some(now) if now.revision == task.revision.saturating_sub(1) => {
                tables.put(task, self.shards);
                Ok(Saved::Saved)
            }
            now => Ok(Saved::Conflict(now.cloned().map(Box::new))),
        }
    }

    async fn put_document(
        &self,
        id: &TaskId,
        _: Kept,
        document: &Document,
    ) -> Result<Put, PortError> {
        let operation = || format!("write {} of {id}", document.key);
        let document = stored_document(document, operation)?;
        let key = (id.clone(), document.key.clone());
        let mut tables = lock(&self.tables);
        if let Some(existing) = tables.documents.get(&key) {
            return Ok(Put::Existing(existing.body.clone()));
        }
        tables.documents.insert(key, document);
        Ok(Put::Stored)
    }

    async fn documents(
        &self,
        id: &TaskId,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let tables = lock(&self.tables);
        let found = keys.iter().filter_map(|key| tables.documents.get(&(id.clone(), key.clone())));
        Ok(found.cloned().collect())
    }

    async fn due(
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
            .take(self.due_page.get())
            .collect();
        // A full page has a cursor even if nothing follows: DynamoDB does not look ahead either.
        let last = if page.len() == self.due_page.get() { page.last() } else { None };
        let next = last.map(|(due, id)| DueCursor { due: *due, task_id: id.clone() });
        let task_ids = page.iter().map(|(_, id)| id.clone()).collect();
        Ok(DuePage { task_ids, next })
    }

    fn shards(&self) -> u32 {
        self.shards.get()
    }

    async fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> Result<EndedPage, PortError> {
        let tables = lock(&self.tables);
        let Some(index) = tables.ended.get(&(state, part)) else {
            return Ok(EndedPage::default());
        };
        let start =
            after.map_or(Bound::Unbounded, |last| Bound::Excluded((last.at, last.task_id.clone())));
        let found = index.range((start, Bound::Unbounded));
        let page = found.filter(|(at, _)| within.contains(at)).take(self.due_page.get());
        let ended: Vec<_> = page
            .filter_map(|(at, task_id)| {
                let workflow = tables.tasks.get(task_id)?.workflow.clone();
                Some(Ended { at: *at, task_id: task_id.clone(), workflow })
            })
            .collect();
        let full = ended.len() == self.due_page.get();
        let next = ended.last().filter(|_| full).cloned();
        Ok(EndedPage { ended, next })
    }

    async fn shared(&self, key: &SharedKey) -> Result<Option<Shared>, PortError> {
        Ok(lock(&self.tables).shared.get(key).cloned())
    }

    async fn save_shared(&self, shared: &Shared) -> Result<SharedSaved, PortError> {
        let mut tables = lock(&self.tables);
        let now = tables.shared.get(&shared.key);
        if now.map_or(0, |now| now.revision) != shared.revision.saturating_sub(1) {
            return Ok(SharedSaved::Conflict(now.cloned()));
        }
        tables.shared.insert(shared.key.clone(), to_the_second(shared)?);
        Ok(SharedSaved::Saved)
    }

    async fn all_shared(&self, kind: SharedKind) -> Result<Vec<Shared>, PortError> {
        let tables = lock(&self.tables);
        Ok(tables.shared.values().filter(|shared| shared.key.kind == kind).cloned().collect())
    }
}

/// `shared` as it reads once it was stored.
fn to_the_second(shared: &Shared) -> Result<Shared, PortError> {
    let operation = || format!("save {} {}", shared.key.kind.name(), shared.key.name);
    let expires_at = shared.expires_at.map(|at| Timestamp::from_second(at.as_second()));
    let expires_at = expires_at.transpose().map_err(|error| corrupt(operation, error))?;
    Ok(Shared { expires_at, ..shared.clone() })
}

/// `document` as it reads once it was stored.
fn stored_document(
    document: &Document,
    operation: impl Fn() -> String,
) -> Result<Document, PortError> {
    let stored_at = |at: Timestamp| {
        Timestamp::from_millisecond(at.as_millisecond()).map_err(|error| corrupt(&operation, error))
    };
    let said = |at: Option<Timestamp>| at.map(stored_at).transpose();
    let AttemptTimes { queued_at, called_at, answered_at } = document.times;
    Ok(Document {
        key: document.key.clone(),
        at: stored_at(document.at)?,
        body: stored(&document.body, &operation)?,
        times: AttemptTimes {
            queued_at: said(queued_at)?,
            called_at: said(called_at)?,
            answered_at: said(answered_at)?,
        },
    })
}
