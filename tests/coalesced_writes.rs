//! Writes that are asked for at the same moment share a request, and nobody notices: each has its own
//! condition and its own answer. On the real adapters; the whole contract holds
//! [in company](crate::contract) too.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{future::join_all, join};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{
    meter::{Meter, total},
    ports::SharedInterceptor,
};
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::ports::{Created, PortError, Ports, Put, Saved, StateStore};
use tokio::time::timeout;

use crate::support::{
    AdapterPorts, InjectedFault, SdkFaultInjector, TestDeployment, sequential_workflow,
    without_operation,
};

struct Counted {
    deployment: TestDeployment,
    ports: AdapterPorts,
    meter: Meter,
}

impl Counted {
    /// A store with so many tasks, as they were submitted.
    async fn new(count: usize) -> (Self, Vec<Task>) {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
        deployment.submit(&deployment.ports("submission"), &ids).await;
        let mut tasks = Vec::new();
        for id in &ids {
            tasks.push(deployment.task(id).await);
        }
        let meter = Meter::default();
        let ports = deployment
            .ports_with_interceptors("writer", vec![SharedInterceptor::new(meter.clone())]);
        (Self { deployment, ports, meter }, tasks)
    }

    /// Puts, batches of statements, and transactions.
    fn requests(&self) -> [u64; 3] {
        ["PutItem", "BatchExecuteStatement", "TransactWriteItems"]
            .map(|name| total(&self.meter.read(), &format!("DynamoDB.{name}")).requests)
    }

    /// Saves tasks at the same moment.
    async fn save(&self, tasks: &[Task]) -> Vec<Result<Saved, PortError>> {
        join_all(tasks.iter().map(|task| self.ports.store().save(task))).await
    }

    async fn create(&self, tasks: &[Task]) -> Vec<Created> {
        let documents: Vec<_> = tasks.iter().map(|_| submitted("new")).collect();
        let created = tasks.iter().zip(&documents);
        let created = created.map(|(task, document)| self.ports.store().create(task, document));
        join_all(created).await.into_iter().map(Result::unwrap).collect()
    }

    async fn put(&self, task: &Task, document: &Document) -> Put {
        let owner = task.owner();
        self.ports.store().put_document(&owner, task.kept(), document).await.unwrap()
    }

    /// The task as it is now.
    async fn now(&self, task: &Task) -> Task {
        self.deployment.task(task.task_id.as_str()).await
    }
}

fn next(task: &Task) -> Task {
    Task { revision: task.revision + 1, ..task.clone() }
}

fn submitted(body: impl Into<Value>) -> Document {
    let (at, times) = (Timestamp::UNIX_EPOCH, AttemptTimes::default());
    Document { key: DocumentKey::Submission, at, body: body.into(), times }
}

/// New tasks, made of others.
fn others(tasks: &[Task]) -> Vec<Task> {
    let renamed = |task: &Task| format!("other-{}", task.task_id).parse().unwrap();
    tasks.iter().map(|task| Task { task_id: renamed(task), ..task.clone() }).collect()
}

#[tokio::test]
async fn concurrent_writes_share_one_request_for_each_25_items() {
    let (counted, tasks) = Counted::new(60).await;
    let saved = counted.save(&tasks.iter().map(next).collect::<Vec<_>>()).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == Saved::Saved));
    assert_eq!(counted.requests(), [0, 3, 0]);
    for task in &tasks {
        assert_eq!(counted.now(task).await, next(task));
    }
}

#[tokio::test]
async fn a_single_write_is_a_put() {
    let (counted, tasks) = Counted::new(1).await;
    assert_eq!(counted.save(&[next(&tasks[0])]).await.remove(0).unwrap(), Saved::Saved);
    assert_eq!(counted.requests(), [1, 0, 0]);
}

#[tokio::test]
async fn tasks_and_documents_share_a_request_and_keep_their_own_conditions() {
    let (counted, tasks) = Counted::new(4).await;
    let store = counted.ports.store();
    let (mine, stale, missing) = (next(&tasks[0]), tasks[1].clone(), &others(&tasks[..1])[0]);
    let documents = [submitted(7), submitted(8)];
    let (saved, lost, gone, written, existing) = join!(
        store.save(&mine),
        store.save(&stale),
        store.save(missing),
        counted.put(missing, &documents[0]),
        counted.put(&tasks[3], &documents[1]),
    );
    assert_eq!(saved.unwrap(), Saved::Saved);
    assert_eq!(lost.unwrap(), Saved::Conflict(Some(Box::new(tasks[1].clone()))));
    assert_eq!(gone.unwrap(), Saved::Conflict(None));
    assert_eq!(written, Put::Stored);
    let Put::Existing(body) = existing else { panic!("{existing:?}") };
    assert_eq!(body["input"], json!({ "n": 1 }));
    // Three were refused, and asked again alone what there is.
    assert_eq!(counted.requests(), [3, 1, 0]);
    assert_eq!(counted.now(&tasks[0]).await, mine);
    assert_eq!(counted.now(&tasks[1]).await, tasks[1]);
}

/// Two statements for one item are refused, so they go in two requests.
#[tokio::test]
async fn one_of_two_concurrent_saves_of_a_task_wins() {
    let (counted, tasks) = Counted::new(2).await;
    let (first, second) = (next(&tasks[0]), Task { failure_count: 1, ..next(&tasks[0]) });
    let saved = counted.save(&[next(&tasks[1]), first, second]).await;
    let saved: Vec<_> = saved.into_iter().map(Result::unwrap).collect();
    assert_eq!(saved[0], Saved::Saved);
    let now = Saved::Conflict(Some(Box::new(counted.now(&tasks[0]).await)));
    assert!(saved[1..].contains(&Saved::Saved) && saved[1..].contains(&now), "{saved:?}");
    // One of the two went with the other task, one alone; and whichever lost asked what there is.
    let [puts, batches, _] = counted.requests();
    assert!(batches == 1 && puts <= 2, "{puts} puts, {batches} batches");
}

#[tokio::test]
async fn large_documents_do_not_share_a_request() {
    let (counted, tasks) = Counted::new(3).await;
    let large =
        Document { key: "step/step_1/1/output".parse().unwrap(), ..submitted("x".repeat(200_000)) };
    let puts = join_all(tasks.iter().map(|task| counted.put(task, &large))).await;
    assert!(puts.into_iter().all(|put| put == Put::Stored));
    assert_eq!(counted.requests(), [3, 0, 0]);
}

#[tokio::test]
async fn new_tasks_share_one_transaction_for_each_25() {
    let (counted, tasks) = Counted::new(60).await;
    let others = others(&tasks);
    assert!(counted.create(&others).await.into_iter().all(|created| created == Created::Created));
    assert_eq!(counted.requests(), [0, 0, 3]);
    for task in &others {
        assert_eq!(counted.now(task).await, *task);
    }
}

#[tokio::test]
async fn an_existing_task_does_not_prevent_others_from_being_recorded() {
    let (counted, tasks) = Counted::new(2).await;
    let mixed = [others(&tasks), tasks[..1].to_vec()].concat();
    let created = counted.create(&mixed).await;
    assert_eq!(
        created,
        [Created::Created, Created::Created, Created::Exists(Some(Box::new(tasks[0].clone())))]
    );
    // All three, the one that exists alone, the others together.
    assert_eq!(counted.requests(), [0, 0, 3]);
    assert_eq!(counted.now(&tasks[0]).await, tasks[0]);
}

/// Two releases side by side: an update that shares a request keeps what it does not know of, a `PutItem` drops it.
/// So what a newer release adds may be missing, or stale.
#[tokio::test]
async fn an_unknown_attribute_survives_a_shared_write_and_is_dropped_by_a_put() {
    let (counted, tasks) = Counted::new(2).await;
    let client = aws_sdk_dynamodb::Client::new(&counted.deployment.aws.sdk_config());
    let table = &counted.deployment.config.tasks_table;
    let key = || AttributeValue::S(tasks[0].task_id.to_string());
    let newer = client.update_item().table_name(table).key("task_id", key());
    let newer = newer.update_expression("SET added_later = :v");
    newer.expression_attribute_values(":v", AttributeValue::Bool(true)).send().await.unwrap();
    let is_there = async || {
        let item = client.get_item().table_name(table).key("task_id", key()).send().await.unwrap();
        item.item.unwrap().contains_key("added_later")
    };
    let saved = counted.save(&[next(&tasks[0]), next(&tasks[1])]).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == Saved::Saved));
    assert_eq!(counted.requests(), [0, 1, 0]);
    assert!(is_there().await, "an older release keeps it");
    assert_eq!(counted.now(&tasks[0]).await, next(&tasks[0]), "and reads the task nonetheless");
    counted.save(&[next(&next(&tasks[0]))]).await.remove(0).unwrap();
    assert_eq!(counted.requests(), [1, 1, 0]);
    assert!(!is_there().await, "alone, the whole item is replaced");
}

/// A throttled request is the SDK's to repeat; what it gives up comes back to its queue.
#[tokio::test]
async fn a_failed_shared_request_fails_all_its_writes_with_retryable_errors() {
    let (counted, tasks) = Counted::new(3).await;
    let injector = SdkFaultInjector::always("BatchExecuteStatement", "", InjectedFault::FailBefore);
    let ports = counted.deployment.ports_with_faults("writer", injector);
    let saves: Vec<_> = tasks.iter().map(next).collect();
    for (task, saved) in
        tasks.iter().zip(join_all(saves.iter().map(|task| ports.store().save(task))).await)
    {
        let error = saved.unwrap_err();
        assert!(error.retryable, "{error}");
        assert_eq!(error.operation, format!("save task {}", task.task_id));
        assert_eq!(counted.now(task).await, *task);
    }
}

#[tokio::test]
async fn each_write_is_a_put_if_statements_are_unsupported() {
    let (counted, tasks) = Counted::new(3).await;
    let sdk = without_operation("BatchExecuteStatement", &counted.deployment.aws.sdk_config());
    let ports = counted.deployment.ports_with_sdk("writer", &sdk);
    let saves: Vec<_> = tasks.iter().map(next).collect();
    let saved = join_all(saves.iter().map(|task| ports.store().save(task))).await;
    assert!(saved.into_iter().all(|saved| saved.unwrap() == Saved::Saved));
    for task in &tasks {
        assert_eq!(counted.now(task).await, next(task));
    }
}

/// Whoever began a request may be given up before it is sent: the others are told to come again.
#[tokio::test(start_paused = true)]
async fn a_writer_gets_a_retryable_error_if_its_shared_request_was_never_sent() {
    let (counted, tasks) = Counted::new(2).await;
    let (saves, store) = ([next(&tasks[0]), next(&tasks[1])], counted.ports.store());
    let mut first = Box::pin(store.save(&saves[0]));
    let mut second = Box::pin(store.save(&saves[1]));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    // On a clock that goes on when there is nothing left but to wait.
    let error = timeout(Duration::from_secs(60), second).await.unwrap().unwrap_err();
    assert!(error.retryable, "{error}");
    // And nothing is stuck: the next write is as any other.
    assert_eq!(counted.save(&saves).await.len(), 2);
    assert_eq!(counted.now(&tasks[1]).await, saves[1]);
}
