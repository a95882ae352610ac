//! Every kind of step through the real handlers with the real SDK clients: conditions, items, waits, child tasks, outputs of
//! tasks, and undo.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::task::{ProcessState, Task},
};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::serve;

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// A remote service that returns a part of its request, and fails if the request asks for it. Records its calls.
async fn start_service() -> (String, Calls) {
    let calls = Calls::default();
    let handler = |State(calls): State<Calls>, uri: Uri, Json(body): Json<Value>| async move {
        calls.lock().unwrap().push((uri.path().to_owned(), body.clone()));
        if body["refuse"] == true {
            return Response::from((StatusCode::PAYMENT_REQUIRED, "").into_response());
        }
        Json(json!({ "did": body["what"] })).into_response()
    };
    let router = Router::new().fallback(handler).with_state(calls.clone());
    let url = serve(router).await;
    (url, calls)
}

/// A local host with one agent and its service.
struct HostFixture {
    host: Host,
    calls: Calls,
}

impl HostFixture {
    async fn start(workflows: Vec<Value>) -> Self {
        Self::start_with(workflows, Duration::from_millis(500), None).await
    }

    async fn start_with(
        workflows: Vec<Value>,
        supervise_every: Duration,
        sweep_every: Option<Duration>,
    ) -> Self {
        let (url, calls) = start_service().await;
        let workflows: Vec<Workflow> = workflows
            .into_iter()
            .map(|workflow| serde_json::from_value(workflow).unwrap())
            .collect();
        for workflow in &workflows {
            assert_eq!(workflow.problems(), []);
        }
        let host = Host::start(HostOptions {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            workflows,
            agents: vec![("a".parse().unwrap(), url.parse().unwrap())],
            supervise_every: Some(supervise_every),
            sweep_every,
            ..HostOptions::default()
        });
        Self { host: host.await.unwrap(), calls }
    }

    async fn submit(&self, workflow: &str, task_id: &str, input: Value) {
        let url = format!("http://{}/tasks", self.host.address.unwrap());
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input });
        let client = reqwest::Client::new();
        let response = client.post(url).body(submission.to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 202, "{}", response.text().await.unwrap());
    }

    /// Waits for the end of a task.
    async fn wait_for_end(&self, task_id: &str) -> Task {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let task = self.host.ports.store().load(&task_id.parse().unwrap()).await.unwrap();
            match task {
                Some(task) if task.process_state.has_stopped() => return task,
                other => assert!(Instant::now() < deadline, "the task has not ended: {other:#?}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// The output of the task, as a client reads it.
    async fn output_of(&self, task: &Task) -> Value {
        let url = format!("http://{}/tasks/{}", self.host.address.unwrap(), task.task_id);
        let response = reqwest::get(url).await.unwrap().text().await.unwrap();
        serde_json::from_str::<Value>(&response).unwrap()["output"].take()
    }

    /// The number of distinct calls for each path: any call may be repeated.
    fn distinct_calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::<String, BTreeSet<String>>::new();
        for (path, body) in self.calls.lock().unwrap().iter() {
            calls.entry(path.clone()).or_default().insert(body.to_string());
        }
        calls.into_iter().map(|(path, bodies)| (path, bodies.len())).collect()
    }
}

fn call(path: &str, what: &str) -> Value {
    json!({ "path": path, "body": { "what": what } })
}

/// A workflow that packs each item in a child task, and ships by drone or van; and the workflow of the child.
fn delivery() -> Vec<Value> {
    let packing = json!({
        "name": "packing", "version": 1,
        "steps": {
            "box": {
                "agent": "a", "request": call("/box", "${ input.item }"),
                "undo": { "request": call("/unbox", "${ input.item }") },
            },
        },
        "output": "boxed ${ steps.box.output.did }",
    });
    let delivery = json!({
        "name": "delivery", "version": 1,
        "input": { "type": "object", "required": ["items", "air"] },
        "retention": "90d",
        "defaults": { "complete_within": "20s", "recovery": { "then": "undo" } },
        "steps": {
            "pick": {
                "agent": "a", "request": call("/pick", "${ item }"),
                "for_each": { "items": "${ input.items }", "at_once": 2 },
                "undo": { "request": call("/unpick", "${ item }") },
            },
            "pack": {
                "after": ["pick"], "for_each": { "items": "${ steps.pick.output }" },
                "workflow": { "name": "packing", "input": { "item": "${ item.did }" } },
            },
            "cool": { "after": ["pack"], "wait": "${ input.cool }" },
            "drone": {
                "agent": "a", "after": ["cool"], "when": "${ input.air }",
                "request": call("/drone", "fly"), "undo": { "request": call("/land", "x") },
            },
            "van": {
                "agent": "a", "after": ["cool"], "when": "${ !input.air }",
                "request": call("/van", "drive"), "undo": { "request": call("/park", "x") },
            },
            "hand_over": {
                "agent": "a", "after": ["drone", "van"],
                "request": { "path": "/hand_over", "body": { "refuse": "${ input.refuse }" } },
            },
        },
        "output": { "packed": "${ steps.pack.output }", "by": "${ steps.drone.output == null ? 'van' : 'drone' }" },
    });
    vec![packing, delivery]
}

fn parcels(air: bool, refuse: bool) -> Value {
    json!({ "items": ["tea", "ink", "rye"], "air": air, "cool": "100ms", "refuse": refuse })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_waits_conditions_and_child_tasks_are_processed() {
    let fixture = HostFixture::start(delivery()).await;
    fixture.submit("delivery", "d-1", parcels(true, false)).await;
    let task = fixture.wait_for_end("d-1").await;
    assert_eq!(task.process_state, ProcessState::Processed, "{task:#?}");
    let packed = ["boxed tea", "boxed ink", "boxed rye"];
    assert_eq!(fixture.output_of(&task).await, json!({ "packed": packed, "by": "drone" }));
    assert_eq!(task.retention_s, Some(90 * 24 * 3600));
    let child = fixture.wait_for_end("d-1:pack:2").await;
    assert_eq!(child.parent.unwrap().step.to_string(), "pack[2]");
    let counts = fixture.distinct_calls();
    assert_eq!((counts["/pick"], counts["/box"], counts["/drone"]), (3, 3, 1), "{counts:?}");
    assert!(!counts.contains_key("/van"), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_and_child_tasks_are_undone_with_their_task() {
    let fixture = HostFixture::start(delivery()).await;
    fixture.submit("delivery", "d-2", parcels(false, true)).await;
    let task = fixture.wait_for_end("d-2").await;
    assert_eq!(task.process_state, ProcessState::Undone, "{task:#?}");
    for index in 0..3 {
        let child = fixture.wait_for_end(&format!("d-2:pack:{index}")).await;
        assert_eq!(child.process_state, ProcessState::Undone);
    }
    let counts = fixture.distinct_calls();
    let undone = (counts["/unpick"], counts["/unbox"], counts["/park"]);
    assert_eq!(undone, (3, 3, 1), "{counts:?}");
    assert!(!counts.contains_key("/land"), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_workflow_that_is_not_published_fails_its_step() {
    let mut workflows = delivery();
    workflows.remove(0);
    let fixture = HostFixture::start(workflows).await;
    fixture.submit("delivery", "d-3", parcels(true, false)).await;
    let task = fixture.wait_for_end("d-3").await;
    assert_eq!(task.process_state, ProcessState::Undone, "{task:#?}");
    let reason = task.undo_reason.unwrap();
    assert!(
        reason.contains("its child task was refused: there is no workflow `packing`"),
        "{reason}"
    );
    assert_eq!(fixture.distinct_calls()["/unpick"], 3);
}

/// Only a sweep finds that a callback did not arrive: the agent has done its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticks_find_an_overdue_callback_long_before_the_next_run() {
    let workflow = json!({
        "name": "ask", "version": 1,
        "steps": { "ask": {
            "agent": "a", "callback": { "within": "1s" },
            "request": { "path": "/ask", "body": { "token": "${ callback.token }" } },
        } },
    });
    let minute = Duration::from_secs(60);
    let local = HostFixture::start_with(vec![workflow], minute, Some(Duration::from_secs(1))).await;
    let submitted = Instant::now();
    local.submit("ask", "t", json!({})).await;
    while local.calls.lock().unwrap().len() < 2 {
        assert!(submitted.elapsed() < Duration::from_secs(40), "not called again");
        tokio::task::yield_now().await;
    }
}
