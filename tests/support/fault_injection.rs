//! Faults in selected calls of the AWS SDK.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture},
    orchestrator::HttpRequest,
    result::ConnectorError,
};
use serde_json::json;

use super::http_client::{json_response, operation_of, with_request_handler};

/// A fault in one call to AWS. A panic simulates a crash of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The process crashes before the call.
    CrashBefore,
    /// The process crashes after the call took effect and before its response arrives.
    CrashAfter,
    /// The call fails without effect.
    FailBefore,
    /// The call takes effect, its response is lost, and the SDK does not retry it.
    FailAfter,
    /// The call takes effect, its response is lost, and the SDK retries it.
    RetryAfter,
}

/// Injects a fault into the first `remaining` calls of `operation` whose request body contains a text.
#[derive(Debug, Clone)]
pub(crate) struct SdkFaultInjector {
    operation: &'static str,
    request_contains: String,
    fault: InjectedFault,
    remaining: Arc<AtomicI32>,
}

impl SdkFaultInjector {
    pub(crate) fn once(
        operation: &'static str,
        request_contains: &str,
        fault: InjectedFault,
    ) -> Self {
        let remaining = Arc::new(AtomicI32::new(1));
        Self { operation, request_contains: request_contains.to_owned(), fault, remaining }
    }

    pub(crate) fn always(
        operation: &'static str,
        request_contains: &str,
        fault: InjectedFault,
    ) -> Self {
        let remaining = Arc::new(AtomicI32::new(i32::MAX));
        Self { remaining, ..Self::once(operation, request_contains, fault) }
    }

    /// Whether all faults were injected.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.remaining.load(Ordering::SeqCst) <= 0
    }

    /// Whether to inject the fault into a call; counts the call if so.
    fn selects(&self, request: &HttpRequest) -> bool {
        let body = request.body().bytes().unwrap_or_default();
        operation_of(request) == self.operation
            && String::from_utf8_lossy(body).contains(&self.request_contains)
            && self.remaining.fetch_sub(1, Ordering::SeqCst) > 0
    }

    /// The SDK configuration `sdk` with these faults.
    pub(crate) fn wrap(self, sdk: &SdkConfig) -> SdkConfig {
        with_request_handler(sdk, move |request, aws| {
            if !self.selects(&request) {
                return aws.call(request);
            }
            let (fault, operation, aws) = (self.fault, self.operation, aws.clone());
            HttpConnectorFuture::new(async move {
                if !matches!(fault, InjectedFault::CrashBefore | InjectedFault::FailBefore) {
                    aws.call(request).await?;
                }
                match fault {
                    InjectedFault::CrashBefore | InjectedFault::CrashAfter => {
                        panic!("injected fault: the process crashes at {operation}")
                    }
                    InjectedFault::FailBefore | InjectedFault::FailAfter => Err(no_response()),
                    InjectedFault::RetryAfter => Ok(json_response(503, &json!({}))),
                }
            })
        })
    }
}

/// The error of a call without a response, which the SDK does not repeat.
pub(crate) fn no_response() -> ConnectorError {
    ConnectorError::other("injected fault: no response".into(), None)
}
