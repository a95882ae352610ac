//! The store adapter coalesces concurrent reads into shared requests; each caller gets its own result.

use std::time::Duration;

use futures_util::future::join_all;
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_core::model::{document::Document, names::TaskId};
use steward_runtime::ports::{Ports, StateStore};
use tokio::time::timeout;

use crate::support::{AdapterPorts, TestDeployment, sequential_workflow};

/// A deployment, and ports whose requests are counted.
struct MeteredReader {
    deployment: TestDeployment,
    ports: AdapterPorts,
    meter: AwsMeter,
}

impl MeteredReader {
    /// A store with tasks that have these ids.
    async fn new(ids: &[String]) -> Self {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        deployment.submit(&deployment.ports("submission"), ids).await;
        let meter = AwsMeter::default();
        let ports = deployment
            .ports_with_interceptors("reader", vec![SharedInterceptor::new(meter.clone())]);
        Self { deployment, ports, meter }
    }

    /// The numbers of single reads and of batch reads.
    fn requests(&self) -> (u64, u64) {
        let count = |operation| total(&self.meter.read(), operation).requests;
        (count("DynamoDB.GetItem"), count("DynamoDB.BatchGetItem"))
    }

    /// Loads tasks concurrently; returns the ids of the existing ones.
    async fn load(&self, ids: &[TaskId]) -> Vec<TaskId> {
        let loaded = join_all(ids.iter().map(|id| self.ports.store().load(id))).await;
        loaded.into_iter().filter_map(Result::unwrap).map(|task| task.task_id).collect()
    }
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("t-{n:03}")).collect()
}

fn task_ids(ids: &[String]) -> Vec<TaskId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

#[tokio::test]
async fn concurrent_reads_share_one_request_for_each_hundred_keys() {
    let ids = ids(120);
    let reader = MeteredReader::new(&ids).await;
    let mut requested = task_ids(&ids);
    assert_eq!(reader.load(&requested).await, requested);
    assert_eq!(reader.requests(), (0, 2));
    // The same tasks again, and a missing one.
    requested.push("nowhere".parse().unwrap());
    assert_eq!(reader.load(&requested[..]).await.len(), 120);
    assert_eq!(reader.requests(), (0, 4));
}

#[tokio::test]
async fn concurrent_reads_of_one_key_are_a_single_get() {
    let ids = ids(1);
    let reader = MeteredReader::new(&ids).await;
    let id = task_ids(&ids).remove(0);
    let same = vec![id.clone(); 5];
    assert_eq!(reader.load(&same).await, same);
    assert_eq!(reader.requests(), (1, 0));
}

#[tokio::test]
async fn tasks_and_documents_share_a_request() {
    let ids = ids(2);
    let reader = MeteredReader::new(&ids).await;
    let (store, ids) = (reader.ports.store(), task_ids(&ids));
    let task = reader.deployment.task(ids[1].as_str()).await;
    let owner = task.document_owner();
    let key = "step/step_1/1/output".parse().unwrap();
    let separate = Document::new(key, task.submitted_at, 1.into());
    store.put_document(&owner, task.document_retention(), &separate).await.unwrap();
    let (task, documents) = futures_util::join!(
        store.load(&ids[0]),
        store.documents(&owner, std::slice::from_ref(&separate.key)),
    );
    assert_eq!(task.unwrap().unwrap().task_id, ids[0]);
    assert_eq!(documents.unwrap().len(), 1);
    assert_eq!(reader.requests(), (0, 1));
}

/// The reader that began a shared request is cancelled before the request is sent. The other readers get a retryable error.
#[tokio::test(start_paused = true)]
async fn a_reader_gets_a_retryable_error_if_its_shared_request_was_never_sent() {
    let ids = ids(2);
    let reader = MeteredReader::new(&ids).await;
    let (store, ids) = (reader.ports.store(), task_ids(&ids));
    let mut first = Box::pin(store.load(&ids[0]));
    let mut second = Box::pin(store.load(&ids[1]));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    // The paused clock advances while all tasks wait.
    let error = timeout(Duration::from_secs(60), second).await.unwrap().unwrap_err();
    assert!(error.retryable, "{error}");
    assert_eq!(error.operation, format!("load task {}", ids[1]));
    // The next read succeeds.
    assert_eq!(reader.load(&ids).await, ids);
}
