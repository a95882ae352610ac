//! The spans of a task, from its submission to the remote service, as an OpenTelemetry collector sees
//! them: the handlers of all functions, on embedded AWS, turned by hand.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
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
use steward_agent::{Agent, http::HttpService};
use steward_aws::{
    AwsPorts, Config,
    telemetry::{observed, traces},
};
use steward_core::{breaker::Settings, submission::ReplyQueues};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Ports, StateStore};
use tokio::{net::TcpListener, task::JoinSet};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SECRET: &str = "never-to-be-told";

/// A span as the collector got it.
#[derive(Debug, Clone)]
struct Told {
    name: String,
    trace: String,
    id: String,
    parent: String,
    kind: SpanKind,
    is_error: bool,
    about: BTreeMap<String, String>,
    service: BTreeMap<String, String>,
}

impl Told {
    fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// What the collector got. It runs for all tests of the process, as tracing is started for all.
fn told() -> &'static Mutex<Vec<Told>> {
    static TOLD: OnceLock<&Mutex<Vec<Told>>> = OnceLock::new();
    TOLD.get_or_init(|| {
        let told: &Mutex<Vec<Told>> = Box::leak(Box::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let collect = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let spans = ExportTraceServiceRequest::decode(body).unwrap().resource_spans;
            told.lock().unwrap().extend(spans.into_iter().flat_map(read));
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let router = Router::new().route("/v1/traces", axum::routing::post(collect));
                axum::serve(TcpListener::from_std(listener).unwrap(), router).await.unwrap();
            });
        });
        traces::start(&format!("http://{address}/"), "shop", "shop-agent").unwrap();
        told
    })
}

fn read(spans: ResourceSpans) -> Vec<Told> {
    let service = texts(spans.resource.unwrap().attributes);
    let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let told = |span: opentelemetry_proto::tonic::trace::v1::Span| Told {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind(),
        is_error: span.status.is_some_and(|status| status.code() == Status::Error),
        name: span.name,
        about: texts(span.attributes),
        service: service.clone(),
    };
    spans.map(told).collect()
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

/// The spans of a task, once there are this many, in the order of their ends.
async fn spans(task: &str, count: usize) -> Vec<Told> {
    loop {
        let told = told().lock().unwrap().clone();
        let of_task = |span: &Told| span.about.get("task_id").is_some_and(|id| id == task);
        let spans: Vec<_> = told.into_iter().filter(of_task).collect();
        if spans.len() >= count {
            assert_eq!(spans.len(), count, "{spans:#?}");
            return spans;
        }
        // Another test's invocation may be the one that sends them.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Name, name of the parent, what came of it.
fn chain(spans: &[Told]) -> Vec<[String; 3]> {
    let parent = |span: &Told| spans.iter().find(|other| other.id == span.parent);
    let name = |span: Option<&Told>| span.map_or("-", |span| span.name.as_str()).to_owned();
    let outcome = |span: &Told| span.about.get("outcome").cloned().unwrap_or_default();
    spans.iter().map(|span| [span.name.clone(), name(parent(span)), outcome(span)]).collect()
}

/// All functions of a deployment, and a remote service that is busy at its first call.
struct World {
    aws: EmbeddedAws,
    config: Config,
    ports: AwsPorts,
    agent: Agent<HttpService>,
    /// The `traceparent` of each call.
    heard: Arc<Mutex<Vec<String>>>,
    servers: JoinSet<()>,
}

impl World {
    async fn new() -> Self {
        told();
        let aws = EmbeddedAws::in_memory().unwrap();
        let mut config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        // Every task is due at once, for the supervisor.
        config.pickup_within = "0s".parse().unwrap();
        let ports = AwsPorts::new(&aws.sdk_config(), &config, "test");
        let workflow = json!({ "name": "pay", "version": 1, "steps": { "charge": {
            "agent": "a", "request": { "path": format!("/?card={SECRET}"), "body": "${ input }" },
        } } });
        let workflow = serde_json::from_value(workflow).unwrap();
        ports.definitions().publish(&workflow).await.unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let noted = heard.clone();
        let remote = Router::new().fallback(move |headers: HeaderMap| async move {
            let mut noted = noted.lock().unwrap();
            noted.push(headers["traceparent"].to_str().unwrap().to_owned());
            let status =
                if noted.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            (status, format!(r#""{SECRET}""#))
        });
        let mut servers = JoinSet::new();
        let base_url = serve(&mut servers, remote).await.parse().unwrap();
        let headers = json!({ "authorization": SECRET }).to_string().parse().unwrap();
        let service = HttpService::new(base_url, headers, Duration::from_secs(30)).unwrap();
        let agent = Agent::new("a".parse().unwrap(), service, Settings::default());
        Self { aws, config, ports, agent, heard, servers }
    }

    async fn submit(&self, task: &str, traceparent: Option<&str>) {
        let event = event([(submission(task), traceparent.map(str::to_owned))]);
        done(
            observed(steward_submission::handle(&self.ports, &ReplyQueues::default(), event)).await,
        );
    }

    async fn schedule(&self) {
        let event = self.take(&self.config.scheduler_queue_url).await;
        done(observed(steward_scheduler::handle(&self.ports, event)).await);
    }

    async fn call(&self) {
        let event = self.take(&self.config.agent_queue_url.of(&self.agent.name)).await;
        let answer = steward_agent::handle(&self.ports, &self.agent, event, Timestamp::MAX);
        done(observed(answer).await);
    }

    async fn sweep(&self) {
        let swept =
            observed(steward_supervisor::sweep(&self.ports, 0, Timestamp::MAX)).await.unwrap();
        assert_eq!((swept.due, swept.failed), (1, 0));
    }

    /// A message of the queue, as Lambda hands it over.
    async fn take(&self, queue: &str) -> SqsEvent {
        let sqs = aws_sdk_sqs::Client::new(&self.aws.sdk_config());
        let request = sqs.receive_message().queue_url(queue).message_attribute_names("All");
        let messages = request.send().await.unwrap().messages.unwrap();
        event(messages.into_iter().map(|message| {
            let attributes = message.message_attributes.unwrap_or_default();
            let traceparent = attributes.get("traceparent").and_then(|t| t.string_value.clone());
            (message.body.unwrap(), traceparent)
        }))
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

fn done(answer: SqsBatchResponse) {
    assert_eq!(answer, SqsBatchResponse::default());
}

#[tokio::test]
async fn a_task_is_one_trace_from_its_submission_to_the_remote_service() {
    let world = World::new().await;
    world.submit("one", None).await;
    world.schedule().await;
    world.call().await;
    world.schedule().await;

    let spans = spans("one", 6).await;
    assert_eq!(
        chain(&spans),
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
    assert_eq!(world.traceparent("one").await, Some(spans[0].traceparent()));
    // The service sees who calls it: the very call, not the attempt that it is part of.
    let calls = [spans[2].traceparent(), spans[3].traceparent()];
    assert_eq!(*world.heard.lock().unwrap(), calls);
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
        assert_eq!(spans[span].about[key], value, "{span} {key}");
    }
    assert_eq!(spans[0].service["service.name"], "shop-agent");
    assert_eq!(spans[0].service["service.namespace"], "shop");
    assert!(!format!("{spans:?}").contains(SECRET), "a payload, header or query: {spans:#?}");
}

#[tokio::test]
async fn a_trace_that_comes_with_the_request_goes_on() {
    let mut world = World::new().await;
    let routes = steward_submission::http::routes(Arc::new(world.ports.clone()), Arc::default());
    let url = format!("{}/tasks", serve(&mut world.servers, routes).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(url).header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    assert_eq!(request.body(submission("given")).send().await.unwrap().status(), 202);
    world.schedule().await;

    let spans = spans("given", 2).await;
    assert_eq!((spans[0].trace.as_str(), spans[0].parent.as_str()), (TRACE, "00f067aa0ba902b7"));
    assert_eq!(spans[0].kind, SpanKind::Server);
    assert_eq!(spans[0].about["http.request.method"], "POST");
    assert_eq!((&spans[1].trace, &spans[1].parent), (&spans[0].trace, &spans[0].id));
}

#[tokio::test]
async fn what_is_no_traceparent_begins_a_trace_and_what_is_not_sampled_stays_so() {
    let world = World::new().await;
    world.submit("odd", Some("00-1-2-01")).await;
    let odd = &spans("odd", 1).await[0];
    assert_eq!(odd.parent, "");
    assert_eq!(world.traceparent("odd").await, Some(odd.traceparent()));

    world.submit("unsampled", Some(&format!("00-{TRACE}-00f067aa0ba902b7-00"))).await;
    let kept = world.traceparent("unsampled").await.unwrap();
    assert!(kept.starts_with(&format!("00-{TRACE}-")) && kept.ends_with("-00"), "{kept}");
    // Sent after it, and it is not there.
    world.submit("later", None).await;
    spans("later", 1).await;
    spans("unsampled", 0).await;
}

#[tokio::test]
async fn what_the_supervisor_or_an_operator_does_is_in_the_trace_of_the_task() {
    let world = World::new().await;
    world.submit("swept", None).await;
    // The wake is lost.
    world.take(&world.config.scheduler_queue_url).await;
    world.sweep().await;
    world.schedule().await;
    let wake = json!({ "type": "wake", "task_id": "swept", "cause": "submitted" }).to_string();
    let of_another = Some(format!("00-{TRACE}-00f067aa0ba902b7-01"));
    done(observed(steward_scheduler::handle(&world.ports, event([(wake, of_another)]))).await);

    let spans = spans("swept", 4).await;
    assert_eq!(
        chain(&spans),
        [
            ["submit", "-", "received"],
            ["sweep", "submit", "applied"],
            ["decide", "sweep", "applied"],
            ["decide", "submit", "ignored"],
        ]
    );
    assert!(spans.iter().all(|span| span.trace == spans[0].trace), "{spans:#?}");
}

#[tokio::test]
async fn a_refusal_is_seen_too() {
    let world = World::new().await;
    let text = json!({ "task_id": "none", "workflow": "unknown", "input": null }).to_string();
    let event = event([(text, None)]);
    done(observed(steward_submission::handle(&world.ports, &ReplyQueues::default(), event)).await);
    assert_eq!(chain(&spans("none", 1).await), [["submit", "-", "refused"]]);
}
