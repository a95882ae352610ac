//! What the functions tell of themselves: counts in their logs, spans to a collector; never a payload.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
};
use prost::Message;
use serde_json::{Value, json};
use steward_demo::scenario::Shipped;

use super::{
    emulator::{call, root, wait_for},
    place::place,
    stack::{SECRET, Stack},
};

/// Something of every order's input, and of no log.
const PAYLOAD: &str = "1 Main Street";

pub(super) async fn counts_are_in_the_logs_and_payloads_are_not() {
    assert!(Shipped::Order.scenario().input(0).to_string().contains(PAYLOAD));
    let mut counted = BTreeSet::new();
    for part in ["submission", "submission-http", "scheduler", "supervisor", "agent-payment"] {
        let lines = lines(part).await;
        assert!(!lines.is_empty(), "{part} logged nothing");
        for line in &lines {
            assert!(!line.contains(PAYLOAD) && !line.contains(SECRET), "{part}: {line}");
        }
        let metrics = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        counted.extend(metrics.filter(|line| line["_aws"].is_object()).flat_map(|line| {
            assert_eq!(line["deployment"], place().stack, "{line}");
            let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().cloned();
            let names = metrics.into_iter().flatten();
            names
                .filter_map(|metric| metric["Name"].as_str().map(str::to_owned))
                .collect::<Vec<_>>()
        }));
    }
    for metric in
        ["steward_tasks_ended_total", "steward_sweeps_total", "steward_attempts_started_total"]
    {
        assert!(counted.contains(metric), "{metric} is not among {counted:?}");
    }
}

async fn lines(part: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut body = json!({ "logGroupName": format!("/aws/lambda/{}/{part}", place().stack) });
    loop {
        let (status, answer) = call(&root(), "logs", "Logs_20140328.FilterLogEvents", &body).await;
        assert_eq!(status, 200, "{answer}");
        let events = answer["events"].as_array().cloned().unwrap_or_default();
        lines
            .extend(events.iter().filter_map(|event| event["message"].as_str().map(str::to_owned)));
        match answer.get("nextToken").filter(|token| token.is_string()) {
            Some(token) => body["nextToken"] = token.clone(),
            None => return lines,
        }
    }
}

pub(super) async fn a_task_is_one_trace(stack: Rc<Stack>) {
    // A killed function takes its spans with it, and a slow collector is not waited for: no single task
    // is sure to be told of wholly.
    let whole = async || stack.spans.tasks().values().any(is_whole).then_some(());
    wait_for("the spans of one task from submission, scheduler and agent", whole).await;
    for (task, spans) in stack.spans.tasks() {
        // A submission that is delivered again begins a trace that leads nowhere.
        let led = spans.iter().filter(|(_, service)| !service.contains("submission"));
        let traces: BTreeSet<_> = led.map(|(trace, _)| trace).collect();
        assert!(traces.len() <= 1, "{task} is of several traces: {spans:?}");
    }
}

fn is_whole(spans: &Seen) -> bool {
    let told = |trace: &str, name: &str| {
        spans.iter().any(|(of, service)| of == trace && service.ends_with(name))
    };
    let all =
        |trace| ["submission", "scheduler", "agent-inventory"].iter().all(|name| told(trace, name));
    spans.iter().any(|(trace, _)| all(trace))
}

/// An OpenTelemetry collector that keeps of each span the task, the trace and the service.
pub(super) struct Collector {
    pub(super) url: String,
    spans: Arc<Mutex<BTreeMap<String, Seen>>>,
}

/// Trace and service of each span of a task.
type Seen = BTreeSet<(String, String)>;

impl Collector {
    pub(super) async fn start() -> Self {
        let spans: Arc<Mutex<BTreeMap<_, Seen>>> = Arc::default();
        let kept = spans.clone();
        let keep = move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            for (task, span) in request.resource_spans.into_iter().flat_map(read) {
                kept.lock().unwrap().entry(task).or_default().insert(span);
            }
            std::future::ready(())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(keep));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, spans }
    }

    fn tasks(&self) -> BTreeMap<String, Seen> {
        self.spans.lock().unwrap().clone()
    }
}

/// Task, trace and service of each span.
fn read(
    spans: opentelemetry_proto::tonic::trace::v1::ResourceSpans,
) -> Vec<(String, (String, String))> {
    let service = text(spans.resource.unwrap().attributes, "service.name").unwrap();
    let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
    let of_task = spans.filter_map(|span| {
        let trace = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some((text(span.attributes, "task_id")?, (trace, service.clone())))
    });
    of_task.collect()
}

fn text(attributes: Vec<KeyValue>, key: &str) -> Option<String> {
    let pair = attributes.into_iter().find(|pair| pair.key == key)?;
    if let Any::StringValue(text) = pair.value?.value? { Some(text) } else { None }
}
