//! Claims of calls that must not be repeated. The agent writes a claim before such a call, with a conditional put. A
//! delivery that finds a claim of another delivery does not call: the other one may still reply, and if it died, the
//! supervisor recovers the attempt after complete-by.

use serde_json::{Value, json};
use steward_core::model::{
    attempt::AttemptId,
    document::{Document, DocumentKey, DocumentOwner},
    messages::StepRequest,
    retention::DocumentRetention,
};
use steward_runtime::ports::{Clock, PortError, Ports, PutOutcome, StateStore, error_chain};

use super::attempt_end::AttemptEnd;

/// Why the agent does not call.
const ALREADY_CLAIMED: &str =
    "an earlier delivery may have made the call, which must not be repeated";

/// Succeeds if no delivery has claimed the call of `request`.
pub(crate) async fn check_unclaimed<P: Ports>(
    ports: &P,
    request: &StepRequest,
) -> Result<(), AttemptEnd> {
    let key = key(request);
    match ports.store().documents(&owner(request), &[key]).await {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(_) => Err(AttemptEnd::Silent(ALREADY_CLAIMED)),
        Err(error) => Err(requeue(request, &error)),
    }
}

/// Claims the call of `request`. `call_name` must be unique to the call. It lets the call recognise its own claim if the
/// store wrote the claim, lost the response, and found the claim at its retry.
pub(crate) async fn claim<P: Ports>(
    ports: &P,
    request: &StepRequest,
    call_name: &str,
) -> Result<(), AttemptEnd> {
    let body: Value = json!({ "by": call_name });
    let document = Document::new(key(request), ports.clock().now(), body);
    // The claim is needed until complete-by only, so the workflow's retention does not apply.
    let retention = DocumentRetention { from: request.complete_by, retention_s: None };
    match ports.store().put_document(&owner(request), retention, &document).await {
        Ok(PutOutcome::Stored) => Ok(()),
        Ok(PutOutcome::Existing(body)) if body == document.body => Ok(()),
        Ok(PutOutcome::Existing(_)) => Err(AttemptEnd::Silent(ALREADY_CLAIMED)),
        Err(error) => Err(requeue(request, &error)),
    }
}

fn owner(request: &StepRequest) -> DocumentOwner {
    DocumentOwner { task_id: request.task_id.clone(), incarnation: request.incarnation }
}

fn key(request: &StepRequest) -> DocumentKey {
    let StepRequest { step, action, attempt, .. } = request;
    DocumentKey::Claim(AttemptId { step: step.clone(), action: *action, number: *attempt })
}

fn requeue(request: &StepRequest, error: &PortError) -> AttemptEnd {
    let StepRequest { task_id, step, attempt, .. } = request;
    let error = error_chain(error);
    tracing::warn!(%task_id, %step, attempt, error, "call not made, because its claim could not be stored");
    AttemptEnd::Requeued
}
