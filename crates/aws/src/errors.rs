//! Converts AWS errors to errors of the ports: the operation, whether a retry may succeed, the cause.

use std::{error::Error, fmt, sync::Arc};

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use steward_runtime::ports::{NoSuchQueue, PortError};

/// Error codes of permanent errors: the same request would fail again.
const PERMANENT: &[&str] = &[
    "AccessDeniedException",
    "AccessDenied",
    "InvalidAddress",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "KmsAccessDenied",
    "KmsDisabled",
    "KmsInvalidKeyUsage",
    "KmsInvalidState",
    "KmsNotFound",
    "KmsOptInRequired",
    "MissingParameter",
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
    "SerializationException",
    "UnknownOperationException",
    "UnsupportedOperation",
    "ValidationException",
];

/// The error codes for a queue that does not exist. SQS has one for each of its protocols.
const NO_SUCH_QUEUE: [&str; 2] = ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"];

/// Whether the error is permanent: the same request would fail again.
pub(crate) fn is_permanent<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ConstructionFailure(_))
        || error.code().is_some_and(|code| PERMANENT.contains(&code))
}

/// Converts an SDK error of `operation`. The operation may contain ids, but no payload.
pub(crate) fn failed<E>(
    operation: impl Into<String>,
) -> impl FnOnce(SdkError<E, HttpResponse>) -> PortError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let operation = operation.into();
    move |error| {
        let code = error.code().unwrap_or_default();
        let retryable = !is_permanent(&error);
        let source: Box<dyn Error + Send + Sync> = match error {
            SdkError::ServiceError(_) if NO_SUCH_QUEUE.contains(&code) => Box::new(NoSuchQueue),
            SdkError::ServiceError(service) => Box::new(service.into_err()),
            SdkError::ConstructionFailure(_)
            | SdkError::TimeoutError(_)
            | SdkError::DispatchFailure(_)
            | SdkError::ResponseError(_)
            | _ => Box::new(error),
        };
        PortError { operation, retryable, source }
    }
}

/// Converts the error of stored data that is unreadable, or of data that cannot be stored. It is permanent.
pub(crate) fn corrupt(
    operation: impl Into<String>,
) -> impl FnOnce(Box<dyn Error + Send + Sync>) -> PortError {
    let operation = operation.into();
    move |source| PortError { operation, retryable: false, source }
}

/// Copies of an error, one for each message that shared the request.
pub(crate) fn for_each(error: PortError, count: usize) -> impl Iterator<Item = PortError> {
    let no_such_queue = error.is_no_such_queue();
    let PortError { operation, retryable, source } = error;
    let cause = SharedError(source.into());
    (0..count).map(move |_| {
        let source: Box<dyn Error + Send + Sync> =
            if no_such_queue { Box::new(NoSuchQueue) } else { Box::new(cause.clone()) };
        PortError { operation: operation.clone(), retryable, source }
    })
}

/// The error of a shared request. Its causes are those of the original.
#[derive(Debug, Clone)]
struct SharedError(Arc<dyn Error + Send + Sync>);

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
