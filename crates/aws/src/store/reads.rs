//! [Coalesces](crate::coalescer) concurrent reads: one `BatchGetItem` for the tasks of a batch, and one for the
//! documents that they need, instead of a `GetItem` for each. The read units stay the same, with fewer requests to sign,
//! send and wait for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use aws_sdk_dynamodb::{Client, types::KeysAndAttributes};
use steward_runtime::ports::PortError;
use tokio::sync::oneshot::Sender;

use super::backoff::Backoff;
use crate::{
    coalescer::{PendingRequest, RequestCoalescer, leader_cancelled},
    errors::{corrupt, failed, for_each},
    items::{ItemAttributes, text},
};

/// Keys in one `BatchGetItem`, by DynamoDB's limit.
pub(super) const KEYS_MAX: usize = 100;

/// The operation in errors of a batch. Each caller replaces it by its own operation.
const OPERATION: &str = "read items";

/// The table and primary key of an item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ItemKey {
    pub(super) table: String,
    pub(super) task_id: String,
    pub(super) document: Option<String>,
}

impl ItemKey {
    fn attributes(&self) -> ItemAttributes {
        let document = self.document.iter().map(|document| ("document".to_owned(), text(document)));
        std::iter::once(("task_id".to_owned(), text(&self.task_id))).chain(document).collect()
    }

    pub(super) fn of(table: &str, item: &ItemAttributes) -> Self {
        let field = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        let task_id = field("task_id").unwrap_or_default();
        Self { table: table.to_owned(), task_id, document: field("document") }
    }
}

type ReadResult = Result<Option<ItemAttributes>, PortError>;

/// Reads items by key, consistently.
#[derive(Debug, Clone)]
pub(super) struct ItemReader {
    client: Client,
    coalescer: Arc<RequestCoalescer<ItemKey, ReadResult>>,
}

impl ItemReader {
    pub(super) fn new(client: Client) -> Self {
        Self { client, coalescer: Arc::default() }
    }

    /// Reads one item for `operation`, in one batch with concurrent reads.
    pub(super) async fn get(&self, key: ItemKey, operation: impl Fn() -> String) -> ReadResult {
        let has_room = |batch: &[_], _: &ItemKey| batch.len() < KEYS_MAX;
        let result = self.coalescer.request(key, has_room, |batch| self.send(batch)).await;
        let result = result.unwrap_or_else(|| Err(leader_cancelled(OPERATION)));
        result.map_err(|error| PortError { operation: operation(), ..error })
    }

    /// Sends a batch and distributes the results.
    async fn send(&self, batch: Vec<PendingRequest<ItemKey, ReadResult>>) {
        let mut readers: BTreeMap<ItemKey, Vec<Sender<ReadResult>>> = BTreeMap::new();
        batch.into_iter().for_each(|(key, reader)| readers.entry(key).or_default().push(reader));
        let keys: Vec<_> = readers.keys().cloned().collect();
        let read = match keys.as_slice() {
            [key] => self.get_one(key).await,
            keys => self.get_many(keys).await,
        };
        // Sending to a reader fails if the reader was cancelled.
        match read {
            Ok(mut found) => readers.into_iter().for_each(|(key, readers)| {
                let item = found.remove(&key);
                readers.into_iter().for_each(|reader| drop(reader.send(Ok(item.clone()))));
            }),
            Err(error) => {
                let readers: Vec<_> = readers.into_values().flatten().collect();
                let errors = for_each(error, readers.len());
                readers.into_iter().zip(errors).for_each(|(to, error)| drop(to.send(Err(error))));
            }
        }
    }

    async fn get_one(&self, key: &ItemKey) -> Result<HashMap<ItemKey, ItemAttributes>, PortError> {
        let request = self.client.get_item().table_name(&key.table).consistent_read(true);
        let output = request.set_key(Some(key.attributes())).send().await;
        let item = output.map_err(failed(OPERATION))?.item;
        Ok(item.into_iter().map(|item| (key.clone(), item)).collect())
    }

    async fn get_many(
        &self,
        keys: &[ItemKey],
    ) -> Result<HashMap<ItemKey, ItemAttributes>, PortError> {
        let (mut unread, mut found, mut backoff) =
            (keys_by_table(keys)?, HashMap::new(), Backoff::default());
        loop {
            let before = found.len();
            let request = self.client.batch_get_item().set_request_items(Some(unread));
            let output = request.send().await.map_err(failed(OPERATION))?;
            for (table, items) in output.responses.unwrap_or_default() {
                found.extend(items.into_iter().map(|item| (ItemKey::of(&table, &item), item)));
            }
            unread = output.unprocessed_keys.unwrap_or_default();
            if unread.is_empty() {
                return Ok(found);
            }
            // A response has at most 16 MB, and at most 1 MB of one partition, so large items need several requests.
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

/// The keys by table, in the form of a `BatchGetItem` request.
fn keys_by_table(keys: &[ItemKey]) -> Result<HashMap<String, KeysAndAttributes>, PortError> {
    let mut tables: HashMap<String, Vec<ItemAttributes>> = HashMap::new();
    for key in keys {
        tables.entry(key.table.clone()).or_default().push(key.attributes());
    }
    let tables = tables.into_iter().map(|(table, keys)| {
        let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        Ok((table, keys.map_err(|error| corrupt(OPERATION)(error.into()))?))
    });
    tables.collect()
}
