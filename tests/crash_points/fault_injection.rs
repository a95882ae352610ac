//! Fault injection between a function and AWS: numbers every call of a run, and injects faults at chosen calls.
//!
//! It replaces the SDK's HTTP client, so that a process can die in the middle of a call, as one does that is out of memory
//! or out of time: no panic is caught, no error is returned, and no concurrent work continues.
//!
//! ```text
//! function ── SDK client ── FaultInjector ── embedded AWS
//!                               └── CallLog: #1 submission Query steward-workflows, #2 ...
//! ```

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpClient, SharedHttpConnector,
        },
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use steward_emulator::resources::TASKS_TABLE;
use tokio::sync::Notify;

use crate::support::throttling;

/// The function that makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FunctionRole {
    Submission,
    Scheduler,
    Agent,
    Supervisor,
}

/// One call to AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AwsCall {
    pub(super) role: FunctionRole,
    /// The number of the batch or sweep in the run.
    pub(super) invocation: usize,
    operation: String,
    /// The table or queue.
    resource: String,
    /// Whether it saves a task's state.
    pub(super) is_save: bool,
}

impl AwsCall {
    fn of(role: FunctionRole, invocation: usize, request: &HttpRequest) -> Self {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value = request
            .body()
            .bytes()
            .and_then(|body| serde_json::from_slice(body).ok())
            .unwrap_or_default();
        let resource = body["TableName"].as_str().or(body["QueueUrl"].as_str()).unwrap_or_default();
        let resource = resource.rsplit('/').next().unwrap_or_default().to_owned();
        let mut statements = body["Statements"].as_array().into_iter().flatten();
        let updates =
            |one: &Value| one["Statement"].as_str().is_some_and(|s| s.starts_with("UPDATE"));
        let is_save = statements.any(updates) || operation == "PutItem" && resource == TASKS_TABLE;
        Self { role, invocation, operation, resource, is_save }
    }
}

impl fmt::Display for AwsCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.role, self.operation, self.resource)
    }
}

/// A fault at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// The process dies before the call.
    DieBefore,
    /// The process dies after the call took effect, before its response arrives.
    DieAfter,
    /// The call never gets a response and has no effect. The function stops at its deadline, and its process goes on.
    HangBefore,
    /// As `HangBefore`, but the call takes effect.
    HangAfter,
    /// As `DieAfter`, and all other functions, the tables and the queues die too. They restart from their files: `steward
    /// local` is killed.
    KillAll,
    /// As `DieAfter`, and then nothing runs for ten days, while items expire and are deleted.
    Outage,
    /// The call fails without effect.
    FailBefore,
    /// The call takes effect, its response is lost, and the SDK does not repeat the call.
    FailAfter,
    /// The call takes effect, its response is lost, and the SDK repeats the call.
    RepeatAfter,
    /// AWS throttles the call.
    Throttle,
    /// AWS throttles the last entry of a batch and processes the others. A call without entries is throttled as a whole.
    ThrottlePart,
    /// AWS throttles the call and all equal calls of its invocation, so retries fail.
    ThrottleLong,
}

/// A fault and the call at which it is injected, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FaultAt {
    pub(super) call: usize,
    pub(super) fault: InjectedFault,
}

/// All calls of a run in order, and the faults to inject.
#[derive(Debug)]
pub(super) struct CallLog {
    calls: Mutex<Vec<AwsCall>>,
    invocations: AtomicUsize,
    faults: Vec<FaultAt>,
}

impl CallLog {
    pub(super) fn new(faults: &[FaultAt]) -> Self {
        Self { calls: Mutex::default(), invocations: AtomicUsize::new(0), faults: faults.to_vec() }
    }

    pub(super) fn begin_invocation(&self) {
        self.invocations.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> Vec<AwsCall> {
        self.calls.lock().unwrap().clone()
    }

    /// Records a call; returns the fault to inject.
    fn record(&self, role: FunctionRole, request: &HttpRequest) -> Option<InjectedFault> {
        let mut calls = self.calls.lock().unwrap();
        let call = calls.len();
        calls.push(AwsCall::of(role, self.invocations.load(Ordering::SeqCst), request));
        let applies = |at: &&FaultAt| {
            let continues = at.fault == InjectedFault::ThrottleLong && at.call < call;
            at.call == call || continues && calls[at.call] == calls[call]
        };
        self.faults.iter().find(applies).map(|at| at.fault)
    }
}

/// A simulated process, which may die.
#[derive(Debug, Default)]
pub(super) struct SimulatedProcess {
    is_dead: AtomicBool,
    death: Notify,
}

impl SimulatedProcess {
    /// Waits until the process dies.
    pub(super) async fn died(&self) {
        self.death.notified().await;
    }

    /// Kills the process. Never returns to the caller.
    async fn die<T>(&self) -> T {
        self.is_dead.store(true, Ordering::SeqCst);
        self.death.notify_one();
        pending().await
    }
}

/// The HTTP client of one process.
#[derive(Debug, Clone)]
pub(super) struct FaultInjector {
    role: FunctionRole,
    call_log: Arc<CallLog>,
    process: Arc<SimulatedProcess>,
    inner: SharedHttpClient,
}

impl FaultInjector {
    /// A configuration whose clients call AWS through the fault injector.
    pub(super) fn wrap(
        sdk: SdkConfig,
        role: FunctionRole,
        call_log: Arc<CallLog>,
        process: Arc<SimulatedProcess>,
    ) -> SdkConfig {
        let inner = sdk.http_client().unwrap();
        let injector = Self { role, call_log, process, inner };
        sdk.into_builder().http_client(injector).build()
    }
}

impl HttpClient for FaultInjector {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(FaultInjectingConnector { injector: self.clone(), inner })
    }
}

/// The fault injector with the connector to AWS.
#[derive(Debug, Clone)]
struct FaultInjectingConnector {
    injector: FaultInjector,
    inner: SharedHttpConnector,
}

impl HttpConnector for FaultInjectingConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = self.clone();
        HttpConnectorFuture::new(async move { connector.send(request).await })
    }
}

impl FaultInjectingConnector {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let FaultInjector { role, call_log, process, .. } = &self.injector;
        if process.is_dead.load(Ordering::SeqCst) {
            return pending().await;
        }
        let Some(fault) = call_log.record(*role, &request) else {
            return self.inner.call(request).await;
        };
        match fault {
            InjectedFault::Throttle | InjectedFault::ThrottleLong | InjectedFault::ThrottlePart => {
                let all = fault != InjectedFault::ThrottlePart;
                throttling::throttle(request, all, |part| self.inner.call(part)).await
            }
            InjectedFault::DieBefore => process.die().await,
            InjectedFault::HangBefore => pending().await,
            InjectedFault::HangAfter => {
                self.inner.call(request).await?;
                pending().await
            }
            InjectedFault::FailBefore => Err(connection_error()),
            InjectedFault::DieAfter | InjectedFault::KillAll | InjectedFault::Outage => {
                self.inner.call(request).await?;
                process.die().await
            }
            InjectedFault::FailAfter => {
                self.inner.call(request).await?;
                Err(connection_error())
            }
            InjectedFault::RepeatAfter => {
                self.inner.call(request).await?;
                let unavailable =
                    StatusCode::try_from(503_u16).map_err(|e| error_without_retry(e.into()))?;
                Ok(HttpResponse::new(unavailable, SdkBody::from("{}")))
            }
        }
    }
}

fn connection_error() -> ConnectorError {
    error_without_retry("injected fault: no connection".into())
}

/// An error after which the SDK does not repeat the call.
fn error_without_retry(cause: Box<dyn std::error::Error + Send + Sync>) -> ConnectorError {
    ConnectorError::other(cause, None)
}
