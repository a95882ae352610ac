//! The AWS adapters when nothing is written alone: whatever is written has company, and goes out together
//! with it.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

use futures_util::join;
use jiff::Timestamp;
use serde_json::Value;
use steward_aws::{
    AwsPorts, bus::EventBridgeBus, channel::SqsChannel, definitions::DynamoDefinitions,
    definitions::PublishError, meter::total, ports::SystemClock, store::DynamoStore,
};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        document::{Document, DocumentKey, Kept, Owner},
        names::TaskId,
        task::{ProcessState, Task},
        time::Timing,
    },
};
use steward_runtime::ports::{
    Created, DueCursor, DuePage, Ended, EndedPage, PortError, Ports, Put, Queue, Saved, Shared,
    SharedKey, SharedKind, SharedSaved, StateStore,
};

use super::{
    samples::{at, output, owner, submission, task_due},
    worlds::{Embedded, Sent, World},
};

/// The embedded world, in which every write has company.
pub(super) struct Company {
    embedded: Embedded,
    ports: CompanyPorts,
}

#[derive(Clone)]
pub(super) struct CompanyPorts {
    ports: AwsPorts,
    store: CompanyStore,
}

#[derive(Clone)]
pub(super) struct CompanyStore(DynamoStore);

impl Company {
    fn of(embedded: Embedded) -> Self {
        let ports = CompanyPorts::new(embedded.ports().clone());
        Self { embedded, ports }
    }
}

impl CompanyPorts {
    fn new(ports: AwsPorts) -> Self {
        Self { store: CompanyStore(ports.store().clone()), ports }
    }
}

/// A number that no other has.
fn number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

impl CompanyStore {
    /// Writes another document.
    async fn another(&self) {
        let kept = Kept { from: at(0), retention_s: None };
        let document = output("another", number(), Value::Null);
        let put = self.0.put_document(&owner("another"), kept, &document).await;
        assert_eq!(put.unwrap(), Put::Stored);
    }
}

impl StateStore for CompanyStore {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        self.0.load(id).await
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<Created, PortError> {
        let another = format!("another-{}", number());
        // In no index.
        let another = task_due(&another, None);
        let document = submission(&another);
        let (created, others) =
            join!(self.0.create(task, submitted), self.0.create(&another, &document));
        assert_eq!(others.unwrap(), Created::Created);
        created
    }

    async fn save(&self, task: &Task) -> Result<Saved, PortError> {
        join!(self.0.save(task), self.another()).0
    }

    async fn put_document(
        &self,
        owner: &Owner,
        kept: Kept,
        document: &Document,
    ) -> Result<Put, PortError> {
        join!(self.0.put_document(owner, kept, document), self.another()).0
    }

    async fn extend_documents(&self, owner: &Owner, kept: Kept) -> Result<(), PortError> {
        self.0.extend_documents(owner, kept).await
    }

    async fn documents(
        &self,
        owner: &Owner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        self.0.documents(owner, keys).await
    }

    async fn due(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        self.0.due(shard, until, after).await
    }

    fn shards(&self) -> u32 {
        self.0.shards()
    }

    async fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> Result<EndedPage, PortError> {
        self.0.ended(state, part, within, after).await
    }

    async fn shared(&self, key: &SharedKey) -> Result<Option<Shared>, PortError> {
        self.0.shared(key).await
    }

    async fn save_shared(&self, shared: &Shared) -> Result<SharedSaved, PortError> {
        self.0.save_shared(shared).await
    }

    async fn all_shared(&self, kind: SharedKind) -> Result<Vec<Shared>, PortError> {
        self.0.all_shared(kind).await
    }
}

impl Ports for CompanyPorts {
    type Store = CompanyStore;
    type Definitions = DynamoDefinitions;
    type Channel = SqsChannel;
    type Bus = EventBridgeBus;
    type Clock = SystemClock;

    fn store(&self) -> &CompanyStore {
        &self.store
    }

    fn definitions(&self) -> &DynamoDefinitions {
        self.ports.definitions()
    }

    fn channel(&self) -> &SqsChannel {
        self.ports.channel()
    }

    fn bus(&self) -> &EventBridgeBus {
        self.ports.bus()
    }

    fn clock(&self) -> &SystemClock {
        self.ports.clock()
    }

    fn timing(&self) -> Timing {
        self.ports.timing()
    }

    fn instance(&self) -> &str {
        self.ports.instance()
    }
}

impl World for Company {
    type Ports = CompanyPorts;

    async fn open() -> Self {
        Self::of(Embedded::open().await)
    }

    fn ports(&self) -> &CompanyPorts {
        &self.ports
    }

    fn another(&self) -> CompanyPorts {
        CompanyPorts::new(self.embedded.another())
    }

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError> {
        self.embedded.publish_definition(workflow).await
    }

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool {
        self.embedded.unpublish_definition(name, version).await
    }

    fn client_queue(&self) -> Queue {
        self.embedded.client_queue()
    }

    fn missing_queue(&self) -> Queue {
        self.embedded.missing_queue()
    }

    async fn sent(&self, queue: &Queue) -> Vec<Sent> {
        self.embedded.sent(queue).await
    }

    async fn published(&self, count: usize) -> Vec<(String, Value)> {
        self.embedded.published(count).await
    }
}

/// This world is what it says: what is not refused is not asked for again.
#[tokio::test]
async fn every_write_shares_its_request() {
    let world = Company::of(Embedded::open_in_process().await);
    let task = task_due("t", None);
    let store = world.ports().store();
    store.create(&task, &submission(&task)).await.unwrap();
    store.put_document(&owner("t"), task.kept(), &output("a", 1, Value::Null)).await.unwrap();
    store.save(&Task { revision: 2, ..task }).await.unwrap();
    let requests = |operation: &str| total(&world.embedded.meter.read(), operation).requests;
    assert_eq!(requests("DynamoDB.TransactWriteItems"), 1);
    assert_eq!(requests("DynamoDB.BatchExecuteStatement"), 2);
    assert_eq!(requests("DynamoDB.PutItem"), 0);
}
