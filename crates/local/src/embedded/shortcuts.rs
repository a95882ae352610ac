//! Shortcuts through the embedded DynamoDB: the reads and writes that every step of every task makes,
//! by the table's whole key and on the simplest of conditions. dynoxide answers everything; what it does
//! for one put prepares eight statements and commits them, which is most of what a task costs here. A
//! shortcut uses the same SQLite file, with statements that are prepared once, and commits together
//! what is asked at the same moment. A request that is in any way out of the ordinary is left to
//! dynoxide, so it alone says what is wrong with one (`docs/adr/0018`).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dynoxide::{AttributeValue, DynoxideError, Item};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

use super::layout::{Entry, Key, Layout};

#[cfg(test)]
mod tests;

/// Bytes of a request beyond which dynoxide looks at the limits.
const REQUEST_BYTES_MAX: usize = 350_000;

/// Bytes of an answer beyond which dynoxide divides it.
const ANSWER_BYTES_MAX: usize = 4_000_000;

/// Levels of an item's values that are surely within DynamoDB's limit.
const DEPTH_MAX: usize = 20;

/// Digits of a number that need no rounding and no other form.
const DIGITS_MAX: usize = 30;

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
    answer: Sender<Option<Answered>>,
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
    /// There is but one copy.
    #[serde(default, rename = "ConsistentRead")]
    _consistent: Option<IgnoredAny>,
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
}

/// The conditions that the shortcuts know.
enum Condition<'a> {
    Always,
    /// `attribute_not_exists(<part of the key>)`: there is no such item.
    IsNew,
    /// `<name> = :value`, for numbers.
    Is(&'a str, &'a AttributeValue),
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
            "PutItem" => self.put(vec![serde_json::from_slice(body).ok()?]).await,
            "TransactWriteItems" => {
                let Transact { transact_items, .. } = serde_json::from_slice(body).ok()?;
                self.put(transact_items.into_iter().map(|item| item.put).collect()).await
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
        let mut open = lock(&self.connection);
        let mut tables = Vec::new();
        for (table, keys) in &get.request_items {
            let layout = open.layout(table)?;
            let wanted: Vec<_> =
                keys.keys.iter().map(|key| layout.whole_key(key)).collect::<Option<_>>()?;
            let different: HashSet<_> = wanted.iter().collect();
            if different.len() < wanted.len() {
                return None;
            }
            let mut found = Vec::new();
            for key in &wanted {
                found.extend(layout.get(&open.connection, key).ok()?);
            }
            tables.push(format!("{}:[{}]", serde_json::to_string(table).ok()?, found.join(",")));
        }
        let answer = format!(r#"{{"Responses":{{{}}},"UnprocessedKeys":{{}}}}"#, tables.join(","));
        (answer.len() <= ANSWER_BYTES_MAX).then_some(Ok(answer))
    }

    /// Writes all or nothing, in one commit with what others write at the same moment.
    async fn put(&self, puts: Vec<Put>) -> Option<Answered> {
        if !puts.iter().all(Put::is_plain) || !are_different(&puts) {
            return None;
        }
        let (answer, written) = channel();
        let leads = {
            let mut waiting = lock(&self.waiting);
            waiting.push(Waiting { puts, answer });
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
        for (Waiting { puts, .. }, layouts) in waiting.iter().zip(layouts) {
            answers.push(match layouts {
                Some(layouts) => write(&transaction, puts, &layouts)?,
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
) -> rusqlite::Result<Option<Answered>> {
    let mut writes = Vec::new();
    for (put, layout) in puts.iter().zip(layouts) {
        match judge(connection, put, layout)? {
            Judged::Write(write) => writes.push(write),
            Judged::Refused(old) => return Ok(put.refused(old.as_deref(), puts.len())),
            Judged::NotPlain => return Ok(None),
        }
    }
    for Write { layout, item, key, entries, before } in writes {
        layout.store(connection, item, &key)?;
        layout.reindex(connection, &key, &entries, &before)?;
    }
    Ok(Some(Ok("{}".to_owned())))
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
    item: &'a Item,
    key: Key,
    entries: Vec<Option<Entry>>,
    before: Vec<Option<Entry>>,
}

fn judge<'a>(
    connection: &Connection,
    put: &'a Put,
    layout: &'a Layout,
) -> rusqlite::Result<Judged<'a>> {
    let item = &put.item;
    let (Some(key), Some(entries)) = (layout.key(item), layout.entries(item)) else {
        return Ok(Judged::NotPlain);
    };
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
        Condition::Is(name, value) => read.get(name) == Some(value),
    };
    if !holds {
        return Ok(Judged::Refused(old));
    }
    Ok(match layout.entries(&read) {
        Some(before) => Judged::Write(Write { layout, item, key, entries, before }),
        None => Judged::NotPlain,
    })
}

impl Put {
    /// Whether there is nothing in it that needs a closer look.
    fn is_plain(&self) -> bool {
        let returns = self.return_values_on_condition_check_failure.as_deref();
        let values = self.expression_attribute_values.iter().flatten();
        matches!(returns, None | Some("NONE" | "ALL_OLD"))
            && self
                .item
                .iter()
                .chain(values)
                .all(|(name, value)| !name.is_empty() && is_plain(value, DEPTH_MAX))
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
        let (name, value) = text.split_once(" = ")?;
        let values = values.filter(|values| values.len() == 1)?;
        let value = values.get(value).filter(|value| matches!(value, AttributeValue::N(_)))?;
        // No other name is looked at, and this is none of DynamoDB's reserved words.
        (name == "revision").then_some(Condition::Is(name, value))
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

/// Whether no two write the same item; every key of every table is among these values.
fn are_different(puts: &[Put]) -> bool {
    let tables: HashSet<_> = puts.iter().map(|put| &put.table_name).collect();
    tables.len() == puts.len()
}

fn is_plain(value: &AttributeValue, depth: usize) -> bool {
    match value {
        AttributeValue::S(_) | AttributeValue::BOOL(_) | AttributeValue::NULL(true) => true,
        AttributeValue::N(number) => {
            let digits = number.strip_prefix('-').unwrap_or(number);
            (1..=DIGITS_MAX).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && !digits.starts_with('0')
                || number == "0"
        }
        AttributeValue::L(values) => {
            depth > 0 && values.iter().all(|value| is_plain(value, depth - 1))
        }
        AttributeValue::M(values) => {
            depth > 0
                && values.iter().all(|(name, value)| !name.is_empty() && is_plain(value, depth - 1))
        }
        AttributeValue::NULL(false)
        | AttributeValue::B(_)
        | AttributeValue::SS(_)
        | AttributeValue::NS(_)
        | AttributeValue::BS(_) => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
