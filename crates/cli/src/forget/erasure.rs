//! Erases the data of one task: labels, documents and payloads. Its record stays until it expires, without documents: it still refuses a second
//! submission with the same id, and late messages meet a task that has ended.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use aws_sdk_dynamodb::{Client, operation::update_item::UpdateItemError, types::AttributeValue};
use steward_aws::{payloads::S3Payloads, store::DynamoStore};
use steward_core::model::{
    document::{DocumentKey, StoredDocumentKey},
    names::TaskId,
    payload::PayloadKey,
    task::Task,
};
use steward_runtime::payloads::PayloadStore;

/// The attributes of a task with its small documents and with its labels.
const INLINE_DOCUMENTS: &str = "d";
const LABELS: &str = "l";

/// The number of objects in one request, which is S3's limit.
const OBJECTS_AT_ONCE: usize = 1_000;

/// What becomes of the record of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskRecord {
    /// It stays without documents until it expires.
    Kept,
    /// It is deleted. The same id can then be submitted again, also by a late duplicate of the first submission.
    Deleted,
}

/// What was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Erased {
    /// Items of the table of documents, with those of labels.
    pub(super) documents: usize,
    /// Objects of the bucket of payloads.
    pub(super) payloads: usize,
}

/// The tables and the bucket of a deployment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErasureStores<'a> {
    /// The table of tasks.
    pub(super) tasks: &'a str,
    /// The table of documents.
    pub(super) documents: &'a str,
    /// The bucket of payloads.
    pub(super) payloads: &'a S3Payloads,
    /// The store on the tables.
    pub(super) store: &'a DynamoStore,
}

/// The payloads of a task and of its child tasks, those of earlier tasks with its id too.
///
/// # Errors
/// The bucket cannot be listed.
pub(super) async fn payloads_of(payloads: &S3Payloads, task: &Task) -> Result<Vec<PayloadKey>> {
    let keys = payloads.keys_under(task.payload_place().prefix_of_id()).await;
    keys.context("nothing was erased; --payloads-bucket names the bucket of the deployment")
}

/// Erases the labels of a task, all its documents but the claims of its calls, as it was read, those of earlier tasks with its id too,
/// and these payloads.
///
/// The entries of the labels go first, because the task's own item names them. Then the documents and labels in the item go, on the condition that the task has not changed. A repeated call deletes
/// what an interrupted one left.
///
/// # Errors
/// A table or the bucket cannot be written: repeat the call. Or the task has changed since it was read: only its labels were erased then.
pub(super) async fn erase(
    client: &Client,
    stores: ErasureStores<'_>,
    task: &Task,
    payloads: &[PayloadKey],
    record: TaskRecord,
) -> Result<Erased> {
    let labels = stores.store.delete_labels(task).await?;
    match record {
        TaskRecord::Kept => erase_inline(client, stores.tasks, task).await?,
        TaskRecord::Deleted => {}
    }
    let documents = delete_documents(client, stores.documents, &task.task_id).await?;
    for keys in payloads.chunks(OBJECTS_AT_ONCE) {
        stores.payloads.delete(keys).await?;
    }
    // The record goes last: as long as it exists, the call can be repeated.
    if record == TaskRecord::Deleted {
        let operation = format!("delete task {}", task.task_id);
        let delete = client.delete_item().table_name(stores.tasks);
        let delete = delete.key("task_id", AttributeValue::S(task.task_id.to_string()));
        let delete = delete.condition_expression("revision = :revision");
        let delete = delete.expression_attribute_values(":revision", revision(task.revision));
        delete.send().await.context(operation)?;
    }
    Ok(Erased { documents: labels + documents, payloads: payloads.len() })
}

/// Removes the documents and labels in the item of the task. The revision grows, so that no decision on the old state is saved.
async fn erase_inline(client: &Client, table: &str, task: &Task) -> Result<()> {
    let operation = format!("erase the documents in task {}", task.task_id);
    let update = client
        .update_item()
        .table_name(table)
        .key("task_id", AttributeValue::S(task.task_id.to_string()))
        .update_expression("SET revision = :next REMOVE #documents, #labels")
        .condition_expression("revision = :revision")
        .expression_attribute_names("#documents", INLINE_DOCUMENTS)
        .expression_attribute_names("#labels", LABELS)
        .expression_attribute_values(":revision", revision(task.revision))
        .expression_attribute_values(":next", revision(task.revision + 1));
    match update.send().await {
        Ok(_) => Ok(()),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(_)) => {
                bail!("{operation}: the task has changed meanwhile; run the command again")
            }
            Some(_) | None => Err(error).context(operation),
        },
    }
}

async fn delete_documents(client: &Client, table: &str, task: &TaskId) -> Result<usize> {
    let operation = || format!("delete the documents of task {task}");
    let (mut deleted, mut start) = (0, None::<HashMap<String, AttributeValue>>);
    loop {
        let query = client
            .query()
            .table_name(table)
            .consistent_read(true)
            .key_condition_expression("task_id = :task")
            .expression_attribute_values(":task", AttributeValue::S(task.to_string()))
            .projection_expression("task_id, document")
            .set_exclusive_start_key(start);
        let page = query.send().await.with_context(operation)?;
        for key in page.items.unwrap_or_default().into_iter().filter(|key| !is_claim(key)) {
            let delete = client.delete_item().table_name(table).set_key(Some(key));
            delete.send().await.with_context(operation)?;
            deleted += 1;
        }
        start = page.last_evaluated_key;
        if start.is_none() {
            return Ok(deleted);
        }
    }
}

/// Whether a document fences the calls of an attempt. It has no data of the task, and a late delivery of a request may read it.
fn is_claim(key: &HashMap<String, AttributeValue>) -> bool {
    let key = key.get("document").and_then(|document| document.as_s().ok()?.parse().ok());
    matches!(key, Some(StoredDocumentKey { key: DocumentKey::Claim(_), .. }))
}

fn revision(revision: u64) -> AttributeValue {
    AttributeValue::N(revision.to_string())
}
