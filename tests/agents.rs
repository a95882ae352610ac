//! An agent's batch through its handler, on embedded AWS: every message on its own, whatever becomes
//! of those beside it. What single answers of a remote service mean is in `functions/agent/tests`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_agent::attempt::{Fault, RemoteService};
use steward_agent::{
    Agent,
    http::{Headers, HttpService},
};
use steward_core::{
    breaker::Settings,
    model::{
        attempt::Action,
        messages::{Method, StepRequest},
    },
};
use steward_runtime::ports::{Clock, Ports};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use crate::support::{Cut, Deployment, Sabotage, TestPorts, event, failed, line, whole_millis};

const NONE: [Value; 0] = [];

/// What a call asks for, as its path says.
const DONE: &str = "/done";
const BUSY_AT_FIRST: &str = "/busy-at-first";
const REFUSED: &str = "/refused";
const HANGS: &str = "/hangs";

/// A remote service that does what the path says, and keeps the headers of each call.
struct Remote {
    agent: Agent<HttpService>,
    calls: Arc<Mutex<Vec<HeaderMap>>>,
    /// One permit for each call that may stop hanging.
    release: Arc<Semaphore>,
    _server: JoinSet<()>,
}

impl Remote {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let (calls, release) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (noted, gate) = (calls.clone(), release.clone());
        let handler = move |request: Request| async move {
            let nth = {
                let mut noted = noted.lock().unwrap();
                noted.push(request.headers().clone());
                noted.len()
            };
            answer(request.uri().path(), nth, &gate).await
        };
        let mut server = JoinSet::new();
        let router = Router::new().fallback(handler);
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let timeout = Duration::from_secs(30);
        let service = HttpService::new(base_url.parse().unwrap(), Headers::default(), timeout);
        let agent = Agent::new("a".parse().unwrap(), service.unwrap(), Settings::default());
        Self { agent, calls, release, _server: server }
    }

    fn calls(&self) -> Vec<HeaderMap> {
        self.calls.lock().unwrap().clone()
    }
}

async fn answer(path: &str, nth: usize, gate: &Semaphore) -> Response {
    match path {
        BUSY_AT_FIRST if nth == 1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        REFUSED => (StatusCode::CONFLICT, r#"{"title":"Sold out"}"#).into_response(),
        HANGS => {
            gate.acquire().await.unwrap().forget();
            r#"{"id":"late"}"#.into_response()
        }
        _ => r#"{"id":"x"}"#.into_response(),
    }
}

/// A deployment and the ports of an agent in it.
async fn deployment() -> (Deployment, TestPorts) {
    let deployment = Deployment::new(&line(1)).await;
    let ports = deployment.ports("agent");
    (deployment, ports)
}

/// A request for agent `a`, with a minute to go.
fn request(ports: &TestPorts, task: &str, path: &str) -> StepRequest {
    StepRequest {
        task_id: task.parse().unwrap(),
        step: "step_1".parse().unwrap(),
        action: Action::Do,
        attempt: 3,
        complete_by: after(ports, 60_000),
        idempotency_key: format!("{task}/step_1/do"),
        idempotent: true,
        call_within_ms: None,
        responses: steward_core::model::responses::Responses::NONE,
        may_have_run: false,
        agent: "a".parse().unwrap(),
        method: Method::Post,
        path: path.to_owned(),
        body: Some(json!({ "order": task }).into()),
        incarnation: None,
    }
}

fn after(ports: &TestPorts, ms: i64) -> Timestamp {
    ports.clock().now() + SignedDuration::from_millis(ms)
}

fn messages<'a>(requests: impl IntoIterator<Item = &'a StepRequest>) -> SqsEvent {
    event(requests.into_iter().map(|request| serde_json::to_string(request).unwrap()), 1)
}

async fn handle<S: RemoteService>(
    ports: &TestPorts,
    agent: &Agent<S>,
    event: SqsEvent,
) -> SqsBatchResponse {
    steward_agent::handle(ports, agent, event, after(ports, 120_000)).await
}

fn reply(task: &str, outcome: Value) -> Value {
    json!({ "type": "reply", "task_id": task, "step": "step_1", "action": "do", "attempt": 3, "outcome": outcome })
}

fn completed(task: &str, output: Value) -> Value {
    reply(task, json!({ "status": "completed", "output": output }))
}

/// The same, after an earlier call that may still be in progress.
fn completed_beside_another(task: &str, output: Value) -> Value {
    reply(task, json!({ "status": "completed", "output": output, "may_continue": true }))
}

/// A reply without its times, which it must have.
fn said(body: &str) -> Value {
    let mut reply: Value = serde_json::from_str(body).unwrap();
    let times = reply.as_object_mut().unwrap().remove("times").unwrap();
    assert!(times["answered_at"].is_string(), "{times}");
    reply
}

/// What waits for the scheduler, sorted by task.
async fn replies(deployment: &Deployment) -> Vec<Value> {
    let bodies = deployment.to_scheduler().await;
    let mut replies: Vec<_> = bodies.iter().map(|body| said(body)).collect();
    replies.sort_by_key(|reply| reply["task_id"].to_string());
    replies
}

/// The tasks of the next `count` messages for the scheduler, as they come.
async fn next_replies(deployment: &Deployment, count: usize) -> Vec<String> {
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let queue = &deployment.config.scheduler_queue_url;
    let mut tasks = Vec::new();
    while tasks.len() < count {
        let receive = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let received = receive.wait_time_seconds(20).send().await.unwrap();
        assert!(!received.messages().is_empty(), "only {tasks:?}, and then nothing for 20 seconds");
        for message in received.messages() {
            let reply: Value = serde_json::from_str(message.body().unwrap()).unwrap();
            tasks.push(reply["task_id"].as_str().unwrap().to_owned());
        }
    }
    tasks.sort();
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_leave_while_another_call_of_the_batch_hangs() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let tasks: Vec<_> = (0..10).map(|n| format!("t-{n}")).collect();
    let path = |task: &str| if task == "t-4" { HANGS } else { DONE };
    let requests: Vec<_> = tasks.iter().map(|task| request(&ports, task, path(task))).collect();
    let event = messages(&requests);
    let (agent, release) = (remote.agent.clone(), remote.release.clone());
    let handling = tokio::spawn(async move { handle(&ports, &agent, event).await });

    let nine: Vec<_> = tasks.iter().filter(|task| *task != "t-4").cloned().collect();
    assert_eq!(next_replies(&deployment, 9).await, nine);
    assert!(!handling.is_finished());

    release.add_permits(1);
    assert_eq!(handling.await.unwrap(), SqsBatchResponse::default());
    assert_eq!(next_replies(&deployment, 1).await, ["t-4"]);
    assert_eq!(remote.calls().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reply_says_what_became_of_its_own_request_and_carries_its_trace() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let requests = [request(&ports, "t-0", DONE), request(&ports, "t-1", REFUSED)];
    let mut event = messages(&requests);
    let attribute = json!({
        "stringValue": traceparent, "dataType": "String", "stringListValues": [], "binaryListValues": [],
    });
    let attribute = serde_json::from_value(attribute).unwrap();
    event.records[0].message_attributes.insert("traceparent".to_owned(), attribute);

    assert_eq!(handle(&ports, &remote.agent, event).await, SqsBatchResponse::default());
    let refused = json!({ "status": "failed", "reason": "HTTP 409 Conflict: Sold out", "may_have_run": true });
    let mut sent = deployment.take(&deployment.config.scheduler_queue_url).await;
    sent.sort_by_key(|message| message.body().unwrap().to_owned());
    let expected = [
        (completed("t-0", json!({ "id": "x" })), Some(traceparent)),
        (reply("t-1", refused), None),
    ];
    assert_eq!(sent.len(), expected.len());
    for (message, (body, trace)) in sent.iter().zip(expected) {
        assert_eq!(said(message.body().unwrap()), body);
        let attributes = message.message_attributes();
        let carried = attributes.and_then(|attributes| attributes.get("traceparent"));
        assert_eq!(carried.and_then(|attribute| attribute.string_value()), trace);
    }
    for call in remote.calls() {
        let is_traced = call["idempotency-key"] == "t-0/step_1/do";
        let trace = call["traceparent"].to_str().unwrap();
        assert_eq!(trace == traceparent, is_traced, "{trace}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_busy_is_called_again_with_the_same_key() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let event = messages([&request(&ports, "t", BUSY_AT_FIRST)]);
    assert_eq!(handle(&ports, &remote.agent, event).await, SqsBatchResponse::default());
    let expected = completed_beside_another("t", json!({ "id": "x" }));
    assert_eq!(replies(&deployment).await, [expected]);
    let keys: Vec<_> = remote.calls().iter().map(|call| call["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["t/step_1/do", "t/step_1/do"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_messages_fail_and_are_alerted_when_they_first_come() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let text = |request: &StepRequest| serde_json::to_string(request).unwrap();
    let for_another = StepRequest { agent: "b".parse().unwrap(), ..request(&ports, "t-1", DONE) };
    let mut half = serde_json::to_value(request(&ports, "t-2", DONE)).unwrap();
    half.as_object_mut().unwrap().shift_remove("attempt");
    let bodies = [
        "{".to_owned(),
        text(&request(&ports, "t-0", DONE)),
        text(&for_another),
        half.to_string(),
        String::new(),
    ];

    for receives in 1..=3 {
        let answer = handle(&ports, &remote.agent, event(bodies.clone(), receives)).await;
        let mut came_back = failed(&answer);
        came_back.sort_unstable();
        assert_eq!(came_back, ["m-0", "m-2", "m-3", "m-4"]);
        let said = if receives > 1 { completed_beside_another } else { completed };
        assert_eq!(replies(&deployment).await, [said("t-0", json!({ "id": "x" }))]);
        assert_eq!(remote.calls().len(), receives as usize, "the good one alone is called for");
        let alerts = deployment.alerts().await;
        if receives > 1 {
            assert_eq!(alerts, NONE, "alerted again at delivery {receives}");
            continue;
        }
        let half_at = half.to_string().len();
        let expected = [
            ("m-0", "EOF while parsing an object at line 1 column 1".to_owned()),
            ("m-2", "request for agent `b` on the queue of agent `a`".to_owned()),
            ("m-3", format!("missing field `attempt` at line 1 column {half_at}")),
            ("m-4", "EOF while parsing a value at line 1 column 0".to_owned()),
        ];
        let mut details: Vec<_> =
            alerts.iter().map(|alert| alert["detail"]["data"].clone()).collect();
        details.sort_by_key(|detail| detail["message_id"].to_string());
        let at = json!(whole_millis(ports.clock().now()));
        assert!(alerts.iter().all(|alert| alert["detail"]["metadata"]["at"] == at));
        let expected = expected.map(|(message_id, reason)| {
            json!({ "role": "a", "message_id": message_id, "reason": reason })
        });
        assert_eq!(details, expected);
        assert!(alerts.iter().all(|alert| alert["detail-type"] == "Message Corrupt"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_complete_by_nothing_is_called_and_nothing_said() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let late = |ms| StepRequest { complete_by: after(&ports, ms), ..request(&ports, "t", DONE) };
    let event = messages(&[late(-60_000), late(0)]);
    assert_eq!(handle(&ports, &remote.agent, event).await, SqsBatchResponse::default());
    assert_eq!(remote.calls().len(), 0);
    assert_eq!(replies(&deployment).await, NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_complete_by_overtakes_is_dropped_in_silence() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let soon = StepRequest { complete_by: after(&ports, 300), ..request(&ports, "t-0", HANGS) };
    let event = messages([&soon, &request(&ports, "t-1", DONE)]);
    assert_eq!(handle(&ports, &remote.agent, event).await, SqsBatchResponse::default());
    assert_eq!(replies(&deployment).await, [completed("t-1", json!({ "id": "x" }))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_function_has_no_time_for_goes_back_to_the_queue() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let short = StepRequest { call_within_ms: Some(100), ..request(&ports, "t-1", DONE) };
    let requests = [request(&ports, "t-0", HANGS), short];
    let answer =
        steward_agent::handle(&ports, &remote.agent, messages(&requests), after(&ports, 5_000))
            .await;
    assert_eq!(failed(&answer), ["m-0"]);
    assert_eq!(replies(&deployment).await, [completed("t-1", json!({ "id": "x" }))]);
}

/// A service with a bug that one task brings out.
struct Buggy;

impl RemoteService for Buggy {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        assert_ne!(request.task_id.as_str(), "t-1", "the bug");
        Ok(json!({ "id": "x" }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_call_fails_its_own_message_alone() {
    let (deployment, ports) = deployment().await;
    let agent = Agent::new("a".parse().unwrap(), Buggy, Settings::default());
    let requests = ["t-0", "t-1", "t-2"].map(|task| request(&ports, task, DONE));
    let answer = handle(&ports, &agent, messages(&requests)).await;
    assert_eq!(failed(&answer), ["m-1"]);
    let done = ["t-0", "t-2"].map(|task| completed(task, json!({ "id": "x" })));
    assert_eq!(replies(&deployment).await, done);
    assert_eq!(deployment.alerts().await, NONE, "it is the agent that is at fault");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_reply_cannot_be_sent_comes_back_and_is_carried_out_again() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let event = messages([&request(&ports, "t", DONE)]);
    for cut in [Cut::FailBefore, Cut::FailAfter] {
        let sabotage = Sabotage::once("SendMessageBatch", "", cut);
        let unlucky = deployment.sabotaged("agent", sabotage.clone());
        assert_eq!(failed(&handle(&unlucky, &remote.agent, event.clone()).await), ["m-0"]);
        assert!(sabotage.is_done());
    }
    assert_eq!(handle(&ports, &remote.agent, event).await, SqsBatchResponse::default());
    // The one whose answer alone was lost, and the last; the scheduler knows them for the same.
    let done = completed("t", json!({ "id": "x" }));
    assert_eq!(replies(&deployment).await, [done.clone(), done]);
    let keys: Vec<_> = remote.calls().iter().map(|call| call["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["t/step_1/do"; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_schedulers_queue_every_message_comes_back() {
    let (deployment, ports) = deployment().await;
    let remote = Remote::start().await;
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    sqs.delete_queue().queue_url(&deployment.config.scheduler_queue_url).send().await.unwrap();
    let requests = ["t-0", "t-1", "t-2"].map(|task| request(&ports, task, DONE));
    let answer = handle(&ports, &remote.agent, messages(&requests)).await;
    let mut came_back = failed(&answer);
    came_back.sort_unstable();
    assert_eq!(came_back, ["m-0", "m-1", "m-2"]);
}
