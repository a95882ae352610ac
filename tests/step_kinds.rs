//! Every kind of step through the real handlers, over the real SDK clients: conditions, items, waits,
//! tasks of steps, what a task returns, and how all of it is undone.

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

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// A remote service that answers with what it was asked, and refuses a body that says so.
async fn service() -> (String, Calls) {
    let calls = Calls::default();
    let answer = |State(calls): State<Calls>, uri: Uri, Json(body): Json<Value>| async move {
        calls.lock().unwrap().push((uri.path().to_owned(), body.clone()));
        if body["refuse"] == true {
            return Response::from((StatusCode::PAYMENT_REQUIRED, "").into_response());
        }
        Json(json!({ "did": body["what"] })).into_response()
    };
    let router = Router::new().fallback(answer).with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, calls)
}

struct World {
    host: Host,
    calls: Calls,
}

impl World {
    async fn start(workflows: Vec<Value>) -> Self {
        let (url, calls) = service().await;
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
            supervise_every: Some(Duration::from_millis(500)),
            ..HostOptions::default()
        });
        Self { host: host.await.unwrap(), calls }
    }

    async fn submit(&self, workflow: &str, task_id: &str, input: Value) {
        let url = format!("http://{}/tasks", self.host.address.unwrap());
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input });
        let client = reqwest::Client::new();
        let answer = client.post(url).body(submission.to_string()).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 202, "{}", answer.text().await.unwrap());
    }

    async fn ended(&self, task_id: &str) -> Task {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let task = self.host.ports.store().load(&task_id.parse().unwrap()).await.unwrap();
            match task {
                Some(task) if task.process_state.is_final() => return task,
                other => assert!(Instant::now() < deadline, "not ended: {other:#?}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// What the task returned, as its client reads it.
    async fn result(&self, task: &Task) -> Value {
        let url = format!("http://{}/tasks/{}", self.host.address.unwrap(), task.task_id);
        let answer = reqwest::get(url).await.unwrap().text().await.unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["output"].take()
    }

    /// How many different things each path was asked for: any call may come twice.
    fn counts(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::<String, BTreeSet<String>>::new();
        for (path, body) in self.calls.lock().unwrap().iter() {
            asked.entry(path.clone()).or_default().insert(body.to_string());
        }
        asked.into_iter().map(|(path, asked)| (path, asked.len())).collect()
    }
}

fn call(path: &str, what: &str) -> Value {
    json!({ "path": path, "body": { "what": what } })
}

/// Packs each item in a task of its own, and ships by drone or van.
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
async fn items_waits_conditions_and_tasks_of_steps_are_done_and_returned() {
    let world = World::start(delivery()).await;
    world.submit("delivery", "d-1", parcels(true, false)).await;
    let task = world.ended("d-1").await;
    assert_eq!(task.process_state, ProcessState::Processed, "{task:#?}");
    let packed = ["boxed tea", "boxed ink", "boxed rye"];
    assert_eq!(world.result(&task).await, json!({ "packed": packed, "by": "drone" }));
    assert_eq!(task.retention_s, Some(90 * 24 * 3600));
    let child = world.ended("d-1:pack:2").await;
    assert_eq!(child.parent.unwrap().step.to_string(), "pack[2]");
    let counts = world.counts();
    assert_eq!((counts["/pick"], counts["/box"], counts["/drone"]), (3, 3, 1), "{counts:?}");
    assert!(!counts.contains_key("/van"), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_and_tasks_of_steps_are_undone_with_the_task() {
    let world = World::start(delivery()).await;
    world.submit("delivery", "d-2", parcels(false, true)).await;
    let task = world.ended("d-2").await;
    assert_eq!(task.process_state, ProcessState::Undone, "{task:#?}");
    for place in 0..3 {
        let child = world.ended(&format!("d-2:pack:{place}")).await;
        assert_eq!(child.process_state, ProcessState::Undone);
    }
    let counts = world.counts();
    let undone = (counts["/unpick"], counts["/unbox"], counts["/park"]);
    assert_eq!(undone, (3, 3, 1), "{counts:?}");
    assert!(!counts.contains_key("/land"), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_that_is_not_published_fails_its_step() {
    let mut workflows = delivery();
    workflows.remove(0);
    let world = World::start(workflows).await;
    world.submit("delivery", "d-3", parcels(true, false)).await;
    let task = world.ended("d-3").await;
    assert_eq!(task.process_state, ProcessState::Undone, "{task:#?}");
    let reason = task.undo_reason.unwrap();
    assert!(reason.contains("its child task was refused: there is no workflow `packing`"), "{reason}");
    assert_eq!(world.counts()["/unpick"], 3);
}
