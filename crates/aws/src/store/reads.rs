//! Reads that are asked for at the same moment go out together: one `BatchGetItem` for the tasks of a
//! batch, and one for the documents that they want, instead of a `GetItem` for each. What is read and
//! what it costs is the same; it is fewer requests to sign, send and wait for. The idea is that of
//! DataLoader (<https://github.com/graphql/dataloader>).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_dynamodb::{Client, types::KeysAndAttributes};
use steward_core::ports::PortError;
use tokio::{
    sync::oneshot::{Receiver, Sender, channel},
    task::yield_now,
};

use crate::{
    errors::{corrupt, failed, for_each},
    items::{Item, text},
};

/// Keys in one `BatchGetItem`, by DynamoDB's limit.
const KEYS_MAX: usize = 100;

/// Rounds of asking again for what DynamoDB left out of its answer.
const ROUNDS_MAX: u32 = 8;

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

    fn of(table: &str, item: &Item) -> Self {
        let field = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        let task_id = field("task_id").unwrap_or_default();
        Self { table: table.to_owned(), task_id, document: field("document") }
    }
}

type Found = Result<Option<Item>, PortError>;

/// What is asked for, and by whom.
type Asked = BTreeMap<Key, Vec<Sender<Found>>>;

/// Consistent reads by key.
#[derive(Debug, Clone)]
pub(super) struct Reads {
    client: Client,
    /// What the next request will ask for, if somebody is about to send one.
    next: Arc<Mutex<Option<Arc<Mutex<Asked>>>>>,
}

impl Reads {
    pub(super) fn new(client: Client) -> Self {
        Self { client, next: Arc::default() }
    }

    /// Reads one item for `operation`, together with whatever else is being asked for.
    pub(super) async fn get(&self, key: Key, operation: impl Fn() -> String) -> Found {
        let (answer, mine) = self.ask(key);
        if let Some(asked) = mine {
            let close = Close { reads: self, asked: &asked };
            // Whoever is about to ask does so before this goes on.
            yield_now().await;
            let asked = close.asked();
            self.send(asked).await;
        }
        // Whoever was to send the request was cut off, and will not.
        let cut_off = "the one who was to send the request was cut off";
        let found = answer.await.unwrap_or_else(|_| Err(retryable(cut_off)));
        found.map_err(|error| PortError { operation: operation(), ..error })
    }

    /// Puts a key into the next request; whoever is the first to do so sends it.
    fn ask(&self, key: Key) -> (Receiver<Found>, Option<Arc<Mutex<Asked>>>) {
        let (sender, answer) = channel();
        let mut next = lock(&self.next);
        if let Some(asked) = next.as_ref() {
            let mut asked = lock(asked);
            if asked.len() < KEYS_MAX {
                asked.entry(key).or_default().push(sender);
                return (answer, None);
            }
        }
        let mine = Arc::new(Mutex::new(Asked::from([(key, vec![sender])])));
        *next = Some(mine.clone());
        (answer, Some(mine))
    }

    /// Sends a request, and hands the answers out.
    async fn send(&self, asked: Asked) {
        let keys: Vec<_> = asked.keys().cloned().collect();
        let read = match keys.as_slice() {
            [key] => self.get_one(key).await,
            keys => self.get_many(keys).await,
        };
        // A reader that was given up does not listen.
        match read {
            Ok(mut found) => asked.into_iter().for_each(|(key, senders)| {
                let item = found.remove(&key);
                senders.into_iter().for_each(|sender| drop(sender.send(Ok(item.clone()))));
            }),
            Err(error) => {
                let senders: Vec<_> = asked.into_values().flatten().collect();
                let errors = for_each(&error, senders.len());
                senders.into_iter().zip(errors).for_each(|(to, error)| drop(to.send(Err(error))));
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
        let (mut unread, mut found) = (wanted(keys)?, HashMap::new());
        for _ in 0..ROUNDS_MAX {
            let request = self.client.batch_get_item().set_request_items(Some(unread));
            let answer = request.send().await.map_err(failed(OPERATION))?;
            for (table, items) in answer.responses.unwrap_or_default() {
                found.extend(items.into_iter().map(|item| (Key::of(&table, &item), item)));
            }
            unread = answer.unprocessed_keys.unwrap_or_default();
            if unread.is_empty() {
                return Ok(found);
            }
        }
        Err(retryable("throttled"))
    }
}

fn retryable(source: &str) -> PortError {
    PortError { operation: OPERATION.to_owned(), retryable: true, source: source.into() }
}

/// A request that more is added to, until this goes: also if the one who was to send it is given up.
struct Close<'a> {
    reads: &'a Reads,
    asked: &'a Arc<Mutex<Asked>>,
}

impl Close<'_> {
    /// What was asked for.
    fn asked(self) -> Asked {
        self.close()
    }

    fn close(&self) -> Asked {
        lock(&self.reads.next).take_if(|next| Arc::ptr_eq(next, self.asked));
        std::mem::take(&mut *lock(self.asked))
    }
}

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.close();
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
