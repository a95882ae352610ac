//! The port of the state store: tasks, documents, indices and shared records.

use std::ops::Range;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use jiff::Timestamp;
use steward_core::model::{
    document::{Document, DocumentKey, DocumentOwner},
    names::TaskId,
    retention::DocumentRetention,
    task::{ProcessState, Task},
};
use steward_runtime::ports::{
    CreateOutcome, DueCursor, DuePage, EndedTask, EndedTaskPage, ItemTooLarge, PortError,
    PutOutcome, SaveOutcome, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore, error_chain,
};

use super::{
    dynamo_store::DynamoStore,
    indices::{DUE, ENDED, IndexEntry, PartitionQuery, read_ended, read_entry},
    item_fields::{read_document, read_shared, shared_id},
    reads::{ItemKey, KEYS_MAX},
    writes::{ConditionalPut, WriteCondition, WriteOutcome},
};
use crate::{
    errors::{corrupt, failed},
    items::{self, ItemAttributes, expires_at, has_expired, number, read_task, stored_key, text},
};

/// Tasks in a page of the due index. The supervisor reads and writes each of them, so a page takes a few hundred
/// milliseconds.
const DUE_PAGE: i32 = 100;

/// Tasks in a page of the index `ended`. They are only counted. A page is smaller than the 1 MB of a response.
const ENDED_PAGE: i32 = 4_000;

/// Batches of documents of one decision that are read concurrently. The outputs of a wide step take a hundred batches,
/// which all come from one partition.
const READ_BATCHES_AT_ONCE: usize = 8;

/// Recognises the refusal of an item over 400 KB by its message, because DynamoDB uses the same error code for other
/// errors. The message of an update is "item size to update has exceeded the maximum allowed size".
fn too_large(error: PortError) -> PortError {
    let message = error_chain(&*error.source);
    let lower_case = message.to_lowercase();
    let is_size = lower_case.contains("item size") && lower_case.contains("maximum allowed size");
    if error.retryable || !is_size {
        return error;
    }
    PortError { source: ItemTooLarge(message).into(), ..error }
}

/// The task of an item, and whether `new` may replace it.
fn read_existing(item: ItemAttributes, new: &Task) -> Result<(Box<Task>, bool), PortError> {
    let expires_at = expires_at(&item);
    let existing = read_task(item).map_err(corrupt(format!("read task {}", new.task_id)))?;
    let may_be_replaced = existing.may_be_replaced_by(expires_at, new);
    Ok((Box::new(existing), may_be_replaced))
}

impl StateStore for DynamoStore {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        let item = self.task_item(id, || format!("load task {id}")).await?;
        let item = item.filter(|item| !has_expired(item, Timestamp::now()));
        item.map(read_task).transpose().map_err(corrupt(format!("read task {id}")))
    }

    async fn create(
        &self,
        task: &Task,
        separate: Option<&Document>,
    ) -> Result<CreateOutcome, PortError> {
        let id = &task.task_id;
        if !task.labels.is_empty() {
            // A repeated submission writes no entries of labels.
            let item = self.task_item(id, || format!("create task {id}")).await?;
            let existing = item.map(|item| read_existing(item, task)).transpose()?;
            if let Some((existing, false)) = existing {
                return Ok(CreateOutcome::Exists(Some(existing)));
            }
            self.write_labels(task).await?;
        }
        let item = match self.write_new(task, separate, WriteCondition::IsNew).await? {
            WriteOutcome::Done => return Ok(CreateOutcome::Created),
            WriteOutcome::ConditionFailed(None) => return Ok(CreateOutcome::Exists(None)),
            WriteOutcome::ConditionFailed(Some(item)) => item,
        };
        let (existing, may_be_replaced) = read_existing(item, task)?;
        if !may_be_replaced {
            return Ok(CreateOutcome::Exists(Some(existing)));
        }
        // Replaces the expired task, on the condition that it has not changed since the read.
        let unchanged = WriteCondition::Same(existing.revision, existing.submitted_at);
        match self.write_new(task, separate, unchanged).await? {
            WriteOutcome::Done => Ok(CreateOutcome::Created),
            // Another instance was faster, or the response to an earlier attempt of this request was lost.
            WriteOutcome::ConditionFailed(item) => {
                let now = item.map(read_task).transpose();
                let now = now.map_err(corrupt(format!("read task {id}")))?;
                Ok(CreateOutcome::Exists(now.map(Box::new)))
            }
        }
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        let operation = || format!("save task {}", task.task_id);
        // A later task with the same id may have the same revision, so the condition includes the submission time.
        let condition = WriteCondition::Same(task.revision.saturating_sub(1), task.submitted_at);
        let put = ConditionalPut::new(&self.tasks, self.items.task(task)?, condition);
        match self.writer.put(put, operation).await.map_err(too_large)? {
            WriteOutcome::Done => Ok(SaveOutcome::Saved),
            WriteOutcome::ConditionFailed(item) => {
                let now = item.map(read_task).transpose().map_err(corrupt(operation()))?;
                Ok(SaveOutcome::Conflict(now.map(Box::new)))
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
        let item = self.items.document(owner, retention, document);
        let put = ConditionalPut::new(&self.documents, item, WriteCondition::IsNew);
        match self.writer.put(put, operation).await? {
            WriteOutcome::Done => Ok(PutOutcome::Stored),
            WriteOutcome::ConditionFailed(Some(item)) => {
                let existing = read_document(&item).map_err(corrupt(operation()))?;
                Ok(PutOutcome::Existing(existing.body))
            }
            // The existing document expired and was deleted between the refusal and the read, so a retry succeeds.
            WriteOutcome::ConditionFailed(None) => {
                let source = "the existing document was deleted after the refusal".into();
                Err(PortError { operation: operation(), retryable: true, source })
            }
        }
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let id = &owner.task_id;
        let operation = || format!("read documents of {id}");
        let read = |key| {
            let (table, document) = (self.documents.clone(), stored_key(owner, key).to_string());
            let key = ItemKey { table, task_id: id.to_string(), document: Some(document) };
            self.reader.get(key, operation)
        };
        let batches = keys.chunks(KEYS_MAX).map(|keys| try_join_all(keys.iter().map(read)));
        let batches: Vec<_> = batches.collect();
        let items: Vec<_> =
            stream::iter(batches).buffered(READ_BATCHES_AT_ONCE).try_collect().await?;
        let now = Timestamp::now();
        let found = items.iter().flatten().flatten().filter(|item| !has_expired(item, now));
        found.map(|item| read_document(item).map_err(corrupt(operation()))).collect()
    }

    async fn extend_documents(&self, task: &Task) -> Result<(), PortError> {
        Box::pin(self.extend(task)).await
    }

    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        let query = PartitionQuery {
            index: DUE,
            partition: number(i64::from(shard)),
            from: Timestamp::MIN.as_millisecond(),
            to: until.as_millisecond(),
            exclusive_start: after.map(|cursor| (cursor.due, cursor.task_id.clone())),
            newest_first: false,
        };
        let (items, last) = self.page(query, DUE_PAGE).await?;
        let read =
            |item: &ItemAttributes| read_entry(item, DUE).map_err(corrupt("read the due index"));
        let next = last.as_ref().map(read).transpose()?;
        let next = next.map(|IndexEntry { at, task_id, .. }| DueCursor { due: at, task_id });
        let task_ids =
            items.iter().map(|item| Ok(read(item)?.task_id)).collect::<Result<_, _>>()?;
        Ok(DuePage { task_ids, next })
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        partition: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        let query = PartitionQuery {
            index: ENDED,
            partition: items::ended(state.into(), partition),
            from: within.start.as_millisecond(),
            to: within.end.as_millisecond() - 1,
            exclusive_start: after.map(|last| (last.at, last.task_id.clone())),
            newest_first: false,
        };
        let (items, last) = self.page(query, ENDED_PAGE).await?;
        let read =
            |item: &ItemAttributes| read_ended(item).map_err(corrupt("read the index `ended`"));
        let ended: Vec<_> = items.iter().map(read).collect::<Result<_, _>>()?;
        let next = ended.last().filter(|_| last.is_some()).cloned();
        Ok(EndedTaskPage { ended, next })
    }

    fn shards(&self) -> u32 {
        self.items.shards.get()
    }

    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        let operation = || format!("read {} {}", key.kind.name(), key.name);
        let request = self
            .client
            .get_item()
            .table_name(&self.documents)
            .set_key(Some(shared_id(key)))
            .consistent_read(true);
        let output = request.send().await.map_err(failed(operation()))?;
        let read = |item| read_shared(key.kind, &item).map_err(corrupt(operation()));
        output.item.map(read).transpose()
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        let key = &shared.key;
        let operation = || format!("save {} {}", key.kind.name(), key.name);
        let mut item = shared_id(key);
        item.insert("revision".to_owned(), AttributeValue::N(shared.revision.to_string()));
        item.insert("body".to_owned(), text(&shared.body.to_string()));
        if let Some(at) = shared.expires_at {
            item.insert("expires_at".to_owned(), number(at.as_second()));
        }
        let condition = match shared.revision.saturating_sub(1) {
            0 => WriteCondition::IsNew,
            before => WriteCondition::Revision(before),
        };
        let put = ConditionalPut::new(&self.documents, item, condition);
        match self.writer.put_alone(put, operation).await? {
            WriteOutcome::Done => Ok(SharedSaveOutcome::Saved),
            WriteOutcome::ConditionFailed(item) => {
                let now = item.map(|item| read_shared(key.kind, &item)).transpose();
                Ok(SharedSaveOutcome::Conflict(now.map_err(corrupt(operation()))?))
            }
        }
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.documents)
            .key_condition_expression("task_id = :kind")
            .expression_attribute_values(":kind", text(kind.name()))
            .consistent_read(true)
            .into_paginator()
            .items()
            .send();
        let mut all = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed(format!("query {}", kind.name())))?;
            all.push(read_shared(kind, &item).map_err(corrupt(format!("read {}", kind.name())))?);
        }
        Ok(all)
    }
}
