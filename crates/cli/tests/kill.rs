//! `steward local --data DIR` is killed while it runs hundreds of orders, and started again: every accepted order ends,
//! and none is charged twice. The tests kill the real binary with SIGKILL.

#![cfg(test)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::{QueueAttributeName, SendMessageBatchRequestEntry},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use steward_demo::services::{DemoService, FaultPlan, MockServices};
use steward_emulator::resources::SUBMISSIONS_QUEUE;

const ORDERS: usize = 500;

/// Orders that the second test sends to the queue.
const SENT: usize = 300;

/// The number of messages in one SQS request, which is SQS's limit.
const BATCH: usize = 10;

/// A running `steward local`; dropping it kills it.
struct Steward {
    process: Child,
    address: String,
}

impl Steward {
    fn start(data: &Path, services: &MockServices) -> Self {
        let mut command = local(data);
        for service in DemoService::ORDER {
            command.arg("--agent").arg(format!("{service}={}", services.base_url(service)));
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let submit = lines.map(Result::unwrap).find(|line| line.starts_with("submit")).unwrap();
        let url = submit.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let address = url.split("/tasks").next().unwrap().to_owned();
        Self { process, address }
    }

    fn sqs(&self) -> Client {
        let credentials = Credentials::builder()
            .access_key_id("local")
            .secret_access_key("local")
            .provider_name("test");
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(credentials.build())
            .endpoint_url(&self.address);
        Client::from_conf(config.build())
    }

    fn queue_url(&self, name: &str) -> String {
        format!("{}/000000000000/{name}", self.address)
    }
}

/// The command line of `steward local`.
fn local(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.args(["local", "--listen", "127.0.0.1:0", "--supervise-every", "500ms"]);
    command.arg("--workflows").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workflows"));
    command.arg("--data").arg(data);
    command
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn order(n: usize) -> String {
    format!("order-{n:03}")
}

fn submission(n: usize) -> String {
    let submission = json!({
        "task_id": order(n), "workflow": "order",
        "input": { "items": [{ "sku": "a", "quantity": 1 }], "amount": n, "address": { "city": "Delft" } },
    });
    submission.to_string()
}

/// Submits an order. While a queue is too long, it submits it again when the response says, as clients do.
async fn submit(client: &reqwest::Client, steward: &Steward, n: usize) {
    let url = format!("{}/tasks", steward.address);
    loop {
        let response = client.post(&url).body(submission(n)).send().await.unwrap();
        if response.status() != 503 {
            assert_eq!(response.status(), 202);
            return;
        }
        let seconds = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

async fn state(client: &reqwest::Client, steward: &Steward, n: usize) -> String {
    let url = format!("{}/tasks/{}", steward.address, order(n));
    let body = client.get(url).send().await.unwrap().bytes().await.unwrap();
    let task: Value = serde_json::from_slice(&body).unwrap();
    task["process_state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_during_five_hundred_orders_loses_none_and_charges_none_twice() {
    let services = MockServices::start(
        &DemoService::ORDER,
        FaultPlan { latency_ms: 50, ..FaultPlan::none(1) },
    )
    .await
    .unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let shipped = || services.ledgers().subjects(DemoService::Shipping).count();

    let first = Steward::start(data.path(), &services);
    stream::iter(0..ORDERS).for_each_concurrent(16, |n| submit(&client, &first, n)).await;
    wait_until("some orders are shipped", || shipped() >= 10).await;
    drop(first);
    let at_kill = shipped();
    assert!(
        at_kill < ORDERS,
        "all orders were shipped before the kill, so the test proves nothing"
    );

    let second = Steward::start(data.path(), &services);
    all_processed_once(&client, &second, &services, ORDERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_with_hundreds_of_queued_submissions_loses_no_message() {
    let services = MockServices::start(
        &DemoService::ORDER,
        FaultPlan { latency_ms: 50, ..FaultPlan::none(1) },
    )
    .await
    .unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();

    let first = Steward::start(data.path(), &services);
    let sqs = first.sqs();
    let dead = make_a_dead_letter(&sqs).await;
    stream::iter(0..SENT / BATCH).for_each_concurrent(8, |n| send_batch(&sqs, &first, n)).await;
    drop(first);
    let at_kill = services.ledgers().subjects(DemoService::Shipping).count();
    assert!(at_kill < SENT, "all orders were shipped before the kill, so the test proves nothing");

    let second = Steward::start(data.path(), &services);
    all_processed_once(&client, &second, &services, SENT).await;
    let letters = second.sqs().receive_message().queue_url(second.queue_url(&dead)).send().await;
    assert_eq!(letters.unwrap().messages()[0].body(), Some("failed"));
}

/// Sends ten orders. The last one is delayed, so that the process cannot have received it before the kill.
async fn send_batch(sqs: &Client, steward: &Steward, n: usize) {
    let entries = (0..BATCH).map(|index| {
        SendMessageBatchRequestEntry::builder()
            .id(index.to_string())
            .message_body(submission(n * BATCH + index))
            .delay_seconds(if index + 1 == BATCH { 5 } else { 0 })
            .build()
            .unwrap()
    });
    let send = sqs.send_message_batch().queue_url(steward.queue_url(SUBMISSIONS_QUEUE));
    let sent = send.set_entries(Some(entries.collect())).send().await.unwrap();
    assert_eq!(sent.successful().len(), BATCH);
}

/// Creates a dead letter by receiving a message too often. Returns the name of the dead-letter queue.
async fn make_a_dead_letter(sqs: &Client) -> String {
    let dead = "client-dead-letters";
    sqs.create_queue().queue_name(dead).send().await.unwrap();
    let policy = json!({
        "deadLetterTargetArn": format!("arn:aws:sqs:us-east-1:000000000000:{dead}"),
        "maxReceiveCount": 1,
    });
    let created = sqs.create_queue().queue_name("client-work");
    let created = created.attributes(QueueAttributeName::RedrivePolicy, policy.to_string());
    let url = created.send().await.unwrap().queue_url.unwrap();
    sqs.send_message().queue_url(&url).message_body("failed").send().await.unwrap();
    let receive = || sqs.receive_message().queue_url(&url).visibility_timeout(0).send();
    assert_eq!(receive().await.unwrap().messages().len(), 1);
    assert!(receive().await.unwrap().messages().is_empty());
    dead.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_the_same_data_directory_is_refused() {
    let services = MockServices::start(&DemoService::ORDER, FaultPlan::none(1)).await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let first = Steward::start(data.path(), &services);
    let mut second = local(data.path());
    let mut second = second.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while second.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            second.kill().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let second = second.wait_with_output().unwrap();
    assert!(!second.status.success());
    let stderr = String::from_utf8(second.stderr).unwrap();
    let expected = format!("is in use by process {}: stop it, or use another", first.process.id());
    assert!(stderr.contains(&expected), "{stderr}");
}

async fn all_processed_once(
    client: &reqwest::Client,
    steward: &Steward,
    services: &MockServices,
    orders: usize,
) {
    let deadline = Instant::now() + Duration::from_secs(120);
    for n in 0..orders {
        while state(client, steward, n).await != "Processed" {
            assert!(Instant::now() < deadline, "{} has not ended", order(n));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let ledgers = services.ledgers();
    for n in 0..orders {
        for service in DemoService::ORDER {
            assert_eq!(ledgers.effects(service, &order(n)), 1, "{service} of {}", order(n));
        }
    }
}

async fn wait_until(description: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timeout while waiting until {description}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// `docker stop` and service managers send SIGTERM.
#[cfg(unix)]
#[tokio::test]
async fn sigterm_ends_the_command_normally() {
    let data = tempfile::tempdir().unwrap();
    let services = MockServices::start(&DemoService::ORDER, FaultPlan::none(1)).await.unwrap();
    let mut steward = Steward::start(data.path(), &services);
    let id = steward.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(steward.process.wait().unwrap().code(), Some(0));
}
