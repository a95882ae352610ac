//! Fault injection between a function and AWS: numbers every call of a run, and injects faults at chosen calls.
//!
//! It replaces the SDK's HTTP client, so that a process can die in the middle of a call, as one does that is out of memory
//! or out of time: no panic is caught, no error is returned, and no concurrent work continues.
//!
//! ```text
//! function ── SDK client ── with_faults ── embedded AWS
//!                              └── CallLog: #1 submission Query steward-workflows, #2 ...
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
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use serde_json::{Value, json};
use steward_emulator::resources::TASKS_TABLE;
use tokio::sync::Notify;

use crate::support::{
    fault_injection::no_response,
    http_client::{json_body, json_response, operation_of, with_request_handler},
    throttling,
};

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
        let (operation, body) = (operation_of(request).to_owned(), json_body(request));
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

/// A configuration whose clients call AWS as the process of a function, with the faults of the log.
pub(super) fn with_faults(
    sdk: &SdkConfig,
    role: FunctionRole,
    call_log: Arc<CallLog>,
    process: Arc<SimulatedProcess>,
) -> SdkConfig {
    with_request_handler(sdk, move |request, aws| {
        let (call_log, process, aws) = (call_log.clone(), process.clone(), aws.clone());
        HttpConnectorFuture::new(async move {
            if process.is_dead.load(Ordering::SeqCst) {
                return pending().await;
            }
            match call_log.record(role, &request) {
                Some(fault) => call_with_fault(fault, request, &process, &aws).await,
                None => aws.call(request).await,
            }
        })
    })
}

async fn call_with_fault(
    fault: InjectedFault,
    request: HttpRequest,
    process: &SimulatedProcess,
    aws: &SharedHttpConnector,
) -> Result<HttpResponse, ConnectorError> {
    match fault {
        InjectedFault::Throttle | InjectedFault::ThrottleLong | InjectedFault::ThrottlePart => {
            let all = fault != InjectedFault::ThrottlePart;
            throttling::throttle(request, all, |part| aws.call(part)).await
        }
        InjectedFault::DieBefore => process.die().await,
        InjectedFault::HangBefore => pending().await,
        InjectedFault::HangAfter => {
            aws.call(request).await?;
            pending().await
        }
        InjectedFault::FailBefore => Err(no_response()),
        InjectedFault::DieAfter | InjectedFault::KillAll | InjectedFault::Outage => {
            aws.call(request).await?;
            process.die().await
        }
        InjectedFault::FailAfter => {
            aws.call(request).await?;
            Err(no_response())
        }
        InjectedFault::RepeatAfter => {
            aws.call(request).await?;
            Ok(json_response(503, &json!({})))
        }
    }
}
