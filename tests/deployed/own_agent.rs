//! An agent that is a stack of its own: it is registered, runs tasks with OAuth tokens, a custom CA and at a limited rate, also
//! as the second agent of a list, and is deregistered. The main stack does not change.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use steward_core::model::{registration::AgentRegistration, task::ProcessState};
use steward_demo::services::Fault;
use steward_runtime::ports::{SharedRecordKey, SharedRecordKind, StateStore};
use tokio::task::JoinSet;

use super::{
    agent_stacks::{delete_agent, deploy_agent},
    stack::{SECRET, Stack, secret},
    target::{TargetKind, deployment_target},
    tls::{CA, CERTIFICATE, TlsListener},
};

const AGENT: &str = "courier";

const SUBNET: &str = "subnet-0123456789abcdef0";

const BY_COURIER: &str = r#"
name: by-courier
version: 1
steps:
  reserve:
    agent: courier
    request: { path: /reservations, body: { order: "${ task.id }", items: [] } }
"#;

/// The same with a list of agents, of which the first does not exist.
const BY_LIST: &str = r#"
name: by-list
version: 1
steps:
  reserve:
    agent: [missing, courier]
    request: { path: /reservations, body: { order: "${ task.id }", items: [] } }
"#;

/// Tasks at once, and the agent's rate: any window of `t` seconds has at most `RATE * (t + 5) + 1` calls.
const LIMITED_TASKS: usize = 6;
const RATE: f64 = 0.5;

pub(super) async fn agent_is_a_stack_of_its_own(stack: Rc<Stack>) {
    let courier = Courier::start(&stack).await;
    let mut parameters = vec![
        "Version=e2e".to_owned(),
        format!("BaseUrl={}", courier.base_url),
        format!("SecretArn={}", courier.secret),
        format!("RatePerSecond={RATE}"),
        "Burst=1".to_owned(),
    ];
    // This emulator accepts subnets that do not exist, and runs the function without a VPC.
    if deployment_target().kind == TargetKind::MiniStack {
        let vpc =
            [format!("SubnetIds={SUBNET}"), "SecurityGroupIds=sg-0123456789abcdef0".to_owned()];
        parameters.extend(vpc);
    }
    deploy_agent(&stack, AGENT, &parameters).await;
    let is_registered = deployment_target().has_custom_resources("own agent: its registration");
    if is_registered {
        check_registration(&stack).await;
    }

    stack.publish(BY_COURIER).await;
    stack.publish(BY_LIST).await;
    let submit = async |prefix: &str, workflow: &str| {
        let id = stack.order_with(prefix, "reserve", |fault| fault == Fault::Healthy);
        stack.submit(&id, workflow, &Value::Null).await;
        stack.ended(&id).await
    };
    let prefixes: Vec<_> = (0..LIMITED_TASKS).map(|n| format!("courier{n}")).collect();
    let tasks = prefixes.iter().map(|prefix| submit(prefix, "by-courier"));
    for task in join_all(tasks).await {
        assert_eq!(task.process_state, ProcessState::Processed);
        assert_eq!(task.failure_count, 0, "a call above the rate waits, and costs no attempt");
    }
    courier.check_calls();
    // The first agent of the list has no queue, so it certainly did not run.
    assert_eq!(submit("list", "by-list").await.process_state, ProcessState::Processed);
    // The call took a token: the agent's role may write the record.
    let key = SharedRecordKey { kind: SharedRecordKind::Rate, name: AGENT.to_owned() };
    assert!(stack.store().shared_record(&key).await.unwrap().is_some());

    delete_agent(&stack, AGENT).await;
    if is_registered {
        assert!(registration(&stack).await.deleted_at.is_some());
    }
    // The step fails at once: there is no queue.
    let task = submit("no-courier", "by-courier").await;
    assert_ne!(task.process_state, ProcessState::Processed);
}

/// The service of the agent. On emulators it speaks HTTPS with a certificate of a CA that only the agent's secret names. It also
/// issues OAuth tokens, and refuses calls without one.
struct Courier {
    base_url: String,
    secret: String,
    calls: Arc<Mutex<CourierCalls>>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct CourierCalls {
    tokens: usize,
    accepted_at: Vec<Instant>,
}

impl Courier {
    async fn start(stack: &Stack) -> Self {
        let calls = Arc::<Mutex<CourierCalls>>::default();
        let mut server = JoinSet::new();
        if let Some(url) = &deployment_target().services_url {
            // What is not on this machine reaches only the services of the demo.
            let (base_url, secret) = (format!("{url}/inventory"), stack.secret.clone());
            return Self { base_url, secret, calls, _server: server };
        }
        let listener = TlsListener::with_certificate(CERTIFICATE).await;
        let base_url = listener.url();
        let routes = Router::new()
            .route("/token", post(issue_token))
            .route("/reservations", post(reserve))
            .with_state(calls.clone());
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let oauth = json!({
            "token_url": format!("{base_url}/token"), "client_id": "shop", "client_secret": SECRET,
        });
        let secret = secret("courier", &json!({ "oauth": oauth, "tls": { "ca": CA } })).await;
        Self { base_url, secret, calls, _server: server }
    }

    /// All calls had a token, few tokens were requested, and the calls came at the agent's rate.
    fn check_calls(&self) {
        if deployment_target().services_url.is_some() {
            return;
        }
        let CourierCalls { tokens, accepted_at } = &*self.calls.lock().unwrap();
        assert!(accepted_at.len() >= LIMITED_TASKS && (1..LIMITED_TASKS).contains(tokens));
        let window = accepted_at[LIMITED_TASKS - 1] - accepted_at[0];
        let most = RATE * (window.as_secs_f64() + 5.0) + 1.0;
        assert!(LIMITED_TASKS as f64 <= most, "{LIMITED_TASKS} calls in {window:?}");
    }
}

async fn issue_token(
    State(calls): State<Arc<Mutex<CourierCalls>>>,
    headers: HeaderMap,
) -> Response {
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
    if !authorization.is_some_and(|client| client.starts_with("Basic ")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    calls.lock().unwrap().tokens += 1;
    Json(json!({ "access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600 }))
        .into_response()
}

async fn reserve(State(calls): State<Arc<Mutex<CourierCalls>>>, headers: HeaderMap) -> Response {
    if headers.get("authorization").is_none_or(|value| *value != format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    calls.lock().unwrap().accepted_at.push(Instant::now());
    Json(json!({ "reservation": "r-1" })).into_response()
}

const TOKEN: &str = "token-of-the-courier";

async fn check_registration(stack: &Stack) {
    let registered = registration(stack).await;
    assert_eq!(registered.dead_letter_queue.as_str(), stack.name_of("agent-courier-dead-letters"));
    assert_eq!(registered.version.unwrap().as_str(), "e2e");
    assert_eq!(registered.calls_at_once.unwrap().get(), 20);
    assert_eq!(registered.rate_per_second.map(f64::from), Some(RATE));
    assert_eq!(registered.burst.unwrap().get(), 1);
}

async fn registration(stack: &Stack) -> AgentRegistration {
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: AGENT.to_owned() };
    let record = stack.store().shared_record(&key).await.unwrap().expect("a registration");
    serde_json::from_value(record.body).unwrap()
}
