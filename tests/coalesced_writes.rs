//! The store adapter coalesces concurrent writes into shared requests. Each write keeps its own condition, and each caller
//! gets its own result. The [contract](crate::contract) also runs with coalesced writes.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{future::join_all, join};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::ports::{
    CreateOutcome, PortError, Ports, PutOutcome, SaveOutcome, StateStore,
};
use tokio::time::timeout;

use crate::support::{
    AdapterPorts, InjectedFault, SdkFaultInjector, TestDeployment, sequential_workflow,
    without_operation,
};

/// A deployment, and ports whose requests are counted.
struct MeteredWriter {
    deployment: TestDeployment,
    ports: AdapterPorts,
    meter: AwsMeter,
}

impl MeteredWriter {
    /// A store with `count` submitted tasks.
    async fn new(count: usize) -> (Self, Vec<Task>) {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
        deployment.submit(&deployment.ports("submission"), &ids).await;
        let mut tasks = Vec::new();
        for id in &ids {
            tasks.push(deployment.task(id).await);
        }
        let meter = AwsMeter::default();
        let ports = deployment
            .ports_with_interceptors("writer", vec![SharedInterceptor::new(meter.clone())]);
        (Self { deployment, ports, meter }, tasks)
    }

    /// The numbers of puts, batches of statements, and transactions.
    fn requests(&self) -> [u64; 3] {
        ["PutItem", "BatchExecuteStatement", "TransactWriteItems"]
            .map(|name| total(&self.meter.read(), &format!("DynamoDB.{name}")).requests)
    }

    /// Saves tasks concurrently.
    async fn save(&self, tasks: &[Task]) -> Vec<Result<SaveOutcome, PortError>> {
        join_all(tasks.iter().map(|task| self.ports.store().save(task))).await
    }

    /// Creates tasks concurrently.
    async fn create(&self, tasks: &[Task]) -> Vec<CreateOutcome> {
        let documents: Vec<_> = tasks.iter().map(|_| submission_document("new")).collect();
        let created = tasks.iter().zip(&documents);
        let created =
            created.map(|(task, document)| self.ports.store().create(task, Some(document)));
        join_all(created).await.into_iter().map(Result::unwrap).collect()
    }

    async fn put(&self, task: &Task, document: &Document) -> PutOutcome {
        let owner = task.document_owner();
        self.ports.store().put_document(&owner, task.document_retention(), document).await.unwrap()
    }

    /// The stored state of a task.
    async fn stored(&self, task: &Task) -> Task {
        self.deployment.task(task.task_id.as_str()).await
    }
}

fn next(task: &Task) -> Task {
    Task { revision: task.revision + 1, ..task.clone() }
}

fn submission_document(body: impl Into<Value>) -> Document {
    let (at, times) = (Timestamp::UNIX_EPOCH, AttemptTimes::default());
    Document { key: DocumentKey::Submission, at, body: body.into(), times }
}

/// Copies of tasks with other ids.
fn copies_of(tasks: &[Task]) -> Vec<Task> {
    let renamed = |task: &Task| format!("other-{}", task.task_id).parse().unwrap();
    tasks.iter().map(|task| Task { task_id: renamed(task), ..task.clone() }).collect()
}

#[tokio::test]
async fn concurrent_writes_share_one_request_for_each_25_items() {
    let (writer, tasks) = MeteredWriter::new(60).await;
    let saved = writer.save(&tasks.iter().map(next).collect::<Vec<_>>()).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == SaveOutcome::Saved));
    assert_eq!(writer.requests(), [0, 3, 0]);
    for task in &tasks {
        assert_eq!(writer.stored(task).await, next(task));
    }
}

#[tokio::test]
async fn a_single_write_is_a_put() {
    let (writer, tasks) = MeteredWriter::new(1).await;
    assert_eq!(writer.save(&[next(&tasks[0])]).await.remove(0).unwrap(), SaveOutcome::Saved);
    assert_eq!(writer.requests(), [1, 0, 0]);
}

#[tokio::test]
async fn tasks_and_documents_share_a_request_and_keep_their_own_conditions() {
    let (writer, tasks) = MeteredWriter::new(4).await;
    let store = writer.ports.store();
    let (valid, stale, missing) = (next(&tasks[0]), tasks[1].clone(), &copies_of(&tasks[..1])[0]);
    let documents = [submission_document(7), submission_document(8)];
    assert_eq!(writer.put(&tasks[3], &submission_document(9)).await, PutOutcome::Stored);
    let (saved, lost, gone, written, existing) = join!(
        store.save(&valid),
        store.save(&stale),
        store.save(missing),
        writer.put(missing, &documents[0]),
        writer.put(&tasks[3], &documents[1]),
    );
    assert_eq!(saved.unwrap(), SaveOutcome::Saved);
    assert_eq!(lost.unwrap(), SaveOutcome::Conflict(Some(Box::new(tasks[1].clone()))));
    assert_eq!(gone.unwrap(), SaveOutcome::Conflict(None));
    assert_eq!(written, PutOutcome::Stored);
    let PutOutcome::Existing(body) = existing else { panic!("{existing:?}") };
    assert_eq!(body, json!(9));
    // After the first document, three writes failed their conditions, and were repeated alone to get the existing items.
    assert_eq!(writer.requests(), [4, 1, 0]);
    assert_eq!(writer.stored(&tasks[0]).await, valid);
    assert_eq!(writer.stored(&tasks[1]).await, tasks[1]);
}

/// DynamoDB rejects two statements for one item in a request, so the saves use two requests.
#[tokio::test]
async fn one_of_two_concurrent_saves_of_a_task_wins() {
    let (writer, tasks) = MeteredWriter::new(2).await;
    let (first, second) = (next(&tasks[0]), Task { failure_count: 1, ..next(&tasks[0]) });
    let saved = writer.save(&[next(&tasks[1]), first, second]).await;
    let saved: Vec<_> = saved.into_iter().map(Result::unwrap).collect();
    assert_eq!(saved[0], SaveOutcome::Saved);
    let now = SaveOutcome::Conflict(Some(Box::new(writer.stored(&tasks[0]).await)));
    assert!(saved[1..].contains(&SaveOutcome::Saved) && saved[1..].contains(&now), "{saved:?}");
    // One of the two saves shares a request with the other task. The losing save is repeated to get the stored task.
    let [puts, batches, _] = writer.requests();
    assert!(batches == 1 && puts <= 2, "{puts} puts, {batches} batches");
}

#[tokio::test]
async fn large_documents_do_not_share_a_request() {
    let (writer, tasks) = MeteredWriter::new(3).await;
    let large = Document {
        key: "step/step_1/1/output".parse().unwrap(),
        ..submission_document("x".repeat(200_000))
    };
    let puts = join_all(tasks.iter().map(|task| writer.put(task, &large))).await;
    assert!(puts.into_iter().all(|put| put == PutOutcome::Stored));
    assert_eq!(writer.requests(), [3, 0, 0]);
}

#[tokio::test]
async fn new_tasks_share_one_transaction_for_each_25() {
    let (writer, tasks) = MeteredWriter::new(60).await;
    let copies = copies_of(&tasks);
    assert!(
        writer.create(&copies).await.into_iter().all(|created| created == CreateOutcome::Created)
    );
    assert_eq!(writer.requests(), [0, 0, 3]);
    for task in &copies {
        assert_eq!(writer.stored(task).await, *task);
    }
}

#[tokio::test]
async fn an_existing_task_does_not_prevent_others_from_being_recorded() {
    let (writer, tasks) = MeteredWriter::new(2).await;
    let mixed = [copies_of(&tasks), tasks[..1].to_vec()].concat();
    let created = writer.create(&mixed).await;
    assert_eq!(
        created,
        [
            CreateOutcome::Created,
            CreateOutcome::Created,
            CreateOutcome::Exists(Some(Box::new(tasks[0].clone())))
        ]
    );
    // One transaction for all three, then one for the existing task and one for the other two.
    assert_eq!(writer.requests(), [0, 0, 3]);
    assert_eq!(writer.stored(&tasks[0]).await, tasks[0]);
}

/// Two releases run at the same time: an update statement keeps attributes that it does not know, and a `PutItem` drops
/// them. So an attribute of a newer release may be missing or stale.
#[tokio::test]
async fn an_unknown_attribute_survives_a_shared_write_and_is_dropped_by_a_put() {
    let (writer, tasks) = MeteredWriter::new(2).await;
    let client = aws_sdk_dynamodb::Client::new(&writer.deployment.aws.sdk_config());
    let table = &writer.deployment.config.tasks_table;
    let key = || AttributeValue::S(tasks[0].task_id.to_string());
    let newer = client.update_item().table_name(table).key("task_id", key());
    let newer = newer.update_expression("SET added_later = :v");
    newer.expression_attribute_values(":v", AttributeValue::Bool(true)).send().await.unwrap();
    let has_attribute = async || {
        let item = client.get_item().table_name(table).key("task_id", key()).send().await.unwrap();
        item.item.unwrap().contains_key("added_later")
    };
    let saved = writer.save(&[next(&tasks[0]), next(&tasks[1])]).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == SaveOutcome::Saved));
    assert_eq!(writer.requests(), [0, 1, 0]);
    assert!(has_attribute().await, "a shared write keeps the attribute");
    assert_eq!(writer.stored(&tasks[0]).await, next(&tasks[0]), "the task is readable");
    writer.save(&[next(&next(&tasks[0]))]).await.remove(0).unwrap();
    assert_eq!(writer.requests(), [1, 1, 0]);
    assert!(!has_attribute().await, "a single write replaces the whole item");
}

/// The SDK retries throttled requests. When it gives up, the messages return to their queue.
#[tokio::test]
async fn a_failed_shared_request_fails_all_its_writes_with_retryable_errors() {
    let (writer, tasks) = MeteredWriter::new(3).await;
    let injector = SdkFaultInjector::always("BatchExecuteStatement", "", InjectedFault::FailBefore);
    let ports = writer.deployment.ports_with_faults("writer", injector);
    let saves: Vec<_> = tasks.iter().map(next).collect();
    for (task, saved) in
        tasks.iter().zip(join_all(saves.iter().map(|task| ports.store().save(task))).await)
    {
        let error = saved.unwrap_err();
        assert!(error.retryable, "{error}");
        assert_eq!(error.operation, format!("save task {}", task.task_id));
        assert_eq!(writer.stored(task).await, *task);
    }
}

#[tokio::test]
async fn each_write_is_a_put_if_statements_are_unsupported() {
    let (writer, tasks) = MeteredWriter::new(3).await;
    let sdk = without_operation("BatchExecuteStatement", &writer.deployment.aws.sdk_config());
    let ports = writer.deployment.ports_with_sdk("writer", &sdk);
    let saves: Vec<_> = tasks.iter().map(next).collect();
    let saved = join_all(saves.iter().map(|task| ports.store().save(task))).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == SaveOutcome::Saved));
    for task in &tasks {
        assert_eq!(writer.stored(task).await, next(task));
    }
}

/// The writer that began a shared request is cancelled before the request is sent. The other writers get a retryable error.
#[tokio::test(start_paused = true)]
async fn a_writer_gets_a_retryable_error_if_its_shared_request_was_never_sent() {
    let (writer, tasks) = MeteredWriter::new(2).await;
    let (saves, store) = ([next(&tasks[0]), next(&tasks[1])], writer.ports.store());
    let mut first = Box::pin(store.save(&saves[0]));
    let mut second = Box::pin(store.save(&saves[1]));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    // The paused clock advances while all tasks wait.
    let error = timeout(Duration::from_secs(60), second).await.unwrap().unwrap_err();
    assert!(error.retryable, "{error}");
    // The next write succeeds.
    assert_eq!(writer.save(&saves).await.len(), 2);
    assert_eq!(writer.stored(&tasks[1]).await, saves[1]);
}
