//! The option `--aws-endpoint`: AWS services at an external endpoint instead of in the process. Here the endpoint is another
//! embedded AWS; `.ci/contract` uses third-party emulators.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::serve;
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::messages::{NotificationStatus, StatusNotification},
};
use steward_emulator::{
    embedded::{AwsService, EmbeddedAws, ExternalEndpoints},
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

/// Starts a service that charges; returns its URL and its number of calls.
async fn start_charging_service() -> (String, Arc<AtomicU32>) {
    let calls = Arc::<AtomicU32>::default();
    let counted = calls.clone();
    let charge = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Json(json!({ "charge": 1 })))
    };
    (serve(Router::new().route("/charges", post(charge))).await, calls)
}

fn workflow() -> Workflow {
    let charge = json!({ "agent": "payment", "request": { "path": "/charges", "body": {} } });
    serde_json::from_value(json!({
        "name": "pay", "version": 1, "lifecycle_events": ["processed"], "steps": { "charge": charge },
    }))
    .unwrap()
}

/// DynamoDB at this URL, and the other services in the process.
fn dynamodb_at(url: &str) -> ExternalEndpoints {
    let variable = |name: &str| (name == AwsService::DynamoDb.variable()).then(|| url.to_owned());
    ExternalEndpoints::from_option("env", variable).unwrap()
}

async fn start_host(endpoints: ExternalEndpoints, charges: &str) -> Host {
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        external: Some(endpoints),
        workflows: vec![workflow()],
        agents: vec![("payment".parse().unwrap(), charges.parse().unwrap())],
        supervise_every: Some(Duration::from_secs(1)),
        ..HostOptions::default()
    });
    host.await.unwrap()
}

/// The longest wait for a message.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for the next message of a queue, and deletes it.
async fn next_message(sqs: &aws_sdk_sqs::Client, queue: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "no message arrived on {queue}");
        let receive = sqs.receive_message().queue_url(queue).wait_time_seconds(20);
        if let Some(message) = receive.send().await.unwrap().messages().first() {
            let receipt = message.receipt_handle().unwrap();
            sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
            return message.body().unwrap().to_owned();
        }
    }
}

/// Submits a task on the host's queue, and waits for the notification of its end.
async fn run_task(host: &Host) -> NotificationStatus {
    let sdk = host.aws.sdk_config();
    let reply_to = resources::create_queue(&sdk, "client-test", None).await.unwrap();
    let submission =
        json!({ "task_id": "t", "workflow": "pay", "reply_to": reply_to, "input": {} });
    let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
    let send = host.sqs().send_message().queue_url(queue).message_body(submission.to_string());
    send.send().await.unwrap();
    loop {
        let notification: StatusNotification =
            serde_json::from_str(&next_message(&host.sqs(), &reply_to).await).unwrap();
        if notification.status != NotificationStatus::Received {
            return notification.status;
        }
    }
}

/// The ids in the tasks table of an AWS.
async fn task_ids_in(aws: &EmbeddedAws) -> Vec<String> {
    let client = aws_sdk_dynamodb::Client::new(&aws.sdk_config());
    let scanned = client.scan().table_name(resources::TASKS_TABLE).send().await.unwrap();
    scanned.items().iter().map(|item| item["task_id"].as_s().unwrap().clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_an_endpoint_is_external_and_the_others_are_in_process() {
    let external = EmbeddedAws::in_memory().unwrap();
    let (dynamodb, (charges, calls)) =
        (serve(external.router()).await, start_charging_service().await);
    let host = start_host(dynamodb_at(&dynamodb), &charges).await;
    assert_eq!(run_task(&host).await, NotificationStatus::Processed);
    assert_eq!(
        (calls.load(Ordering::SeqCst), task_ids_in(&external).await),
        (1, vec!["t".to_owned()])
    );
    assert!(host.ports.store().load(&"t".parse().unwrap()).await.unwrap().is_some());
    assert_eq!(external.request_counts()["SQS"], 0);
    assert_eq!(host.aws.request_counts()["DynamoDB"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_services_but_s3_can_share_one_endpoint() {
    let external = EmbeddedAws::in_memory().unwrap();
    let (url, (charges, calls)) = (serve(external.router()).await, start_charging_service().await);
    let host = start_host(ExternalEndpoints::from_option(&url, |_| None).unwrap(), &charges).await;
    assert_eq!(run_task(&host).await, NotificationStatus::Processed);
    assert_eq!(
        (calls.load(Ordering::SeqCst), task_ids_in(&external).await),
        (1, vec!["t".to_owned()])
    );
    // The external bus delivers events to the external queue of alerts.
    let sqs = aws_sdk_sqs::Client::new(&external.sdk_config());
    let event = next_message(&sqs, &host.queue_url(resources::ALERTS_QUEUE)).await;
    let event: Value = serde_json::from_str(&event).unwrap();
    assert_eq!(event["source"], steward_aws::bus::EVENT_SOURCE);
    // S3 is always embedded: the supervisor looks for payloads there.
    let mut counts = host.aws.request_counts();
    assert!(counts.remove("S3").is_some());
    assert!(counts.values().all(|&count| count == 0), "{counts:?}");
}

/// The host's own endpoint reports the address of the external tables: it must not show empty tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_endpoint_names_the_address_of_an_external_service() {
    let external = EmbeddedAws::in_memory().unwrap();
    let dynamodb = serve(external.router()).await;
    let host = start_host(dynamodb_at(&dynamodb), "http://127.0.0.1:9").await;
    let url = format!("http://{}/", host.address.unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = async |target: &str| {
        let request = client.post(&url).header("x-amz-target", target).body("{}");
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        (status, body)
    };
    let (status, body) = call("DynamoDB_20120810.ListTables").await;
    assert_eq!(status, 400);
    assert!(
        body["message"].as_str().unwrap().ends_with(&format!("send the request to {dynamodb}."))
    );
    assert_eq!(call("AmazonSQS.ListQueues").await.0, 200);
}
