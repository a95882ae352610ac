//! What an engine refuses, and how little it may say: a refused write is read back if the refusal came without the
//! item, and an engine that refuses batches of statements gets no more of them.

use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
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
use futures_util::future::join_all;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use steward_core::model::{
    document::{Document, DocumentKey},
    task::Task,
};
use steward_runtime::{
    metrics::STATEMENTS_REFUSED,
    ports::{PortError, Ports, Put, Saved, Shared, SharedKey, SharedKind, SharedSaved, StateStore},
};

use crate::support::{Deployment, TestPorts, line};

const STATEMENTS: &str = "BatchExecuteStatement";

/// What the engine does otherwise than DynamoDB.
#[derive(Debug, Clone, Copy)]
enum Engine {
    /// It refuses without the item.
    Itemless,
    /// The same, and the item is gone when it is read.
    Forgetful,
    /// It answers a batch of statements with this status and code, or without any, so many times.
    Fails(u16, &'static str, u32),
    /// It refuses each of so many first statements with this code.
    RefusesStatements(&'static str, usize),
}

/// An HTTP client that behaves as that engine.
#[derive(Debug, Clone)]
struct EngineClient {
    engine: Engine,
    /// How many batches of statements came.
    batches: Arc<AtomicU32>,
    service: SharedHttpClient,
}

impl EngineClient {
    fn over(sdk: &SdkConfig, engine: Engine) -> (SdkConfig, Arc<AtomicU32>) {
        let batches = Arc::<AtomicU32>::default();
        let client = Self { engine, batches: batches.clone(), service: sdk.http_client().unwrap() };
        (sdk.clone().into_builder().http_client(client).build(), batches)
    }
}

impl HttpClient for EngineClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let service = self.service.http_connector(settings, components);
        SharedHttpConnector::new(Connected { client: self.clone(), service })
    }
}

#[derive(Debug)]
struct Connected {
    client: EngineClient,
    service: SharedHttpConnector,
}

impl HttpConnector for Connected {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let is_read = target.ends_with("GetItem");
        let is_batch = target.ends_with(STATEMENTS);
        let before = if is_batch { self.client.batches.fetch_add(1, Ordering::SeqCst) } else { 0 };
        match self.client.engine {
            Engine::Forgetful if is_read => ready(200, &json!({})),
            Engine::Itemless | Engine::Forgetful => without_items(self.service.call(request)),
            Engine::Fails(status, "", times) if is_batch && before < times => {
                HttpConnectorFuture::ready(Ok(HttpResponse::new(
                    StatusCode::try_from(status).unwrap(),
                    SdkBody::from("<h1>Internal Server Error</h1>"),
                )))
            }
            Engine::Fails(status, code, times) if is_batch && before < times => {
                ready(status, &json!({ "__type": code, "message": "because" }))
            }
            Engine::RefusesStatements(code, count) if is_batch => {
                let request: Value =
                    serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
                let statements = request["Statements"].as_array().unwrap().len();
                let refused = json!({ "Error": { "Code": code, "Message": "because" } });
                let answer = |n| if n < count { refused.clone() } else { json!({}) };
                let responses: Vec<_> = (0..statements).map(answer).collect();
                ready(200, &json!({ "Responses": responses }))
            }
            Engine::Fails(..) | Engine::RefusesStatements(..) => self.service.call(request),
        }
    }
}

fn ready(status: u16, body: &Value) -> HttpConnectorFuture {
    HttpConnectorFuture::ready(Ok(answer(status, body)))
}

fn answer(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body.to_string()))
}

/// A refusal as engines had it before they returned the item.
fn without_items(answered: HttpConnectorFuture) -> HttpConnectorFuture {
    HttpConnectorFuture::new(async move {
        let response = answered.await?;
        let body = response.body().bytes().expect("a body that is there as a whole");
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_refusal = body["__type"].as_str().is_some_and(|kind| kind.contains("Exception"));
        if !is_refusal {
            return Ok(response);
        }
        body.as_object_mut().unwrap().remove("Item");
        for reason in body["CancellationReasons"].as_array_mut().into_iter().flatten() {
            reason.as_object_mut().unwrap().remove("Item");
        }
        Ok(answer(response.status().as_u16(), &body))
    })
}

struct World {
    deployment: Deployment,
    tasks: Vec<Task>,
    ports: TestPorts,
    batches: Arc<AtomicU32>,
}

impl World {
    /// Tasks as they were submitted, and ports to such an engine.
    async fn with(count: usize, engine: Engine) -> Self {
        let deployment = Deployment::new(&line(1)).await;
        let ids: Vec<_> = (0..count).map(|n| format!("t-{n:03}")).collect();
        deployment.submit(&deployment.ports("submission"), &ids).await;
        let tasks = join_all(ids.iter().map(|id| deployment.task(id))).await;
        let (sdk, batches) = EngineClient::over(&deployment.aws.sdk_config(), engine);
        let ports = deployment.ports_over("writer", &sdk);
        Self { deployment, tasks, ports, batches }
    }

    /// Saves all tasks at the same moment, as they come next.
    async fn save_all(&mut self) -> Vec<Result<Saved, PortError>> {
        for task in &mut self.tasks {
            task.revision += 1;
        }
        join_all(self.tasks.iter().map(|task| self.ports.store().save(task))).await
    }

    /// The same; all are saved.
    async fn all_are_saved(&mut self) {
        for saved in self.save_all().await {
            assert_eq!(saved.unwrap(), Saved::Saved);
        }
        for task in &self.tasks {
            assert_eq!(self.deployment.task(task.task_id.as_str()).await, *task);
        }
    }

    fn batches(&self) -> u32 {
        self.batches.load(Ordering::SeqCst)
    }
}

/// What was logged and counted on this thread.
struct Watch {
    log: Log,
    counters: Snapshotter,
}

#[derive(Debug, Default, Clone)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Watch {
    /// Whoever calls holds the guards.
    fn begin() -> (Self, impl Drop, impl Drop) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(move || writer.clone())
            .finish();
        let logged = tracing::subscriber::set_default(subscriber);
        // For as long as the process: a guard borrows it.
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let counters = recorder.snapshotter();
        (Self { log, counters }, logged, metrics::set_default_local_recorder(recorder))
    }

    /// How many lines say this.
    fn logged(&self, text: &str) -> usize {
        let log = self.log.0.lock().unwrap();
        String::from_utf8_lossy(&log).lines().filter(|line| line.contains(text)).count()
    }

    /// Refused statements since the last time, by code.
    fn refused(&self) -> Vec<(String, u64)> {
        let counted = self.counters.snapshot().into_vec().into_iter();
        let counted = counted.filter(|(key, ..)| key.key().name() == STATEMENTS_REFUSED);
        let counted = counted.map(|(key, _, _, value)| {
            let DebugValue::Counter(count) = value else { panic!("{value:?}") };
            (key.key().labels().next().unwrap().value().to_owned(), count)
        });
        counted.collect()
    }
}

/// The lines of one refusal, and of the end of all batches.
const REFUSED: &str = "statements refused";
const NO_MORE: &str = "the database refuses batches";

fn document(body: &str) -> Document {
    let key = DocumentKey::Input("c-1".parse().unwrap());
    Document::new(key, jiff::Timestamp::UNIX_EPOCH, body.into())
}

async fn put(world: &World, body: &str) -> Result<Put, PortError> {
    let task = &world.tasks[0];
    let kept = task.kept();
    world.ports.store().put_document(&task.owner(), kept, &document(body)).await
}

#[tokio::test]
async fn a_lost_race_returns_the_task_although_the_refusal_does_not() {
    for count in [1, 3] {
        let mut world = World::with(count, Engine::Itemless).await;
        world.all_are_saved().await;
        let now: Vec<_> = world.tasks.clone();
        world.tasks.iter_mut().for_each(|task| task.revision -= 1);
        for (saved, now) in world.save_all().await.into_iter().zip(now) {
            assert_eq!(saved.unwrap(), Saved::Conflict(Some(Box::new(now))), "{count} at once");
        }
    }
}

#[tokio::test]
async fn a_save_of_a_task_that_is_not_there_is_a_conflict_with_nothing() {
    let mut world = World::with(1, Engine::Itemless).await;
    world.tasks[0].task_id = "other".parse().unwrap();
    assert_eq!(world.save_all().await.remove(0).unwrap(), Saved::Conflict(None));
}

#[tokio::test]
async fn an_existing_document_is_returned_although_the_refusal_does_not_have_it() {
    let world = World::with(1, Engine::Itemless).await;
    assert_eq!(put(&world, "first").await.unwrap(), Put::Stored);
    assert_eq!(put(&world, "second").await.unwrap(), Put::Existing("first".into()));
}

#[tokio::test]
async fn a_newer_shared_record_is_returned_although_the_refusal_does_not_have_it() {
    let world = World::with(1, Engine::Itemless).await;
    let key = SharedKey { kind: SharedKind::Breaker, name: "a".to_owned() };
    let record = Shared { key, revision: 1, body: json!("first"), expires_at: None };
    let store = world.ports.store();
    assert_eq!(store.save_shared(&record).await.unwrap(), SharedSaved::Saved);
    let late = Shared { body: json!("second"), ..record.clone() };
    assert_eq!(store.save_shared(&late).await.unwrap(), SharedSaved::Conflict(Some(record)));
}

/// It expired between the two: the writer tries again, and no message is called corrupt.
#[tokio::test]
async fn a_document_that_is_gone_when_it_is_read_back_may_be_written_again() {
    let world = World::with(1, Engine::Forgetful).await;
    assert_eq!(put(&world, "first").await.unwrap(), Put::Stored);
    let error = put(&world, "second").await.unwrap_err();
    assert!(error.retryable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_batches_for_good_gets_one_and_is_logged_once() {
    for code in ["UnknownOperationException", "ValidationException", "AccessDeniedException"] {
        let (watch, _logged, _counted) = Watch::begin();
        let mut world = World::with(3, Engine::Fails(400, code, u32::MAX)).await;
        for _ in 0..3 {
            world.all_are_saved().await;
        }
        assert_eq!((world.batches(), watch.logged(code), watch.logged(NO_MORE)), (1, 1, 1));
        assert_eq!(watch.refused(), [(code.to_owned(), 3)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_every_statement_for_good_gets_one_batch() {
    for code in ["AccessDenied", "ValidationError"] {
        let (watch, _logged, _counted) = Watch::begin();
        let mut world = World::with(3, Engine::RefusesStatements(code, 3)).await;
        world.all_are_saved().await;
        world.all_are_saved().await;
        assert_eq!((world.batches(), watch.logged(REFUSED), watch.logged(NO_MORE)), (1, 1, 1));
        assert_eq!(watch.refused(), [(code.to_owned(), 3)]);
    }
}

/// Batches go on after a refusal that lies in one item, and after one that passes.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_some_statements_or_for_now_is_logged_once_and_counted() {
    for (code, refused) in [("ValidationError", 1), ("ThrottlingError", 3)] {
        let (watch, _logged, _counted) = Watch::begin();
        let mut world = World::with(3, Engine::RefusesStatements(code, refused)).await;
        world.save_all().await;
        world.save_all().await;
        assert_eq!((world.batches(), watch.logged(REFUSED), watch.logged(NO_MORE)), (2, 1, 0));
        assert_eq!(watch.refused(), [(code.to_owned(), 2 * refused as u64)]);
    }
}

#[tokio::test]
async fn a_condition_that_was_not_met_is_neither_logged_nor_counted() {
    let (watch, _logged, _counted) = Watch::begin();
    let mut world = World::with(3, Engine::Fails(400, "none", 0)).await;
    world.tasks.iter_mut().for_each(|task| task.revision += 1);
    for saved in world.save_all().await {
        assert!(matches!(saved.unwrap(), Saved::Conflict(Some(_))));
    }
    assert_eq!((world.batches(), watch.logged("refuse"), watch.refused()), (1, 0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn throttled_batches_fail_and_are_sent_again() {
    let throttled = Engine::Fails(400, "ThrottlingException", u32::MAX);
    let mut world = World::with(2, throttled).await;
    for times in [6, 12] {
        let saved = world.save_all().await;
        assert!(saved.iter().all(|saved| saved.as_ref().is_err_and(|error| error.retryable)));
        assert_eq!(world.batches(), times, "the SDK asks six times");
        world.tasks.iter_mut().for_each(|task| task.revision -= 1);
    }
}

/// An engine whose parser fails on the statements answers as one that is out of order.
#[tokio::test(start_paused = true)]
async fn server_errors_before_any_batch_was_answered_end_batches_after_the_third() {
    for (code, counted) in [("InternalFailure", "InternalFailure"), ("", "HTTP 500")] {
        let (watch, _logged, _counted) = Watch::begin();
        let mut world = World::with(2, Engine::Fails(500, code, u32::MAX)).await;
        for batches in [6, 12, 18, 18, 18] {
            world.all_are_saved().await;
            assert_eq!(world.batches(), batches, "the SDK asks six times");
        }
        assert_eq!((watch.logged(REFUSED), watch.logged(NO_MORE)), (1, 1));
        assert_eq!(watch.refused(), [(counted.to_owned(), 6)]);
    }
}

#[tokio::test(start_paused = true)]
async fn server_errors_before_the_first_answer_do_not_end_batches_if_they_pass() {
    let mut world = World::with(2, Engine::Fails(500, "InternalServerError", 12)).await;
    for batches in [6, 12, 13, 14] {
        world.all_are_saved().await;
        assert_eq!(world.batches(), batches);
    }
}
