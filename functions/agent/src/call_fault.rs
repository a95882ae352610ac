//! Why a call did not succeed, and what that says about the service.

use std::time::Duration;

use steward_core::{
    breaker::{CallOutcome, KeyHash},
    model::error_detail::ErrorDetail,
};

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFault {
    /// A retry may succeed.
    Transient {
        /// What happened, for operators. No payload.
        reason: String,
        /// How long the service wants the agent to wait; zero if it names no time. With a value the service counts as
        /// available; without one, the fault counts as a failure of the service for the circuit breaker.
        retry_after: Option<Duration>,
        /// Whether the call may have taken effect, because it was not rejected before it began.
        may_have_run: bool,
        /// What the service said, for operators. It may contain payload.
        detail: Option<ErrorDetail>,
    },
    /// The request conflicts with another one, which may be an earlier call with the same idempotency key that is
    /// still in progress. The service is available.
    Conflict {
        /// What happened, for operators. No payload.
        reason: String,
        /// How long the service wants the agent to wait, if it says so.
        retry_after: Option<Duration>,
        /// What the service said, for operators. It may contain payload.
        detail: Option<ErrorDetail>,
    },
    /// The service redirects the call, which nothing in the request expects. If the service has never completed a call at
    /// its address, the base URL is probably wrong, so the call is repeated until it is corrected. Otherwise it is as `Permanent`.
    Redirected {
        /// What happened, for operators. No payload.
        reason: String,
        /// What the service said, for operators. It may contain payload.
        detail: Option<ErrorDetail>,
    },
    /// The call timed out and was aborted. It may have taken effect, and may still do so later.
    TimedOut {
        /// What happened, for operators. No payload.
        reason: String,
    },
    /// A retry would fail again. The service is available.
    Permanent {
        /// What happened, for operators. No payload.
        reason: String,
        /// Whether the call may have taken effect, for example because the service's response is unreadable.
        may_have_run: bool,
        /// What the service said, for operators. It may contain payload.
        detail: Option<ErrorDetail>,
    },
}

/// What a response says about the availability of the service at this address. `request` is the request that a fault may be due to.
pub(crate) fn call_outcome<T>(
    response: &Result<T, CallFault>,
    request: Option<KeyHash>,
    address: KeyHash,
) -> CallOutcome {
    match response {
        Ok(_) => CallOutcome::Completed { address },
        Err(
            CallFault::Permanent { .. }
            | CallFault::Conflict { .. }
            | CallFault::Transient { retry_after: Some(_), .. },
        ) => CallOutcome::Available,
        Err(CallFault::Transient { reason, retry_after: None, may_have_run, .. }) => {
            // A call that did not reach the service did not fail because of its request.
            let request = request.filter(|_| *may_have_run);
            CallOutcome::Unavailable { reason: reason.clone(), request }
        }
        Err(CallFault::Redirected { reason, .. }) => {
            CallOutcome::Unavailable { reason: reason.clone(), request: None }
        }
        Err(CallFault::TimedOut { reason }) => {
            CallOutcome::Unavailable { reason: reason.clone(), request }
        }
    }
}
