//! Whether the engine behind the store takes batches of statements, and what it has refused them for.
//!
//! DynamoDB takes them; emulators and older engines may not, and a role may lack the grants. A batch that an engine
//! refuses is written item by item, so a refusal costs requests and nothing else. To find that out once is enough:
//!
//! | answer to a batch | its items | later batches |
//! | --- | --- | --- |
//! | answered, some statements refused | the refused ones are written alone | as before |
//! | answered, every statement is [permanently](PERMANENT) refused | written alone | none is sent |
//! | refused as a whole, and permanently | written alone | none is sent |
//! | server error, before any batch was answered | written alone | none after [`SERVER_ERRORS_MAX`] in a row |
//! | any other failure: throttled, timeout, server error | fail; their messages come again | as before |

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use aws_sdk_dynamodb::types::BatchStatementError;
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use steward_runtime::metrics;

/// Server errors in a row, before any batch was answered, after which no more are sent. A parser that fails on a
/// statement (moto's, for one) answers so each time; DynamoDB may once or twice.
const SERVER_ERRORS_MAX: u32 = 3;

/// Codes of a single statement's refusal that lie in how the statement is written or in the role's grants.
const PERMANENT: [&str; 3] = ["AccessDenied", "ResourceNotFound", "ValidationError"];

/// Codes that say that a condition was not met: a race was lost, or a message came twice.
const NORMAL: [&str; 2] = ["ConditionalCheckFailed", "DuplicateItem"];

/// For a refusal that does not say why.
const NO_CODE: &str = "none";

/// What is known of the engine. One for each store, of which a function has one.
#[derive(Debug, Default)]
pub(super) struct BatchSupport {
    state: Mutex<State>,
    /// The codes that were warned about.
    warned: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No batch was answered so far.
    Unknown {
        server_errors: u32,
    },
    Supported,
    /// No batch is sent any more.
    Refused,
}

impl Default for State {
    fn default() -> Self {
        Self::Unknown { server_errors: 0 }
    }
}

/// What to do with the items of a batch that failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterFailure {
    WriteAlone,
    Fail,
}

impl BatchSupport {
    /// Whether batches are worth sending.
    pub(super) fn is_worth_trying(&self) -> bool {
        *lock(&self.state) != State::Refused
    }

    /// Records the answer to a batch: the refusals, and how many statements there were.
    pub(super) fn answered<'a>(
        &self,
        refusals: impl Iterator<Item = &'a BatchStatementError>,
        statements: usize,
    ) {
        let mut permanent = 0;
        for refusal in refusals {
            let code = refusal.code().map_or(NO_CODE, |code| code.as_str());
            if !NORMAL.contains(&code) {
                self.warn(code, refusal.message().unwrap_or_default(), 1);
            }
            permanent += usize::from(PERMANENT.contains(&code));
        }
        let state = if permanent == statements { State::Refused } else { State::Supported };
        self.go_to(state);
    }

    /// Records that a batch of so many statements failed as a whole.
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
            State::Unknown { .. } | State::Supported | State::Refused if is_permanent => {
                State::Refused
            }
            State::Unknown { .. } | State::Refused if !is_server_error(error) => {
                return AfterFailure::Fail;
            }
            State::Supported => return AfterFailure::Fail,
            State::Unknown { server_errors } if server_errors + 1 < SERVER_ERRORS_MAX => {
                State::Unknown { server_errors: server_errors + 1 }
            }
            State::Unknown { .. } | State::Refused => State::Refused,
        };
        self.warn(&code_of(error), error.message().unwrap_or_default(), statements);
        self.go_to(next);
        AfterFailure::WriteAlone
    }

    /// A refusal is for the life of the process: a batch that was under way when it came does not end it.
    fn go_to(&self, next: State) {
        let mut state = lock(&self.state);
        if next == State::Refused && *state != State::Refused {
            tracing::warn!("the engine refuses batches of statements; items are written alone");
        }
        if *state != State::Refused {
            *state = next;
        }
    }

    /// Counts refused statements; the first with a code is logged.
    fn warn(&self, code: &str, message: &str, statements: usize) {
        metrics::statements_refused(code, statements);
        if lock(&self.warned).insert(code.to_owned()) {
            // What is said of a value may quote it, and a document's is a payload.
            let message = if code.starts_with("Validation") { "" } else { message };
            tracing::warn!(code, message, "statements refused, their items are written alone");
        }
    }
}

/// The code of an error, or the status of an answer that has none: `HTTP 500`.
fn code_of<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    let status = || error.raw_response().map(|response| format!("HTTP {}", response.status()));
    let code = error.code().map(str::to_owned);
    code.or_else(status).unwrap_or_else(|| NO_CODE.to_owned())
}

/// An answer of the engine itself, which is at fault. Throttling comes with 400.
fn is_server_error<E>(error: &SdkError<E, HttpResponse>) -> bool {
    error.raw_response().is_some_and(|response| response.status().is_server_error())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
