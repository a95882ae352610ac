//! The spans of a task, from its submission to the remote service, as an OpenTelemetry collector receives them. The tests
//! call the handlers of all functions, on embedded AWS.

#![cfg(test)]

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, OnceLock},
    time::{Duration, Instant},
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
};
use jiff::Timestamp;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{ResourceSpans, span::SpanKind, status::StatusCode as Status},
};
use prost::Message;
use serde_json::{Value, json};
use steward_agent::{
    Agent,
    http::{HttpService, HttpSettings},
};
use steward_aws::{
    AwsPorts, Config, polling,
    telemetry::{flush_after, traces},
};
use steward_core::{breaker::BreakerSettings, submission::ReplyQueues};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Ports, StateStore};
use tokio::{net::TcpListener, runtime::Runtime, task::JoinSet};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SECRET: &str = "never-in-a-span";

/// A span that the collector received.
#[derive(Debug, Clone)]
struct CollectedSpan {
    name: String,
    trace: String,
    id: String,
    parent: String,
    kind: SpanKind,
    ended_at_ns: u64,
    is_error: bool,
    attributes: BTreeMap<String, String>,
    service: BTreeMap<String, String>,
}

impl CollectedSpan {
    fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// The spans that the collector received. Collector and tracing are started once for all tests of the process.
fn collected() -> &'static Mutex<Vec<CollectedSpan>> {
    static COLLECTED: OnceLock<&Mutex<Vec<CollectedSpan>>> = OnceLock::new();
    COLLECTED.get_or_init(|| {
        let collected: &Mutex<Vec<CollectedSpan>> = Box::leak(Box::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let collect = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let spans = ExportTraceServiceRequest::decode(body).unwrap().resource_spans;
            collected.lock().unwrap().extend(spans.into_iter().flat_map(read));
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let router = Router::new().route("/v1/traces", axum::routing::post(collect));
                axum::serve(TcpListener::from_std(listener).unwrap(), router).await.unwrap();
            });
        });
        traces::start(&format!("http://{address}/"), "shop", "shop-agent").unwrap();
        collected
    })
}

fn read(spans: ResourceSpans) -> Vec<CollectedSpan> {
    let service = texts(spans.resource.unwrap().attributes);
    let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let collected = |span: opentelemetry_proto::tonic::trace::v1::Span| CollectedSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind(),
        ended_at_ns: span.end_time_unix_nano,
        is_error: span.status.is_some_and(|status| status.code() == Status::Error),
        name: span.name,
        attributes: texts(span.attributes),
        service: service.clone(),
    };
    spans.map(collected).collect()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value| {
        if let Any::IntValue(number) = value {
            return number.to_string();
        }
        let Any::StringValue(text) = value else { panic!("{value:?}") };
        text
    };
    let pairs = attributes.into_iter().map(|pair| (pair.key, pair.value.unwrap().value.unwrap()));
    pairs.map(|(key, value)| (key, text(value))).collect()
}

/// Runs a test. All tests share a runtime, because they share the exporter: its connection ends with the runtime that opened
/// it, and the spans that are being sent would be lost.
fn run(test: impl Future<Output = ()>) {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    RUNTIME.block_on(test);
}

/// Waits until a task has `count` spans, and returns them in the order in which they ended.
async fn spans(task: &str, count: usize) -> Vec<CollectedSpan> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let all = collected().lock().unwrap().clone();
        let of_task =
            |span: &CollectedSpan| span.attributes.get("task_id").is_some_and(|id| id == task);
        let mut spans: Vec<_> = all.into_iter().filter(of_task).collect();
        // Invocations of other tests may have exported some of them.
        spans.sort_by_key(|span| span.ended_at_ns);
        if spans.len() >= count {
            assert_eq!(spans.len(), count, "{spans:#?}");
            return spans;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("task {task} has no {count} spans after half a minute: they were lost");
}

/// The name of each span, the name of its parent, and its outcome.
fn summaries(spans: &[CollectedSpan]) -> Vec<[String; 3]> {
    let parent = |span: &CollectedSpan| spans.iter().find(|other| other.id == span.parent);
    let name =
        |span: Option<&CollectedSpan>| span.map_or("-", |span| span.name.as_str()).to_owned();
    let outcome =
        |span: &CollectedSpan| span.attributes.get("outcome").cloned().unwrap_or_default();
    spans.iter().map(|span| [span.name.clone(), name(parent(span)), outcome(span)]).collect()
}

/// All functions of a deployment, and a remote service that answers 503 to its first call.
struct TracedDeployment {
    aws: EmbeddedAws,
    config: Config,
    ports: AwsPorts,
    agent: Agent<HttpService>,
    /// The `traceparent` of each call.
    received_traceparents: Arc<Mutex<Vec<String>>>,
    servers: JoinSet<()>,
}

impl TracedDeployment {
    async fn new() -> Self {
        collected();
        let aws = EmbeddedAws::in_memory().unwrap();
        let mut config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        // Makes every task due at once for the supervisor.
        config.pickup_within = "0s".parse().unwrap();
        let ports = AwsPorts::new(&aws.sdk_config(), &config, "test");
        let workflow = json!({ "name": "pay", "version": 1, "steps": { "charge": {
            "agent": "a", "request": { "path": format!("/?card={SECRET}"), "body": "${ input }" },
        } } });
        let workflow = serde_json::from_value(workflow).unwrap();
        ports.definitions().publish(&workflow).await.unwrap();
        let received_traceparents = Arc::new(Mutex::new(Vec::new()));
        let received = received_traceparents.clone();
        let remote = Router::new().fallback(move |headers: HeaderMap| async move {
            let mut received = received.lock().unwrap();
            received.push(headers["traceparent"].to_str().unwrap().to_owned());
            let status =
                if received.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            (status, format!(r#""{SECRET}""#))
        });
        let mut servers = JoinSet::new();
        let base_url = serve(&mut servers, remote).await.parse().unwrap();
        let headers = json!({ "authorization": SECRET }).to_string().parse().unwrap();
        let settings = HttpSettings { headers, ..HttpSettings::new(base_url) };
        let service = HttpService::new(settings).unwrap();
        let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
        Self { aws, config, ports, agent, received_traceparents, servers }
    }

    async fn submit(&self, task: &str, traceparent: Option<&str>) {
        let event = event([(submission(task), traceparent.map(str::to_owned))]);
        assert_no_failures(
            flush_after(steward_submission::handle(&self.ports, &ReplyQueues::default(), event))
                .await,
        );
    }

    async fn schedule(&self) {
        let event = self.take(&self.config.scheduler_queue_url).await;
        assert_no_failures(flush_after(steward_scheduler::handle(&self.ports, event)).await);
    }

    async fn call(&self) {
        let event = self.take(&self.config.agent_queue_url.of(&self.agent.name)).await;
        let answer = steward_agent::handle(&self.ports, &self.agent, event, Timestamp::MAX);
        assert_no_failures(flush_after(answer).await);
    }

    async fn sweep(&self) {
        let swept =
            flush_after(steward_supervisor::sweep(&self.ports, 0, Timestamp::MAX)).await.unwrap();
        assert_eq!((swept.due, swept.failed), (1, 0));
    }

    /// The messages of a queue, as an event for Lambda.
    async fn take(&self, queue: &str) -> SqsEvent {
        let sqs = aws_sdk_sqs::Client::new(&self.aws.sdk_config());
        let request = sqs.receive_message().queue_url(queue).message_attribute_names("All");
        let messages = request.send().await.unwrap().messages.unwrap();
        let mut event = SqsEvent::default();
        for message in messages {
            let mut record = polling::record(message, queue);
            record.message_id = Some("m-1".to_owned());
            event.records.push(record);
        }
        event
    }

    async fn traceparent(&self, task: &str) -> Option<String> {
        self.ports.store().load(&task.parse().unwrap()).await.unwrap().unwrap().traceparent
    }
}

async fn serve(servers: &mut JoinSet<()>, router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
    base_url
}

fn submission(task: &str) -> String {
    json!({ "task_id": task, "workflow": "pay", "input": { "card": SECRET } }).to_string()
}

fn event(messages: impl IntoIterator<Item = (String, Option<String>)>) -> SqsEvent {
    let record = |(body, traceparent): (String, Option<String>)| {
        let attribute = |text: String| {
            json!({ "traceparent": { "stringValue": text, "dataType": "String",
                                     "stringListValues": [], "binaryListValues": [] } })
        };
        json!({ "messageId": "m-1", "body": body, "attributes": {},
                "messageAttributes": traceparent.map_or(json!({}), attribute) })
    };
    let records: Vec<Value> = messages.into_iter().map(record).collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

fn assert_no_failures(answer: SqsBatchResponse) {
    assert_eq!(answer, SqsBatchResponse::default());
}

#[test]
fn a_task_is_one_trace_from_its_submission_to_the_remote_service() {
    run(async {
        let deployment = TracedDeployment::new().await;
        deployment.submit("one", None).await;
        deployment.schedule().await;
        deployment.call().await;
        deployment.schedule().await;

        let spans = spans("one", 6).await;
        assert_eq!(
            summaries(&spans),
            [
                ["submit", "-", "received"],
                ["decide", "submit", "applied"],
                ["call", "attempt", "transient fault"],
                ["call", "attempt", "completed"],
                ["attempt", "decide", "completed"],
                ["decide", "attempt", "applied"],
            ]
        );
        assert!(spans.iter().all(|span| span.trace == spans[0].trace), "{spans:#?}");
        assert_eq!(deployment.traceparent("one").await, Some(spans[0].traceparent()));
        // The service gets the span of the call, not of the attempt.
        let calls = [spans[2].traceparent(), spans[3].traceparent()];
        assert_eq!(*deployment.received_traceparents.lock().unwrap(), calls);
        assert_eq!(
            spans.iter().map(|span| (span.kind, span.is_error)).collect::<Vec<_>>(),
            [
                (SpanKind::Consumer, false),
                (SpanKind::Consumer, false),
                (SpanKind::Client, true),
                (SpanKind::Client, false),
                (SpanKind::Consumer, false),
                (SpanKind::Consumer, false),
            ]
        );
        for (span, key, value) in [
            (0, "workflow", "pay"),
            (1, "workflow", "pay"),
            (1, "event", "wake"),
            (2, "http.request.method", "POST"),
            (2, "http.response.status_code", "503"),
            (3, "http.response.status_code", "200"),
            (3, "step", "charge"),
            (3, "attempt", "1"),
            (4, "messaging.system", "aws_sqs"),
            (4, "messaging.message.id", "m-1"),
            (5, "event", "completed"),
            (5, "step", "charge"),
            (5, "attempt", "1"),
        ] {
            assert_eq!(spans[span].attributes[key], value, "{span} {key}");
        }
        assert_eq!(spans[0].service["service.name"], "shop-agent");
        assert_eq!(spans[0].service["service.namespace"], "shop");
        assert!(
            !format!("{spans:?}").contains(SECRET),
            "spans contain a payload, header or query: {spans:#?}"
        );
    });
}

#[test]
fn the_trace_of_a_request_is_continued() {
    run(async {
        let mut deployment = TracedDeployment::new().await;
        let routes =
            steward_submission::http::routes(Arc::new(deployment.ports.clone()), Arc::default());
        let url = format!("{}/tasks", serve(&mut deployment.servers, routes).await);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request =
            client.post(url).header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
        assert_eq!(request.body(submission("given")).send().await.unwrap().status(), 202);
        deployment.schedule().await;

        let spans = spans("given", 2).await;
        assert_eq!(
            (spans[0].trace.as_str(), spans[0].parent.as_str()),
            (TRACE, "00f067aa0ba902b7")
        );
        assert_eq!(spans[0].kind, SpanKind::Server);
        assert_eq!(spans[0].attributes["http.request.method"], "POST");
        assert_eq!((&spans[1].trace, &spans[1].parent), (&spans[0].trace, &spans[0].id));
    });
}

#[test]
fn an_invalid_traceparent_starts_a_trace_and_an_unsampled_one_is_kept() {
    run(async {
        let deployment = TracedDeployment::new().await;
        deployment.submit("odd", Some("00-1-2-01")).await;
        let odd = &spans("odd", 1).await[0];
        assert_eq!(odd.parent, "");
        assert_eq!(deployment.traceparent("odd").await, Some(odd.traceparent()));

        deployment.submit("unsampled", Some(&format!("00-{TRACE}-00f067aa0ba902b7-00"))).await;
        let kept = deployment.traceparent("unsampled").await.unwrap();
        assert!(kept.starts_with(&format!("00-{TRACE}-")) && kept.ends_with("-00"), "{kept}");
        // A later span was exported, the unsampled one was not.
        deployment.submit("later", None).await;
        spans("later", 1).await;
        spans("unsampled", 0).await;
    });
}

#[test]
fn spans_of_the_supervisor_and_of_later_messages_are_in_the_trace_of_the_task() {
    run(async {
        let deployment = TracedDeployment::new().await;
        deployment.submit("swept", None).await;
        // The wake is lost.
        deployment.take(&deployment.config.scheduler_queue_url).await;
        deployment.sweep().await;
        deployment.schedule().await;
        let wake = json!({ "type": "wake", "task_id": "swept", "cause": "submitted" }).to_string();
        let of_another = Some(format!("00-{TRACE}-00f067aa0ba902b7-01"));
        assert_no_failures(
            flush_after(steward_scheduler::handle(&deployment.ports, event([(wake, of_another)])))
                .await,
        );

        let spans = spans("swept", 4).await;
        assert_eq!(
            summaries(&spans),
            [
                ["submit", "-", "received"],
                ["sweep", "submit", "applied"],
                ["decide", "sweep", "applied"],
                ["decide", "submit", "ignored"],
            ]
        );
        assert!(spans.iter().all(|span| span.trace == spans[0].trace), "{spans:#?}");
    });
}

#[test]
fn a_refused_submission_has_a_span() {
    run(async {
        let deployment = TracedDeployment::new().await;
        let text = json!({ "task_id": "none", "workflow": "unknown", "input": null }).to_string();
        let event = event([(text, None)]);
        assert_no_failures(
            flush_after(steward_submission::handle(
                &deployment.ports,
                &ReplyQueues::default(),
                event,
            ))
            .await,
        );
        assert_eq!(summaries(&spans("none", 1).await), [["submit", "-", "refused"]]);
    });
}
