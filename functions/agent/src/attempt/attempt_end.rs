//! How an attempt ends.

use steward_core::{
    limits,
    model::{error_detail::ErrorDetail, messages::ReplyOutcome},
};

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// With this outcome, which goes into the reply.
    Outcome(ReplyOutcome),
    /// Without a reply, because complete-by has passed.
    Overdue,
    /// Without a reply, for this reason.
    Silent(&'static str),
    /// Without a reply; the request goes back to its queue.
    Requeued,
}

/// A permanent failure.
pub(super) fn failed(
    reason: &str,
    may_have_run: bool,
    call_in_doubt: bool,
    detail: Option<ErrorDetail>,
) -> AttemptEnd {
    let reason = limits::short_line(reason, limits::REASON_CHARS_MAX);
    AttemptEnd::Outcome(ReplyOutcome::Failed { reason, may_have_run, call_in_doubt, detail })
}

/// The failure of a call without an answer that must not be repeated.
pub(super) fn failed_in_doubt(reason: &str, detail: Option<ErrorDetail>) -> AttemptEnd {
    let reason = format!("outcome unknown, and the call must not be repeated: {reason}");
    failed(&reason, true, true, detail)
}

/// The outcome of a call without an answer.
pub(super) fn unknown(reason: &str, detail: Option<ErrorDetail>) -> AttemptEnd {
    let reason = limits::short_line(reason, limits::REASON_CHARS_MAX);
    AttemptEnd::Outcome(ReplyOutcome::Unknown { reason, detail })
}
