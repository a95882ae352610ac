//! The wire between an instance and AWS: it numbers every call of a run, and cuts those it is told
//! to. It takes the place of the SDK's HTTP client, so that a process can die in the middle of a call
//! without a word, as one does that is out of memory or out of time: no panic is caught, no error is
//! heard, nothing that ran beside the call goes on.
//!
//! ```text
//! instance ── SDK client ── Wire ── embedded AWS
//!                            └── Journal: #1 submission Query steward-workflows, #2 ...
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

/// Whose instance makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Submission,
    Scheduler,
    Agent,
    Supervisor,
}

/// One call to AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) role: Role,
    /// Counts the batches and sweeps of a run.
    pub(super) invocation: usize,
    operation: String,
    /// The table or queue.
    on: String,
    /// Whether it saves a task's state.
    pub(super) is_save: bool,
}

impl Call {
    fn of(role: Role, invocation: usize, request: &HttpRequest) -> Self {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value = request
            .body()
            .bytes()
            .and_then(|body| serde_json::from_slice(body).ok())
            .unwrap_or_default();
        let on = body["TableName"].as_str().or(body["QueueUrl"].as_str()).unwrap_or_default();
        let on = on.rsplit('/').next().unwrap_or_default().to_owned();
        let mut statements = body["Statements"].as_array().into_iter().flatten();
        let updates =
            |one: &Value| one["Statement"].as_str().is_some_and(|s| s.starts_with("UPDATE"));
        let is_save = statements.any(updates) || operation == "PutItem" && on == TASKS_TABLE;
        Self { role, invocation, operation, on, is_save }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.role, self.operation, self.on)
    }
}

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The process dies before the call.
    DieBefore,
    /// The process dies after the call took effect, before its answer is there.
    DieAfter,
    /// The same, and with it die all other functions, the tables and the queues, which start again from their
    /// files: `steward local` is killed.
    KillAll,
    /// The same as `DieAfter`, and then nothing runs for ten days, in which items expire and are deleted.
    Outage,
    /// The call fails without effect.
    FailBefore,
    /// The call takes effect, its answer is lost, and so is the process's patience.
    FailAfter,
    /// The call takes effect, its answer is lost, and the SDK repeats it.
    RepeatAfter,
    /// AWS throttles the call.
    Throttle,
    /// AWS throttles the last entry of a batch, and does the others; a call without entries as a whole.
    ThrottlePart,
    /// AWS throttles the call and all like it that its invocation makes: whoever is patient is so in vain.
    ThrottleLong,
}

/// Where in a run, counted in calls from 0, what is done to the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CutAt {
    pub(super) call: usize,
    pub(super) cut: Cut,
}

/// All calls of one run in their order, and the cuts that await some of them.
#[derive(Debug)]
pub(super) struct Journal {
    calls: Mutex<Vec<Call>>,
    invocations: AtomicUsize,
    cuts: Vec<CutAt>,
}

impl Journal {
    pub(super) fn new(cuts: &[CutAt]) -> Self {
        Self { calls: Mutex::default(), invocations: AtomicUsize::new(0), cuts: cuts.to_vec() }
    }

    pub(super) fn begin_invocation(&self) {
        self.invocations.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Enters a call; what is to be done to it.
    fn enter(&self, role: Role, request: &HttpRequest) -> Option<Cut> {
        let mut calls = self.calls.lock().unwrap();
        let call = calls.len();
        calls.push(Call::of(role, self.invocations.load(Ordering::SeqCst), request));
        let strikes = |at: &&CutAt| {
            let lasts = at.cut == Cut::ThrottleLong && at.call < call;
            at.call == call || lasts && calls[at.call] == calls[call]
        };
        self.cuts.iter().find(strikes).map(|at| at.cut)
    }
}

/// A process, which may die.
#[derive(Debug, Default)]
pub(super) struct Process {
    is_dead: AtomicBool,
    death: Notify,
}

impl Process {
    /// Waits for its death.
    pub(super) async fn died(&self) {
        self.death.notified().await;
    }

    /// Dies, and takes whatever asked for it along.
    async fn die<T>(&self) -> T {
        self.is_dead.store(true, Ordering::SeqCst);
        self.death.notify_one();
        pending().await
    }
}

/// The wire of one process.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    role: Role,
    journal: Arc<Journal>,
    process: Arc<Process>,
    beyond: SharedHttpClient,
}

impl Wire {
    /// `sdk`, with this wire laid between its clients and AWS.
    pub(super) fn lay(
        sdk: SdkConfig,
        role: Role,
        journal: Arc<Journal>,
        process: Arc<Process>,
    ) -> SdkConfig {
        let beyond = sdk.http_client().unwrap();
        let wire = Self { role, journal, process, beyond };
        sdk.into_builder().http_client(wire).build()
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let beyond = self.beyond.http_connector(settings, components);
        SharedHttpConnector::new(Connected { wire: self.clone(), beyond })
    }
}

/// The wire with its far end.
#[derive(Debug, Clone)]
struct Connected {
    wire: Wire,
    beyond: SharedHttpConnector,
}

impl HttpConnector for Connected {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connected = self.clone();
        HttpConnectorFuture::new(async move { connected.carry(request).await })
    }
}

impl Connected {
    async fn carry(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let Wire { role, journal, process, .. } = &self.wire;
        if process.is_dead.load(Ordering::SeqCst) {
            return pending().await;
        }
        let Some(cut) = journal.enter(*role, &request) else {
            return self.beyond.call(request).await;
        };
        match cut {
            Cut::Throttle | Cut::ThrottleLong | Cut::ThrottlePart => {
                let all = cut != Cut::ThrottlePart;
                throttling::throttle(request, all, |part| self.beyond.call(part)).await
            }
            Cut::DieBefore => process.die().await,
            Cut::FailBefore => Err(broken()),
            Cut::DieAfter | Cut::KillAll | Cut::Outage => {
                self.beyond.call(request).await?;
                process.die().await
            }
            Cut::FailAfter => {
                self.beyond.call(request).await?;
                Err(broken())
            }
            Cut::RepeatAfter => {
                self.beyond.call(request).await?;
                let unavailable = StatusCode::try_from(503_u16).map_err(|e| broken_by(e.into()))?;
                Ok(HttpResponse::new(unavailable, SdkBody::from("{}")))
            }
        }
    }
}

fn broken() -> ConnectorError {
    broken_by("the wire is cut".into())
}

/// An error that the SDK does not take for a reason to repeat the call.
fn broken_by(cause: Box<dyn std::error::Error + Send + Sync>) -> ConnectorError {
    ConnectorError::other(cause, None)
}
