//! A backend in which every write of the AWS adapters shares its request with another write.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::join;
use serde_json::Value;
use steward_aws::{
    AwsPorts, bus::EventBridgeBus, channel::SqsChannel, definitions::DynamoDefinitions,
    definitions::PublishError, meter::total, ports::SystemClock, store::DynamoStore,
};
use steward_core::{
    definition::workflow::Workflow,
    model::{retention::DocumentRetention, task::Task},
};
use steward_runtime::ports::{CreateOutcome, PortError, Ports, PutOutcome, Queue, StateStore};
use steward_test_world::{InterceptedPorts, Interceptor, PortCall, PortReply, WorldPorts};

use super::{
    backends::{AwsBackend, Backend, QueuedMessage},
    samples::{at, output, owner, submission, task_due},
};

/// The AWS backend. Every write runs concurrently with an unrelated write.
pub(super) struct CoalescedBackend {
    aws: AwsBackend,
    ports: CoalescedPorts,
}

type CoalescedPorts = InterceptedPorts<
    UnrelatedWrites,
    DynamoStore,
    DynamoDefinitions,
    SqsChannel,
    EventBridgeBus,
    SystemClock,
>;

/// Makes an unrelated write with each write of a store.
#[derive(Clone)]
pub(super) struct UnrelatedWrites(DynamoStore);

impl CoalescedBackend {
    fn over(aws: AwsBackend) -> Self {
        let ports = coalesced(aws.ports());
        Self { aws, ports }
    }
}

/// The ports of an instance, each of whose writes runs concurrently with an unrelated one.
fn coalesced(ports: &AwsPorts) -> CoalescedPorts {
    WorldPorts::of(ports, SystemClock).intercepted(UnrelatedWrites(ports.store().clone()))
}

/// A number that is unique in this process.
fn unique_number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

impl UnrelatedWrites {
    /// Creates an unrelated task without a due time, so that it is in no index; with a separate document or without one.
    async fn create_unrelated_task(&self, has_separate: bool) {
        let another = task_due(&format!("another-{}", unique_number()), None);
        let separate = has_separate.then(|| submission(&another));
        let created = self.0.create(&another, separate.as_ref()).await;
        assert_eq!(created.unwrap(), CreateOutcome::Created);
    }

    /// Writes an unrelated document.
    async fn put_unrelated_document(&self) {
        let retention = DocumentRetention { from: at(0), retention_s: None };
        let document = output("another", unique_number(), Value::Null);
        let put = self.0.put_document(&owner("another"), retention, &document).await;
        assert_eq!(put.unwrap(), PutOutcome::Stored);
    }
}

impl Interceptor for UnrelatedWrites {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if let PortCall::Create(_, separate) = call {
            join!(effect, self.create_unrelated_task(separate.is_some())).0
        } else if matches!(call, PortCall::Save(_) | PortCall::PutDocument(..)) {
            join!(effect, self.put_unrelated_document()).0
        } else {
            effect.await
        }
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
        coalesced(&self.aws.another_instance())
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
    Box::pin(store.create(&task, Some(&submission(&task)))).await.unwrap();
    let document = output("a", 1, Value::Null);
    Box::pin(store.put_document(&owner("t"), task.document_retention(), &document)).await.unwrap();
    Box::pin(store.save(&Task { revision: 2, ..task })).await.unwrap();
    let requests = |operation: &str| total(&backend.aws.meter.read(), operation).requests;
    assert_eq!(requests("DynamoDB.TransactWriteItems"), 1);
    assert_eq!(requests("DynamoDB.BatchExecuteStatement"), 2);
    assert_eq!(requests("DynamoDB.PutItem"), 0);
}
