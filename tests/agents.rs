//! Batches of requests through the agent's handler, on the embedded AWS: the messages of a batch are independent of each
//! other. The tests in `functions/agent/tests` cover the meaning of each response of a remote service.

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
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::{
    Agent,
    http::{HttpService, HttpSettings},
    response::CallResponse,
};
use steward_core::{breaker::BreakerSettings, model::messages::StepRequest};
use steward_runtime::ports::{Clock, Ports};
use steward_test_world::step_request;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use crate::support::{
    AdapterPorts, InjectedFault, SdkFaultInjector, TestDeployment, failed_message_ids,
    sequential_workflow, sqs_event, truncate_to_millis,
};

const NONE: [Value; 0] = [];

// The paths of the remote service; the path of a call determines the response.
const DONE: &str = "/done";
const BUSY_AT_FIRST: &str = "/busy-at-first";
const CONFLICT: &str = "/refused";
const HANGS: &str = "/hangs";

/// A remote service whose response depends on the path, and an agent that calls it. Records the headers of each call.
struct ScriptedService {
    agent: Agent<HttpService>,
    calls: Arc<Mutex<Vec<HeaderMap>>>,
    /// Each permit ends one hanging call.
    release: Arc<Semaphore>,
    _server: JoinSet<()>,
}

impl ScriptedService {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let (calls, release) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (recorded, hanging) = (calls.clone(), release.clone());
        let handler = move |request: Request| async move {
            let nth = {
                let mut recorded = recorded.lock().unwrap();
                recorded.push(request.headers().clone());
                recorded.len()
            };
            respond(request.uri().path(), nth, &hanging).await
        };
        let mut server = JoinSet::new();
        let router = Router::new().fallback(handler);
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let timeout = Duration::from_secs(30);
        let settings = HttpSettings::new(base_url.parse().unwrap());
        let http = HttpService::new(HttpSettings { call_timeout: timeout, ..settings });
        let agent = Agent::new("a".parse().unwrap(), http.unwrap(), BreakerSettings::default());
        Self { agent, calls, release, _server: server }
    }

    fn calls(&self) -> Vec<HeaderMap> {
        self.calls.lock().unwrap().clone()
    }
}

/// The response to the `nth` call.
async fn respond(path: &str, nth: usize, hanging: &Semaphore) -> Response {
    match path {
        BUSY_AT_FIRST if nth == 1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        CONFLICT => {
            let problem = [("content-type", "application/problem+json")];
            (StatusCode::CONFLICT, problem, r#"{"title":"Sold out"}"#).into_response()
        }
        HANGS => {
            hanging.acquire().await.unwrap().forget();
            r#"{"id":"late"}"#.into_response()
        }
        _ => r#"{"id":"x"}"#.into_response(),
    }
}

/// A deployment and the ports of its agent.
async fn deployment_with_agent() -> (TestDeployment, AdapterPorts) {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let ports = deployment.ports("agent");
    (deployment, ports)
}

/// A request to agent `a`, one minute before its complete-by.
fn request(ports: &AdapterPorts, task: &str, path: &str) -> StepRequest {
    step_request(&json!({
        "task_id": task, "step": "step_1", "attempt": 3, "complete_by": millis_from_now(ports, 60_000),
        "idempotency_key": format!("{task}/step_1/do"), "path": path, "body": { "order": task },
    }))
    .unwrap()
}

fn millis_from_now(ports: &AdapterPorts, ms: i64) -> Timestamp {
    ports.clock().now() + SignedDuration::from_millis(ms)
}

fn request_event<'a>(requests: impl IntoIterator<Item = &'a StepRequest>) -> SqsEvent {
    sqs_event(requests.into_iter().map(|request| serde_json::to_string(request).unwrap()), 1)
}

async fn handle<S: RemoteService>(
    ports: &AdapterPorts,
    agent: &Agent<S>,
    event: SqsEvent,
) -> SqsBatchResponse {
    steward_agent::handle(ports, agent, event, millis_from_now(ports, 120_000)).await
}

fn reply(task: &str, outcome: Value) -> Value {
    json!({
        "type": "reply", "task_id": task, "step": "step_1", "action": "do", "attempt": 3, "outcome": outcome,
        "agent": "a", "incarnation": 0,
    })
}

fn completed(task: &str, output: Value) -> Value {
    reply(task, json!({ "status": "completed", "output": output }))
}

/// The same reply if an earlier call may still be in progress.
fn completed_with_call_in_progress(task: &str, output: Value) -> Value {
    reply(task, json!({ "status": "completed", "output": output, "may_continue": true }))
}

/// A reply without its times. Asserts that the reply has times.
fn without_times(body: &str) -> Value {
    let mut reply: Value = serde_json::from_str(body).unwrap();
    let times = reply.as_object_mut().unwrap().remove("times").unwrap();
    assert!(times["answered_at"].is_string(), "{times}");
    reply
}

/// Takes the replies to the scheduler, sorted by task.
async fn take_replies(deployment: &TestDeployment) -> Vec<Value> {
    let bodies = deployment.take_scheduler_messages().await;
    let mut replies: Vec<_> = bodies.iter().map(|body| without_times(body)).collect();
    replies.sort_by_key(|reply| reply["task_id"].to_string());
    replies
}

/// Waits for `count` replies to the scheduler, and takes them; returns their tasks, sorted.
async fn wait_for_replies(deployment: &TestDeployment, count: usize) -> Vec<String> {
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let queue = &deployment.config.scheduler_queue_url;
    let mut tasks = Vec::new();
    while tasks.len() < count {
        let receive = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let received = receive.wait_time_seconds(20).send().await.unwrap();
        assert!(!received.messages().is_empty(), "only {tasks:?} within 20 seconds");
        for message in received.messages() {
            let reply: Value = serde_json::from_str(message.body().unwrap()).unwrap();
            tasks.push(reply["task_id"].as_str().unwrap().to_owned());
        }
    }
    tasks.sort();
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_sent_while_another_call_of_the_batch_hangs() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let tasks: Vec<_> = (0..10).map(|n| format!("t-{n}")).collect();
    let path = |task: &str| if task == "t-4" { HANGS } else { DONE };
    let requests: Vec<_> = tasks.iter().map(|task| request(&ports, task, path(task))).collect();
    let event = request_event(&requests);
    let (agent, release) = (service.agent.clone(), service.release.clone());
    let handling = tokio::spawn(async move { handle(&ports, &agent, event).await });

    let nine: Vec<_> = tasks.iter().filter(|task| *task != "t-4").cloned().collect();
    assert_eq!(wait_for_replies(&deployment, 9).await, nine);
    assert!(!handling.is_finished());

    release.add_permits(1);
    assert_eq!(handling.await.unwrap(), SqsBatchResponse::default());
    assert_eq!(wait_for_replies(&deployment, 1).await, ["t-4"]);
    assert_eq!(service.calls().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reply_has_the_outcome_and_the_trace_of_its_own_request() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let requests = [request(&ports, "t-0", DONE), request(&ports, "t-1", CONFLICT)];
    let mut event = request_event(&requests);
    let attribute = json!({
        "stringValue": traceparent, "dataType": "String", "stringListValues": [], "binaryListValues": [],
    });
    let attribute = serde_json::from_value(attribute).unwrap();
    event.records[0].message_attributes.insert("traceparent".to_owned(), attribute);

    assert_eq!(handle(&ports, &service.agent, event).await, SqsBatchResponse::default());
    let refused = json!({ "status": "failed", "reason": "HTTP 409 Conflict", "may_have_run": true, "detail": r#"{"title":"Sold out"}"# });
    let mut sent = deployment.take_messages(&deployment.config.scheduler_queue_url).await;
    sent.sort_by_key(|message| message.body().unwrap().to_owned());
    let expected = [
        (completed("t-0", json!({ "id": "x" })), Some(traceparent)),
        (reply("t-1", refused), None),
    ];
    assert_eq!(sent.len(), expected.len());
    for (message, (body, trace)) in sent.iter().zip(expected) {
        assert_eq!(without_times(message.body().unwrap()), body);
        let attributes = message.message_attributes();
        let carried = attributes.and_then(|attributes| attributes.get("traceparent"));
        assert_eq!(carried.and_then(|attribute| attribute.string_value()), trace);
    }
    for call in service.calls() {
        let is_traced = call["idempotency-key"] == "t-0/step_1/do";
        let trace = call["traceparent"].to_str().unwrap();
        assert_eq!(trace == traceparent, is_traced, "{trace}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_service_is_called_again_with_the_same_idempotency_key() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let event = request_event([&request(&ports, "t", BUSY_AT_FIRST)]);
    assert_eq!(handle(&ports, &service.agent, event).await, SqsBatchResponse::default());
    let expected = completed_with_call_in_progress("t", json!({ "id": "x" }));
    assert_eq!(take_replies(&deployment).await, [expected]);
    let keys: Vec<_> = service.calls().iter().map(|call| call["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["t/step_1/do", "t/step_1/do"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_messages_fail_and_are_alerted_on_their_first_delivery() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let text = |request: &StepRequest| serde_json::to_string(request).unwrap();
    let for_another = StepRequest { agent: "b".parse().unwrap(), ..request(&ports, "t-1", DONE) };
    let mut incomplete = serde_json::to_value(request(&ports, "t-2", DONE)).unwrap();
    incomplete.as_object_mut().unwrap().shift_remove("attempt");
    let bodies = [
        "{".to_owned(),
        text(&request(&ports, "t-0", DONE)),
        text(&for_another),
        incomplete.to_string(),
        String::new(),
    ];

    for receives in 1..=3 {
        let response = handle(&ports, &service.agent, sqs_event(bodies.clone(), receives)).await;
        let mut redelivered = failed_message_ids(&response);
        redelivered.sort_unstable();
        assert_eq!(redelivered, ["m-0", "m-2", "m-3", "m-4"]);
        let reply = if receives > 1 { completed_with_call_in_progress } else { completed };
        assert_eq!(take_replies(&deployment).await, [reply("t-0", json!({ "id": "x" }))]);
        assert_eq!(service.calls().len(), receives as usize, "only the valid request is called");
        let alerts = deployment.take_alerts().await;
        if receives > 1 {
            assert_eq!(alerts, NONE, "alerted again at delivery {receives}");
            continue;
        }
        let incomplete_at = incomplete.to_string().len();
        let expected = [
            ("m-0", "EOF while parsing an object at line 1 column 1".to_owned()),
            ("m-2", "request for agent `b` on the queue of agent `a`".to_owned()),
            ("m-3", format!("missing field `attempt` at line 1 column {incomplete_at}")),
            ("m-4", "EOF while parsing a value at line 1 column 0".to_owned()),
        ];
        let mut details: Vec<_> =
            alerts.iter().map(|alert| alert["detail"]["data"].clone()).collect();
        details.sort_by_key(|detail| detail["message_id"].to_string());
        let at = json!(truncate_to_millis(ports.clock().now()));
        assert!(alerts.iter().all(|alert| alert["detail"]["metadata"]["at"] == at));
        let expected = expected.map(|(message_id, reason)| {
            json!({ "role": "a", "message_id": message_id, "reason": reason })
        });
        assert_eq!(details, expected);
        assert!(alerts.iter().all(|alert| alert["detail-type"] == "Message Corrupt"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_past_its_complete_by_causes_no_call_and_is_deferred() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let late =
        |ms| StepRequest { complete_by: millis_from_now(&ports, ms), ..request(&ports, "t", DONE) };
    let event = request_event(&[late(-60_000), late(0), late(-3_600_000)]);
    assert_eq!(handle(&ports, &service.agent, event).await, SqsBatchResponse::default());
    assert_eq!(service.calls().len(), 0);
    let replies = take_replies(&deployment).await;
    let outcomes = replies.iter().map(|reply| reply["outcome"]["status"].as_str().unwrap());
    assert_eq!(outcomes.collect::<Vec<_>>(), ["deferred", "deferred"], "{replies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_exceeds_its_complete_by_is_dropped_and_wakes_the_scheduler() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let soon =
        StepRequest { complete_by: millis_from_now(&ports, 300), ..request(&ports, "t-0", HANGS) };
    let event = request_event([&soon, &request(&ports, "t-1", DONE)]);
    assert_eq!(handle(&ports, &service.agent, event).await, SqsBatchResponse::default());
    let (wakes, replies): (Vec<_>, Vec<_>) = deployment
        .take_scheduler_messages()
        .await
        .into_iter()
        .partition(|message| message.starts_with(r#"{"type":"wake""#));
    let wakes: Vec<Value> = wakes.iter().map(|wake| serde_json::from_str(wake).unwrap()).collect();
    let call =
        json!({ "step": "step_1", "action": "do", "attempt": 3, "incarnation": 0, "agent": "a" });
    assert_eq!(
        wakes,
        [json!({ "type": "wake", "task_id": "t-0", "cause": "overdue", "call": call })]
    );
    let replies: Vec<_> = replies.iter().map(|reply| without_times(reply)).collect();
    assert_eq!(replies, [completed("t-1", json!({ "id": "x" }))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_would_exceed_the_functions_time_returns_to_the_queue() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let short = StepRequest { call_within_ms: 100, ..request(&ports, "t-1", DONE) };
    let requests = [request(&ports, "t-0", HANGS), short];
    let response = steward_agent::handle(
        &ports,
        &service.agent,
        request_event(&requests),
        millis_from_now(&ports, 5_000),
    )
    .await;
    assert_eq!(failed_message_ids(&response), ["m-0"]);
    assert_eq!(take_replies(&deployment).await, [completed("t-1", json!({ "id": "x" }))]);
}

/// A remote service whose adapter panics for task `t-1`.
struct PanickingService;

impl RemoteService for PanickingService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        assert_ne!(request.task_id.as_str(), "t-1", "a bug in the adapter");
        Ok(json!({ "id": "x" }).into())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_call_fails_only_its_own_message() {
    let (deployment, ports) = deployment_with_agent().await;
    let agent = Agent::new("a".parse().unwrap(), PanickingService, BreakerSettings::default());
    let requests = ["t-0", "t-1", "t-2"].map(|task| request(&ports, task, DONE));
    let response = handle(&ports, &agent, request_event(&requests)).await;
    assert_eq!(failed_message_ids(&response), ["m-1"]);
    let done = ["t-0", "t-2"].map(|task| completed(task, json!({ "id": "x" })));
    assert_eq!(take_replies(&deployment).await, done);
    assert_eq!(deployment.take_alerts().await, NONE, "no alert, because the message is valid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_reply_cannot_be_sent_is_redelivered_and_repeated() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let event = request_event([&request(&ports, "t", DONE)]);
    for fault in [InjectedFault::FailBefore, InjectedFault::FailAfter] {
        let injector = SdkFaultInjector::once("SendMessageBatch", "", fault);
        let faulty = deployment.ports_with_faults("agent", injector.clone());
        assert_eq!(
            failed_message_ids(&handle(&faulty, &service.agent, event.clone()).await),
            ["m-0"]
        );
        assert!(injector.is_exhausted());
    }
    assert_eq!(handle(&ports, &service.agent, event).await, SqsBatchResponse::default());
    // The reply whose response was lost, and the last one. The scheduler treats them as duplicates.
    let done = completed("t", json!({ "id": "x" }));
    assert_eq!(take_replies(&deployment).await, [done.clone(), done]);
    let keys: Vec<_> = service.calls().iter().map(|call| call["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["t/step_1/do"; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_messages_return_to_the_queue_if_the_scheduler_queue_is_missing() {
    let (deployment, ports) = deployment_with_agent().await;
    let service = ScriptedService::start().await;
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    sqs.delete_queue().queue_url(&deployment.config.scheduler_queue_url).send().await.unwrap();
    let requests = ["t-0", "t-1", "t-2"].map(|task| request(&ports, task, DONE));
    let response = handle(&ports, &service.agent, request_event(&requests)).await;
    let mut redelivered = failed_message_ids(&response);
    redelivered.sort_unstable();
    assert_eq!(redelivered, ["m-0", "m-1", "m-2"]);
}
