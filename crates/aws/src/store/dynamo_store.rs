//! The store with its tables, and reads that only people need.

use std::{num::NonZeroU32, time::Duration};

use aws_sdk_dynamodb::{Client, operation::query::builders::QueryFluentBuilder};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey, DocumentOwner, StoredDocumentKey},
    names::TaskId,
    task::Task,
};
use steward_runtime::ports::{PortError, SharedRecord, SharedRecordKind, StateStore};

use super::{
    item_fields::{read_document, read_key, read_shared, read_times},
    reads::{ItemKey, ItemReader},
    writes::{ConditionalPut, ItemWriter, TaskCreation, WriteCondition},
};
use crate::{
    errors::{corrupt, failed},
    items::{
        ANSWERED_AT, CALLED_AT, ItemAttributes, Items, QUEUED_AT, has_expired, read_task, text,
    },
};

/// The state store on DynamoDB.
#[derive(Debug, Clone)]
pub struct DynamoStore {
    pub(super) client: Client,
    pub(super) reader: ItemReader,
    pub(super) writer: ItemWriter,
    pub(super) tasks: String,
    pub(super) documents: String,
    pub(super) items: Items,
}

impl DynamoStore {
    /// A store on these tables.
    #[must_use]
    pub fn new(
        client: Client,
        tasks: String,
        documents: String,
        shards: NonZeroU32,
        retention: Duration,
    ) -> Self {
        let reader = ItemReader::new(client.clone());
        let writer = ItemWriter::new(client.clone(), reader.clone());
        Self { client, reader, writer, tasks, documents, items: Items { shards, retention } }
    }

    /// All documents of a task, for the timeline of its attempts.
    ///
    /// # Errors
    /// DynamoDB failed, or a document is unreadable.
    pub async fn all_documents(&self, owner: &DocumentOwner) -> Result<Vec<Document>, PortError> {
        let (id, now) = (&owner.task_id, Timestamp::now());
        let query = self.documents_of(id).consistent_read(true);
        let mut pages = query.into_paginator().items().send();
        let mut documents = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed(format!("query documents of {id}")))?;
            let corrupt = || corrupt(format!("read document of {id}"));
            let StoredDocumentKey { incarnation, .. } = read_key(&item).map_err(corrupt())?;
            if incarnation == owner.incarnation && !has_expired(&item, now) {
                documents.push(read_document(&item).map_err(corrupt())?);
            }
        }
        Ok(documents)
    }

    /// The tasks with these ids, in the order given. The result omits tasks that do not exist.
    ///
    /// # Errors
    /// DynamoDB failed, or a task is unreadable.
    pub async fn load_tasks<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a TaskId>,
    ) -> Result<Vec<Task>, PortError> {
        let tasks = try_join_all(ids.into_iter().map(|id| self.load(id))).await?;
        Ok(tasks.into_iter().flatten().collect())
    }

    /// The shared records of a kind whose names are `from` or greater, ordered by name.
    ///
    /// # Errors
    /// DynamoDB failed, or a record is unreadable.
    pub async fn shared_from(
        &self,
        kind: SharedRecordKind,
        from: &str,
    ) -> Result<Vec<SharedRecord>, PortError> {
        let operation = || format!("query {}", kind.name());
        let mut pages = self
            .client
            .query()
            .table_name(&self.documents)
            .key_condition_expression("task_id = :kind AND document >= :from")
            .expression_attribute_values(":kind", text(kind.name()))
            .expression_attribute_values(":from", text(from))
            .into_paginator()
            .items()
            .send();
        let mut records = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed(operation()))?;
            records.push(read_shared(kind, &item).map_err(corrupt(operation()))?);
        }
        Ok(records)
    }

    /// The keys of the documents of the newest task with this id, and the times of its attempts, without the bodies.
    /// The console computes step statistics from them. The read is eventually consistent, so the newest documents may
    /// be absent.
    ///
    /// # Errors
    /// DynamoDB failed, or a document is unreadable.
    pub async fn attempt_times(
        &self,
        id: &TaskId,
    ) -> Result<Vec<(DocumentKey, AttemptTimes)>, PortError> {
        let read = ["document", QUEUED_AT, CALLED_AT, ANSWERED_AT].join(", ");
        let query = self.documents_of(id).projection_expression(read);
        let mut pages = query.into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed(format!("query attempts of {id}")))?;
            all.push(read_times(&item).map_err(corrupt(format!("read attempts of {id}")))?);
        }
        let newest = all.iter().map(|(key, _)| key.incarnation).max().flatten();
        all.retain(|(key, _)| key.incarnation == newest);
        Ok(all.into_iter().map(|(key, times)| (key.key, times)).collect())
    }

    /// A query of the documents of all tasks with this id.
    pub(super) fn documents_of(&self, id: &TaskId) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.documents)
            .key_condition_expression("task_id = :id")
            .expression_attribute_values(":id", text(id.as_str()))
    }

    /// The item of a task, even if it has expired.
    pub(super) async fn task_item(
        &self,
        id: &TaskId,
        operation: impl Fn() -> String,
    ) -> Result<Option<ItemAttributes>, PortError> {
        let key = ItemKey { table: self.tasks.clone(), task_id: id.to_string(), document: None };
        self.reader.get(key, operation).await
    }

    /// The items that record a new task. `condition` applies to the item of the task.
    pub(super) fn creation(
        &self,
        task: &Task,
        submitted: &Document,
        condition: WriteCondition,
    ) -> Result<TaskCreation, PortError> {
        let document =
            self.items.document(&task.document_owner(), task.document_retention(), submitted);
        Ok(TaskCreation {
            document: ConditionalPut::new(&self.documents, document, WriteCondition::IsNew),
            task: ConditionalPut::new(&self.tasks, self.items.task(task)?, condition),
        })
    }

    /// Up to `limit` tasks for which `wanted` returns true, in no particular order. Scans the table until then, so the
    /// cost grows with the table.
    ///
    /// # Errors
    /// DynamoDB failed, or a task is unreadable.
    pub async fn scan_tasks(
        &self,
        limit: usize,
        wanted: impl Fn(&Task) -> bool,
    ) -> Result<Vec<Task>, PortError> {
        let mut pages = self.client.scan().table_name(&self.tasks).into_paginator().items().send();
        let mut tasks = Vec::new();
        let now = Timestamp::now();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed("scan tasks"))?;
            if has_expired(&item, now) {
                continue;
            }
            let task = read_task(item).map_err(corrupt("read task"))?;
            if wanted(&task) {
                tasks.push(task);
            }
            if tasks.len() >= limit {
                break;
            }
        }
        Ok(tasks)
    }
}
