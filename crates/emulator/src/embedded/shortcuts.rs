//! Shortcuts through the embedded DynamoDB: the reads and writes that every step of every task makes,
//! by the table's whole key and on the simplest of conditions. dynoxide answers everything; what it does
//! for one put prepares eight statements and commits them, which is most of what a task costs here. A
//! shortcut uses the same SQLite file, with statements that are prepared once, and commits together
//! what is asked at the same moment. A request that is in any way out of the ordinary is left to
//! dynoxide, so it alone says what is wrong with one (`docs/adr/0018`).

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attribute::{Attribute, Item, size};
use dynoxide::DynoxideError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

use super::layout::{Entry, Key, Layout};
use statement::Statement;

pub(super) mod attribute;
mod statement;
#[cfg(test)]
mod tests;

/// Bytes of a request beyond which dynoxide looks at the limits.
const REQUEST_BYTES_MAX: usize = 350_000;

/// Bytes of an answer beyond which dynoxide divides it.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that a batch reads of one partition; what is beyond them is left out. dynoxide does not know that.
const PARTITION_BYTES_MAX: usize = 1024 * 1024;

/// Keys of a batch, and writes of a transaction.
const BATCH_MAX: usize = 100;

/// Levels of an item's values that are surely within DynamoDB's limit.
const DEPTH_MAX: usize = 20;

/// Statements in one request, by DynamoDB's limit.
const STATEMENTS_MAX: usize = 25;

/// Pages of the write-ahead log before it is moved into the file.
const LOG_PAGES: u32 = 16_000;

type Answered = Result<String, DynoxideError>;

/// A second connection to dynoxide's database.
pub(super) struct Shortcuts {
    connection: Mutex<Open>,
    waiting: Mutex<Vec<Waiting>>,
}

struct Open {
    connection: Connection,
    /// By table: how its items are stored, if the shortcuts know how.
    layouts: HashMap<String, Arc<Layout>>,
}

/// A write that has not been committed, and who wants to know.
struct Waiting {
    puts: Vec<Put>,
    together: Together,
    answer: Sender<Option<Answered>>,
}

/// What the puts of one request have to do with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    /// All are written or none is.
    Atomic,
    /// Each is written or refused by itself.
    Batch,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Get {
    table_name: String,
    key: Item,
    /// There is but one copy.
    #[serde(default, rename = "ConsistentRead")]
    _consistent: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct BatchGet {
    request_items: BTreeMap<String, Keys>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Keys {
    keys: Vec<Item>,
    /// There is but one copy; what is left out is asked for as it was.
    #[serde(default)]
    consistent_read: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Transact {
    transact_items: Vec<TransactItem>,
    /// Whether it may be a repeated one is the caller's to say.
    #[serde(default, rename = "ClientRequestToken")]
    _token: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct TransactItem {
    put: Put,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Put {
    table_name: String,
    item: Item,
    #[serde(default)]
    condition_expression: Option<String>,
    #[serde(default)]
    expression_attribute_values: Option<Item>,
    #[serde(default)]
    return_values_on_condition_check_failure: Option<String>,
    /// An update instead: the item is what is set, these attributes are removed, the others stay.
    #[serde(skip)]
    removed: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Batch {
    statements: Vec<Statement>,
}

/// The conditions that the shortcuts know.
enum Condition<'a> {
    Always,
    /// `attribute_not_exists(<part of the key>)`: there is no such item.
    IsNew,
    /// `<name> = :value AND <name> = :value`, for numbers.
    Is(Vec<(&'a str, &'a Attribute)>),
}

/// Whether an operation changes what the tables are.
fn alters_tables(operation: &str) -> bool {
    matches!(operation, "CreateTable" | "DeleteTable" | "UpdateTable")
}

impl Shortcuts {
    /// Opens the database that dynoxide has open, by its path or SQLite's URI.
    pub(super) fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // As dynoxide's own.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.pragma_update(None, "cache_size", -64_000)?;
        let connection = Mutex::new(Open { connection, layouts: HashMap::new() });
        Ok(Self { connection, waiting: Mutex::default() })
    }

    /// Answers a request if there is a shortcut for it. A transaction's token is not looked at.
    pub(super) async fn answer(&self, operation: &str, body: &[u8]) -> Option<Answered> {
        if body.len() > REQUEST_BYTES_MAX {
            return None;
        }
        match operation {
            "GetItem" => self.get(&serde_json::from_slice(body).ok()?),
            "BatchGetItem" => self.batch_get(&serde_json::from_slice(body).ok()?),
            "PutItem" => self.put(vec![serde_json::from_slice(body).ok()?], Together::Atomic).await,
            "TransactWriteItems" => {
                let Transact { transact_items, .. } = serde_json::from_slice(body).ok()?;
                if transact_items.len() > BATCH_MAX {
                    return None;
                }
                let puts = transact_items.into_iter().map(|item| item.put);
                self.put(puts.collect(), Together::Atomic).await
            }
            "BatchExecuteStatement" => {
                let Batch { statements } = serde_json::from_slice(body).ok()?;
                if !(1..=STATEMENTS_MAX).contains(&statements.len()) {
                    return None;
                }
                let puts = statements.into_iter().map(Statement::into_put);
                self.put(puts.collect::<Option<_>>()?, Together::Batch).await
            }
            _ => None,
        }
    }

    /// Runs something on dynoxide's own connection while nothing runs on this one.
    pub(super) fn aside<T>(&self, operation: &str, work: impl FnOnce() -> T) -> T {
        let mut open = lock(&self.connection);
        if alters_tables(operation) {
            open.layouts.clear();
        }
        work()
    }

    fn get(&self, get: &Get) -> Option<Answered> {
        let mut open = lock(&self.connection);
        let layout = open.layout(&get.table_name)?;
        let found = layout.get(&open.connection, &layout.whole_key(&get.key)?).ok()?;
        Some(Ok(found.map_or_else(|| "{}".to_owned(), |item| format!(r#"{{"Item":{item}}}"#))))
    }

    fn batch_get(&self, get: &BatchGet) -> Option<Answered> {
        if get.request_items.values().map(|keys| keys.keys.len()).sum::<usize>() > BATCH_MAX {
            return None;
        }
        let mut open = lock(&self.connection);
        let (mut tables, mut left_out) = (Vec::new(), serde_json::Map::new());
        for (table, keys) in &get.request_items {
            let layout = open.layout(table)?;
            let wanted: Vec<_> =
                keys.keys.iter().map(|key| layout.whole_key(key)).collect::<Option<_>>()?;
            let different: HashSet<_> = wanted.iter().collect();
            if different.len() < wanted.len() {
                return None;
            }
            let (mut found, mut left) = (Vec::new(), Vec::new());
            let mut bytes: HashMap<&str, usize> = HashMap::new();
            for (whole, key) in wanted.iter().zip(&keys.keys) {
                let Some(item) = layout.get(&open.connection, whole).ok()? else { continue };
                let of_partition = bytes.entry(&whole[0]).or_default();
                if *of_partition + item.len() > PARTITION_BYTES_MAX {
                    left.push(key);
                    continue;
                }
                *of_partition += item.len();
                found.push(item);
            }
            tables.push(format!("{}:[{}]", serde_json::to_string(table).ok()?, found.join(",")));
            if !left.is_empty() {
                let left = json!({ "Keys": left, "ConsistentRead": keys.consistent_read });
                left_out.insert(table.clone(), left);
            }
        }
        let (tables, left_out) = (tables.join(","), Value::from(left_out));
        let answer = format!(r#"{{"Responses":{{{tables}}},"UnprocessedKeys":{left_out}}}"#);
        (answer.len() <= ANSWER_BYTES_MAX).then_some(Ok(answer))
    }

    /// Writes in one commit with what others write at the same moment.
    async fn put(&self, puts: Vec<Put>, together: Together) -> Option<Answered> {
        if !puts.iter().all(Put::is_plain) {
            return None;
        }
        let (answer, written) = channel();
        let leads = {
            let mut waiting = lock(&self.waiting);
            waiting.push(Waiting { puts, together, answer });
            waiting.len() == 1
        };
        if leads {
            // Also if this future is dropped: whoever waits is answered.
            let _commit = Commit(self);
            yield_now().await;
        }
        written.await.ok()?
    }

    /// Commits what waits, and answers. If it cannot be committed, dynoxide tries, and says why.
    fn commit(&self) {
        let mut open = lock(&self.connection);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        let answers = open.write(&waiting).unwrap_or_default();
        let answers = answers.into_iter().chain(std::iter::repeat_with(|| None));
        for (Waiting { answer, .. }, answered) in waiting.into_iter().zip(answers) {
            // Whoever asked may have been given up.
            let _ = answer.send(answered);
        }
    }
}

/// Commits when it goes.
struct Commit<'a>(&'a Shortcuts);

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        self.0.commit();
    }
}

impl Open {
    fn layout(&mut self, table: &str) -> Option<Arc<Layout>> {
        if let Some(layout) = self.layouts.get(table) {
            return Some(layout.clone());
        }
        let layout = Arc::new(Layout::read(&self.connection, table).ok().flatten()?);
        self.layouts.insert(table.to_owned(), layout.clone());
        Some(layout)
    }

    /// The answers, each written; none is written if this fails.
    fn write(&mut self, waiting: &[Waiting]) -> rusqlite::Result<Vec<Option<Answered>>> {
        let layouts: Vec<Option<Vec<_>>> = waiting
            .iter()
            .map(|waiting| waiting.puts.iter().map(|put| self.layout(&put.table_name)).collect())
            .collect();
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let mut answers = Vec::with_capacity(waiting.len());
        for (Waiting { puts, together, .. }, layouts) in waiting.iter().zip(layouts) {
            answers.push(match layouts {
                Some(layouts) => write(&transaction, puts, &layouts, *together)?,
                None => None,
            });
        }
        transaction.commit()?;
        Ok(answers)
    }
}

/// Looks at all conditions, then writes. No answer if dynoxide must look.
fn write(
    connection: &Connection,
    puts: &[Put],
    layouts: &[Arc<Layout>],
    together: Together,
) -> rusqlite::Result<Option<Answered>> {
    let (mut writes, mut answers, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (put, layout) in puts.iter().zip(layouts) {
        if !layout.key(&put.item).is_some_and(|key| seen.insert((&put.table_name, key))) {
            return Ok(None);
        }
        answers.push(match (judge(connection, put, layout)?, together) {
            (Judged::Write(write), _) => {
                writes.push(write);
                format!(r#"{{"TableName":{}}}"#, Value::from(put.table_name.as_str()))
            }
            (Judged::Refused(old), Together::Atomic) => {
                return Ok(put.refused(old.as_deref(), puts.len()));
            }
            (Judged::Refused(_), Together::Batch) => put.refused_statement().to_string(),
            (Judged::NotPlain, _) => return Ok(None),
        });
    }
    for Write { layout, item, key, entries, before } in writes {
        layout.store(connection, &item, &key)?;
        layout.reindex(connection, &key, &entries, &before)?;
    }
    Ok(Some(Ok(match together {
        Together::Atomic => "{}".to_owned(),
        Together::Batch => format!(r#"{{"Responses":[{}]}}"#, answers.join(",")),
    })))
}

/// What comes of a put.
enum Judged<'a> {
    Write(Write<'a>),
    /// The condition does not hold of the item there is, if any.
    Refused(Option<String>),
    NotPlain,
}

/// A put whose condition holds, with what the item has in each index, and had.
struct Write<'a> {
    layout: &'a Layout,
    item: Cow<'a, Item>,
    key: Key,
    entries: Vec<Option<Entry>>,
    before: Vec<Option<Entry>>,
}

fn judge<'a>(
    connection: &Connection,
    put: &'a Put,
    layout: &'a Layout,
) -> rusqlite::Result<Judged<'a>> {
    let Some(key) = layout.key(&put.item) else { return Ok(Judged::NotPlain) };
    let Some(condition) = put.condition(layout) else { return Ok(Judged::NotPlain) };
    let old = layout.get(connection, &key)?;
    let is_new = matches!(condition, Condition::IsNew);
    let read: Item = match old.as_deref().filter(|_| !is_new).map(serde_json::from_str) {
        Some(Ok(read)) => read,
        Some(Err(_)) => return Ok(Judged::NotPlain),
        None => Item::new(),
    };
    let holds = match condition {
        Condition::Always => true,
        Condition::IsNew => old.is_none(),
        Condition::Is(all) => all.iter().all(|(name, value)| read.get(*name) == Some(*value)),
    };
    let item = put.applied_to(&read);
    let Some(entries) = layout.entries(&item) else { return Ok(Judged::NotPlain) };
    if !holds {
        return Ok(Judged::Refused(old));
    }
    let before = layout.entries(&read).filter(|_| size(&item) <= REQUEST_BYTES_MAX);
    Ok(match before {
        Some(before) => Judged::Write(Write { layout, item, key, entries, before }),
        None => Judged::NotPlain,
    })
}

impl Put {
    /// The item as it will be.
    fn applied_to(&self, old: &Item) -> Cow<'_, Item> {
        let Some(removed) = &self.removed else { return Cow::Borrowed(&self.item) };
        let mut item = old.clone();
        item.extend(self.item.clone());
        removed.iter().for_each(|name| drop(item.remove(name)));
        Cow::Owned(item)
    }

    /// Whether there is nothing in it that needs a closer look.
    fn is_plain(&self) -> bool {
        let returns = self.return_values_on_condition_check_failure.as_deref();
        let values = self.expression_attribute_values.iter().flatten();
        matches!(returns, None | Some("NONE" | "ALL_OLD"))
            && self
                .item
                .iter()
                .chain(values)
                .all(|(name, value)| !name.is_empty() && value.is_plain(DEPTH_MAX))
    }

    /// Its condition, if it is of those that are known.
    fn condition<'a>(&'a self, layout: &Layout) -> Option<Condition<'a>> {
        let values = self.expression_attribute_values.as_ref();
        let Some(text) = self.condition_expression.as_deref() else {
            return values.is_none().then_some(Condition::Always);
        };
        if let Some(name) = text.strip_prefix("attribute_not_exists(") {
            let name = name.strip_suffix(')')?;
            let is_key = layout.key_names().any(|key| key == name);
            return (is_key && values.is_none()).then_some(Condition::IsNew);
        }
        let values = values?;
        let one = |text: &'a str| {
            let (name, value) = text.split_once(" = ")?;
            let value = values.get(value).filter(|value| matches!(value, Attribute::N(_)))?;
            // No other names are looked at, and these are none of DynamoDB's reserved words.
            matches!(name, "revision" | "submitted_at").then_some((name, value))
        };
        let all: Vec<_> = text.split(" AND ").map(one).collect::<Option<_>>()?;
        let names: BTreeSet<_> = all.iter().map(|(name, _)| *name).collect();
        // Which item an update is for, its statement says by this name and no other.
        let is_whole = self.removed.is_none() || layout.key_names().eq(["task_id"]);
        let is_plain = is_whole && names.len() == all.len() && values.len() == all.len();
        is_plain.then_some(Condition::Is(all))
    }

    /// What a statement is answered whose condition does not hold.
    fn refused_statement(&self) -> Value {
        let (code, message) = match self.removed {
            Some(_) => ("ConditionalCheckFailed", "The conditional request failed"),
            None => ("DuplicateItem", "Duplicate primary key exists in table"),
        };
        json!({ "Error": { "Code": code, "Message": message }, "TableName": self.table_name })
    }

    /// What a refused put is answered. A transaction's refusal is dynoxide's to word.
    fn refused(&self, old: Option<&str>, puts: usize) -> Option<Answered> {
        if puts > 1 {
            return None;
        }
        let wants = self.return_values_on_condition_check_failure.as_deref() == Some("ALL_OLD");
        let old = match old.filter(|_| wants) {
            Some(old) => Some(serde_json::from_str(old).ok()?),
            None => None,
        };
        let message = "The conditional request failed".to_owned();
        Some(Err(DynoxideError::ConditionalCheckFailedException(message, old)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
