//! DynamoDB that is busy: it leaves keys of a read out, and cancels transactions for what passes. Both are asked for again
//! after a pause, and nobody notices.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpClient, SharedHttpConnector,
        },
        orchestrator::{HttpRequest, HttpResponse},
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use futures_util::{StreamExt, future::join_all};
use serde_json::{Value, json};
use steward_core::model::{
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::ports::{Created, Ports, Saved, StateStore};

use crate::support::{Deployment, TestPorts, line};

/// How a busy DynamoDB answers one operation, so many times.
#[derive(Debug, Clone, Copy)]
enum Busy {
    /// It reads one item, and leaves the other keys out.
    ReadsOne,
    /// It reads nothing.
    ReadsNone,
    /// It cancels the transaction; this is the reason of its first item.
    Cancels(&'static str),
    /// It throttles a write.
    Throttles,
}

/// The way to that DynamoDB.
#[derive(Debug, Clone)]
struct Way {
    busy: Busy,
    left: Arc<AtomicU32>,
    /// How often the operation was asked for.
    asked: Arc<AtomicU32>,
    service: SharedHttpClient,
}

impl Way {
    fn over(sdk: &SdkConfig, busy: Busy, times: u32) -> (SdkConfig, Arc<AtomicU32>) {
        let (left, asked) = (Arc::new(AtomicU32::new(times)), Arc::<AtomicU32>::default());
        let way = Self { busy, left, asked: asked.clone(), service: sdk.http_client().unwrap() };
        (sdk.clone().into_builder().http_client(way).build(), asked)
    }

    fn is_meant(&self, request: &HttpRequest) -> bool {
        let operation = crate::busy::operation(request);
        operation
            == match self.busy {
                Busy::ReadsOne | Busy::ReadsNone => "BatchGetItem",
                Busy::Cancels(_) => "TransactWriteItems",
                Busy::Throttles => "PutItem",
            }
    }
}

impl HttpClient for Way {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let service = self.service.http_connector(settings, components);
        SharedHttpConnector::new(Connected { way: self.clone(), service })
    }
}

#[derive(Debug)]
struct Connected {
    way: Way,
    service: SharedHttpConnector,
}

impl HttpConnector for Connected {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let Way { busy, left, asked, .. } = &self.way;
        if !self.way.is_meant(&request) {
            return self.service.call(request);
        }
        asked.fetch_add(1, Ordering::SeqCst);
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err() {
            return self.service.call(request);
        }
        let wanted = crate::busy::said(&request);
        match *busy {
            Busy::ReadsNone => {
                let body = json!({ "Responses": {}, "UnprocessedKeys": wanted["RequestItems"] });
                HttpConnectorFuture::ready(Ok(answer(200, &body)))
            }
            Busy::Throttles => {
                let beyond = self.service.clone();
                HttpConnectorFuture::new(async move {
                    crate::busy::refuse(request, true, |part| beyond.call(part)).await
                })
            }
            Busy::Cancels(code) => {
                let items = wanted["TransactItems"].as_array().unwrap();
                let reason = |place| json!({ "Code": if place == 0 { code } else { "None" } });
                let reasons: Vec<_> = (0..items.len()).map(reason).collect();
                HttpConnectorFuture::ready(Ok(crate::busy::cancelled(&reasons)))
            }
            Busy::ReadsOne => {
                let (table, of_table) =
                    wanted["RequestItems"].as_object().unwrap().iter().next().unwrap();
                let mut first = wanted.clone();
                first["RequestItems"] = json!({ table: of_table });
                let keys = first["RequestItems"][table]["Keys"].as_array_mut().unwrap();
                let others = keys.split_off(1);
                let mut left_out = wanted["RequestItems"].clone();
                if others.is_empty() {
                    left_out.as_object_mut().unwrap().remove(table);
                } else {
                    left_out[table]["Keys"] = others.into();
                }
                *request.body_mut() = SdkBody::from(first.to_string());
                request.headers_mut().insert("content-length", first.to_string().len().to_string());
                let answered = self.service.call(request);
                HttpConnectorFuture::new(async move {
                    let response = answered.await?;
                    let body = response.body().bytes().expect("a body that is there as a whole");
                    let mut body: Value = serde_json::from_slice(body).unwrap();
                    body["UnprocessedKeys"] = left_out;
                    Ok(answer(200, &body))
                })
            }
        }
    }
}

fn answer(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body.to_string()))
}

/// Tasks as they were submitted, and ports to a DynamoDB that is busy.
async fn busy(count: usize, busy: Busy, times: u32) -> (Vec<Task>, TestPorts, Arc<AtomicU32>) {
    let deployment = Deployment::new(&line(1)).await;
    let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
    deployment.submit(&deployment.ports("submission"), &ids).await;
    let tasks = futures_util::stream::iter(&ids).then(|id| deployment.task(id)).collect().await;
    let (sdk, asked) = Way::over(&deployment.aws.sdk_config(), busy, times);
    (tasks, deployment.ports_over("busy", &sdk), asked)
}

/// Loads the tasks at the same moment; how many are found as they are.
async fn found(ports: &TestPorts, tasks: &[Task]) -> usize {
    let loads = tasks.iter().map(|task| ports.store().load(&task.task_id));
    let loaded = join_all(loads).await.into_iter().map(|loaded| loaded.ok().flatten());
    loaded.zip(tasks).filter(|(loaded, task)| loaded.as_ref() == Some(*task)).count()
}

async fn create(ports: &TestPorts, tasks: &[Task]) -> Vec<bool> {
    let renamed = |task: &Task| format!("other-{}", task.task_id).parse().unwrap();
    let others = tasks.iter().map(|task| Task { task_id: renamed(task), ..task.clone() });
    let document = Document::new(DocumentKey::Submission, tasks[0].submitted_at, json!("new"));
    let create = |task: Task| {
        let document = &document;
        async move { matches!(ports.store().create(&task, document).await, Ok(Created::Created)) }
    };
    join_all(others.map(create)).await
}

#[tokio::test(start_paused = true)]
async fn a_read_with_unprocessed_keys_is_repeated_until_complete() {
    let (tasks, ports, asked) = busy(12, Busy::ReadsOne, 11).await;
    assert_eq!(found(&ports, &tasks).await, 12);
    assert_eq!(asked.load(Ordering::SeqCst), 12);
}

#[tokio::test(start_paused = true)]
async fn a_read_without_progress_is_abandoned() {
    let (tasks, ports, asked) = busy(3, Busy::ReadsNone, u32::MAX).await;
    assert_eq!(found(&ports, &tasks).await, 0);
    assert_eq!(asked.load(Ordering::SeqCst), 8);
}

/// The SDK asks again by itself, and soon: its pauses are those of DynamoDB.
#[tokio::test(start_paused = true)]
async fn a_throttled_write_succeeds_within_seconds() {
    let (tasks, ports, asked) = busy(1, Busy::Throttles, 5).await;
    let begun = tokio::time::Instant::now();
    let next = Task { revision: tasks[0].revision + 1, ..tasks[0].clone() };
    assert_eq!(ports.store().save(&next).await.unwrap(), Saved::Saved);
    assert_eq!(asked.load(Ordering::SeqCst), 6);
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn throttled_creations_are_retried_together() {
    for reason in ["ThrottlingError", "TransactionConflict"] {
        let (tasks, ports, asked) = busy(3, Busy::Cancels(reason), 2).await;
        assert_eq!(create(&ports, &tasks).await, [true; 3]);
        assert_eq!(asked.load(Ordering::SeqCst), 3, "not one by one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_throttled_creation_is_retried() {
    let (tasks, ports, asked) = busy(1, Busy::Cancels("ThrottlingError"), 2).await;
    assert_eq!(create(&ports, &tasks).await, [true]);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}
