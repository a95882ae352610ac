//! `steward local --data DIR` is killed in the middle of five hundred orders and started again: every
//! recorded order ends, and none is charged twice. The real binary, the real signal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use steward_local::services::{FaultPlan, MockServices, Service};

const ORDERS: usize = 500;

/// A running `steward local`; dropping it kills it.
struct Steward {
    process: Child,
    address: String,
}

impl Steward {
    fn start(data: &Path, services: &MockServices) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        command.args(["local", "--listen", "127.0.0.1:0", "--supervise-every", "500ms"]);
        command
            .arg("--workflows")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workflows"));
        command.arg("--data").arg(data);
        for service in Service::ORDER {
            command.arg("--agent").arg(format!("{service}={}", services.base_url(service)));
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let submit = lines.map(Result::unwrap).find(|line| line.starts_with("submit")).unwrap();
        let url = submit.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let address = url.split("/tasks").next().unwrap().to_owned();
        Self { process, address }
    }
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

async fn submit(client: &reqwest::Client, steward: &Steward, n: usize) {
    let body = json!({
        "task_id": order(n), "workflow": "order",
        "input": { "items": [{ "sku": "a", "quantity": 1 }], "amount": n, "address": { "city": "Delft" } },
    });
    let url = format!("{}/tasks", steward.address);
    let answer = client.post(url).body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 202);
}

async fn state(client: &reqwest::Client, steward: &Steward, n: usize) -> String {
    let url = format!("{}/tasks/{}", steward.address, order(n));
    let answer = client.get(url).send().await.unwrap().bytes().await.unwrap();
    let task: Value = serde_json::from_slice(&answer).unwrap();
    task["process_state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_five_hundred_orders_it_loses_none_and_charges_none_twice() {
    let services =
        MockServices::start(&Service::ORDER, FaultPlan { latency_ms: 50, ..FaultPlan::none(1) })
            .await
            .unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let shipped = || services.ledger().pages(Service::Shipping).count();

    let first = Steward::start(data.path(), &services);
    stream::iter(0..ORDERS).for_each_concurrent(16, |n| submit(&client, &first, n)).await;
    until("some orders are shipped", || shipped() >= 10).await;
    drop(first);
    let at_kill = shipped();
    assert!(at_kill < ORDERS, "all had been shipped before the kill: nothing is proven");

    let second = Steward::start(data.path(), &services);
    let deadline = Instant::now() + Duration::from_secs(120);
    for n in 0..ORDERS {
        while state(&client, &second, n).await != "Processed" {
            assert!(Instant::now() < deadline, "{} has not ended", order(n));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let ledger = services.ledger();
    for n in 0..ORDERS {
        for service in Service::ORDER {
            assert_eq!(ledger.effects(service, &order(n)), 1, "{service} of {}", order(n));
        }
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
