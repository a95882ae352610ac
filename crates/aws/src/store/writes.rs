//! Writes that are asked for at the same moment go out [together](super::together): conditional puts as
//! statements of one `BatchExecuteStatement`, each with its own condition and its own answer; new tasks
//! in one transaction. What is written and what it costs is the same, in fewer requests. Whatever such a
//! request refuses is asked for again alone, and that answer counts: together is only quicker
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
use steward_runtime::ports::{PortError, chain};

use super::{
    backoff::Backoff,
    batch_support::{AfterFailure, BatchSupport},
    reads::{Key, Reads},
    together::{Asked, Together, cut_off},
};
use crate::{
    errors::{corrupt, failed, for_each, is_permanent},
    items::{self, Item, task_attributes, time},
};

/// Statements in one `BatchExecuteStatement`, by DynamoDB's limit.
const STATEMENTS_MAX: usize = 25;

/// New tasks in one transaction; DynamoDB's limit is 100 items, of which a task takes two.
const CREATED_MAX: usize = 25;

/// Bytes of items in one request. DynamoDB takes more; what is large gains nothing by company.
const BYTES_MAX: usize = 256 * 1024;

const TASK_ID: &str = "task_id";
const DOCUMENT: &str = "document";

/// There is no item of this key, in either table.
const IS_NEW: &str = "attribute_not_exists(task_id)";

/// Until the one who asked says what it was for.
const TOGETHER: &str = "write items";

/// An item to be written.
#[derive(Debug)]
pub(super) struct Write {
    table: String,
    item: Item,
    condition: Condition,
    bytes: usize,
}

/// When it may be written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    /// There is no item of this key.
    IsNew,
    /// The item's `revision` is this one.
    Revision(u64),
    /// The item's `revision` and `submitted_at` are these.
    Same(u64, Timestamp),
}

impl Condition {
    /// As an expression, with its values.
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

/// What came of it.
#[derive(Debug)]
pub(super) enum Written {
    Done,
    /// The condition refused it; the item as it is, if there is one. It came with the refusal or was read after it.
    Refused(Option<Item>),
}

/// A new task and what was submitted.
#[derive(Debug)]
pub(super) struct New {
    pub(super) document: Write,
    pub(super) task: Write,
}

/// What became of what went out together.
#[derive(Debug)]
enum Answer<Q> {
    Done,
    /// It was not written: to be asked for again.
    Alone(Q),
    Failed(PortError),
}

/// Conditional writes.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    client: Client,
    reads: Reads,
    batches: Arc<BatchSupport>,
    puts: Arc<Together<Write, Answer<Write>>>,
    creations: Arc<Together<New, Answer<New>>>,
}

impl Writes {
    /// Writes through `client`; what a refusal does not say is read through `reads`.
    pub(super) fn new(client: Client, reads: Reads) -> Self {
        let (batches, puts, creations) = (Arc::default(), Arc::default(), Arc::default());
        Self { client, reads, batches, puts, creations }
    }

    /// Writes an item together with whatever else is being written.
    pub(super) async fn put(
        &self,
        write: Write,
        operation: impl Fn() -> String,
    ) -> Result<Written, PortError> {
        let has_room = |asked: &[Asked<Write, _>], write: &Write| {
            let bytes: usize = asked.iter().map(|(asked, _)| asked.bytes).sum();
            asked.len() < STATEMENTS_MAX
                && bytes + write.bytes <= BYTES_MAX
                && asked.iter().all(|(asked, _)| !asked.is_same_item(write))
        };
        let answer = self.puts.ask(write, has_room, |asked| self.send_puts(asked)).await;
        match answer.unwrap_or_else(|| Answer::Failed(cut_off(TOGETHER))) {
            Answer::Done => Ok(Written::Done),
            Answer::Alone(write) => self.put_alone(write, operation).await,
            Answer::Failed(error) => Err(PortError { operation: operation(), ..error }),
        }
    }

    /// Writes an item in a request of its own.
    pub(super) async fn put_alone(
        &self,
        write: Write,
        operation: impl Fn() -> String,
    ) -> Result<Written, PortError> {
        let key = write.key();
        let Write { table, item, condition, .. } = write;
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
            Ok(_) => Ok(Written::Done),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    let item = match refused.item.clone() {
                        Some(item) => Some(item),
                        None => self.read_back(key, operation).await?,
                    };
                    Ok(Written::Refused(item))
                }
                Some(_) | None => Err(failed(operation())(error)),
            },
        }
    }

    /// The item that a write was refused for, when the refusal came without it: there is none, or the engine does not
    /// return it. DynamoDB does since June 2023 for a `PutItem`; other engines may not. This is the only place that
    /// uses the item of a refusal: transactions and statements that are refused are read or written alone.
    async fn read_back(
        &self,
        key: Key,
        operation: impl Fn() -> String,
    ) -> Result<Option<Item>, PortError> {
        self.reads.get(key, operation).await
    }

    /// Records a new task together with whatever else is being recorded; whether it did, or a condition
    /// was not met.
    pub(super) async fn create(
        &self,
        new: New,
        operation: impl Fn() -> String,
    ) -> Result<bool, PortError> {
        let has_room = |asked: &[Asked<New, _>], new: &New| {
            let bytes: usize = asked.iter().map(|(asked, _)| asked.bytes()).sum();
            asked.len() < CREATED_MAX
                && bytes + new.bytes() <= BYTES_MAX
                && asked.iter().all(|(asked, _)| !asked.task.is_same_item(&new.task))
        };
        let answer = self.creations.ask(new, has_room, |asked| self.send_creations(asked)).await;
        match answer.unwrap_or_else(|| Answer::Failed(cut_off(TOGETHER))) {
            Answer::Done => Ok(true),
            Answer::Alone(new) => self.create_alone(new, operation).await,
            Answer::Failed(error) => Err(PortError { operation: operation(), ..error }),
        }
    }

    async fn create_alone(
        &self,
        new: New,
        operation: impl Fn() -> String,
    ) -> Result<bool, PortError> {
        let items = new.items().map_err(|error| corrupt(operation())(error.into()))?;
        let request = self.client.transact_write_items().set_transact_items(Some(items.into()));
        let mut backoff = Backoff::default();
        loop {
            let Err(error) = request.clone().send().await else { return Ok(true) };
            match error.as_service_error().and_then(canceled) {
                Some(reasons) if reasons.iter().any(exists) => return Ok(false),
                Some(reasons) if reasons.iter().all(passes) && backoff.pause().await => {}
                Some(_) | None => return Err(failed(operation())(error)),
            }
        }
    }

    async fn send_puts(&self, asked: Vec<Asked<Write, Answer<Write>>>) {
        if asked.len() < 2 || !self.batches.is_worth_trying() {
            return all_alone(asked);
        }
        let statements = asked.iter().map(|(write, _)| write.statement()).collect::<Result<_, _>>();
        let Ok(statements) = statements else { return all_alone(asked) };
        let request = self.client.batch_execute_statement().set_statements(Some(statements));
        match request.send().await {
            Ok(answer) => {
                let refusals = answer.responses().iter().filter_map(|response| response.error());
                self.batches.answered(refusals, asked.len());
                for ((write, writer), answer) in asked.into_iter().zip(answer.responses()) {
                    let is_done = answer.error().is_none();
                    // A writer that was given up does not listen.
                    let _ = writer.send(if is_done { Answer::Done } else { Answer::Alone(write) });
                }
            }
            Err(error) => match self.batches.failed(&error, is_permanent(&error), asked.len()) {
                AfterFailure::WriteAlone => all_alone(asked),
                AfterFailure::Fail => not_together(failed(TOGETHER)(error), asked),
            },
        }
    }

    async fn send_creations(&self, mut asked: Vec<Asked<New, Answer<New>>>) {
        let mut backoff = Backoff::default();
        while asked.len() > 1 {
            let items = asked.iter().map(|(new, _)| new.items()).collect::<Result<Vec<_>, _>>();
            let Ok(items) = items else { break };
            let items = items.concat();
            let request = self.client.transact_write_items().set_transact_items(Some(items));
            let error = match request.send().await {
                Ok(_) => {
                    return asked
                        .into_iter()
                        .for_each(|(_, writer)| drop(writer.send(Answer::Done)));
                }
                Err(error) => error,
            };
            let Some(reasons) = error.as_service_error().and_then(canceled) else {
                return not_together(failed(TOGETHER)(error), asked);
            };
            // Nothing was written, of any. What has a reason of its own says so when it is asked for alone.
            let mut of_each = reasons.chunks(2).map(|reasons| !reasons.iter().all(passes));
            let is_alone: Vec<_> = asked.iter().map(|_| of_each.next() == Some(true)).collect();
            if !is_alone.contains(&true) && !backoff.pause().await {
                return not_together(failed(TOGETHER)(error), asked);
            }
            let mut is_alone = is_alone.into_iter();
            let (alone, others) = asked.into_iter().partition(|_| is_alone.next() == Some(true));
            all_alone(alone);
            asked = others;
        }
        all_alone(asked);
    }
}

impl Write {
    pub(super) fn new(table: &str, item: Item, condition: Condition) -> Self {
        Self { table: table.to_owned(), bytes: items::size(&item), item, condition }
    }

    /// Two statements for one item are refused.
    fn is_same_item(&self, other: &Self) -> bool {
        let is_same = |name| self.item.get(name) == other.item.get(name);
        self.table == other.table && is_same(TASK_ID) && is_same(DOCUMENT)
    }

    fn key(&self) -> Key {
        Key::of(&self.table, &self.item)
    }

    /// The same as a statement of PartiQL, which has no word for "replace": all attributes of an item that
    /// is there are set, and those that a task may have and this one has not are removed.
    fn statement(&self) -> Result<BatchStatementRequest, BuildError> {
        let table = &self.table;
        let mut attributes: Vec<_> = self.item.iter().collect();
        // In one order, so that items alike have the same statement.
        attributes.sort_unstable_by_key(|(name, _)| *name);
        let (text, parameters) = match self.condition {
            Condition::IsNew => {
                let values: Vec<_> =
                    attributes.iter().map(|(name, _)| format!("'{name}': ?")).collect();
                let text = format!("INSERT INTO \"{table}\" VALUE {{{}}}", values.join(", "));
                (text, attributes.into_iter().map(|(_, value)| value.clone()).collect())
            }
            Condition::Revision(before) | Condition::Same(before, _) => {
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
                    Condition::Same(_, submitted_at) => {
                        text.push_str(" AND \"submitted_at\"=?");
                        Some(time(submitted_at))
                    }
                    Condition::IsNew | Condition::Revision(_) => None,
                };
                (text, values.chain(submitted_at).collect::<Vec<_>>())
            }
        };
        BatchStatementRequest::builder().statement(text).set_parameters(Some(parameters)).build()
    }
}

impl New {
    fn bytes(&self) -> usize {
        self.document.bytes + self.task.bytes
    }

    fn items(&self) -> Result<[TransactWriteItem; 2], BuildError> {
        let item = |write: &Write| {
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

/// Lets each be asked for alone.
fn all_alone<Q>(asked: Vec<Asked<Q, Answer<Q>>>) {
    asked.into_iter().for_each(|(one, writer)| drop(writer.send(Answer::Alone(one))));
}

/// What comes of a request that failed as a whole: one that would fail again is made alone by each.
fn not_together<Q>(error: PortError, asked: Vec<Asked<Q, Answer<Q>>>) {
    if !error.retryable {
        tracing::warn!(error = chain(&error), "refused together, written alone");
        return all_alone(asked);
    }
    let errors = for_each(&error, asked.len());
    asked
        .into_iter()
        .zip(errors)
        .for_each(|((_, writer), error)| drop(writer.send(Answer::Failed(error))));
}

/// Why a transaction was canceled, item by item; nothing if it was not.
fn canceled(error: &TransactWriteItemsError) -> Option<&[CancellationReason]> {
    let TransactWriteItemsError::TransactionCanceledException(canceled) = error else {
        return None;
    };
    Some(canceled.cancellation_reasons())
}

/// Whether it was nothing about this item, or something that passes: it was throttled, or another transaction has it.
fn passes(reason: &CancellationReason) -> bool {
    const PASSING: [&str; 5] = [
        "None",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "TransactionConflict",
        "TransactionInProgress",
    ];
    reason.code().is_none_or(|code| PASSING.contains(&code))
}

/// Whether it was because an item exists.
fn exists(reason: &CancellationReason) -> bool {
    reason.code() == Some("ConditionalCheckFailed")
}
