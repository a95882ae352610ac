//! The functions' telemetry: metrics in their logs, spans in a collector, no payloads.

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
use steward_demo::example_workflow::ExampleWorkflow;

use super::{
    aws_requests::{call, root, wait_for},
    stack::{SECRET, Stack},
    target::deployment_target,
};

use crate::support::serve;

/// A text in every order's input, which must not be in any log.
const PAYLOAD: &str = "1 Main Street";

pub(super) async fn logs_contain_metrics_and_no_payloads() {
    assert!(ExampleWorkflow::Order.scenario().input(0).to_string().contains(PAYLOAD));
    let mut names_in_logs = BTreeSet::new();
    for part in ["submission", "submission-http", "scheduler", "supervisor", "agent-payment"] {
        let lines = lines(part).await;
        assert!(!lines.is_empty(), "{part} logged nothing");
        for line in &lines {
            assert!(!line.contains(PAYLOAD) && !line.contains(SECRET), "{part}: {line}");
        }
        let metrics = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        names_in_logs.extend(metrics.filter(|line| line["_aws"].is_object()).flat_map(|line| {
            assert_eq!(line["deployment"], deployment_target().stack, "{line}");
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
        assert!(names_in_logs.contains(metric), "{metric} is not among {names_in_logs:?}");
    }
}

async fn lines(part: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut body =
        json!({ "logGroupName": format!("/aws/lambda/{}/{part}", deployment_target().stack) });
    loop {
        let (status, response) =
            call(&root(), "logs", "Logs_20140328.FilterLogEvents", &body).await;
        assert_eq!(status, 200, "{response}");
        let events = response["events"].as_array().cloned().unwrap_or_default();
        lines
            .extend(events.iter().filter_map(|event| event["message"].as_str().map(str::to_owned)));
        match response.get("nextToken").filter(|token| token.is_string()) {
            Some(token) => body["nextToken"] = token.clone(),
            None => return lines,
        }
    }
}

pub(super) async fn task_has_one_trace(stack: Rc<Stack>) {
    // A killed function loses its spans, and functions do not wait for a slow collector. So the spans of one
    // particular task may be incomplete.
    let complete_trace = async || stack.spans.tasks().values().any(is_complete).then_some(());
    wait_for("the spans of one task from submission, scheduler and agent", complete_trace).await;
    for (task, spans) in stack.spans.tasks() {
        // A redelivered submission starts a trace without further spans.
        let continued = spans.iter().filter(|(_, service)| !service.contains("submission"));
        let traces: BTreeSet<_> = continued.map(|(trace, _)| trace).collect();
        assert!(traces.len() <= 1, "{task} has several traces: {spans:?}");
    }
}

fn is_complete(spans: &TaskSpans) -> bool {
    let has_span = |trace: &str, name: &str| {
        spans.iter().any(|(of, service)| of == trace && service.ends_with(name))
    };
    let all = |trace| {
        ["submission", "scheduler", "agent-inventory"].iter().all(|name| has_span(trace, name))
    };
    spans.iter().any(|(trace, _)| all(trace))
}

/// An OpenTelemetry collector that stores the task, the trace and the service of each span.
pub(super) struct Collector {
    pub(super) url: String,
    spans: Arc<Mutex<BTreeMap<String, TaskSpans>>>,
}

/// The trace and the service of each span of a task.
type TaskSpans = BTreeSet<(String, String)>;

impl Collector {
    pub(super) async fn start() -> Self {
        let spans: Arc<Mutex<BTreeMap<_, TaskSpans>>> = Arc::default();
        let stored = spans.clone();
        let store_spans = move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            for (task, span) in request.resource_spans.into_iter().flat_map(read) {
                stored.lock().unwrap().entry(task).or_default().insert(span);
            }
            std::future::ready(())
        };
        let router = Router::new().route("/v1/traces", post(store_spans));
        let url = serve(router).await;
        Self { url, spans }
    }

    fn tasks(&self) -> BTreeMap<String, TaskSpans> {
        self.spans.lock().unwrap().clone()
    }
}

/// The task, the trace and the service of each span.
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
