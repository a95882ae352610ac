//! Claims of attempts. The agent writes a claim, with a conditional put, before a call that must be made only once: the
//! step is not idempotent, or the scheduler may move on to another agent. A claim is either the right to call, or the
//! refusal to call. The first one counts for all deliveries of the request.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use steward_core::{
    limits,
    model::{
        attempt::AttemptId,
        document::{Document, DocumentKey, DocumentOwner},
        json_text::to_json_value,
        messages::{ReplyOutcome, StepRequest},
        names::{Incarnation, TaskId},
        retention::DocumentRetention,
    },
};

use crate::ports::{Clock, PortError, Ports, PutOutcome, StateStore};

/// The attempt of a request.
#[derive(Debug, Clone)]
pub struct ClaimKey {
    /// The task.
    pub task_id: TaskId,
    /// The task's incarnation.
    pub incarnation: Incarnation,
    /// The attempt.
    pub attempt: AttemptId,
    /// When the attempt ends. The claim is needed until then.
    pub complete_by: Timestamp,
}

/// A recorded refusal: no delivery of the request makes a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, for people.
    pub reason: String,
    /// The time until the retry, in milliseconds.
    pub retry_after_ms: u64,
}

impl Refusal {
    /// A refusal; the step is retried after `wait`.
    #[must_use]
    pub fn new(reason: &str, wait: Duration) -> Self {
        let reason = limits::short_line(reason, limits::REASON_CHARS_MAX);
        Self { reason, retry_after_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// The content of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClaimBody {
    /// Unique to the claim. It lets the writer recognise its own claim if the store wrote it, lost the response, and
    /// found it at its retry.
    by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Refusal>,
}

/// A claim that another delivery of the request has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherClaim {
    /// It may have made the call.
    Call,
    /// It has refused the call.
    Refused(Refusal),
}

impl ClaimKey {
    /// The key of the claim of a request.
    #[must_use]
    pub fn of(request: &StepRequest) -> Self {
        let StepRequest { task_id, step, action, attempt, incarnation, complete_by, .. } = request;
        let attempt = AttemptId { step: step.clone(), action: *action, number: *attempt };
        let (task_id, incarnation) = (task_id.clone(), *incarnation);
        Self { task_id, incarnation, attempt, complete_by: *complete_by }
    }

    fn owner(&self) -> DocumentOwner {
        DocumentOwner { task_id: self.task_id.clone(), incarnation: self.incarnation }
    }

    fn document(&self) -> DocumentKey {
        DocumentKey::Claim(self.attempt.clone())
    }
}

impl Refusal {
    /// The outcome for the scheduler.
    #[must_use]
    pub fn into_outcome(self) -> ReplyOutcome {
        let Self { reason, retry_after_ms } = self;
        ReplyOutcome::Deferred {
            reason,
            retry_after_ms,
            may_have_run: false,
            certain: true,
            call_in_doubt: false,
            detail: None,
        }
    }
}

/// Returns the claim of an attempt, if there is one.
///
/// # Errors
/// The store failed.
pub async fn find_claim<P: Ports>(
    ports: &P,
    key: &ClaimKey,
) -> Result<Option<OtherClaim>, PortError> {
    let found = ports.store().documents(&key.owner(), &[key.document()]).await?;
    Ok(found.into_iter().next().map(|document| other_claim(document.body)))
}

/// Claims an attempt: the right to call, or the refusal to call. `by` must be unique. Returns the claim of another
/// delivery if there is one, and nothing is claimed then.
///
/// # Errors
/// The store failed. The claim may have been written.
pub async fn claim<P: Ports>(
    ports: &P,
    key: &ClaimKey,
    by: &str,
    refused: Option<&Refusal>,
) -> Result<Option<OtherClaim>, PortError> {
    let body = ClaimBody { by: by.to_owned(), refused: refused.cloned() };
    let body = to_json_value(&body);
    let document = Document::new(key.document(), ports.clock().now(), body);
    // The claim is needed until complete-by only, so the workflow's retention does not apply.
    let retention = DocumentRetention { from: key.complete_by, retention_s: None };
    match ports.store().put_document(&key.owner(), retention, &document).await? {
        PutOutcome::Stored => Ok(None),
        PutOutcome::Existing(body) if body == document.body => Ok(None),
        PutOutcome::Existing(body) => Ok(Some(other_claim(body))),
    }
}

/// What a stored claim says. A claim that cannot be read counts as one to call.
fn other_claim(body: Value) -> OtherClaim {
    let read = serde_json::from_value::<ClaimBody>(body).ok();
    read.and_then(|claim| claim.refused).map_or(OtherClaim::Call, OtherClaim::Refused)
}
