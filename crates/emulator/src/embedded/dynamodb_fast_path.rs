//! A fast path beside dynoxide, the embedded DynamoDB, for the reads and writes that every step of every task makes.
//! They use the full primary key and simple conditions.
//!
//! dynoxide can process every request, but it prepares eight statements for one put, and commits them. That is most
//! of the CPU time of a task here. The fast path uses the same SQLite database with statements that are prepared
//! once, and commits concurrent writes together. dynoxide processes all remaining requests, and produces all
//! validation errors (`docs/adr/0018`).
//!
//! The fast path serves batch reads even if it is off, because dynoxide does not limit the bytes that a batch reads
//! from one partition.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attribute::{PlainItem, size};
use checkpoint::Checkpointer;
use dynoxide::DynoxideError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

use super::{
    error::EmbeddedError,
    table_layout::{IndexEntry, RowKey, TableLayout},
};
use put::{PlainPut, PutCondition};
use statement::PartiqlStatement;

pub(super) mod attribute;
mod checkpoint;
mod put;
mod statement;
#[cfg(test)]
mod tests;

/// The largest request for the fast path, in bytes. dynoxide checks the limits of larger requests.
const REQUEST_BYTES_MAX: usize = 350_000;

/// The largest response of the fast path, in bytes. dynoxide divides larger responses into pages.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most bytes that a batch reads from one partition. An item that would exceed it becomes an unprocessed key.
/// dynoxide does not implement this limit.
const PARTITION_BYTES_MAX: usize = 1024 * 1024;

/// The most keys of a batch, and the most writes of a transaction.
const BATCH_MAX: usize = 100;

/// The most statements in a request: DynamoDB's limit.
const STATEMENTS_MAX: usize = 25;

/// The size of the write-ahead log, in pages, at which a commit checkpoints it, because the [`Checkpointer`] could not.
const LOG_PAGES_MAX: u32 = 256_000;

/// The response as JSON, or the error.
type JsonResponse = Result<String, DynoxideError>;

/// Serves frequent requests without dynoxide.
pub(super) struct FastPath {
    /// A second connection to dynoxide's database.
    connection: Arc<Mutex<FastPathConnection>>,
    /// `None` in memory, where there is no log.
    checkpointer: Option<Mutex<Checkpointer>>,
    /// Writes for the next commit.
    pending: Mutex<Vec<PendingWrite>>,
}

struct FastPathConnection {
    connection: Connection,
    /// The layout by table name, for tables that the fast path supports.
    layouts: HashMap<String, Arc<TableLayout>>,
}

/// A write that is not committed yet, and the sender for its result.
struct PendingWrite {
    puts: Vec<PlainPut>,
    mode: WriteMode,
    /// Sends `None` if dynoxide has to process the write.
    respond: Sender<Option<JsonResponse>>,
}

/// Whether the puts of one request depend on each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// All puts are written or none.
    Atomic,
    /// Each put succeeds or fails independently.
    Independent,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct GetRequest {
    table_name: String,
    key: PlainItem,
    /// Ignored: every read is consistent.
    #[serde(default, rename = "ConsistentRead")]
    _consistent: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct BatchGetRequest {
    request_items: BTreeMap<String, TableKeys>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct TableKeys {
    keys: Vec<PlainItem>,
    /// Every read is consistent. The value is returned with the unprocessed keys.
    #[serde(default)]
    consistent_read: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct TransactRequest {
    transact_items: Vec<TransactItem>,
    /// Ignored: dynoxide processes the transactions that arrive over HTTP. Those of this process are never repeated.
    #[serde(default, rename = "ClientRequestToken")]
    _token: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct TransactItem {
    put: PlainPut,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct StatementBatch {
    statements: Vec<PartiqlStatement>,
}

/// Whether an operation changes the layout of tables.
fn alters_tables(operation: &str) -> bool {
    matches!(operation, "CreateTable" | "DeleteTable" | "UpdateTable")
}

impl FastPath {
    /// Opens a second connection to dynoxide's database in memory, by SQLite's URI.
    pub(super) fn in_memory(uri: &str) -> Result<Self, EmbeddedError> {
        let connection = FastPathConnection::open(uri).map_err(EmbeddedError::OpenFastPath)?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { connection, checkpointer: None, pending: Mutex::default() })
    }

    /// Opens a second connection to dynoxide's database in a file, and a third that checkpoints its log.
    pub(super) fn on_disk(path: &str) -> Result<Self, EmbeddedError> {
        let open = || {
            let third = Connection::open(path)?;
            third.pragma_update(None, "synchronous", "NORMAL")?;
            Ok((FastPathConnection::open(path)?, third))
        };
        let (connection, third) = open().map_err(EmbeddedError::OpenFastPath)?;
        let connection = Arc::new(Mutex::new(connection));
        let checkpointer = Checkpointer::start(third, connection.clone())
            .map_err(EmbeddedError::StartCheckpointer)?;
        let checkpointer = Some(Mutex::new(checkpointer));
        Ok(Self { connection, checkpointer, pending: Mutex::default() })
    }

    /// Processes a request; `None` if the fast path does not support it. The token of a transaction is ignored.
    pub(super) async fn try_serve(&self, operation: &str, body: &[u8]) -> Option<JsonResponse> {
        if body.len() > REQUEST_BYTES_MAX {
            return None;
        }
        match operation {
            "GetItem" => self.get(&serde_json::from_slice(body).ok()?),
            "BatchGetItem" => self.batch_get(&serde_json::from_slice(body).ok()?),
            "PutItem" => {
                self.put(vec![serde_json::from_slice(body).ok()?], WriteMode::Atomic).await
            }
            "TransactWriteItems" => {
                let TransactRequest { transact_items, .. } = serde_json::from_slice(body).ok()?;
                if transact_items.len() > BATCH_MAX {
                    return None;
                }
                let puts = transact_items.into_iter().map(|item| item.put);
                self.put(puts.collect(), WriteMode::Atomic).await
            }
            "BatchExecuteStatement" => {
                let StatementBatch { statements } = serde_json::from_slice(body).ok()?;
                if !(1..=STATEMENTS_MAX).contains(&statements.len()) {
                    return None;
                }
                let puts = statements.into_iter().map(PartiqlStatement::into_put);
                self.put(puts.collect::<Option<_>>()?, WriteMode::Independent).await
            }
            _ => None,
        }
    }

    /// Blocks this connection while dynoxide runs `work`. `operation` may change the layout of the tables.
    pub(super) fn run_exclusively<T>(&self, operation: &str, work: impl FnOnce() -> T) -> T {
        let mut connection = lock(&self.connection);
        if alters_tables(operation) {
            connection.layouts.clear();
        }
        work()
    }

    fn get(&self, get: &GetRequest) -> Option<JsonResponse> {
        let mut connection = lock(&self.connection);
        let layout = connection.layout(&get.table_name)?;
        let found = layout.get(&connection.connection, &layout.primary_key(&get.key)?).ok()?;
        Some(Ok(found.map_or_else(|| "{}".to_owned(), |item| format!(r#"{{"Item":{item}}}"#))))
    }

    fn batch_get(&self, get: &BatchGetRequest) -> Option<JsonResponse> {
        if get.request_items.values().map(|keys| keys.keys.len()).sum::<usize>() > BATCH_MAX {
            return None;
        }
        let mut connection = lock(&self.connection);
        let (mut tables, mut unprocessed) = (Vec::new(), serde_json::Map::new());
        for (table, keys) in &get.request_items {
            let layout = connection.layout(table)?;
            let wanted: Vec<_> =
                keys.keys.iter().map(|key| layout.primary_key(key)).collect::<Option<_>>()?;
            let distinct: HashSet<_> = wanted.iter().collect();
            if distinct.len() < wanted.len() {
                return None;
            }
            let (mut found, mut unprocessed_keys) = (Vec::new(), Vec::new());
            let mut bytes: HashMap<&str, usize> = HashMap::new();
            for (primary_key, key) in wanted.iter().zip(&keys.keys) {
                let Some(item) = layout.get(&connection.connection, primary_key).ok()? else {
                    continue;
                };
                let partition_bytes = bytes.entry(&primary_key[0]).or_default();
                if *partition_bytes + item.len() > PARTITION_BYTES_MAX {
                    unprocessed_keys.push(key);
                    continue;
                }
                *partition_bytes += item.len();
                found.push(item);
            }
            tables.push(format!("{}:[{}]", serde_json::to_string(table).ok()?, found.join(",")));
            if !unprocessed_keys.is_empty() {
                let keys =
                    json!({ "Keys": unprocessed_keys, "ConsistentRead": keys.consistent_read });
                unprocessed.insert(table.clone(), keys);
            }
        }
        let (tables, unprocessed) = (tables.join(","), Value::from(unprocessed));
        let response = format!(r#"{{"Responses":{{{tables}}},"UnprocessedKeys":{unprocessed}}}"#);
        (response.len() <= RESPONSE_BYTES_MAX).then_some(Ok(response))
    }

    /// Writes `puts`. Concurrent writes share one commit.
    async fn put(&self, puts: Vec<PlainPut>, mode: WriteMode) -> Option<JsonResponse> {
        if !puts.iter().all(PlainPut::is_supported) {
            return None;
        }
        let (respond, response) = channel();
        let is_first = {
            let mut pending = lock(&self.pending);
            pending.push(PendingWrite { puts, mode, respond });
            pending.len() == 1
        };
        if is_first {
            // The guard commits also if this future is dropped, because other writes may be pending.
            let _guard = CommitGuard(self);
            yield_now().await;
        }
        response.await.ok()?
    }

    /// Commits the pending writes and sends their results. If the commit fails, dynoxide processes the writes and
    /// reports the error.
    fn commit(&self) {
        let mut connection = lock(&self.connection);
        let pending = std::mem::take(&mut *lock(&self.pending));
        let results = connection.write_pending(&pending).unwrap_or_default();
        if let Some(checkpointer) = &self.checkpointer {
            lock(checkpointer).count(pending.iter().map(|write| write.puts.len()).sum());
        }
        let results = results.into_iter().chain(std::iter::repeat_with(|| None));
        for (PendingWrite { respond, .. }, result) in pending.into_iter().zip(results) {
            // The receiver may have been dropped.
            let _ = respond.send(result);
        }
    }
}

/// Commits the pending writes when it is dropped.
struct CommitGuard<'a>(&'a FastPath);

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        self.0.commit();
    }
}

impl FastPathConnection {
    fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // The same settings as on dynoxide's connection.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX)?;
        connection.pragma_update(None, "cache_size", -64_000)?;
        Ok(Self { connection, layouts: HashMap::new() })
    }

    fn layout(&mut self, table: &str) -> Option<Arc<TableLayout>> {
        if let Some(layout) = self.layouts.get(table) {
            return Some(layout.clone());
        }
        let layout = Arc::new(TableLayout::read(&self.connection, table).ok().flatten()?);
        self.layouts.insert(table.to_owned(), layout.clone());
        Some(layout)
    }

    /// Writes all pending writes in one SQLite transaction, and returns their results. If the transaction fails, nothing
    /// is written.
    fn write_pending(
        &mut self,
        pending: &[PendingWrite],
    ) -> rusqlite::Result<Vec<Option<JsonResponse>>> {
        let layouts: Vec<Option<Vec<_>>> = pending
            .iter()
            .map(|write| write.puts.iter().map(|put| self.layout(&put.table_name)).collect())
            .collect();
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let mut results = Vec::with_capacity(pending.len());
        for (PendingWrite { puts, mode, .. }, layouts) in pending.iter().zip(layouts) {
            results.push(match layouts {
                Some(layouts) => write_puts(&transaction, puts, &layouts, *mode)?,
                None => None,
            });
        }
        transaction.commit()?;
        Ok(results)
    }
}

/// Checks all conditions, then writes. `None` if dynoxide has to process the request.
fn write_puts(
    connection: &Connection,
    puts: &[PlainPut],
    layouts: &[Arc<TableLayout>],
    mode: WriteMode,
) -> rusqlite::Result<Option<JsonResponse>> {
    let (mut writes, mut responses, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (put, layout) in puts.iter().zip(layouts) {
        if !layout.key(&put.item).is_some_and(|key| seen.insert((&put.table_name, key))) {
            return Ok(None);
        }
        responses.push(match (check_put(connection, put, layout)?, mode) {
            (PutCheck::ConditionHolds(write), _) => {
                writes.push(write);
                format!(r#"{{"TableName":{}}}"#, Value::from(put.table_name.as_str()))
            }
            (PutCheck::ConditionFailed(old), WriteMode::Atomic) => {
                return Ok(put.condition_failed(old.as_deref(), puts.len()).map(Err));
            }
            (PutCheck::ConditionFailed(_), WriteMode::Independent) => {
                put.failed_statement().to_string()
            }
            (PutCheck::Unsupported, _) => return Ok(None),
        });
    }
    for AcceptedPut { layout, item, key, new_index_rows, old_index_rows } in writes {
        layout.store(connection, &item, &key)?;
        layout.reindex(connection, &key, &new_index_rows, &old_index_rows)?;
    }
    Ok(Some(Ok(match mode {
        WriteMode::Atomic => "{}".to_owned(),
        WriteMode::Independent => format!(r#"{{"Responses":[{}]}}"#, responses.join(",")),
    })))
}

/// The result of the check of a put.
enum PutCheck<'a> {
    ConditionHolds(AcceptedPut<'a>),
    /// The condition is false. Contains the existing item, if any.
    ConditionFailed(Option<String>),
    /// dynoxide has to process the put.
    Unsupported,
}

/// A put whose condition is true, with the item's new and previous row in each index.
struct AcceptedPut<'a> {
    layout: &'a TableLayout,
    item: Cow<'a, PlainItem>,
    key: RowKey,
    new_index_rows: Vec<Option<IndexEntry>>,
    old_index_rows: Vec<Option<IndexEntry>>,
}

/// Checks the condition of a put, and computes the new item and its index rows.
fn check_put<'a>(
    connection: &Connection,
    put: &'a PlainPut,
    layout: &'a TableLayout,
) -> rusqlite::Result<PutCheck<'a>> {
    let Some(key) = layout.key(&put.item) else { return Ok(PutCheck::Unsupported) };
    let Some(condition) = put.condition(layout) else { return Ok(PutCheck::Unsupported) };
    let old = layout.get(connection, &key)?;
    let must_not_exist = matches!(condition, PutCondition::NotExists);
    let existing: PlainItem =
        match old.as_deref().filter(|_| !must_not_exist).map(serde_json::from_str) {
            Some(Ok(existing)) => existing,
            Some(Err(_)) => return Ok(PutCheck::Unsupported),
            None => PlainItem::new(),
        };
    let condition_holds = match condition {
        PutCondition::Always => true,
        PutCondition::NotExists => old.is_none(),
        PutCondition::Equal(all) => {
            all.iter().all(|(name, value)| existing.get(*name) == Some(*value))
        }
    };
    let changed = layout.changed_indices(|name| put.changes(&existing, name));
    let Some(old_index_rows) = layout.entries(&existing, &changed) else {
        return Ok(PutCheck::Unsupported);
    };
    let item = put.applied_to(existing);
    let Some(new_index_rows) = layout.entries(&item, &changed) else {
        return Ok(PutCheck::Unsupported);
    };
    if !condition_holds {
        return Ok(PutCheck::ConditionFailed(old));
    }
    if size(&item) > REQUEST_BYTES_MAX {
        return Ok(PutCheck::Unsupported);
    }
    let accepted = AcceptedPut { layout, item, key, new_index_rows, old_index_rows };
    Ok(PutCheck::ConditionHolds(accepted))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
