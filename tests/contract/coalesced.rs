//! A backend in which every write of the AWS adapters shares its request with another write.

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
        document::{Document, DocumentKey, DocumentOwner, DocumentRetention},
        names::TaskId,
        task::{ProcessState, Task},
        time::Timing,
    },
};
use steward_runtime::ports::{
    CreateOutcome, DueCursor, DuePage, EndedTask, EndedTaskPage, PortError, Ports, PutOutcome,
    Queue, SaveOutcome, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome,
    StateStore,
};

use super::{
    backends::{AwsBackend, Backend, QueuedMessage},
    samples::{at, output, owner, submission, task_due},
};

/// The AWS backend. Every write runs concurrently with an unrelated write.
pub(super) struct CoalescedBackend {
    aws: AwsBackend,
    ports: CoalescedPorts,
}

#[derive(Clone)]
pub(super) struct CoalescedPorts {
    ports: AwsPorts,
    store: CoalescedStore,
}

#[derive(Clone)]
pub(super) struct CoalescedStore(DynamoStore);

impl CoalescedBackend {
    fn over(aws: AwsBackend) -> Self {
        let ports = CoalescedPorts::new(aws.ports().clone());
        Self { aws, ports }
    }
}

impl CoalescedPorts {
    fn new(ports: AwsPorts) -> Self {
        Self { store: CoalescedStore(ports.store().clone()), ports }
    }
}

/// A number that is unique in this process.
fn unique_number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

impl CoalescedStore {
    /// Writes an unrelated document.
    async fn put_unrelated_document(&self) {
        let kept = DocumentRetention { from: at(0), retention_s: None };
        let document = output("another", unique_number(), Value::Null);
        let put = self.0.put_document(&owner("another"), kept, &document).await;
        assert_eq!(put.unwrap(), PutOutcome::Stored);
    }
}

impl StateStore for CoalescedStore {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        self.0.load(id).await
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<CreateOutcome, PortError> {
        let another = format!("another-{}", unique_number());
        // Without a due time, so that it is in no index.
        let another = task_due(&another, None);
        let document = submission(&another);
        let (created, others) =
            join!(self.0.create(task, submitted), self.0.create(&another, &document));
        assert_eq!(others.unwrap(), CreateOutcome::Created);
        created
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        join!(self.0.save(task), self.put_unrelated_document()).0
    }

    async fn put_document(
        &self,
        owner: &DocumentOwner,
        kept: DocumentRetention,
        document: &Document,
    ) -> Result<PutOutcome, PortError> {
        join!(self.0.put_document(owner, kept, document), self.put_unrelated_document()).0
    }

    async fn extend_documents(
        &self,
        owner: &DocumentOwner,
        kept: DocumentRetention,
    ) -> Result<(), PortError> {
        self.0.extend_documents(owner, kept).await
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        self.0.documents(owner, keys).await
    }

    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        self.0.due_tasks(shard, until, after).await
    }

    fn shards(&self) -> u32 {
        self.0.shards()
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        self.0.ended_tasks(state, part, within, after).await
    }

    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        self.0.shared_record(key).await
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        self.0.save_shared_record(shared).await
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        self.0.shared_records(kind).await
    }
}

impl Ports for CoalescedPorts {
    type Store = CoalescedStore;
    type Definitions = DynamoDefinitions;
    type Channel = SqsChannel;
    type Bus = EventBridgeBus;
    type Clock = SystemClock;

    fn store(&self) -> &CoalescedStore {
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

impl Backend for CoalescedBackend {
    type Ports = CoalescedPorts;

    async fn open() -> Self {
        Self::over(AwsBackend::open().await)
    }

    fn ports(&self) -> &CoalescedPorts {
        &self.ports
    }

    fn another_instance(&self) -> Self::Ports {
        CoalescedPorts::new(self.aws.another_instance())
    }

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError> {
        self.aws.publish_definition(workflow).await
    }

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool {
        self.aws.unpublish_definition(name, version).await
    }

    fn client_queue(&self) -> Queue {
        self.aws.client_queue()
    }

    fn missing_queue(&self) -> Queue {
        self.aws.missing_queue()
    }

    async fn take_messages(&self, queue: &Queue) -> Vec<QueuedMessage> {
        self.aws.take_messages(queue).await
    }

    async fn take_events(&self, count: usize) -> Vec<(String, Value)> {
        self.aws.take_events(count).await
    }
}

/// Checks this backend: all writes share requests, and none is repeated alone.
#[tokio::test]
async fn every_write_shares_its_request() {
    let backend = CoalescedBackend::over(AwsBackend::open_in_process().await);
    let task = task_due("t", None);
    let store = backend.ports().store();
    store.create(&task, &submission(&task)).await.unwrap();
    store.put_document(&owner("t"), task.kept(), &output("a", 1, Value::Null)).await.unwrap();
    store.save(&Task { revision: 2, ..task }).await.unwrap();
    let requests = |operation: &str| total(&backend.aws.meter.read(), operation).requests;
    assert_eq!(requests("DynamoDB.TransactWriteItems"), 1);
    assert_eq!(requests("DynamoDB.BatchExecuteStatement"), 2);
    assert_eq!(requests("DynamoDB.PutItem"), 0);
}
