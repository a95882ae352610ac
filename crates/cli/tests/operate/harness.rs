//! The test harness for operator commands: a listening host, a controllable remote service, and the real `steward`
//! binary.

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

/// A call that the remote service received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedCall {
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) body: Value,
}

/// A remote service. It refuses the path that the task's input names, and holds all calls while `held` is true.
#[derive(Debug, Clone)]
pub(crate) struct FakeShop {
    calls: Arc<Mutex<Vec<ReceivedCall>>>,
    /// Whether calls wait before they get a response.
    held: Arc<watch::Sender<bool>>,
    /// The path that is refused for all tasks.
    refused: Arc<Mutex<Option<String>>>,
}

impl FakeShop {
    async fn start() -> (Self, String) {
        let shop = Self {
            calls: Arc::default(),
            held: Arc::new(watch::channel(false).0),
            refused: Arc::default(),
        };
        let router = Router::new().fallback(Self::respond).with_state(shop.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (shop, url)
    }

    async fn respond(
        State(shop): State<Self>,
        uri: Uri,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> Response {
        let path = uri.path().to_owned();
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        shop.calls.lock().unwrap().push(ReceivedCall {
            path: path.clone(),
            key,
            body: body.clone(),
        });
        shop.held.subscribe().wait_for(|held| !held).await.unwrap();
        let refused_to_all = shop.refused.lock().unwrap().as_ref() == Some(&path);
        if body["refuse"] == path || refused_to_all {
            let problem = json!({ "title": "Not today", "bank": "no funds", "got": body });
            let media_type = [("content-type", "application/problem+json")];
            return (StatusCode::PAYMENT_REQUIRED, media_type, problem.to_string()).into_response();
        }
        Json(json!({ "receipt": path })).into_response()
    }

    pub(crate) fn refuse_all(&self, path: Option<&str>) {
        *self.refused.lock().unwrap() = path.map(str::to_owned);
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// The calls for one task.
    pub(crate) fn calls(&self, task: &str) -> Vec<ReceivedCall> {
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
    // Only one of the workflows masks what its tasks get.
    let mask = if name == "return" { json!(["/refuse"]) } else { json!([]) };
    let workflow = json!({ "name": name, "version": 1, "steps": steps, "mask": mask });
    serde_json::from_value(workflow).unwrap()
}

/// A workflow whose input has a schema.
fn strict() -> Workflow {
    let amount = json!({ "type": "object", "properties": { "amount": { "type": "integer" } } });
    let steps = json!({ "rest": { "wait": "1s" } });
    let workflow = json!({ "name": "strict", "version": 1, "input": amount, "steps": steps });
    serde_json::from_value(workflow).unwrap()
}

/// A workflow with a step that awaits a callback.
fn approval() -> Workflow {
    let order = json!({ "order": "${ task.id }" });
    serde_json::from_value(json!({ "name": "approval", "version": 1, "steps": {
        "ask": {
            "agent": "shop",
            "request": {
                "path": "/ask", "body": {
                    "order": "${ task.id }", "token": "${ callback.token }", "url": "${ callback.url }",
                },
            },
            "callback": {
                "within": "1h", "heartbeat": "30m", "from": "the owner of ${ task.id }",
                "answer": { "type": ["object", "null"], "properties": { "receipt": { "type": "string" } } },
            },
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

/// The output of `steward`, and whether it succeeded.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) ok: bool,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    /// Asserts that the command succeeded and that standard output contains the texts.
    #[track_caller]
    pub(crate) fn has(&self, texts: &[&str]) {
        assert!(self.ok, "the command failed: {}", self.err);
        texts
            .iter()
            .for_each(|text| assert!(self.out.contains(text), "no `{text}` in\n{}", self.out));
    }

    /// Asserts that the command failed and that standard error contains the texts.
    #[track_caller]
    pub(crate) fn fails(&self, texts: &[&str]) {
        assert!(!self.ok, "the command succeeded: {}", self.out);
        texts
            .iter()
            .for_each(|text| assert!(self.err.contains(text), "no `{text}` in\n{}", self.err));
    }
}

/// Runs the `steward` binary in an environment with these variables only.
pub(crate) async fn steward_in(variables: &[(&str, &str)], args: &[&str]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.args(args).env_clear().envs(variables.iter().copied());
    run(command).await
}

async fn run(mut command: Command) -> CommandOutput {
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = run.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (ok, code) = (status.success(), status.code().unwrap());
    CommandOutput { ok, code, out: text(stdout), err: text(stderr) }
}

/// A running host, and the remote service of its agents.
pub(crate) struct OperatorHarness {
    pub(crate) host: Host,
    pub(crate) shop: FakeShop,
}

impl OperatorHarness {
    pub(crate) async fn start() -> Self {
        let (shop, url) = FakeShop::start().await;
        let host = Host::start(HostOptions {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            workflows: vec![workflow("order"), workflow("return"), approval(), strict()],
            agents: vec![("shop".parse().unwrap(), url.parse().unwrap())],
            supervise_every: Some(Duration::from_millis(200)),
            ..HostOptions::default()
        });
        Self { host: host.await.unwrap(), shop }
    }

    /// Runs the `steward` binary with USER=anna.
    pub(crate) async fn steward(&self, args: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        let endpoint = format!("http://{}", self.host.address.unwrap());
        command.args(args).env("AWS_ENDPOINT_URL", endpoint).env("USER", "anna");
        run(command).await
    }

    /// Runs the `steward` binary as in a container: without USER, on the host `box`.
    pub(crate) async fn steward_without_user(&self, args: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        let endpoint = format!("http://{}", self.host.address.unwrap());
        command.args(args).env("AWS_ENDPOINT_URL", endpoint).env("HOSTNAME", "box");
        command.env_remove("USER").env_remove("LOGNAME");
        run(command).await
    }

    /// Submits a task. The remote service refuses its calls to the path `refuse`.
    pub(crate) async fn submit(&self, workflow: &str, task: &str, refuse: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let submission =
            json!({ "task_id": task, "workflow": workflow, "input": { "refuse": refuse } });
        std::fs::write(file.path(), submission.to_string()).unwrap();
        self.steward(&["submit", file.path().to_str().unwrap()]).await.has(&["sent"]);
    }

    /// Waits until a task satisfies a condition.
    pub(crate) async fn until(&self, task: &str, condition: impl Fn(&Task) -> bool) -> Task {
        let id = task.parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let now = self.host.ports.store().load(&id).await.unwrap();
            if let Some(now) = now.as_ref().filter(|now| condition(now)) {
                return now.clone();
            }
            assert!(Instant::now() < deadline, "timeout: {now:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a task is in a state.
    pub(crate) async fn until_state(&self, task: &str, state: &str) -> Task {
        self.until(task, |task| task.process_state.to_string() == state).await
    }

    /// Waits until the remote service has been called for a task at `path`.
    pub(crate) async fn until_called(&self, task: &str, path: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.shop.paths(task).iter().any(|called| called == path) {
            assert!(Instant::now() < deadline, "{path} was never called for {task}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
