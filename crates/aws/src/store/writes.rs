//! [Coalesces](crate::coalescer) concurrent writes. Conditional puts become statements of one `BatchExecuteStatement`,
//! each with its own condition and result. New tasks share one transaction. The write units stay the same, with fewer
//! requests. If a batch refuses an item, the item is written again in its own request, and only that response counts
//! (`docs/adr/0021`).

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    operation::{put_item::PutItemError, transact_write_items::TransactWriteItemsError},
    types::{
        AttributeValue, BatchStatementRequest, CancellationReason, Put,
        ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    },
};
use jiff::Timestamp;
use steward_runtime::ports::{PortError, error_chain};

use super::{
    backoff::Backoff,
    batch_support::{AfterFailure, BatchSupport},
    reads::{ItemKey, ItemReader},
};
use crate::{
    coalescer::{PendingRequest, RequestCoalescer, leader_cancelled},
    errors::{corrupt, failed, for_each, is_permanent},
    items::{self, ItemAttributes, task_attributes, time},
};

/// Statements in one `BatchExecuteStatement`, by DynamoDB's limit.
const STATEMENTS_MAX: usize = 25;

/// New tasks in one transaction. Each has two items; DynamoDB's limit is 100 items.
const CREATED_MAX: usize = 25;

/// Bytes of items in one request. DynamoDB accepts more, but large items do not benefit from a shared request.
const BYTES_MAX: usize = 256 * 1024;

const TASK_ID: &str = "task_id";
const DOCUMENT: &str = "document";

/// The condition that there is no item with this key, for both tables.
const IS_NEW: &str = "attribute_not_exists(task_id)";

/// The operation in errors of a batch. Each caller replaces it by its own operation.
const OPERATION: &str = "write items";

/// An item to write, with its condition.
#[derive(Debug)]
pub(super) struct ConditionalPut {
    table: String,
    item: ItemAttributes,
    condition: WriteCondition,
    bytes: usize,
}

/// The condition of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteCondition {
    /// There is no item with this key.
    IsNew,
    /// The stored item has this `revision`.
    Revision(u64),
    /// The stored item has this `revision` and this `submitted_at`.
    Same(u64, Timestamp),
}

impl WriteCondition {
    /// The condition expression and its values.
    fn expression(self) -> (&'static str, Option<HashMap<String, AttributeValue>>) {
        let revision = |revision: u64| AttributeValue::N(revision.to_string());
        match self {
            Self::IsNew => (IS_NEW, None),
            Self::Revision(before) => {
                let values = HashMap::from([(":before".to_owned(), revision(before))]);
                ("revision = :before", Some(values))
            }
            Self::Same(before, submitted_at) => {
                let values = HashMap::from([
                    (":before".to_owned(), revision(before)),
                    (":submitted_at".to_owned(), time(submitted_at)),
                ]);
                ("revision = :before AND submitted_at = :submitted_at", Some(values))
            }
        }
    }
}

/// The outcome of a conditional write.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    Done,
    /// The condition was not met. Contains the stored item, if there is one. It came with the refusal, or was read
    /// afterwards.
    ConditionFailed(Option<ItemAttributes>),
}

/// The items of a new task whose submitted document is an item of its own.
#[derive(Debug)]
pub(super) struct TaskCreation {
    pub(super) document: ConditionalPut,
    pub(super) task: ConditionalPut,
}

/// The outcome of one write in a batch.
#[derive(Debug)]
enum BatchedOutcome<Q> {
    Done,
    /// The batch did not write it. The caller writes it in its own request.
    WriteAlone(Q),
    Failed(PortError),
}

type PendingWrite<Q> = PendingRequest<Q, BatchedOutcome<Q>>;
type WriteCoalescer<Q> = Arc<RequestCoalescer<Q, BatchedOutcome<Q>>>;

/// Writes items under conditions.
#[derive(Debug, Clone)]
pub(super) struct ItemWriter {
    client: Client,
    reader: ItemReader,
    support: Arc<BatchSupport>,
    puts: WriteCoalescer<ConditionalPut>,
    creations: WriteCoalescer<TaskCreation>,
}

impl ItemWriter {
    /// A writer that reads through `reader` the items that refusals do not contain.
    pub(super) fn new(client: Client, reader: ItemReader) -> Self {
        let (support, puts, creations) = (Arc::default(), Arc::default(), Arc::default());
        Self { client, reader, support, puts, creations }
    }

    /// Writes an item, in one batch with concurrent writes.
    pub(super) async fn put(
        &self,
        put: ConditionalPut,
        operation: impl Fn() -> String,
    ) -> Result<WriteOutcome, PortError> {
        let has_room = |batch: &[PendingWrite<ConditionalPut>], put: &ConditionalPut| {
            let bytes: usize = batch.iter().map(|(other, _)| other.bytes).sum();
            batch.len() < STATEMENTS_MAX
                && bytes + put.bytes <= BYTES_MAX
                && batch.iter().all(|(other, _)| !other.is_same_item(put))
        };
        let outcome = self.puts.request(put, has_room, |batch| self.send_puts(batch)).await;
        match outcome.unwrap_or_else(|| BatchedOutcome::Failed(leader_cancelled(OPERATION))) {
            BatchedOutcome::Done => Ok(WriteOutcome::Done),
            BatchedOutcome::WriteAlone(put) => self.put_alone(put, operation).await,
            BatchedOutcome::Failed(error) => Err(PortError { operation: operation(), ..error }),
        }
    }

    /// Writes an item in its own request.
    pub(super) async fn put_alone(
        &self,
        put: ConditionalPut,
        operation: impl Fn() -> String,
    ) -> Result<WriteOutcome, PortError> {
        let key = put.key();
        let ConditionalPut { table, item, condition, .. } = put;
        let request = self
            .client
            .put_item()
            .table_name(table)
            .set_item(Some(item))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let (expression, values) = condition.expression();
        let request =
            request.condition_expression(expression).set_expression_attribute_values(values);
        match request.send().await {
            Ok(_) => Ok(WriteOutcome::Done),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    let item = match refused.item.clone() {
                        Some(item) => Some(item),
                        None => self.read_back(key, operation).await?,
                    };
                    Ok(WriteOutcome::ConditionFailed(item))
                }
                Some(_) | None => Err(failed(operation())(error)),
            },
        }
    }

    /// Reads the stored item after a refusal that came without it: either there is no item, or the database does not
    /// return it. DynamoDB returns it for a `PutItem` since June 2023; other databases may not. Only `put_alone` uses the
    /// item of a refusal: refused transactions and statements are read or written again in their own requests.
    async fn read_back(
        &self,
        key: ItemKey,
        operation: impl Fn() -> String,
    ) -> Result<Option<ItemAttributes>, PortError> {
        self.reader.get(key, operation).await
    }

    /// Records a new task and its document, in one transaction with other new tasks. If a condition is not met, returns the
    /// stored item of the task.
    pub(super) async fn create(
        &self,
        new: TaskCreation,
        operation: impl Fn() -> String,
    ) -> Result<WriteOutcome, PortError> {
        let has_room = |batch: &[PendingWrite<TaskCreation>], new: &TaskCreation| {
            let bytes: usize = batch.iter().map(|(other, _)| other.bytes()).sum();
            batch.len() < CREATED_MAX
                && bytes + new.bytes() <= BYTES_MAX
                && batch.iter().all(|(other, _)| !other.task.is_same_item(&new.task))
        };
        let send = |batch| self.send_creations(batch);
        let outcome = self.creations.request(new, has_room, send).await;
        match outcome.unwrap_or_else(|| BatchedOutcome::Failed(leader_cancelled(OPERATION))) {
            BatchedOutcome::Done => Ok(WriteOutcome::Done),
            BatchedOutcome::WriteAlone(new) => self.create_alone(new, operation).await,
            BatchedOutcome::Failed(error) => Err(PortError { operation: operation(), ..error }),
        }
    }

    async fn create_alone(
        &self,
        new: TaskCreation,
        operation: impl Fn() -> String,
    ) -> Result<WriteOutcome, PortError> {
        let items = new.items().map_err(|error| corrupt(operation())(error.into()))?;
        let request = self.client.transact_write_items().set_transact_items(Some(items.into()));
        let mut backoff = Backoff::default();
        loop {
            let Err(error) = request.clone().send().await else { return Ok(WriteOutcome::Done) };
            match error.as_service_error().and_then(canceled) {
                Some(reasons) if reasons.iter().any(is_condition_failed) => {
                    let item = self.read_back(new.task.key(), operation).await?;
                    return Ok(WriteOutcome::ConditionFailed(item));
                }
                Some(reasons) if reasons.iter().all(is_transient) && backoff.pause().await => {}
                Some(_) | None => return Err(failed(operation())(error)),
            }
        }
    }

    async fn send_puts(&self, batch: Vec<PendingWrite<ConditionalPut>>) {
        if batch.len() < 2 || !self.support.is_worth_trying() {
            return write_alone(batch);
        }
        let statements = batch.iter().map(|(put, _)| put.statement()).collect::<Result<_, _>>();
        let Ok(statements) = statements else { return write_alone(batch) };
        let request = self.client.batch_execute_statement().set_statements(Some(statements));
        match request.send().await {
            Ok(output) => {
                let refusals = output.responses().iter().filter_map(|response| response.error());
                self.support.succeeded(refusals, batch.len());
                for ((put, writer), response) in batch.into_iter().zip(output.responses()) {
                    let is_done = response.error().is_none();
                    // Sending to a writer fails if the writer was cancelled.
                    let _ = writer.send(if is_done {
                        BatchedOutcome::Done
                    } else {
                        BatchedOutcome::WriteAlone(put)
                    });
                }
            }
            Err(error) => match self.support.failed(&error, is_permanent(&error), batch.len()) {
                AfterFailure::WriteAlone => write_alone(batch),
                AfterFailure::Fail => fail_batch(failed(OPERATION)(error), batch),
            },
        }
    }

    async fn send_creations(&self, mut batch: Vec<PendingWrite<TaskCreation>>) {
        let mut backoff = Backoff::default();
        while batch.len() > 1 {
            let items = batch.iter().map(|(new, _)| new.items()).collect::<Result<Vec<_>, _>>();
            let Ok(items) = items else { break };
            let items = items.concat();
            let request = self.client.transact_write_items().set_transact_items(Some(items));
            let error = match request.send().await {
                Ok(_) => {
                    return batch
                        .into_iter()
                        .for_each(|(_, writer)| drop(writer.send(BatchedOutcome::Done)));
                }
                Err(error) => error,
            };
            let Some(reasons) = error.as_service_error().and_then(canceled) else {
                return fail_batch(failed(OPERATION)(error), batch);
            };
            // The transaction wrote nothing. A task that caused this itself is written alone, to get its own error.
            let mut is_cause = reasons.chunks(2).map(|reasons| !reasons.iter().all(is_transient));
            let is_alone: Vec<_> = batch.iter().map(|_| is_cause.next() == Some(true)).collect();
            if !is_alone.contains(&true) && !backoff.pause().await {
                return fail_batch(failed(OPERATION)(error), batch);
            }
            let mut is_alone = is_alone.into_iter();
            let (alone, others) = batch.into_iter().partition(|_| is_alone.next() == Some(true));
            write_alone(alone);
            batch = others;
        }
        write_alone(batch);
    }
}

impl ConditionalPut {
    pub(super) fn new(table: &str, item: ItemAttributes, condition: WriteCondition) -> Self {
        Self { table: table.to_owned(), bytes: items::size(&item), item, condition }
    }

    /// Whether both write the same item. DynamoDB refuses a batch with two statements for one item.
    fn is_same_item(&self, other: &Self) -> bool {
        let is_same = |name| self.item.get(name) == other.item.get(name);
        self.table == other.table && is_same(TASK_ID) && is_same(DOCUMENT)
    }

    fn key(&self) -> ItemKey {
        ItemKey::of(&self.table, &self.item)
    }

    /// The write as a PartiQL statement. PartiQL cannot replace an item, so an update sets all attributes of the new
    /// item, and removes all other attributes that a task may have.
    fn statement(&self) -> Result<BatchStatementRequest, BuildError> {
        let table = &self.table;
        let mut attributes: Vec<_> = self.item.iter().collect();
        // A fixed order, so that items with the same attributes have the same statement.
        attributes.sort_unstable_by_key(|(name, _)| *name);
        let (text, parameters) = match self.condition {
            WriteCondition::IsNew => {
                let values: Vec<_> =
                    attributes.iter().map(|(name, _)| format!("'{name}': ?")).collect();
                let text = format!("INSERT INTO \"{table}\" VALUE {{{}}}", values.join(", "));
                (text, attributes.into_iter().map(|(_, value)| value.clone()).collect())
            }
            WriteCondition::Revision(before) | WriteCondition::Same(before, _) => {
                attributes.retain(|(name, _)| *name != TASK_ID);
                let mut text = format!("UPDATE \"{table}\"");
                attributes.iter().for_each(|(name, _)| text.extend([" SET \"", name, "\"=?"]));
                let absent = task_attributes().filter(|name| !self.item.contains_key(*name));
                absent.for_each(|name| text.extend([" REMOVE \"", name, "\""]));
                text.push_str(" WHERE \"task_id\"=? AND \"revision\"=?");
                let values = attributes.into_iter().map(|(_, value)| value);
                let values = values.chain(self.item.get(TASK_ID)).cloned();
                let values = values.chain([AttributeValue::N(before.to_string())]);
                let submitted_at = match self.condition {
                    WriteCondition::Same(_, submitted_at) => {
                        text.push_str(" AND \"submitted_at\"=?");
                        Some(time(submitted_at))
                    }
                    WriteCondition::IsNew | WriteCondition::Revision(_) => None,
                };
                (text, values.chain(submitted_at).collect::<Vec<_>>())
            }
        };
        BatchStatementRequest::builder().statement(text).set_parameters(Some(parameters)).build()
    }
}

impl TaskCreation {
    fn bytes(&self) -> usize {
        self.document.bytes + self.task.bytes
    }

    fn items(&self) -> Result<[TransactWriteItem; 2], BuildError> {
        let item = |write: &ConditionalPut| {
            let (expression, values) = write.condition.expression();
            let put = Put::builder()
                .table_name(&write.table)
                .set_item(Some(write.item.clone()))
                .condition_expression(expression)
                .set_expression_attribute_values(values)
                .build()?;
            Ok::<_, BuildError>(TransactWriteItem::builder().put(put).build())
        };
        Ok([item(&self.document)?, item(&self.task)?])
    }
}

/// Makes each caller write its own item.
fn write_alone<Q>(batch: Vec<PendingWrite<Q>>) {
    batch
        .into_iter()
        .for_each(|(write, writer)| drop(writer.send(BatchedOutcome::WriteAlone(write))));
}

/// Reports that a batch failed as a whole. After a permanent error, each caller writes its own item.
fn fail_batch<Q>(error: PortError, batch: Vec<PendingWrite<Q>>) {
    if !error.retryable {
        tracing::warn!(
            error = error_chain(&error),
            "batch refused; its items are written one by one"
        );
        return write_alone(batch);
    }
    let errors = for_each(error, batch.len());
    batch
        .into_iter()
        .zip(errors)
        .for_each(|((_, writer), error)| drop(writer.send(BatchedOutcome::Failed(error))));
}

/// The reasons for the cancellation of a transaction, one for each item; nothing for other errors.
fn canceled(error: &TransactWriteItemsError) -> Option<&[CancellationReason]> {
    let TransactWriteItemsError::TransactionCanceledException(canceled) = error else {
        return None;
    };
    Some(canceled.cancellation_reasons())
}

/// Whether this item did not cause the cancellation, or the cause is transient: the item was throttled, or another
/// transaction is writing it.
fn is_transient(reason: &CancellationReason) -> bool {
    const TRANSIENT: [&str; 5] = [
        "None",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "TransactionConflict",
        "TransactionInProgress",
    ];
    reason.code().is_none_or(|code| TRANSIENT.contains(&code))
}

/// Whether the condition of this item was not met.
fn is_condition_failed(reason: &CancellationReason) -> bool {
    reason.code() == Some("ConditionalCheckFailed")
}
