//! The store with its tables, and reads that only people need.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use aws_sdk_dynamodb::{Client, operation::query::builders::QueryFluentBuilder};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey, StoredDocumentKey},
    names::TaskId,
    task::Task,
};
use steward_runtime::ports::{PortError, SharedRecord, SharedRecordKind, StateStore};

use super::{
    item_fields::{read_document, read_key, read_shared, read_times},
    reads::{ItemKey, ItemReader},
    writes::{ConditionalPut, ItemWriter, TaskCreation, WriteCondition, WriteOutcome},
};
use crate::{
    errors::{corrupt, failed},
    items::{
        ANSWERED_AT, CALLED_AT, ItemAttributes, Items, QUEUED_AT, has_expired, read_task, text,
    },
};

/// The number of queries for the documents of one task that run at once.
const QUERIES_AT_ONCE: usize = 8;

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

    /// The documents in the task's item, and those whose keys are in `ranges`, for the timeline of the task's attempts. Each
    /// range is of texts of [`DocumentKey`].
    ///
    /// # Errors
    /// DynamoDB failed, or a document is unreadable.
    pub async fn documents_in(
        &self,
        task: &Task,
        ranges: &[RangeInclusive<String>],
    ) -> Result<Vec<Document>, PortError> {
        let (id, now) = (&task.task_id, Timestamp::now());
        let query = |range| self.documents_between(task, range).consistent_read(true);
        let queries = ranges.iter().map(query).collect();
        let mut documents: Vec<_> = task.documents.iter().collect();
        for item in self.items_of(queries, format!("query documents of {id}")).await? {
            let corrupt = || corrupt(format!("read document of {id}"));
            let StoredDocumentKey { incarnation, key } = read_key(&item).map_err(corrupt())?;
            let is_current = incarnation == task.incarnation && !has_expired(&item, now);
            // A save that failed may have left a document that a later save stored in the task's item.
            if is_current && !task.documents.contains(&key) {
                documents.push(read_document(&item).map_err(corrupt())?);
            }
        }
        Ok(documents)
    }

    /// A query of the documents of a task whose keys are in `range`.
    fn documents_between(&self, task: &Task, range: &RangeInclusive<String>) -> QueryFluentBuilder {
        let incarnation = task.incarnation;
        self.documents_of(&task.task_id)
            .key_condition_expression("task_id = :id AND document BETWEEN :from AND :to")
            .expression_attribute_values(":from", text(&format!("{incarnation}/{}", range.start())))
            .expression_attribute_values(":to", text(&format!("{incarnation}/{}", range.end())))
    }

    /// The items that queries find, in the order of the queries.
    async fn items_of(
        &self,
        queries: Vec<QueryFluentBuilder>,
        operation: String,
    ) -> Result<Vec<ItemAttributes>, PortError> {
        let mut items = Vec::new();
        for queries in queries.chunks(QUERIES_AT_ONCE) {
            let results = queries.iter().map(|query| {
                query.clone().into_paginator().items().send().collect::<Result<Vec<_>, _>>()
            });
            let found = try_join_all(results).await.map_err(failed(operation.clone()))?;
            items.extend(found.into_iter().flatten());
        }
        Ok(items)
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

    /// The keys of the documents as for [`documents_in`](Self::documents_in), and the times of their attempts. The console
    /// computes step statistics from them.
    /// The read is eventually consistent, so the newest documents may be absent.
    ///
    /// # Errors
    /// DynamoDB failed, or a document is unreadable.
    pub async fn attempt_times(
        &self,
        task: &Task,
        ranges: &[RangeInclusive<String>],
    ) -> Result<Vec<(DocumentKey, AttemptTimes)>, PortError> {
        let id = &task.task_id;
        let read = ["document", QUEUED_AT, CALLED_AT, ANSWERED_AT].join(", ");
        let query = |range| self.documents_between(task, range).projection_expression(&read);
        let queries = ranges.iter().map(query).collect();
        let inline = task.documents.iter().map(|document| (document.key, document.times));
        let mut all: Vec<_> = inline.collect();
        for item in self.items_of(queries, format!("query attempts of {id}")).await? {
            let (key, times) =
                read_times(&item).map_err(corrupt(format!("read attempts of {id}")))?;
            if key.incarnation == task.incarnation && !task.documents.contains(&key.key) {
                all.push((key.key, times));
            }
        }
        Ok(all)
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

    /// Records a new task, with the submitted document if it is separate. Returns whether the task was recorded; if not,
    /// `condition` was not met. It applies to the item of the task.
    pub(super) async fn write_new(
        &self,
        task: &Task,
        separate: Option<&Document>,
        condition: WriteCondition,
    ) -> Result<WriteOutcome, PortError> {
        let operation = || format!("create task {}", task.task_id);
        let put = ConditionalPut::new(&self.tasks, self.items.task(task)?, condition);
        let Some(document) = separate else {
            return match condition {
                WriteCondition::IsNew => self.writer.put(put, operation).await,
                // Rare: an expired task is replaced. The submission function may not send updates.
                WriteCondition::Same(..) | WriteCondition::Revision(_) => {
                    self.writer.put_alone(put, operation).await
                }
            };
        };
        let item = self.items.document(&task.document_owner(), task.document_retention(), document);
        let document = ConditionalPut::new(&self.documents, item, WriteCondition::IsNew);
        self.writer.create(TaskCreation { document, task: put }, operation).await
    }

    /// Passes each task to `visit`, in no particular order. Scans the table, so the cost grows with the table.
    ///
    /// # Errors
    /// DynamoDB failed, or a task is unreadable.
    pub async fn visit_tasks(&self, mut visit: impl FnMut(Task)) -> Result<(), PortError> {
        let mut pages = self.client.scan().table_name(&self.tasks).into_paginator().items().send();
        let now = Timestamp::now();
        while let Some(item) = pages.next().await {
            let item = item.map_err(failed("scan tasks"))?;
            if has_expired(&item, now) {
                continue;
            }
            visit(read_task(item).map_err(corrupt("read task"))?);
        }
        Ok(())
    }
}
