//! The store adapter over implementations of DynamoDB that refuse more than DynamoDB, or return less. The adapter reads the
//! existing item if the refusal of a write does not contain it, and sends no more batches of statements to an
//! implementation that refuses them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::{
    client::{
        http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector},
        orchestrator::{HttpRequest, HttpResponse},
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use futures_util::future::join_all;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::json;
use steward_core::model::{
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::{
    metrics::STATEMENTS_REFUSED,
    ports::{
        PortError, Ports, PutOutcome, SaveOutcome, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore,
    },
};

use crate::support::{
    AdapterPorts, LogBuffer, TestDeployment,
    http_client::{json_body, json_response, json_response_body, operation_of},
    sequential_workflow, with_request_handler,
};

const STATEMENTS: &str = "BatchExecuteStatement";

/// How an implementation differs from DynamoDB.
#[derive(Debug, Clone, Copy)]
enum Deviation {
    /// The refusal of a write does not contain the existing item.
    RefusesWithoutItem,
    /// The refusal of a write does not contain the existing item, and a later read does not find it.
    LosesItems,
    /// The first batches of statements, this many, fail with this HTTP status and error code. An empty code means
    /// a response that is not JSON.
    FailsBatches(u16, &'static str, u32),
    /// In each batch, this many of the first statements fail with this error code.
    RefusesStatements(&'static str, usize),
}

impl Deviation {
    /// The response to a request; `batches_before` is the number of earlier batches of statements.
    fn respond(
        self,
        request: HttpRequest,
        aws: &SharedHttpConnector,
        batches_before: u32,
    ) -> HttpConnectorFuture {
        let is_read = operation_of(&request).ends_with("GetItem");
        let is_batch = operation_of(&request) == STATEMENTS;
        match self {
            Self::LosesItems if is_read => ready(json_response(200, &json!({}))),
            Self::RefusesWithoutItem | Self::LosesItems => without_items(aws.call(request)),
            Self::FailsBatches(status, "", times) if is_batch && batches_before < times => {
                ready(HttpResponse::new(
                    StatusCode::try_from(status).unwrap(),
                    SdkBody::from("<h1>Internal Server Error</h1>"),
                ))
            }
            Self::FailsBatches(status, code, times) if is_batch && batches_before < times => {
                ready(json_response(status, &json!({ "__type": code, "message": "because" })))
            }
            Self::RefusesStatements(code, count) if is_batch => {
                let statements = json_body(&request)["Statements"].as_array().unwrap().len();
                let refused = json!({ "Error": { "Code": code, "Message": "because" } });
                let response = |n| if n < count { refused.clone() } else { json!({}) };
                let responses: Vec<_> = (0..statements).map(response).collect();
                ready(json_response(200, &json!({ "Responses": responses })))
            }
            Self::FailsBatches(..) | Self::RefusesStatements(..) => aws.call(request),
        }
    }
}

fn ready(response: HttpResponse) -> HttpConnectorFuture {
    HttpConnectorFuture::ready(Ok(response))
}

/// An SDK configuration with this deviation, and the number of batches of statements.
fn deviating_sdk(sdk: &SdkConfig, deviation: Deviation) -> (SdkConfig, Arc<AtomicU32>) {
    let batches = Arc::<AtomicU32>::default();
    let counter = batches.clone();
    let sdk = with_request_handler(sdk, move |request, aws| {
        let is_batch = operation_of(&request) == STATEMENTS;
        let before = if is_batch { counter.fetch_add(1, Ordering::SeqCst) } else { 0 };
        deviation.respond(request, aws, before)
    });
    (sdk, batches)
}

/// The response without the existing items of refused writes, as DynamoDB was before it returned them.
fn without_items(response: HttpConnectorFuture) -> HttpConnectorFuture {
    HttpConnectorFuture::new(async move {
        let response = response.await?;
        let mut body = json_response_body(&response).unwrap_or_default();
        let is_refusal = body["__type"].as_str().is_some_and(|kind| kind.contains("Exception"));
        if !is_refusal {
            return Ok(response);
        }
        body.as_object_mut().unwrap().remove("Item");
        for reason in body["CancellationReasons"].as_array_mut().into_iter().flatten() {
            reason.as_object_mut().unwrap().remove("Item");
        }
        Ok(json_response(response.status().as_u16(), &body))
    })
}

/// Submitted tasks, and ports to an implementation that deviates from DynamoDB.
struct DeviatingStore {
    deployment: TestDeployment,
    tasks: Vec<Task>,
    ports: AdapterPorts,
    batches: Arc<AtomicU32>,
}

impl DeviatingStore {
    async fn new(count: usize, deviation: Deviation) -> Self {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
        deployment.submit(&deployment.ports("submission"), &ids).await;
        let tasks = join_all(ids.iter().map(|id| deployment.task(id))).await;
        let (sdk, batches) = deviating_sdk(&deployment.aws.sdk_config(), deviation);
        let ports = deployment.ports_with_sdk("writer", &sdk);
        Self { deployment, tasks, ports, batches }
    }

    /// Saves the next revision of all tasks concurrently.
    async fn save_all(&mut self) -> Vec<Result<SaveOutcome, PortError>> {
        for task in &mut self.tasks {
            task.revision += 1;
        }
        join_all(self.tasks.iter().map(|task| self.ports.store().save(task))).await
    }

    /// Saves the next revision of all tasks concurrently, and asserts that all saves succeed.
    async fn save_all_successfully(&mut self) {
        for saved in self.save_all().await {
            assert_eq!(saved.unwrap(), SaveOutcome::Saved);
        }
        for task in &self.tasks {
            assert_eq!(self.deployment.task(task.task_id.as_str()).await, *task);
        }
    }

    fn batches(&self) -> u32 {
        self.batches.load(Ordering::SeqCst)
    }
}

/// The log lines and metrics of this thread.
struct TelemetryCapture {
    log: LogBuffer,
    /// With a single subscriber, `tracing` disables a callsite for all threads if a thread without a subscriber reaches it
    /// first, as another test may do.
    _second_subscriber: tracing::Dispatch,
    counters: Snapshotter,
}

impl TelemetryCapture {
    /// Starts the capture. It ends when the caller drops the two guards.
    fn begin() -> (Self, impl Drop, impl Drop) {
        let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let log = LogBuffer::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(move || writer.clone())
            .finish();
        let logged = tracing::subscriber::set_default(subscriber);
        // Leaked, because a guard borrows it.
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let counters = recorder.snapshotter();
        let capture = Self { log, _second_subscriber: second, counters };
        (capture, logged, metrics::set_default_local_recorder(recorder))
    }

    /// The number of log lines that contain a text.
    fn lines_with(&self, text: &str) -> usize {
        self.log.text().lines().filter(|line| line.contains(text)).count()
    }

    /// The counter of refused statements by error code, since the last call.
    fn refused_statements(&self) -> Vec<(String, u64)> {
        let counters = self.counters.snapshot().into_vec().into_iter();
        let refused = counters.filter(|(key, ..)| key.key().name() == STATEMENTS_REFUSED);
        let refused = refused.map(|(key, _, _, value)| {
            let DebugValue::Counter(count) = value else { panic!("{value:?}") };
            (key.key().labels().next().unwrap().value().to_owned(), count)
        });
        refused.collect()
    }
}

/// Part of the log line about one refusal.
const REFUSAL_LINE: &str = "statements refused";

/// Part of the log line about the end of batches.
const END_OF_BATCHES_LINE: &str = "the database refuses batches";

fn document(body: &str) -> Document {
    let key = DocumentKey::Input("c-1".parse().unwrap());
    Document::new(key, jiff::Timestamp::UNIX_EPOCH, body.into())
}

async fn put(store: &DeviatingStore, body: &str) -> Result<PutOutcome, PortError> {
    let task = &store.tasks[0];
    let retention = task.document_retention();
    store.ports.store().put_document(&task.document_owner(), retention, &document(body)).await
}

#[tokio::test]
async fn a_lost_race_returns_the_task_although_the_refusal_lacks_it() {
    for count in [1, 3] {
        let mut store = DeviatingStore::new(count, Deviation::RefusesWithoutItem).await;
        store.save_all_successfully().await;
        let now: Vec<_> = store.tasks.clone();
        store.tasks.iter_mut().for_each(|task| task.revision -= 1);
        for (saved, now) in store.save_all().await.into_iter().zip(now) {
            assert_eq!(
                saved.unwrap(),
                SaveOutcome::Conflict(Some(Box::new(now))),
                "{count} at once"
            );
        }
    }
}

#[tokio::test]
async fn a_save_of_a_missing_task_conflicts_with_no_task() {
    let mut store = DeviatingStore::new(1, Deviation::RefusesWithoutItem).await;
    store.tasks[0].task_id = "other".parse().unwrap();
    assert_eq!(store.save_all().await.remove(0).unwrap(), SaveOutcome::Conflict(None));
}

#[tokio::test]
async fn an_existing_document_is_returned_although_the_refusal_lacks_it() {
    let store = DeviatingStore::new(1, Deviation::RefusesWithoutItem).await;
    assert_eq!(put(&store, "first").await.unwrap(), PutOutcome::Stored);
    assert_eq!(put(&store, "second").await.unwrap(), PutOutcome::Existing("first".into()));
}

#[tokio::test]
async fn a_newer_shared_record_is_returned_although_the_refusal_lacks_it() {
    let store = DeviatingStore::new(1, Deviation::RefusesWithoutItem).await;
    let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: "other".to_owned() };
    let record = SharedRecord { key, revision: 1, body: json!("first"), expires_at: None };
    let state_store = store.ports.store();
    assert_eq!(state_store.save_shared_record(&record).await.unwrap(), SharedSaveOutcome::Saved);
    let late = SharedRecord { body: json!("second"), ..record.clone() };
    assert_eq!(
        state_store.save_shared_record(&late).await.unwrap(),
        SharedSaveOutcome::Conflict(Some(record))
    );
}

/// The document expired between the refusal and the read: the writer retries, and reports no corrupt message.
#[tokio::test]
async fn a_document_that_disappears_before_it_is_read_back_is_a_retryable_error() {
    let store = DeviatingStore::new(1, Deviation::LosesItems).await;
    assert_eq!(put(&store, "first").await.unwrap(), PutOutcome::Stored);
    let error = put(&store, "second").await.unwrap_err();
    assert!(error.retryable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_of_a_batch_ends_batches_and_is_logged_once() {
    for code in ["UnknownOperationException", "ValidationException", "AccessDeniedException"] {
        let (telemetry, _logged, _counted) = TelemetryCapture::begin();
        let mut store = DeviatingStore::new(3, Deviation::FailsBatches(400, code, u32::MAX)).await;
        for _ in 0..3 {
            store.save_all_successfully().await;
        }
        assert_eq!(
            (
                store.batches(),
                telemetry.lines_with(code),
                telemetry.lines_with(END_OF_BATCHES_LINE)
            ),
            (1, 1, 1)
        );
        assert_eq!(telemetry.refused_statements(), [(code.to_owned(), 3)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_of_every_statement_ends_batches() {
    for code in ["AccessDenied", "ValidationError"] {
        let (telemetry, _logged, _counted) = TelemetryCapture::begin();
        let mut store = DeviatingStore::new(3, Deviation::RefusesStatements(code, 3)).await;
        store.save_all_successfully().await;
        store.save_all_successfully().await;
        assert_eq!(
            (
                store.batches(),
                telemetry.lines_with(REFUSAL_LINE),
                telemetry.lines_with(END_OF_BATCHES_LINE)
            ),
            (1, 1, 1)
        );
        assert_eq!(telemetry.refused_statements(), [(code.to_owned(), 3)]);
    }
}

/// Batching continues after a refusal of some statements, and after a temporary one.
#[tokio::test(start_paused = true)]
async fn partial_and_temporary_refusals_are_logged_once_and_counted() {
    for (code, refused) in [("ValidationError", 1), ("ThrottlingError", 3)] {
        let (telemetry, _logged, _counted) = TelemetryCapture::begin();
        let mut store = DeviatingStore::new(3, Deviation::RefusesStatements(code, refused)).await;
        store.save_all().await;
        store.save_all().await;
        assert_eq!(
            (
                store.batches(),
                telemetry.lines_with(REFUSAL_LINE),
                telemetry.lines_with(END_OF_BATCHES_LINE)
            ),
            (2, 1, 0)
        );
        assert_eq!(telemetry.refused_statements(), [(code.to_owned(), 2 * refused as u64)]);
    }
}

#[tokio::test]
async fn a_failed_condition_is_neither_logged_nor_counted() {
    let (telemetry, _logged, _counted) = TelemetryCapture::begin();
    let mut store = DeviatingStore::new(3, Deviation::FailsBatches(400, "none", 0)).await;
    store.tasks.iter_mut().for_each(|task| task.revision += 1);
    for saved in store.save_all().await {
        assert!(matches!(saved.unwrap(), SaveOutcome::Conflict(Some(_))));
    }
    assert_eq!(
        (store.batches(), telemetry.lines_with("refuse"), telemetry.refused_statements()),
        (1, 0, Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn throttled_batches_fail_and_batching_continues() {
    let throttled = Deviation::FailsBatches(400, "ThrottlingException", u32::MAX);
    let mut store = DeviatingStore::new(2, throttled).await;
    for times in [6, 12] {
        let saved = store.save_all().await;
        assert!(saved.iter().all(|saved| saved.as_ref().is_err_and(|error| error.retryable)));
        assert_eq!(store.batches(), times, "the SDK sends each batch six times");
        store.tasks.iter_mut().for_each(|task| task.revision -= 1);
    }
}

/// An implementation whose parser fails on the statements responds like one with an internal error.
#[tokio::test(start_paused = true)]
async fn three_batches_with_server_errors_before_any_success_end_batches() {
    for (code, counted_as) in [("InternalFailure", "InternalFailure"), ("", "HTTP 500")] {
        let (telemetry, _logged, _counted) = TelemetryCapture::begin();
        let mut store = DeviatingStore::new(2, Deviation::FailsBatches(500, code, u32::MAX)).await;
        for batches in [6, 12, 18, 18, 18] {
            store.save_all_successfully().await;
            assert_eq!(store.batches(), batches, "the SDK sends each batch six times");
        }
        assert_eq!(
            (telemetry.lines_with(REFUSAL_LINE), telemetry.lines_with(END_OF_BATCHES_LINE)),
            (1, 1)
        );
        assert_eq!(telemetry.refused_statements(), [(counted_as.to_owned(), 6)]);
    }
}

#[tokio::test(start_paused = true)]
async fn temporary_server_errors_before_the_first_success_do_not_end_batches() {
    let mut store =
        DeviatingStore::new(2, Deviation::FailsBatches(500, "InternalServerError", 12)).await;
    for batches in [6, 12, 13, 14] {
        store.save_all_successfully().await;
        assert_eq!(store.batches(), batches);
    }
}
