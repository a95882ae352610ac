//! Records whether the database supports batches of statements, and decides how to continue after a refusal.
//!
//! DynamoDB supports them. Emulators and older engines may not, and a role may lack the permission. The items of a
//! refused batch are written one by one, so a refusal costs only additional requests. After a permanent refusal, no more
//! batches are sent:
//!
//! | response to a batch | its items | later batches |
//! | --- | --- | --- |
//! | success, but some statements are refused | the refused ones are written alone | are sent |
//! | success, but every statement is refused [permanently](PERMANENT) | are written alone | are not sent |
//! | refused as a whole, permanently | are written alone | are not sent |
//! | server error before any batch succeeded | are written alone | are not sent after [`SERVER_ERRORS_MAX`] in a row |
//! | any other failure: throttled, timeout, server error | fail; their messages are redelivered | are sent |

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use aws_sdk_dynamodb::types::BatchStatementError;
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use steward_runtime::metrics;

/// The number of server errors in a row, before any batch succeeded, after which no more batches are sent. A parser that
/// fails on a statement (that of moto, for example) returns one each time. DynamoDB may return one or two.
const SERVER_ERRORS_MAX: u32 = 3;

/// Codes of a refused statement whose cause is its syntax or the permissions of the role.
const PERMANENT: [&str; 3] = ["AccessDenied", "ResourceNotFound", "ValidationError"];

/// Codes of a statement whose condition was not met: the writer lost a race, or handled a message twice.
const CONDITION_FAILED: [&str; 2] = ["ConditionalCheckFailed", "DuplicateItem"];

/// The label of a refusal without a code.
const NO_CODE: &str = "none";

/// The knowledge of a store about the support of batches. There is one for each store, and one store for each function
/// instance.
#[derive(Debug, Default)]
pub(super) struct BatchSupport {
    state: Mutex<SupportState>,
    /// The codes for which a warning was logged.
    warned: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SupportState {
    /// No batch has succeeded so far.
    Unknown {
        server_errors: u32,
    },
    Supported,
    /// No more batches are sent.
    Refused,
}

impl Default for SupportState {
    fn default() -> Self {
        Self::Unknown { server_errors: 0 }
    }
}

/// How to continue with the items of a batch that failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterFailure {
    WriteAlone,
    Fail,
}

impl BatchSupport {
    /// Whether to send batches.
    pub(super) fn is_worth_trying(&self) -> bool {
        *lock(&self.state) != SupportState::Refused
    }

    /// Records a successful response to a batch: the statements that it refused, and the number of all statements.
    pub(super) fn succeeded<'a>(
        &self,
        refusals: impl Iterator<Item = &'a BatchStatementError>,
        statements: usize,
    ) {
        let mut permanent = 0;
        for refusal in refusals {
            let code = refusal.code().map_or(NO_CODE, |code| code.as_str());
            if !CONDITION_FAILED.contains(&code) {
                self.warn(code, refusal.message().unwrap_or_default(), 1);
            }
            permanent += usize::from(PERMANENT.contains(&code));
        }
        let all_refused = permanent == statements;
        self.set(if all_refused { SupportState::Refused } else { SupportState::Supported });
    }

    /// Records that a batch with this number of statements failed as a whole.
    pub(super) fn failed<E>(
        &self,
        error: &SdkError<E, HttpResponse>,
        is_permanent: bool,
        statements: usize,
    ) -> AfterFailure
    where
        E: ProvideErrorMetadata,
    {
        let state = *lock(&self.state);
        let next = match state {
            SupportState::Unknown { .. } | SupportState::Supported | SupportState::Refused
                if is_permanent =>
            {
                SupportState::Refused
            }
            SupportState::Unknown { .. } | SupportState::Refused if !is_server_error(error) => {
                return AfterFailure::Fail;
            }
            SupportState::Supported => return AfterFailure::Fail,
            SupportState::Unknown { server_errors } if server_errors + 1 < SERVER_ERRORS_MAX => {
                SupportState::Unknown { server_errors: server_errors + 1 }
            }
            SupportState::Unknown { .. } | SupportState::Refused => SupportState::Refused,
        };
        self.warn(&code_of(error), error.message().unwrap_or_default(), statements);
        self.set(next);
        AfterFailure::WriteAlone
    }

    /// Sets the state. `Refused` is final: a concurrent batch that succeeds does not change it.
    fn set(&self, next: SupportState) {
        let mut state = lock(&self.state);
        if next == SupportState::Refused && *state != SupportState::Refused {
            tracing::warn!(
                "the database refuses batches of statements; items are written one by one"
            );
        }
        if *state != SupportState::Refused {
            *state = next;
        }
    }

    /// Counts refused statements, and logs the first one with each code.
    fn warn(&self, code: &str, message: &str, statements: usize) {
        metrics::statements_refused(code, statements);
        if lock(&self.warned).insert(code.to_owned()) {
            // A validation message may quote the value, which may be a payload.
            let message = if code.starts_with("Validation") { "" } else { message };
            tracing::warn!(code, message, "statements refused; their items are written one by one");
        }
    }
}

/// The code of an error, or the HTTP status of a response without a code: `HTTP 500`.
fn code_of<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    let status = || error.raw_response().map(|response| format!("HTTP {}", response.status()));
    let code = error.code().map(str::to_owned);
    code.or_else(status).unwrap_or_else(|| NO_CODE.to_owned())
}

/// Whether the response has a status of 500 or above. The status of throttling is 400.
fn is_server_error<E>(error: &SdkError<E, HttpResponse>) -> bool {
    error.raw_response().is_some_and(|response| response.status().is_server_error())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
