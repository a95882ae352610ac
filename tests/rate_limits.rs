//! A rate limit on the local host: several instances of an agent call a real server, and share the limit.

#![cfg(test)]

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::task::{ProcessState, Task},
    rate::RateLimit,
};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::{
    agents,
    ports::{Ports, StateStore},
};

use crate::support::serve;

const TASKS: usize = 25;

/// Starts a remote service that records the times of its calls.
async fn start_service() -> (String, Arc<Mutex<Vec<Instant>>>) {
    let calls = Arc::<Mutex<Vec<Instant>>>::default();
    let handler = |State(calls): State<Arc<Mutex<Vec<Instant>>>>| async move {
        calls.lock().unwrap().push(Instant::now());
        Json(json!({}))
    };
    let router = Router::new().route("/charges", post(handler)).with_state(calls.clone());
    let url = serve(router).await;
    (url, calls)
}

/// A step that has one attempt.
fn workflow() -> Workflow {
    let step = json!({
        "agent": "payment", "request": { "path": "/charges" }, "recovery": { "attempts": 1 },
    });
    serde_json::from_value(json!({ "name": "pay", "version": 1, "steps": { "charge": step } }))
        .unwrap()
}

async fn ended(host: &Host, id: &str) -> Task {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let task = host.ports.store().load(&id.parse().unwrap()).await.unwrap();
        if let Some(task) = task.filter(|task| task.process_state.has_stopped()) {
            return task;
        }
        assert!(Instant::now() < deadline, "{id} has not ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_local_agent_share_its_rate_and_waiting_costs_no_attempt() {
    let (url, calls) = start_service().await;
    let limit = RateLimit::new(5.0.try_into().unwrap(), NonZeroU32::new(3));
    let payment = || "payment".parse().unwrap();
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![workflow()],
        agents: vec![(payment(), url.parse().unwrap())],
        rate_limits: [(payment(), limit)].into(),
        instances: NonZeroU32::new(3).unwrap(),
        supervise_every: Some(Duration::from_secs(1)),
        ..HostOptions::default()
    });
    let host = host.await.unwrap();
    let registered = agents::registration(host.ports.store(), &payment()).await.unwrap().unwrap();
    assert_eq!(registered.rate_per_second.map(f64::from), Some(5.0));
    assert_eq!(registered.burst, NonZeroU32::new(3));

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let address = format!("http://{}/tasks", host.address.unwrap());
    for n in 0..TASKS {
        let body: Value = json!({ "task_id": format!("t{n}"), "workflow": "pay" });
        let sent = client.post(&address).body(body.to_string()).send().await.unwrap();
        assert_eq!(sent.status(), 202);
    }
    for n in 0..TASKS {
        let task = ended(&host, &format!("t{n}")).await;
        assert_eq!((task.process_state, task.failure_count), (ProcessState::Processed, 0));
    }
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), TASKS);
    for (first, begun) in calls.iter().enumerate() {
        for (last, ended) in calls.iter().enumerate().skip(first) {
            let most = limit.calls_max(ended.duration_since(*begun), Duration::from_millis(100));
            assert!((last + 1 - first) as f64 <= most, "calls {first} to {last}");
        }
    }
    // 22 calls after the burst.
    let took = calls[TASKS - 1].duration_since(calls[0]);
    assert!(took >= Duration::from_secs(4), "{took:?}");
}
