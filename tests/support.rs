//! A deployment on embedded AWS for tests that turn its wheels by hand: no loops, no waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::types::Message;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config, ports::SharedInterceptor};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        messages::StepRequest,
        names::{AgentName, TaskId},
        task::Task,
        time::Timing,
    },
};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Clock, Ports, StateStore};

/// Tables, queues and one published workflow, with nothing running.
pub(crate) struct Deployment {
    pub(crate) aws: EmbeddedAws,
    pub(crate) config: Config,
    pub(crate) clock: TestClock,
}

/// A clock that the test moves.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<std::sync::Mutex<Timestamp>>);

impl TestClock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.advance_by(jiff::SignedDuration::from_secs(seconds));
    }

    pub(crate) fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap() = now;
    }

    pub(crate) fn advance_by(&self, time: jiff::SignedDuration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    /// Takes as long by tokio's clock, which tests of contention move.
    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The real adapters under the test's clock.
pub(crate) struct TestPorts {
    pub(crate) aws: AwsPorts,
    clock: TestClock,
}

impl Ports for TestPorts {
    type Store = <AwsPorts as Ports>::Store;
    type Definitions = <AwsPorts as Ports>::Definitions;
    type Channel = <AwsPorts as Ports>::Channel;
    type Bus = <AwsPorts as Ports>::Bus;
    type Clock = TestClock;

    fn store(&self) -> &Self::Store {
        self.aws.store()
    }
    fn definitions(&self) -> &Self::Definitions {
        self.aws.definitions()
    }
    fn channel(&self) -> &Self::Channel {
        self.aws.channel()
    }
    fn bus(&self) -> &Self::Bus {
        self.aws.bus()
    }
    fn clock(&self) -> &TestClock {
        &self.clock
    }
    fn timing(&self) -> Timing {
        self.aws.timing()
    }
    fn instance(&self) -> &str {
        self.aws.instance()
    }
}

/// A time as events say it.
pub(crate) fn whole_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap()
}

/// A workflow of `steps` steps in a row, all of agent `a`: each reads the input and the output of
/// the one before, has two attempts and 30 seconds for each.
pub(crate) fn line(steps: usize) -> Workflow {
    let definitions: serde_json::Map<_, _> = (1..=steps)
        .map(|n| {
            let mut body = json!({ "order": "${ task.id }", "input": "${ input }" });
            let mut after = json!([]);
            if n > 1 {
                body["before"] = json!(format!("${{ steps.step_{}.output.id }}", n - 1));
                after = json!([format!("step_{}", n - 1)]);
            }
            let step = json!({
                "agent": "a", "after": after, "complete_within": "30s", "recovery": { "attempts": 2, "backoff": { "first": "0s" } },
                "request": { "path": "/x", "body": body },
            });
            (format!("step_{n}"), step)
        })
        .collect();
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": definitions })).unwrap()
}

impl Deployment {
    pub(crate) async fn new(workflow: &Workflow) -> Self {
        Self::over(EmbeddedAws::in_memory().unwrap(), workflow).await
    }

    pub(crate) async fn over(aws: EmbeddedAws, workflow: &Workflow) -> Self {
        let agent: AgentName = "a".parse().unwrap();
        let config = resources::create(&aws, &[agent]).await.unwrap();
        let clock = TestClock(Arc::new(std::sync::Mutex::new(Timestamp::now())));
        let deployment = Self { aws, config, clock };
        deployment.ports("publisher").definitions().publish(workflow).await.unwrap();
        deployment
    }

    pub(crate) fn ports(&self, role: &str) -> TestPorts {
        self.watched(role, Vec::new())
    }

    /// Ports whose every AWS call the interceptors see.
    pub(crate) fn watched(&self, role: &str, interceptors: Vec<SharedInterceptor>) -> TestPorts {
        self.watched_over(role, &self.aws.sdk_config(), interceptors)
    }

    /// The same, over the test's own SDK configuration.
    pub(crate) fn watched_over(
        &self,
        role: &str,
        sdk: &aws_config::SdkConfig,
        interceptors: Vec<SharedInterceptor>,
    ) -> TestPorts {
        let aws = AwsPorts::observed(sdk, &self.config, role, interceptors);
        TestPorts { aws, clock: self.clock.clone() }
    }

    /// Ports whose clients are made from the test's own SDK configuration.
    pub(crate) fn ports_over(&self, role: &str, sdk: &aws_config::SdkConfig) -> TestPorts {
        self.watched_over(role, sdk, Vec::new())
    }

    pub(crate) fn sabotaged(&self, role: &str, sabotage: Sabotage) -> TestPorts {
        self.watched(role, vec![SharedInterceptor::new(sabotage)])
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.ports("reader").store().load(&id.parse::<TaskId>().unwrap()).await.unwrap().unwrap()
    }

    pub(crate) async fn submit(&self, ports: &TestPorts, ids: &[String]) {
        let bodies = ids.iter().map(|id| submission(id));
        let event = event(bodies, 1);
        let answer = steward_submission::handle(ports, &self.config.reply_queues, event).await;
        assert_eq!(answer, SqsBatchResponse::default());
    }

    /// Takes everything from a queue, at most ten at a time.
    pub(crate) async fn take(&self, queue: &str) -> Vec<Message> {
        let sqs = aws_sdk_sqs::Client::new(&self.aws.sdk_config());
        let mut taken = Vec::new();
        loop {
            let request = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let answer = request.message_attribute_names("All").send().await.unwrap();
            let messages = answer.messages.unwrap_or_default();
            if messages.is_empty() {
                return taken;
            }
            for message in messages {
                let receipt = message.receipt_handle().unwrap();
                sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
                taken.push(message);
            }
        }
    }

    /// The bodies waiting for the scheduler.
    pub(crate) async fn to_scheduler(&self) -> Vec<String> {
        bodies(self.take(&self.config.scheduler_queue_url).await)
    }

    /// The bodies waiting for agent `a`.
    pub(crate) async fn to_agent(&self) -> Vec<String> {
        let queue = self.config.agent_queue_url.of(&"a".parse().unwrap());
        bodies(self.take(&queue).await)
    }

    /// The requests waiting for agent `a`.
    pub(crate) async fn requests(&self) -> Vec<StepRequest> {
        let bodies = self.to_agent().await;
        bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
    }

    /// The events that the bus has passed on.
    pub(crate) async fn alerts(&self) -> Vec<Value> {
        let queue = self
            .config
            .scheduler_queue_url
            .replace(resources::SCHEDULER_QUEUE, resources::ALERTS_QUEUE);
        bodies(self.take(&queue).await)
            .iter()
            .map(|body| serde_json::from_str(body).unwrap())
            .collect()
    }
}

fn bodies(messages: Vec<Message>) -> Vec<String> {
    messages.into_iter().filter_map(|message| message.body).collect()
}

pub(crate) fn submission(id: &str) -> String {
    json!({ "task_id": id, "workflow": "line", "input": { "n": 1 } }).to_string()
}

pub(crate) fn wake(id: &str) -> String {
    json!({ "type": "wake", "task_id": id, "cause": "submitted" }).to_string()
}

/// What an agent would answer.
pub(crate) fn completed(request: &StepRequest) -> String {
    let StepRequest { task_id, step, attempt, .. } = request;
    json!({
        "type": "reply", "task_id": task_id, "step": step, "attempt": attempt,
        "outcome": { "status": "completed", "output": { "id": format!("{step}-1") } },
    })
    .to_string()
}

/// An event as Lambda hands it over; message ids are `m-0`, `m-1` and so on.
pub(crate) fn event(bodies: impl IntoIterator<Item = String>, receives: u32) -> SqsEvent {
    let records: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(n, body)| {
            json!({
                "messageId": format!("m-{n}"), "body": body,
                "attributes": { "ApproximateReceiveCount": receives.to_string() },
            })
        })
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

/// The ids of the messages that come back.
pub(crate) fn failed(answer: &SqsBatchResponse) -> Vec<&str> {
    answer.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect()
}

/// Where an AWS call is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The process dies before the call.
    DieBefore,
    /// The process dies after the call took effect, before its answer is there.
    DieAfter,
    /// The call fails without effect.
    FailBefore,
    /// The call takes effect, its answer is lost, and so is the process's patience.
    FailAfter,
    /// The call takes effect, its answer is lost, and the SDK repeats it.
    RepeatAfter,
}

/// Cuts the first `times` calls of an operation on a table or queue whose request holds `needle`.
#[derive(Debug, Clone)]
pub(crate) struct Sabotage {
    pub(crate) operation: &'static str,
    pub(crate) needle: String,
    pub(crate) cut: Cut,
    times: Arc<AtomicI32>,
}

impl Sabotage {
    pub(crate) fn once(operation: &'static str, needle: &str, cut: Cut) -> Self {
        Self { operation, needle: needle.to_owned(), cut, times: Arc::new(AtomicI32::new(1)) }
    }

    pub(crate) fn always(operation: &'static str, needle: &str, cut: Cut) -> Self {
        Self { times: Arc::new(AtomicI32::new(i32::MAX)), ..Self::once(operation, needle, cut) }
    }

    /// Whether it struck.
    pub(crate) fn is_done(&self) -> bool {
        self.times.load(Ordering::SeqCst) <= 0
    }

    /// Whether the call under way is the one to cut.
    fn aims_at(&self, bag: &ConfigBag, request: &[u8]) -> bool {
        bag.load::<Metadata>().is_some_and(|metadata| metadata.name() == self.operation)
            && String::from_utf8_lossy(request).contains(&self.needle)
            && self.times.fetch_sub(1, Ordering::SeqCst) > 0
    }

    fn strike(&self) -> Result<(), BoxError> {
        match self.cut {
            Cut::DieBefore | Cut::DieAfter => {
                panic!("sabotage: the process dies at {}", self.operation)
            }
            Cut::FailBefore | Cut::FailAfter | Cut::RepeatAfter => {
                Err("sabotage: the call fails".into())
            }
        }
    }
}

/// Marks the call under way as the one to cut once it took effect.
#[derive(Debug)]
struct Aimed;

impl Storable for Aimed {
    type Storer = StoreReplace<Self>;
}

use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpClient, SharedHttpConnector,
        },
        interceptors::{
            Intercept,
            context::{
                BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextRef,
            },
        },
        orchestrator::{HttpRequest, HttpResponse, Metadata},
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};

impl Intercept for Sabotage {
    fn name(&self) -> &'static str {
        "sabotage"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request().body().bytes().unwrap_or_default();
        if !self.aims_at(bag, request) {
            return Ok(());
        }
        match self.cut {
            Cut::DieBefore | Cut::FailBefore => self.strike(),
            Cut::DieAfter | Cut::FailAfter | Cut::RepeatAfter => {
                bag.interceptor_state().store_put(Aimed);
                Ok(())
            }
        }
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if bag.load::<Aimed>().is_none() {
            return Ok(());
        }
        bag.interceptor_state().unset::<Aimed>();
        if self.cut != Cut::RepeatAfter {
            return self.strike();
        }
        let unavailable = StatusCode::try_from(503_u16)?;
        *context.response_mut() = HttpResponse::new(unavailable, SdkBody::from("{}"));
        Ok(())
    }
}

/// A service that does not know one of the operations.
#[derive(Debug, Clone)]
pub(crate) struct Without {
    operation: &'static str,
    service: SharedHttpClient,
}

impl Without {
    pub(crate) fn over(
        operation: &'static str,
        sdk: &aws_config::SdkConfig,
    ) -> aws_config::SdkConfig {
        let service = sdk.http_client().unwrap();
        sdk.clone().into_builder().http_client(Self { operation, service }).build()
    }
}

impl HttpClient for Without {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let service = self.service.http_connector(settings, components);
        SharedHttpConnector::new(WithoutConnected { operation: self.operation, service })
    }
}

#[derive(Debug)]
struct WithoutConnected {
    operation: &'static str,
    service: SharedHttpConnector,
}

impl HttpConnector for WithoutConnected {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        if target.ends_with(self.operation) {
            request.headers_mut().insert("x-amz-target", "DynamoDB_20120810.NoSuchOperation");
        }
        self.service.call(request)
    }
}
