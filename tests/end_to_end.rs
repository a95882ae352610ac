//! One task through all functions: submitted over HTTP, carried out by an HTTP agent against a real server, and reported on
//! the client's queue. The test checks the trace and the log lines, which must not contain payloads.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use futures_util::future::join_all;
use serde_json::{Value, json};
use steward_core::{
    contract::check_lifecycle_event,
    definition::workflow::Workflow,
    limits,
    model::{lifecycle::LifecycleEventKind, task::ProcessState},
};
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::{LogBuffer, serve};

/// Other tests also log; the unique id selects the lines of this test.
const TASK: &str = "logged-task";

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Calls = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// A remote service that records its calls.
async fn start_service() -> (String, Calls) {
    let calls = Calls::default();
    let handler = |State(calls): State<Calls>, headers: HeaderMap, Json(body): Json<Value>| async move {
        calls.lock().unwrap().push((headers, body));
        Json(json!({ "charge": "never-to-be-logged" }))
    };
    let router = Router::new().route("/charges", post(handler)).with_state(calls.clone());
    let url = serve(router).await;
    (url, calls)
}

fn workflow() -> Workflow {
    serde_json::from_value(
        json!({ "name": "pay", "version": 1, "lifecycle_events": LifecycleEventKind::ALL, "steps": {
        "charge": { "agent": "payment", "request": { "path": "/charges", "body": "${ input }" } },
    } }),
    )
    .unwrap()
}

/// Waits for the next message of a queue, and deletes it.
async fn next_message(host: &Host, queue: &str) -> Value {
    let sqs = host.sqs();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let response =
            sqs.receive_message().queue_url(queue).wait_time_seconds(5).send().await.unwrap();
        if let Some(message) = response.messages().first() {
            let receipt = message.receipt_handle().unwrap();
            sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
            return serde_json::from_str(message.body().unwrap()).unwrap();
        }
        assert!(Instant::now() < deadline, "no message arrived on {queue}");
    }
}

/// Captures the log of this process as JSON lines.
fn capture_log() -> LogBuffer {
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter("off,steward_runtime=trace,steward_aws=trace,steward_agent=trace,steward_submission=trace,steward_scheduler=trace")
        .with_writer(move || writer.clone())
        .finish();
    // Global: a scoped subscriber would miss call sites that other tests' threads registered first.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
}

#[tokio::test]
async fn a_task_submitted_over_http_is_processed_traced_logged_and_notified() {
    let log = capture_log();
    let (url, calls) = start_service().await;
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![workflow()],
        agents: vec![("payment".parse().unwrap(), url.parse().unwrap())],
        supervise_every: Some(Duration::from_secs(1)),
        ..HostOptions::default()
    });
    let host = host.await.unwrap();
    let reply_to =
        resources::create_queue(&host.aws.sdk_config(), "client-test", None).await.unwrap();

    let submission = json!({
        "task_id": TASK, "workflow": "pay", "reply_to": reply_to, "input": { "card": "never-to-be-logged" },
    });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let address = format!("http://{}/tasks", host.address.unwrap());
    let request =
        client.post(&address).header("traceparent", TRACEPARENT).body(submission.to_string());
    assert_eq!(request.send().await.unwrap().status(), 202);

    let mut notifications =
        [next_message(&host, &reply_to).await, next_message(&host, &reply_to).await];
    notifications.sort_by_key(|notification| notification["status"].to_string());
    assert_eq!(
        notifications.each_ref().map(|notification| &notification["status"]),
        ["processed", "received"]
    );
    assert_eq!(notifications.each_ref().map(|notification| &notification["task_id"]), [TASK, TASK]);
    let mut events = Vec::new();
    for _ in 0..3 {
        let event = next_message(&host, &host.queue_url(resources::ALERTS_QUEUE)).await;
        check_lifecycle_event(&event["detail"]).unwrap();
        assert_eq!(event["detail-type"], event["detail"]["type"]);
        assert_eq!(event["source"], "steward");
        assert_eq!(event["detail"]["subject"], TASK);
        events.push(event["detail-type"].as_str().unwrap().to_owned());
    }
    events.sort_unstable();
    assert_eq!(
        events,
        ["steward.step.completed", "steward.task.processed", "steward.task.submitted"]
    );

    let calls = calls.lock().unwrap();
    let [(headers, body)] = calls.as_slice() else { panic!("{} calls", calls.len()) };
    assert_eq!(headers["traceparent"], TRACEPARENT);
    assert_eq!(headers["idempotency-key"], format!("{TASK}/charge/do"));
    assert_eq!(body, &json!({ "card": "never-to-be-logged" }));

    assert_logged_without_payloads(&log.text());
}

/// Each concurrent batch of the host is an instance of its function, as it is on Lambda. A decision that loses a race to
/// another instance sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_submissions_at_once_call_the_service_once() {
    const TASKS: usize = 30;
    let (url, calls) = start_service().await;
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![workflow()],
        agents: vec![("payment".parse().unwrap(), url.parse().unwrap())],
        ..HostOptions::default()
    });
    let host = host.await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let tasks = format!("http://{}/tasks", host.address.unwrap());
    let submit = async |id: usize| {
        let submission = json!({ "task_id": format!("same-{id}"), "workflow": "pay", "input": {} });
        let response = client.post(&tasks).body(submission.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 202);
    };
    // The page of another site makes a browser send a submission.
    let foreign = client.post(&tasks).header("origin", "https://other.example").body("{}");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    // The other site points its name to this machine.
    let rebound = client.post(&tasks).header("origin", "http://other.example");
    let rebound = rebound.header("host", "other.example").body("{}");
    assert_eq!(rebound.send().await.unwrap().status(), 403);
    for id in 0..TASKS {
        join_all((0..8).map(|_| submit(id))).await;
    }
    for id in 0..TASKS {
        let status = client.get(format!("{tasks}/same-{id}?wait=25s")).send().await.unwrap();
        let status: Value = serde_json::from_slice(&status.bytes().await.unwrap()).unwrap();
        assert_eq!(status["process_state"], "Processed", "{status}");
    }
    let calls = calls.lock().unwrap();
    let mut keys: Vec<_> = calls.iter().map(|(headers, _)| &headers["idempotency-key"]).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((calls.len(), keys.len()), (TASKS, TASKS));
}

/// Asserts that the log has every transition of the task, and no payload.
fn assert_logged_without_payloads(text: &str) {
    assert!(!text.contains("never-to-be-logged"), "a payload was logged: {text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let transitions: Vec<_> = lines
        .iter()
        .filter(|line| line["message"] == "task transition" && line["task_id"] == TASK)
        .collect();
    let changes: Vec<_> = transitions
        .iter()
        .map(|line| {
            ["event", "step", "from", "to"].map(|field| line[field].as_str().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        changes,
        [
            ["submitted", "", "", "Pending"],
            ["wake", "", "Pending", "Processing"],
            ["completed", "charge", "running", "completed"],
        ]
    );
    let last = transitions.last().unwrap();
    assert_eq!(
        (&last["task_id"], &last["workflow"], &last["attempt"], &last["revision"]),
        (&json!(TASK), &json!("pay"), &json!(1), &json!(3))
    );
}

/// The longest list, with the settings of the template.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute"]
async fn a_list_of_ten_thousand_items_ends_without_a_counted_failure() {
    let (url, calls) = start_service().await;
    let step = json!({
        "agent": "payment", "for_each": { "items": "${ input.items }", "at_once": 100 },
        "request": { "path": "/charges", "body": { "item": "${ item }" } },
    });
    let workflow =
        json!({ "name": "list", "version": 1, "complete_within": "1h", "steps": { "each": step } });
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![serde_json::from_value(workflow).unwrap()],
        agents: vec![("payment".parse().unwrap(), url.parse().unwrap())],
        ..HostOptions::default()
    });
    let host = host.await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let tasks = format!("http://{}/tasks", host.address.unwrap());
    let items: Vec<_> = (0..limits::ITEMS_MAX).collect();
    let submission = json!({ "task_id": "long", "workflow": "list", "input": { "items": items } });
    let response = client.post(&tasks).body(submission.to_string()).send().await.unwrap();
    assert_eq!(response.status(), 202);
    let deadline = Instant::now() + Duration::from_secs(600);
    let task = loop {
        let response = client.get(format!("{tasks}/long?wait=25s")).send().await.unwrap();
        assert!(response.status().is_success());
        let task = host.ports.store().load(&"long".parse().unwrap()).await.unwrap().unwrap();
        if task.process_state.has_stopped() {
            break task;
        }
        assert!(Instant::now() < deadline, "{task:?}");
    };
    assert_eq!((task.process_state, task.failure_count), (ProcessState::Processed, 0));
    assert_eq!(calls.lock().unwrap().len(), limits::ITEMS_MAX as usize, "each item is called once");
}
