//! The store adapter when DynamoDB throttles: reads with unprocessed keys, cancelled transactions and throttled writes
//! are retried after a pause, and the caller sees only the result.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use futures_util::{StreamExt, future::join_all};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::json;
use steward_core::model::{
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::{
    metrics::REQUESTS_THROTTLED,
    ports::{CreateOutcome, Ports, SaveOutcome, StateStore},
};

use crate::support::{
    AdapterPorts, TestDeployment,
    http_client::{json_body, json_response, json_response_body, operation_of, set_json_body},
    sequential_workflow,
    throttling::{cancelled_transaction, throttle},
    with_request_handler,
};

/// How DynamoDB throttles one operation.
#[derive(Debug, Clone, Copy)]
enum Throttling {
    /// A batch read returns one item; the other keys are unprocessed.
    ReadsOne,
    /// A batch read returns no items; all keys are unprocessed.
    ReadsNone,
    /// A transaction is cancelled; this is the reason of its first item.
    Cancels(&'static str),
    /// A write is throttled.
    Throttles,
}

impl Throttling {
    fn operation(self) -> &'static str {
        match self {
            Self::ReadsOne | Self::ReadsNone => "BatchGetItem",
            Self::Cancels(_) => "TransactWriteItems",
            Self::Throttles => "PutItem",
        }
    }

    /// The response to a request that is throttled in this way.
    fn respond(self, request: HttpRequest, aws: &SharedHttpConnector) -> HttpConnectorFuture {
        let body = json_body(&request);
        match self {
            Self::ReadsNone => {
                let body = json!({ "Responses": {}, "UnprocessedKeys": body["RequestItems"] });
                HttpConnectorFuture::ready(Ok(json_response(200, &body)))
            }
            Self::Throttles => {
                let aws = aws.clone();
                HttpConnectorFuture::new(async move {
                    throttle(request, true, |part| aws.call(part)).await
                })
            }
            Self::Cancels(code) => {
                let items = body["TransactItems"].as_array().unwrap();
                let reason = |index| json!({ "Code": if index == 0 { code } else { "None" } });
                let reasons: Vec<_> = (0..items.len()).map(reason).collect();
                HttpConnectorFuture::ready(Ok(cancelled_transaction(&reasons)))
            }
            Self::ReadsOne => read_one(request, aws),
        }
    }
}

/// Reads the first key of a batch read; the other keys are unprocessed.
fn read_one(mut request: HttpRequest, aws: &SharedHttpConnector) -> HttpConnectorFuture {
    let body = json_body(&request);
    let (table, table_keys) = body["RequestItems"].as_object().unwrap().iter().next().unwrap();
    let mut first = body.clone();
    first["RequestItems"] = json!({ table: table_keys });
    let keys = first["RequestItems"][table]["Keys"].as_array_mut().unwrap();
    let others = keys.split_off(1);
    let mut unprocessed = body["RequestItems"].clone();
    if others.is_empty() {
        unprocessed.as_object_mut().unwrap().remove(table);
    } else {
        unprocessed[table]["Keys"] = others.into();
    }
    set_json_body(&mut request, &first);
    let response = aws.call(request);
    HttpConnectorFuture::new(async move {
        let mut body = json_response_body(&response.await?).unwrap();
        body["UnprocessedKeys"] = unprocessed;
        Ok(json_response(200, &body))
    })
}

/// An SDK configuration whose DynamoDB throttles the first `times` requests of the operation; and the number of
/// requests of that operation.
fn throttled_sdk(
    sdk: &SdkConfig,
    throttling: Throttling,
    times: u32,
) -> (SdkConfig, Arc<AtomicU32>) {
    let requests = Arc::<AtomicU32>::default();
    let counter = requests.clone();
    let sdk = with_request_handler(sdk, move |request, aws| {
        if operation_of(&request) != throttling.operation()
            || counter.fetch_add(1, Ordering::SeqCst) >= times
        {
            return aws.call(request);
        }
        throttling.respond(request, aws)
    });
    (sdk, requests)
}

/// Submitted tasks, ports to a DynamoDB that throttles, and the number of requests of the throttled operation.
async fn throttled_store(
    count: usize,
    throttling: Throttling,
    times: u32,
) -> (Vec<Task>, AdapterPorts, Arc<AtomicU32>) {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
    deployment.submit(&deployment.ports("submission"), &ids).await;
    let tasks = futures_util::stream::iter(&ids).then(|id| deployment.task(id)).collect().await;
    let (sdk, requests) = throttled_sdk(&deployment.aws.sdk_config(), throttling, times);
    (tasks, deployment.ports_with_sdk("throttled", &sdk), requests)
}

/// Loads the tasks concurrently; returns how many are loaded unchanged.
async fn count_loaded(ports: &AdapterPorts, tasks: &[Task]) -> usize {
    let loads = tasks.iter().map(|task| ports.store().load(&task.task_id));
    let loaded = join_all(loads).await.into_iter().map(|loaded| loaded.ok().flatten());
    loaded.zip(tasks).filter(|(loaded, task)| loaded.as_ref() == Some(*task)).count()
}

/// Creates other tasks like these concurrently; returns whether each was created.
async fn create_others(ports: &AdapterPorts, tasks: &[Task]) -> Vec<bool> {
    let renamed = |task: &Task| format!("other-{}", task.task_id).parse().unwrap();
    let others = tasks.iter().map(|task| Task { task_id: renamed(task), ..task.clone() });
    let document = Document::new(DocumentKey::Submission, tasks[0].submitted_at, json!("new"));
    let create = |task: Task| {
        let document = &document;
        async move {
            matches!(ports.store().create(&task, Some(document)).await, Ok(CreateOutcome::Created))
        }
    };
    join_all(others.map(create)).await
}

#[tokio::test(start_paused = true)]
async fn a_read_with_unprocessed_keys_is_repeated_until_complete() {
    let (tasks, ports, requests) = throttled_store(12, Throttling::ReadsOne, 11).await;
    assert_eq!(count_loaded(&ports, &tasks).await, 12);
    assert_eq!(requests.load(Ordering::SeqCst), 12);
}

#[tokio::test(start_paused = true)]
async fn a_read_without_progress_is_abandoned() {
    let (tasks, ports, requests) = throttled_store(3, Throttling::ReadsNone, u32::MAX).await;
    assert_eq!(count_loaded(&ports, &tasks).await, 0);
    assert_eq!(requests.load(Ordering::SeqCst), 8);
}

/// The SDK retries with the short pauses that it uses for DynamoDB.
#[tokio::test(start_paused = true)]
async fn a_throttled_write_succeeds_within_seconds() {
    let (tasks, ports, requests) = throttled_store(1, Throttling::Throttles, 5).await;
    let start = tokio::time::Instant::now();
    let next = Task { revision: tasks[0].revision + 1, ..tasks[0].clone() };
    assert_eq!(ports.store().save(&next).await.unwrap(), SaveOutcome::Saved);
    assert_eq!(requests.load(Ordering::SeqCst), 6);
    assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn throttled_creations_are_retried_together() {
    for reason in ["ThrottlingError", "TransactionConflict"] {
        let (tasks, ports, requests) = throttled_store(3, Throttling::Cancels(reason), 2).await;
        assert_eq!(create_others(&ports, &tasks).await, [true; 3]);
        assert_eq!(requests.load(Ordering::SeqCst), 3, "not one by one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_throttled_creation_is_retried() {
    let (tasks, ports, requests) =
        throttled_store(1, Throttling::Cancels("ThrottlingError"), 2).await;
    assert_eq!(create_others(&ports, &tasks).await, [true]);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

/// The callers see only results; the alarm *tables throttled* counts the responses.
#[tokio::test(start_paused = true)]
async fn every_throttled_response_is_counted() {
    // Leaked, because the guard borrows it.
    let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
    let counters = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(recorder);
    for (throttling, times, expected) in [
        (Throttling::ReadsOne, 2, 2),
        (Throttling::ReadsNone, 3, 3),
        (Throttling::Throttles, 5, 5),
        (Throttling::Cancels("ThrottlingError"), 2, 2),
        (Throttling::Cancels("TransactionConflict"), 2, 0),
    ] {
        let (tasks, ports, _) = throttled_store(3, throttling, times).await;
        assert_eq!(count_loaded(&ports, &tasks).await, 3, "{throttling:?}");
        assert_eq!(create_others(&ports, &tasks).await, [true; 3], "{throttling:?}");
        let next = Task { revision: tasks[0].revision + 1, ..tasks[0].clone() };
        assert_eq!(ports.store().save(&next).await.unwrap(), SaveOutcome::Saved);
        let counted = counters.snapshot().into_vec().into_iter().filter_map(|(key, .., value)| {
            let DebugValue::Counter(count) = value else { panic!("{value:?}") };
            (key.key().name() == REQUESTS_THROTTLED).then_some(count)
        });
        assert_eq!(counted.sum::<u64>(), expected, "{throttling:?}");
    }
}
