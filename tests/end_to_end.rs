//! One task through everything that runs: submitted over HTTP, carried out by an HTTP agent against a
//! real server, heard of on the client's own queue; with its trace, its log lines, and no payload in
//! them.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};

/// Other tests log too; this task is nobody else's.
const TASK: &str = "logged-task";

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Calls = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// A remote service that keeps what it was asked.
async fn service() -> (String, Calls) {
    let calls = Calls::default();
    let answer = |State(calls): State<Calls>, headers: HeaderMap, Json(body): Json<Value>| async move {
        calls.lock().unwrap().push((headers, body));
        Json(json!({ "charge": "never-to-be-logged" }))
    };
    let router = Router::new().route("/charges", post(answer)).with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, calls)
}

fn workflow() -> Workflow {
    serde_json::from_value(
        json!({ "name": "pay", "version": 1, "lifecycle_events": true, "steps": {
        "charge": { "agent": "payment", "request": { "path": "/charges", "body": "${ input }" } },
    } }),
    )
    .unwrap()
}

/// What has been logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The next message of a queue.
async fn next(host: &Host, queue: &str) -> Value {
    let sqs = host.sqs();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer =
            sqs.receive_message().queue_url(queue).wait_time_seconds(5).send().await.unwrap();
        if let Some(message) = answer.messages().first() {
            let receipt = message.receipt_handle().unwrap();
            sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
            return serde_json::from_str(message.body().unwrap()).unwrap();
        }
        assert!(Instant::now() < deadline, "nothing came on {queue}");
    }
}

#[tokio::test]
async fn a_task_submitted_over_http_is_processed_traced_logged_and_notified() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter("off,steward_core=trace,steward_aws=trace,steward_agent=trace,steward_submission=trace,steward_scheduler=trace")
        .with_writer(move || writer.clone())
        .finish();
    // For the whole process: a scoped one would miss what other tests' threads have seen first.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (url, calls) = service().await;
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
    let answer =
        client.post(&address).header("traceparent", TRACEPARENT).body(submission.to_string());
    assert_eq!(answer.send().await.unwrap().status(), 202);

    let mut heard = [next(&host, &reply_to).await, next(&host, &reply_to).await];
    heard.sort_by_key(|notice| notice["status"].to_string());
    assert_eq!(heard.each_ref().map(|notice| &notice["status"]), ["processed", "received"]);
    assert_eq!(heard.each_ref().map(|notice| &notice["task_id"]), [TASK, TASK]);
    let ended = next(&host, &host.queue_url(resources::ALERTS_QUEUE)).await;
    assert_eq!(
        (&ended["detail-type"], &ended["detail"]["data"]["process_state"]),
        (&json!("Task Ended"), &json!("Processed"))
    );

    let calls = calls.lock().unwrap();
    let [(headers, body)] = calls.as_slice() else { panic!("{} calls", calls.len()) };
    assert_eq!(headers["traceparent"], TRACEPARENT);
    assert_eq!(headers["idempotency-key"], format!("{TASK}/charge/do"));
    assert_eq!(body, &json!({ "card": "never-to-be-logged" }));

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("never-to-be-logged"), "a payload was logged: {text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let transitions: Vec<_> = lines
        .iter()
        .filter(|line| line["message"] == "task transition" && line["task_id"] == TASK)
        .collect();
    let told: Vec<_> = transitions
        .iter()
        .map(|line| {
            ["event", "step", "from", "to"].map(|field| line[field].as_str().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        told,
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
