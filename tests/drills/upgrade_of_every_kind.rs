//! Upgrade drill for every kind of step: the tasks of the [scenario](super::scenario) while the functions of [two
//! releases](super::two_releases) replace each other. The test plays the service, the operator, and the systems that publish
//! events and answer callbacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::attempt::{CallFault, RemoteService};
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};
use steward_runtime::ports::{Ports, StateStore};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    scenario::{self, Course, TASKS},
    service::DrillService,
    two_releases::{PHASE_COUNT, TwoReleases},
};

/// How long the test waits at most.
const TIMEOUT: Duration = Duration::from_secs(400);

/// How often the test looks at the tasks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The deployment, and what the test plays.
struct Drill {
    releases: TwoReleases,
    service: DrillService,
    sqs: aws_sdk_sqs::Client,
    submitted: Vec<(String, Course)>,
    /// The commands and events that were sent.
    sent: BTreeSet<String>,
    _server: JoinSet<()>,
}

impl Drill {
    async fn start() -> Self {
        let service = DrillService::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(respond).with_state(service.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let agents = BTreeMap::from([("a".parse().unwrap(), url)]);
        let workflows = scenario::workflows().map(with_a_short_wait);
        // The circuit breaker opens at each lost response, so that requests are deferred.
        let releases = TwoReleases::start(agents, 1, &workflows).await;
        let sqs = aws_sdk_sqs::Client::new(&releases.aws.sdk_config());
        let (submitted, sent) = (Vec::new(), BTreeSet::new());
        Self { releases, service, sqs, submitted, sent, _server: server }
    }

    async fn send(&self, queue_url: &str, body: &Value) {
        let send = self.sqs.send_message().queue_url(queue_url).message_body(body.to_string());
        send.send().await.unwrap();
    }

    /// Submits a task of every course.
    async fn submit(&mut self, phase: usize) {
        for (name, course) in TASKS {
            let id = format!("{name}-{phase}");
            let mut submission = scenario::submission(&id, course);
            // Nobody reads the client's queue.
            submission.as_object_mut().unwrap().remove("reply_to");
            self.send(&self.releases.config.submissions_queue_url, &submission).await;
            self.submitted.push((id, course));
        }
    }

    async fn task(&self, id: &str) -> Value {
        let task = self.releases.ports.store().load(&id.parse().unwrap()).await.unwrap();
        task.map_or(Value::Null, |task| serde_json::to_value(task).unwrap())
    }

    /// What people and other systems do next.
    async fn act(&mut self) {
        let config = self.releases.config.clone();
        for token in self.service.take_callbacks() {
            let answer = json!({
                "type": "callback", "token": token, "answer": "completed", "output": { "by": "bob" },
            });
            self.send(&config.scheduler_queue_url, &answer).await;
        }
        for (id, course) in self.submitted.clone() {
            let task = self.task(&id).await;
            if let Some(command) = scenario::command(&id, course, &task)
                && !(command["order"]["did_not_run"] == true && may_be_called(&task))
                && self.sent.insert(command.to_string())
            {
                self.send(&config.commands_queue_url, &command).await;
            }
            if let Some(event) = scenario::awaited_event(&id, &task)
                && self.sent.insert(event.to_string())
            {
                self.send(&config.events_queue_url, &event).await;
            }
        }
    }

    /// Acts until this holds for these of the submitted tasks.
    async fn run_until(
        &mut self,
        what: &str,
        tasks: Range<usize>,
        holds: fn(Course, &Value) -> bool,
    ) {
        let started = Instant::now();
        loop {
            self.act().await;
            let mut open = Vec::new();
            for (id, course) in &self.submitted[tasks.clone()] {
                let task = self.task(id).await;
                if !holds(*course, &task) {
                    open.push(format!(
                        "{id}: {}: {}, commands {}",
                        task["process_state"], task["error"], task["commands"]
                    ));
                }
            }
            if open.is_empty() {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "{what}: {open:#?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The workflow with a wait that takes seconds, so that tasks end soon.
fn with_a_short_wait(workflow: Workflow) -> Workflow {
    let mut definition = serde_json::to_value(workflow).unwrap();
    if let Some(wait) = definition.pointer_mut("/steps/cool/wait") {
        *wait = json!("3s");
    }
    serde_json::from_value(definition).unwrap()
}

/// The service over HTTP. A lost response is a 503: the agent repeats the call with the same key.
async fn respond(
    State(service): State<DrillService>,
    uri: Uri,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let (path, key) = (uri.path(), headers["idempotency-key"].to_str().unwrap());
    let [task, step, action] = key.splitn(3, '/').collect::<Vec<_>>()[..] else { panic!("{key}") };
    let request = serde_json::from_value(json!({
        "task_id": task, "step": step, "action": action.split('/').next(), "attempt": 1,
        "complete_by": "2100-01-01T00:00:00Z", "call_within_ms": 1, "incarnation": 0, "agent": "a",
        "idempotency_key": key, "idempotent": path != "/once", "method": "POST", "path": path, "body": body,
    }));
    match service.fake.call(&request.unwrap(), None).await {
        Ok(response) => Json(response.body.unwrap()).into_response(),
        Err(CallFault::Permanent { .. }) => StatusCode::GONE.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Whether the task has begun, and is not at its end.
fn has_begun(_: Course, task: &Value) -> bool {
    !task.is_null() && task["steps"]["reserve"]["s"] == "c"
}

/// Whether the task has ended as its course says, and no command is left.
fn has_ended(course: Course, task: &Value) -> bool {
    let state = serde_json::from_value::<ProcessState>(task["process_state"].clone());
    state.is_ok_and(|state| state == course.end()) && scenario::command("", course, task).is_none()
}

/// Whether a call of the last step may be in progress. Until it is not, an operator cannot state that the step did not run.
fn may_be_called(task: &Value) -> bool {
    let until = task["steps"]["last"]["w"].as_i64();
    until.is_some_and(|until| until >= Timestamp::now().as_millisecond())
}

/// The same, or the task waits for a minute: it is being undone after a step that is not idempotent, or an operator
/// waits for the end of a call that was deferred.
fn has_almost_ended(course: Course, task: &Value) -> bool {
    has_ended(course, task)
        || (course == Course::Undone && task["process_state"] == "Undoing")
        || (course == Course::Edited && scenario::last_command_was_refused(task))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binaries of two releases: .ci/upgrade-drill"]
async fn tasks_of_every_kind_survive_an_upgrade_by_halves_and_a_rollback() {
    let mut drill = Box::pin(Drill::start()).await;
    for phase in 0..PHASE_COUNT {
        drill.releases.enter(phase);
        drill.submit(phase).await;
        // Half of a task in one phase, and half in the next.
        let earlier = phase * TASKS.len();
        drill.run_until("ended or undoing", 0..earlier, has_almost_ended).await;
        drill.run_until("begun", earlier..earlier + TASKS.len(), has_begun).await;
    }
    drill.run_until("ended", 0..PHASE_COUNT * TASKS.len(), has_ended).await;
    drill.releases.check_invocations();
    let (mut states, mut deferred) = (BTreeMap::new(), 0);
    for (id, course) in &drill.submitted {
        states.insert(id.clone(), course.end());
        let attempts = drill.task(id).await["steps"]["doubt"]["a"].as_u64();
        deferred += usize::from(attempts > Some(1));
    }
    assert!(deferred > 0, "no request was deferred");
    assert_eq!(drill.service.wrong_effects(&states), [""; 0]);
}
