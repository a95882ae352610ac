//! Reads that are asked for at the same moment go out [together](super::together): one `BatchGetItem` for
//! the tasks of a batch, and one for the documents that they want, instead of a `GetItem` for each. What is
//! read and what it costs is the same; it is fewer requests to sign, send and wait for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use aws_sdk_dynamodb::{Client, types::KeysAndAttributes};
use steward_runtime::ports::PortError;
use tokio::sync::oneshot::Sender;

use super::{
    backoff::Backoff,
    together::{Asked, Together, cut_off},
};
use crate::{
    errors::{corrupt, failed, for_each},
    items::{Item, text},
};

/// Keys in one `BatchGetItem`, by DynamoDB's limit.
const KEYS_MAX: usize = 100;

/// Until the one who asked says what it was for.
const OPERATION: &str = "read items";

/// What an item goes by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) table: String,
    pub(super) task_id: String,
    pub(super) document: Option<String>,
}

impl Key {
    fn attributes(&self) -> Item {
        let document = self.document.iter().map(|document| ("document".to_owned(), text(document)));
        std::iter::once(("task_id".to_owned(), text(&self.task_id))).chain(document).collect()
    }

    pub(super) fn of(table: &str, item: &Item) -> Self {
        let field = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        let task_id = field("task_id").unwrap_or_default();
        Self { table: table.to_owned(), task_id, document: field("document") }
    }
}

type Found = Result<Option<Item>, PortError>;

/// Consistent reads by key.
#[derive(Debug, Clone)]
pub(super) struct Reads {
    client: Client,
    together: Arc<Together<Key, Found>>,
}

impl Reads {
    pub(super) fn new(client: Client) -> Self {
        Self { client, together: Arc::default() }
    }

    /// Reads one item for `operation`, together with whatever else is being asked for.
    pub(super) async fn get(&self, key: Key, operation: impl Fn() -> String) -> Found {
        let has_room = |asked: &[_], _: &Key| asked.len() < KEYS_MAX;
        let found = self.together.ask(key, has_room, |asked| self.send(asked)).await;
        let found = found.unwrap_or_else(|| Err(cut_off(OPERATION)));
        found.map_err(|error| PortError { operation: operation(), ..error })
    }

    /// Sends a request, and hands the answers out.
    async fn send(&self, asked: Vec<Asked<Key, Found>>) {
        let mut readers: BTreeMap<Key, Vec<Sender<Found>>> = BTreeMap::new();
        asked.into_iter().for_each(|(key, reader)| readers.entry(key).or_default().push(reader));
        let keys: Vec<_> = readers.keys().cloned().collect();
        let read = match keys.as_slice() {
            [key] => self.get_one(key).await,
            keys => self.get_many(keys).await,
        };
        // A reader that was given up does not listen.
        match read {
            Ok(mut found) => readers.into_iter().for_each(|(key, readers)| {
                let item = found.remove(&key);
                readers.into_iter().for_each(|reader| drop(reader.send(Ok(item.clone()))));
            }),
            Err(error) => {
                let readers: Vec<_> = readers.into_values().flatten().collect();
                let errors = for_each(&error, readers.len());
                readers.into_iter().zip(errors).for_each(|(to, error)| drop(to.send(Err(error))));
            }
        }
    }

    async fn get_one(&self, key: &Key) -> Result<HashMap<Key, Item>, PortError> {
        let request = self.client.get_item().table_name(&key.table).consistent_read(true);
        let answer = request.set_key(Some(key.attributes())).send().await;
        let item = answer.map_err(failed(OPERATION))?.item;
        Ok(item.into_iter().map(|item| (key.clone(), item)).collect())
    }

    async fn get_many(&self, keys: &[Key]) -> Result<HashMap<Key, Item>, PortError> {
        let (mut unread, mut found, mut backoff) =
            (wanted(keys)?, HashMap::new(), Backoff::default());
        loop {
            let before = found.len();
            let request = self.client.batch_get_item().set_request_items(Some(unread));
            let answer = request.send().await.map_err(failed(OPERATION))?;
            for (table, items) in answer.responses.unwrap_or_default() {
                found.extend(items.into_iter().map(|item| (Key::of(&table, &item), item)));
            }
            unread = answer.unprocessed_keys.unwrap_or_default();
            if unread.is_empty() {
                return Ok(found);
            }
            // An answer has 16 MB at most, and 1 MB of one partition: what is large takes many.
            if found.len() > before {
                backoff.reset();
            }
            if !backoff.pause().await {
                let (operation, source) = (OPERATION.to_owned(), "throttled".into());
                return Err(PortError { operation, retryable: true, source });
            }
        }
    }
}

/// The keys by table, as `BatchGetItem` takes them.
fn wanted(keys: &[Key]) -> Result<HashMap<String, KeysAndAttributes>, PortError> {
    let mut tables: HashMap<String, Vec<Item>> = HashMap::new();
    for key in keys {
        tables.entry(key.table.clone()).or_default().push(key.attributes());
    }
    let tables = tables.into_iter().map(|(table, keys)| {
        let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        Ok((table, keys.map_err(|error| corrupt(OPERATION)(error.into()))?))
    });
    tables.collect()
}
