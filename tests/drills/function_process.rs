//! A function's binary as a process, and the part of Lambda's runtime API that it needs: the next invocation, and its
//! response. See <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>.

use std::{
    collections::BTreeMap,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path as UrlPath, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    task::JoinSet,
};

/// How long an invocation may take: the time limit that the function sees.
const INVOCATION: Duration = Duration::from_secs(120);

/// The response of an invocation, or its error.
type InvocationResult = Result<Value, String>;

/// A running function. Dropping it kills the process.
pub(super) struct FunctionProcess {
    invocations: mpsc::Sender<(Value, oneshot::Sender<InvocationResult>)>,
    _process: Child,
    _api: JoinSet<()>,
}

/// The state of the runtime API of one process.
struct RuntimeApi {
    next: AsyncMutex<mpsc::Receiver<(Value, oneshot::Sender<InvocationResult>)>>,
    running: Mutex<BTreeMap<String, oneshot::Sender<InvocationResult>>>,
    count: Mutex<u64>,
}

impl FunctionProcess {
    /// Starts a binary with these variables beside those that Lambda sets.
    pub(super) async fn start(binary: &Path, variables: &[(String, String)]) -> Self {
        let (invocations, next) = mpsc::channel(64);
        let state = RuntimeApi {
            next: AsyncMutex::new(next),
            running: Mutex::default(),
            count: Mutex::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next_invocation))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(respond))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(fail))
            .with_state(Arc::new(state));
        let mut api = JoinSet::new();
        api.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let mut command = Command::new(binary);
        command.env_clear().env("AWS_LAMBDA_RUNTIME_API", address);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        Self { invocations, _process: process, _api: api }
    }

    /// Invokes the function, after the invocations before it.
    pub(super) async fn invoke(&self, event: Value) -> InvocationResult {
        let (result, received) = oneshot::channel();
        self.invocations.send((event, result)).await.map_err(|error| error.to_string())?;
        let received = tokio::time::timeout(INVOCATION, received).await;
        received
            .map_err(|_| "no response in time".to_owned())?
            .map_err(|error| error.to_string())?
    }
}

async fn next_invocation(State(api): State<Arc<RuntimeApi>>) -> Response {
    let Some((event, result)) = api.next.lock().await.recv().await else {
        return StatusCode::GONE.into_response();
    };
    let id = {
        let mut count = api.count.lock().unwrap();
        *count += 1;
        format!("00000000-0000-0000-0000-{count:012}")
    };
    api.running.lock().unwrap().insert(id.clone(), result);
    let deadline = SystemTime::now() + INVOCATION;
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let headers = [
        ("lambda-runtime-aws-request-id", id),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        (
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:us-east-1:0:function:drill".to_owned(),
        ),
    ];
    (headers, event.to_string()).into_response()
}

async fn respond(
    State(api): State<Arc<RuntimeApi>>,
    UrlPath(id): UrlPath<String>,
    body: Bytes,
) -> StatusCode {
    finish(&api, &id, serde_json::from_slice(&body).map_err(|error| error.to_string()))
}

async fn fail(
    State(api): State<Arc<RuntimeApi>>,
    UrlPath(id): UrlPath<String>,
    body: Bytes,
) -> StatusCode {
    finish(&api, &id, Err(String::from_utf8_lossy(&body).into_owned()))
}

fn finish(api: &RuntimeApi, id: &str, result: InvocationResult) -> StatusCode {
    if let Some(waiting) = api.running.lock().unwrap().remove(id) {
        drop(waiting.send(result));
    }
    StatusCode::ACCEPTED
}
