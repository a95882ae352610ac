//! Shortcuts through the embedded DynamoDB, for the reads and writes that every step of every task makes. They use
//! the table's whole key and simple conditions.
//!
//! dynoxide can process every request, but for one put it prepares eight statements and commits them. That is most
//! of the CPU time of a task here. A shortcut uses the same SQLite file with statements that are prepared once, and
//! commits concurrent writes together. dynoxide processes every other request, and produces all validation errors
//! (`docs/adr/0018`).

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attribute::{PlainItem, size};
use dynoxide::DynoxideError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

use super::table_layout::{IndexEntry, RowKey, TableLayout};
use put::{PlainPut, PutCondition};
use statement::PartiqlStatement;

pub(super) mod attribute;
mod put;
mod statement;
#[cfg(test)]
mod tests;

/// The largest request for a shortcut, in bytes. dynoxide checks the limits of larger requests.
const REQUEST_BYTES_MAX: usize = 350_000;

/// The largest response of a shortcut, in bytes. dynoxide divides larger responses into pages.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most bytes that a batch reads from one partition. Further items become unprocessed keys. dynoxide does not
/// implement this limit.
const PARTITION_BYTES_MAX: usize = 1024 * 1024;

/// The most keys of a batch, and the most writes of a transaction.
const BATCH_MAX: usize = 100;

/// The most statements in a request: DynamoDB's limit.
const STATEMENTS_MAX: usize = 25;

/// The size of the write-ahead log, in pages, at which SQLite moves it into the database file.
const LOG_PAGES: u32 = 16_000;

/// The response as JSON.
type ResponseResult = Result<String, DynoxideError>;

/// A second connection to dynoxide's database.
pub(super) struct Shortcuts {
    connection: Mutex<ShortcutConnection>,
    /// Writes for the next commit.
    pending: Mutex<Vec<PendingWrite>>,
}

struct ShortcutConnection {
    connection: Connection,
    /// The layout by table name, for tables that the shortcuts support.
    layouts: HashMap<String, Arc<TableLayout>>,
}

/// A write that is not committed yet, and the sender for its result.
struct PendingWrite {
    puts: Vec<PlainPut>,
    mode: WriteMode,
    /// Sends `None` if dynoxide has to process the write.
    result: Sender<Option<ResponseResult>>,
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
    /// Ignored: the caller of [`Shortcuts::answer`] excludes repeated transactions.
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

impl Shortcuts {
    /// Opens a second connection to dynoxide's database, by its path or SQLite's URI.
    pub(super) fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // The same settings as on dynoxide's connection.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.pragma_update(None, "cache_size", -64_000)?;
        let connection = Mutex::new(ShortcutConnection { connection, layouts: HashMap::new() });
        Ok(Self { connection, pending: Mutex::default() })
    }

    /// Processes a request; `None` if there is no shortcut for it. The token of a transaction is ignored.
    pub(super) async fn answer(&self, operation: &str, body: &[u8]) -> Option<ResponseResult> {
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

    /// Runs `work` on dynoxide's connection, and nothing on this connection meanwhile.
    pub(super) fn run_exclusively<T>(&self, operation: &str, work: impl FnOnce() -> T) -> T {
        let mut open = lock(&self.connection);
        if alters_tables(operation) {
            open.layouts.clear();
        }
        work()
    }

    fn get(&self, get: &GetRequest) -> Option<ResponseResult> {
        let mut open = lock(&self.connection);
        let layout = open.layout(&get.table_name)?;
        let found = layout.get(&open.connection, &layout.whole_key(&get.key)?).ok()?;
        Some(Ok(found.map_or_else(|| "{}".to_owned(), |item| format!(r#"{{"Item":{item}}}"#))))
    }

    fn batch_get(&self, get: &BatchGetRequest) -> Option<ResponseResult> {
        if get.request_items.values().map(|keys| keys.keys.len()).sum::<usize>() > BATCH_MAX {
            return None;
        }
        let mut open = lock(&self.connection);
        let (mut tables, mut unprocessed) = (Vec::new(), serde_json::Map::new());
        for (table, keys) in &get.request_items {
            let layout = open.layout(table)?;
            let wanted: Vec<_> =
                keys.keys.iter().map(|key| layout.whole_key(key)).collect::<Option<_>>()?;
            let distinct: HashSet<_> = wanted.iter().collect();
            if distinct.len() < wanted.len() {
                return None;
            }
            let (mut found, mut unprocessed_keys) = (Vec::new(), Vec::new());
            let mut bytes: HashMap<&str, usize> = HashMap::new();
            for (whole, key) in wanted.iter().zip(&keys.keys) {
                let Some(item) = layout.get(&open.connection, whole).ok()? else { continue };
                let partition_bytes = bytes.entry(&whole[0]).or_default();
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
    async fn put(&self, puts: Vec<PlainPut>, mode: WriteMode) -> Option<ResponseResult> {
        if !puts.iter().all(PlainPut::is_supported) {
            return None;
        }
        let (result, written) = channel();
        let is_first = {
            let mut pending = lock(&self.pending);
            pending.push(PendingWrite { puts, mode, result });
            pending.len() == 1
        };
        if is_first {
            // The guard commits also if this future is dropped, because other writes may be pending.
            let _guard = CommitGuard(self);
            yield_now().await;
        }
        written.await.ok()?
    }

    /// Commits the pending writes and sends their results. If the commit fails, dynoxide processes the writes and
    /// reports the error.
    fn commit(&self) {
        let mut open = lock(&self.connection);
        let pending = std::mem::take(&mut *lock(&self.pending));
        let results = open.write(&pending).unwrap_or_default();
        let results = results.into_iter().chain(std::iter::repeat_with(|| None));
        for (PendingWrite { result: sender, .. }, result) in pending.into_iter().zip(results) {
            // The receiver may have been dropped.
            let _ = sender.send(result);
        }
    }
}

/// Commits the pending writes when it is dropped.
struct CommitGuard<'a>(&'a Shortcuts);

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        self.0.commit();
    }
}

impl ShortcutConnection {
    fn layout(&mut self, table: &str) -> Option<Arc<TableLayout>> {
        if let Some(layout) = self.layouts.get(table) {
            return Some(layout.clone());
        }
        let layout = Arc::new(TableLayout::read(&self.connection, table).ok().flatten()?);
        self.layouts.insert(table.to_owned(), layout.clone());
        Some(layout)
    }

    /// Writes all in one SQLite transaction; returns their results. If it fails, nothing is written.
    fn write(&mut self, pending: &[PendingWrite]) -> rusqlite::Result<Vec<Option<ResponseResult>>> {
        let layouts: Vec<Option<Vec<_>>> = pending
            .iter()
            .map(|write| write.puts.iter().map(|put| self.layout(&put.table_name)).collect())
            .collect();
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let mut results = Vec::with_capacity(pending.len());
        for (PendingWrite { puts, mode, .. }, layouts) in pending.iter().zip(layouts) {
            results.push(match layouts {
                Some(layouts) => write(&transaction, puts, &layouts, *mode)?,
                None => None,
            });
        }
        transaction.commit()?;
        Ok(results)
    }
}

/// Checks all conditions, then writes. `None` if dynoxide has to process the request.
fn write(
    connection: &Connection,
    puts: &[PlainPut],
    layouts: &[Arc<TableLayout>],
    mode: WriteMode,
) -> rusqlite::Result<Option<ResponseResult>> {
    let (mut writes, mut responses, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (put, layout) in puts.iter().zip(layouts) {
        if !layout.key(&put.item).is_some_and(|key| seen.insert((&put.table_name, key))) {
            return Ok(None);
        }
        responses.push(match (decide(connection, put, layout)?, mode) {
            (PutDecision::Accepted(write), _) => {
                writes.push(write);
                format!(r#"{{"TableName":{}}}"#, Value::from(put.table_name.as_str()))
            }
            (PutDecision::ConditionFailed(old), WriteMode::Atomic) => {
                return Ok(put.condition_failed(old.as_deref(), puts.len()).map(Err));
            }
            (PutDecision::ConditionFailed(_), WriteMode::Independent) => {
                put.failed_statement().to_string()
            }
            (PutDecision::Unsupported, _) => return Ok(None),
        });
    }
    for AcceptedPut { layout, item, key, entries, before } in writes {
        layout.store(connection, &item, &key)?;
        layout.reindex(connection, &key, &entries, &before)?;
    }
    Ok(Some(Ok(match mode {
        WriteMode::Atomic => "{}".to_owned(),
        WriteMode::Independent => format!(r#"{{"Responses":[{}]}}"#, responses.join(",")),
    })))
}

/// The decision on a put.
enum PutDecision<'a> {
    Accepted(AcceptedPut<'a>),
    /// The condition is false. Contains the existing item, if any.
    ConditionFailed(Option<String>),
    Unsupported,
}

/// A put whose condition is true, with the item's new and previous row in each index.
struct AcceptedPut<'a> {
    layout: &'a TableLayout,
    item: Cow<'a, PlainItem>,
    key: RowKey,
    entries: Vec<Option<IndexEntry>>,
    before: Vec<Option<IndexEntry>>,
}

/// Checks the condition of a put.
fn decide<'a>(
    connection: &Connection,
    put: &'a PlainPut,
    layout: &'a TableLayout,
) -> rusqlite::Result<PutDecision<'a>> {
    let Some(key) = layout.key(&put.item) else { return Ok(PutDecision::Unsupported) };
    let Some(condition) = put.condition(layout) else { return Ok(PutDecision::Unsupported) };
    let old = layout.get(connection, &key)?;
    let is_new = matches!(condition, PutCondition::NotExists);
    let read: PlainItem = match old.as_deref().filter(|_| !is_new).map(serde_json::from_str) {
        Some(Ok(read)) => read,
        Some(Err(_)) => return Ok(PutDecision::Unsupported),
        None => PlainItem::new(),
    };
    let holds = match condition {
        PutCondition::Always => true,
        PutCondition::NotExists => old.is_none(),
        PutCondition::Equal(all) => all.iter().all(|(name, value)| read.get(*name) == Some(*value)),
    };
    let item = put.applied_to(&read);
    let Some(entries) = layout.entries(&item) else { return Ok(PutDecision::Unsupported) };
    if !holds {
        return Ok(PutDecision::ConditionFailed(old));
    }
    let before = layout.entries(&read).filter(|_| size(&item) <= REQUEST_BYTES_MAX);
    Ok(match before {
        Some(before) => PutDecision::Accepted(AcceptedPut { layout, item, key, entries, before }),
        None => PutDecision::Unsupported,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
