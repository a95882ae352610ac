//! The situations into which the kit brings an agent. Each has a task of its own, so replies and calls are assigned to their
//! case by task id and idempotency key.

use std::time::Duration;

/// In every payload of the kit. It must not reach a log or a reason.
pub const PAYLOAD_MARK: &str = "payload-of-the-conformance-kit";

/// How long the service asks a caller to wait if it is busy. No case lasts as long.
pub const BUSY_FOR: Duration = Duration::from_secs(60);

/// A situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// One request, and a service that works.
    Plain,
    /// The first reply cannot be sent. SQS delivers the request again after the visibility timeout.
    LostReply,
    /// The service refuses the request, and the first reply cannot be sent. The receive count of the message is then
    /// over 1.
    ReceiveCount,
    /// A request that is not idempotent, whose first reply cannot be sent.
    OnceLostReply,
    /// The undo of a step.
    Undo,
    /// One item of a step with `for_each`.
    Item,
    /// A request with a field of a later version.
    UnknownField,
    /// A request in one batch with unreadable messages.
    Batch,
    /// A request of the maximum size.
    LargeRequest,
    /// The same request in two messages.
    Duplicate,
    /// Two attempts with the same idempotency key.
    Retry,
    /// A request with `auth`.
    Signed,
    /// A request with `output`.
    Selected,
    /// A request that arrives after its complete-by.
    Late,
    /// A request that an operator moves back from the dead-letter queue after its complete-by.
    LateRedriven,
    /// The response of the service is too large for a reply.
    LargeOutput,
    /// The response of the service is a text, and no JSON.
    TextOutput,
    /// A request that is not idempotent, in two messages at the same time.
    Once,
    /// A request that is not idempotent, and later the same request as an operator redrives it.
    OnceRedriven,
    /// The service refuses the request.
    Refused,
    /// The service refuses a request that says that an earlier call may have taken effect.
    RefusedRetry,
    /// The service refuses a request that an operator moved back from the dead-letter queue.
    Redriven,
    /// The service responds 429 with `Retry-After`.
    Busy,
    /// The service responds 429 with a date in `Retry-After`.
    BusyUntilDate,
    /// The service responds 429 to a request that is not idempotent. Then the same attempt arrives again, and after
    /// it the next attempt, for which the service works.
    OnceBusy,
    /// The service responds 429 to an exclusive request. Then the same request arrives again.
    Exclusive,
    /// The service responds 429 to an exclusive request that an operator moved back from the dead-letter queue.
    ExclusiveRedriven,
    /// An exclusive request, in two messages at the same time, and a service that works.
    ExclusiveTwice,
    /// The service responds 503 to a request that is not idempotent.
    OnceUnavailable,
    /// The service does not respond to a request that is not idempotent.
    OnceSilent,
    /// The service does not respond until complete-by, although the call might take longer.
    Overdue,
    /// The service sends its response byte by byte, without end.
    Dripping,
    /// The service does not respond.
    Silent,
    /// The service responds 503.
    Unavailable,
}

/// How the service behaves in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceBehaviour {
    /// It responds 200.
    Works,
    /// It responds 200 with a body that is too large for a reply.
    LargeOutput,
    /// It responds 200 with a text that is no JSON.
    Text,
    /// It responds 422.
    Refuses,
    /// It responds 429 with `Retry-After`.
    Busy,
    /// It responds 429 with a date in `Retry-After`.
    BusyUntilDate,
    /// It responds 429 with `Retry-After` until the kit has sent the second attempt, and 200 from then on.
    BusyUntilRetry,
    /// It responds 503.
    Unavailable,
    /// It does not respond.
    Silent,
    /// It responds 200 with a body that does not end.
    Drips,
}

impl Case {
    /// All cases in the order of the check. The replies that cannot be sent come first, because SQS delivers their requests
    /// again only after the visibility timeout. Cases that may open a circuit breaker come last.
    pub const ALL: [Self; 34] = [
        Self::Plain,
        Self::LostReply,
        Self::ReceiveCount,
        Self::OnceLostReply,
        Self::Undo,
        Self::Item,
        Self::UnknownField,
        Self::Batch,
        Self::LargeRequest,
        Self::Duplicate,
        Self::Retry,
        Self::Signed,
        Self::Selected,
        Self::Late,
        Self::LateRedriven,
        Self::LargeOutput,
        Self::TextOutput,
        Self::Once,
        Self::OnceRedriven,
        Self::Refused,
        Self::RefusedRetry,
        Self::Redriven,
        Self::Busy,
        Self::BusyUntilDate,
        Self::OnceBusy,
        Self::Exclusive,
        Self::ExclusiveRedriven,
        Self::ExclusiveTwice,
        Self::OnceUnavailable,
        Self::OnceSilent,
        Self::Overdue,
        Self::Dripping,
        Self::Silent,
        Self::Unavailable,
    ];

    /// The first of the cases that may open a circuit breaker.
    pub(crate) const FIRST_OUTAGE: Self = Self::OnceUnavailable;

    /// The name in task ids.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::LostReply => "lost-reply",
            Self::ReceiveCount => "receive-count",
            Self::OnceLostReply => "once-lost-reply",
            Self::Undo => "undo",
            Self::Item => "item",
            Self::UnknownField => "unknown-field",
            Self::Batch => "batch",
            Self::LargeRequest => "large-request",
            Self::Duplicate => "duplicate",
            Self::Retry => "retry",
            Self::Signed => "signed",
            Self::Selected => "selected",
            Self::Late => "late",
            Self::LateRedriven => "late-redriven",
            Self::LargeOutput => "large-output",
            Self::TextOutput => "text-output",
            Self::Once => "once",
            Self::OnceRedriven => "once-redriven",
            Self::Refused => "refused",
            Self::RefusedRetry => "refused-retry",
            Self::Redriven => "redriven",
            Self::Busy => "busy",
            Self::BusyUntilDate => "busy-until-date",
            Self::OnceBusy => "once-busy",
            Self::Exclusive => "exclusive",
            Self::ExclusiveRedriven => "exclusive-redriven",
            Self::ExclusiveTwice => "exclusive-twice",
            Self::OnceUnavailable => "once-unavailable",
            Self::OnceSilent => "once-silent",
            Self::Overdue => "overdue",
            Self::Dripping => "dripping",
            Self::Silent => "silent",
            Self::Unavailable => "unavailable",
        }
    }

    /// How the service behaves.
    #[must_use]
    pub fn service(self) -> ServiceBehaviour {
        match self {
            Self::ReceiveCount | Self::Refused | Self::RefusedRetry | Self::Redriven => {
                ServiceBehaviour::Refuses
            }
            Self::LargeOutput => ServiceBehaviour::LargeOutput,
            Self::TextOutput => ServiceBehaviour::Text,
            Self::Busy | Self::Exclusive | Self::ExclusiveRedriven => ServiceBehaviour::Busy,
            Self::BusyUntilDate => ServiceBehaviour::BusyUntilDate,
            Self::OnceBusy => ServiceBehaviour::BusyUntilRetry,
            Self::Silent | Self::OnceSilent | Self::Overdue => ServiceBehaviour::Silent,
            Self::Dripping => ServiceBehaviour::Drips,
            Self::Unavailable | Self::OnceUnavailable => ServiceBehaviour::Unavailable,
            Self::Plain
            | Self::LostReply
            | Self::OnceLostReply
            | Self::Undo
            | Self::Item
            | Self::UnknownField
            | Self::Batch
            | Self::LargeRequest
            | Self::Duplicate
            | Self::Retry
            | Self::Signed
            | Self::Selected
            | Self::Late
            | Self::LateRedriven
            | Self::Once
            | Self::OnceRedriven
            | Self::ExclusiveTwice => ServiceBehaviour::Works,
        }
    }

    /// Whether the case needs a service that the kit plays.
    #[must_use]
    pub fn needs_service(self) -> bool {
        self.service() != ServiceBehaviour::Works
    }

    /// Whether the kit refuses the first reply, so the case needs the kit's own SQS endpoint.
    #[must_use]
    pub fn loses_reply(self) -> bool {
        matches!(self, Self::LostReply | Self::ReceiveCount | Self::OnceLostReply)
    }

    /// Whether the request has `"idempotent": false`.
    #[must_use]
    pub fn is_once(self) -> bool {
        matches!(
            self,
            Self::Once
                | Self::OnceLostReply
                | Self::OnceRedriven
                | Self::OnceBusy
                | Self::OnceUnavailable
                | Self::OnceSilent
        )
    }

    /// Whether the request has `"exclusive": true`.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        matches!(self, Self::Exclusive | Self::ExclusiveRedriven | Self::ExclusiveTwice)
    }

    /// Whether an agent must reply to each attempt of the case before it deletes the request.
    #[must_use]
    pub fn needs_reply(self) -> bool {
        use ServiceBehaviour::{LargeOutput, Refuses, Text, Works};
        let answers = matches!(self.service(), Works | LargeOutput | Text | Refuses);
        let may_be_silent = matches!(self, Self::Late | Self::LateRedriven | Self::ExclusiveTwice);
        answers && !self.is_once() && !may_be_silent
    }

    /// Whether complete-by may pass during a call.
    #[must_use]
    pub fn may_be_overdue(self) -> bool {
        use ServiceBehaviour::{Drips, Silent, Unavailable};
        matches!(self.service(), Silent | Drips | Unavailable)
    }

    /// How long after the request its complete-by is, for an agent that replies without delay.
    #[must_use]
    pub fn complete_within(self) -> Duration {
        match self.service() {
            // The agent may retry all this time.
            ServiceBehaviour::Unavailable => Duration::from_secs(5),
            // Less than a call may take.
            ServiceBehaviour::Silent if self == Self::Overdue => Duration::from_secs(2),
            // Much longer than a call may take.
            ServiceBehaviour::Silent | ServiceBehaviour::Drips => Duration::from_secs(8),
            ServiceBehaviour::Works
            | ServiceBehaviour::LargeOutput
            | ServiceBehaviour::Text
            | ServiceBehaviour::Refuses
            | ServiceBehaviour::Busy
            | ServiceBehaviour::BusyUntilDate
            | ServiceBehaviour::BusyUntilRetry => {
                Duration::from_secs(if self.loses_reply() { 60 } else { 20 })
            }
        }
    }

    /// How long one call may take.
    #[must_use]
    pub fn call_within(self) -> Duration {
        let is_cut = matches!(self, Self::Silent | Self::OnceSilent | Self::Dripping);
        Duration::from_secs(if is_cut { 1 } else { 10 })
    }
}

/// The task of a case.
#[must_use]
pub fn task_id(run: &str, case: Case) -> String {
    format!("check-{run}-{}", case.name())
}

/// The task of the unreadable requests.
pub(crate) fn unreadable_task(run: &str) -> String {
    format!("check-{run}-unreadable")
}

/// Whether a task id, or the beginning of an idempotency key, is that of the unreadable requests.
pub(crate) fn is_unreadable_task(task_id: &str) -> bool {
    task_id.starts_with("check-") && task_id.ends_with("-unreadable")
}

/// The case of a task.
#[must_use]
pub fn case_of_task(task_id: &str) -> Option<Case> {
    let (_, name) = task_id.strip_prefix("check-")?.split_once('-')?;
    Case::ALL.into_iter().find(|case| case.name() == name)
}

/// The case to which a call with this idempotency key belongs.
#[must_use]
pub fn case_of_key(key: &str) -> Option<Case> {
    case_of_task(key.split_once('/')?.0)
}
