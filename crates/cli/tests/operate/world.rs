//! What the tests of the operator's commands run against: a host that listens, a remote service that
//! does as it is told, and the real `steward` binary.

use std::{
    process::{Command, Output},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, model::task::Task};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};
use tokio::sync::watch;

/// A call that the remote service got.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) body: Value,
}

/// A remote service: refuses what the task's input says, and nothing while it is held.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    calls: Arc<Mutex<Vec<Call>>>,
    /// Whether calls wait.
    held: Arc<watch::Sender<bool>>,
    /// The path that is refused to everybody.
    refused: Arc<Mutex<Option<String>>>,
}

impl Remote {
    async fn start() -> (Self, String) {
        let remote = Self {
            calls: Arc::default(),
            held: Arc::new(watch::channel(false).0),
            refused: Arc::default(),
        };
        let router = Router::new().fallback(Self::answer).with_state(remote.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (remote, url)
    }

    async fn answer(
        State(remote): State<Self>,
        uri: Uri,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> Response {
        let path = uri.path().to_owned();
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        remote.calls.lock().unwrap().push(Call { path: path.clone(), key, body: body.clone() });
        remote.held.subscribe().wait_for(|held| !held).await.unwrap();
        let refused_to_all = remote.refused.lock().unwrap().as_ref() == Some(&path);
        if body["refuse"] == path || refused_to_all {
            let problem = Json(json!({ "title": "Not today" }));
            return (StatusCode::PAYMENT_REQUIRED, problem).into_response();
        }
        Json(json!({ "receipt": path })).into_response()
    }

    pub(crate) fn refuse_all(&self, path: Option<&str>) {
        *self.refused.lock().unwrap() = path.map(str::to_owned);
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// The calls of one task.
    pub(crate) fn calls(&self, task: &str) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.body["order"] == task).cloned().collect()
    }

    pub(crate) fn paths(&self, task: &str) -> Vec<String> {
        self.calls(task).into_iter().map(|call| call.path).collect()
    }
}

fn workflow(name: &str) -> Workflow {
    let step = |path: &str, undo: Option<&str>, after: Value, receipt: Value| {
        let body = json!({ "order": "${ task.id }", "refuse": "${ input.refuse }" });
        let mut step = json!({
            "agent": "shop", "after": after, "complete_within": "60s",
            "request": { "path": path, "body": body },
        });
        if !receipt.is_null() {
            step["request"]["body"]["receipt"] = receipt;
        }
        if let Some(undo) = undo {
            step["undo"] = json!({ "request": { "path": undo, "body": body } });
        }
        step
    };
    let steps = json!({
        "reserve": step("/reserve", Some("/release"), json!([]), Value::Null),
        "charge": step("/charge", Some("/refund"), json!(["reserve"]), Value::Null),
        "ship": step("/ship", None, json!(["charge"]), json!("${ steps.charge.output.receipt }")),
    });
    serde_json::from_value(json!({ "name": name, "version": 1, "steps": steps })).unwrap()
}

/// Someone is asked, and answers later.
fn approval() -> Workflow {
    let order = json!({ "order": "${ task.id }" });
    serde_json::from_value(json!({ "name": "approval", "version": 1, "steps": {
        "ask": {
            "agent": "shop",
            "request": {
                "path": "/ask", "body": { "order": "${ task.id }", "token": "${ callback.token }" },
            },
            "callback": { "within": "1h", "heartbeat": "30m" },
            "recovery": { "then": "undo" },
            "undo": { "request": { "path": "/forget", "body": order } },
        },
        "ship": {
            "agent": "shop", "after": ["ask"],
            "request": {
                "path": "/ship",
                "body": { "order": "${ task.id }", "receipt": "${ steps.ask.output.receipt }" },
            },
        },
    } }))
    .unwrap()
}

/// What `steward` said, and whether it succeeded.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn has(&self, texts: &[&str]) {
        assert!(self.ok, "it failed: {}", self.err);
        texts
            .iter()
            .for_each(|text| assert!(self.out.contains(text), "no `{text}` in\n{}", self.out));
    }

    #[track_caller]
    pub(crate) fn fails(&self, texts: &[&str]) {
        assert!(!self.ok, "it succeeded: {}", self.out);
        texts
            .iter()
            .for_each(|text| assert!(self.err.contains(text), "no `{text}` in\n{}", self.err));
    }
}

/// A running host, and its remote service.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) remote: Remote,
}

impl World {
    pub(crate) async fn start() -> Self {
        let (remote, url) = Remote::start().await;
        let host = Host::start(HostOptions {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            workflows: vec![workflow("order"), workflow("return"), approval()],
            agents: vec![("shop".parse().unwrap(), url.parse().unwrap())],
            supervise_every: Some(Duration::from_millis(200)),
            ..HostOptions::default()
        });
        Self { host: host.await.unwrap(), remote }
    }

    /// Runs the `steward` binary as anna, until it ends.
    pub(crate) async fn steward(&self, args: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        let endpoint = format!("http://{}", self.host.address.unwrap());
        command.args(args).env("AWS_ENDPOINT_URL", endpoint).env("USER", "anna");
        self.run(command).await
    }

    /// The same for somebody of whom nothing is known.
    pub(crate) async fn nobody(&self, args: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        let endpoint = format!("http://{}", self.host.address.unwrap());
        command.args(args).env("AWS_ENDPOINT_URL", endpoint).env_remove("USER");
        self.run(command).await
    }

    async fn run(&self, mut command: Command) -> Said {
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output { status, stdout, stderr } = run.await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { ok: status.success(), out: text(stdout), err: text(stderr) }
    }

    /// Submits a task of which the remote service refuses `path`.
    pub(crate) async fn submit(&self, workflow: &str, task: &str, refuse: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let submission =
            json!({ "task_id": task, "workflow": workflow, "input": { "refuse": refuse } });
        std::fs::write(file.path(), submission.to_string()).unwrap();
        self.steward(&["submit", file.path().to_str().unwrap()]).await.has(&["sent"]);
    }

    /// Waits until a task is as it should be.
    pub(crate) async fn until(&self, task: &str, condition: impl Fn(&Task) -> bool) -> Task {
        let id = task.parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let now = self.host.ports.store().load(&id).await.unwrap();
            if let Some(now) = now.as_ref().filter(|now| condition(now)) {
                return now.clone();
            }
            assert!(Instant::now() < deadline, "waited too long: {now:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a task is in a state.
    pub(crate) async fn until_state(&self, task: &str, state: &str) -> Task {
        self.until(task, |task| task.process_state.to_string() == state).await
    }

    /// Waits until the remote service was called.
    pub(crate) async fn until_called(&self, task: &str, path: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.remote.paths(task).iter().any(|called| called == path) {
            assert!(Instant::now() < deadline, "{path} was never called for {task}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
