//! The record of a call that must not be repeated: written before it, on the condition that it is not
//! there yet. Whoever finds it there does not call; its writer may still answer, and if it died, the
//! supervisor finds the attempt at complete-by.

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Attempt,
    document::{Document, DocumentKey, Kept, Owner},
    messages::StepRequest,
};
use steward_runtime::ports::{Clock, PortError, Ports, Put, StateStore, chain};

use crate::attempt::Ended;

const TAKEN: &str = "an earlier delivery may have made the call, which must not be repeated";

/// Goes on if nobody has claimed the call of `request`.
pub(crate) async fn look<P: Ports>(ports: &P, request: &StepRequest) -> Result<(), Ended> {
    let key = key(request);
    match ports.store().documents(&owner(request), &[key]).await {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(_) => Err(Ended::Silent(TAKEN)),
        Err(error) => Err(give_back(request, &error)),
    }
}

/// Claims the call of `request`. `by` is a name that no other call has: the store may have written the
/// claim, lost its own answer, tried again, and found it there.
pub(crate) async fn put<P: Ports>(ports: &P, request: &StepRequest, by: &str) -> Result<(), Ended> {
    let body: Value = json!({ "by": by });
    let claim = Document::new(key(request), ports.clock().now(), body);
    // It fences until complete-by; that its workflow may keep its documents for longer is no matter.
    let kept = Kept { from: request.complete_by, retention_s: None };
    match ports.store().put_document(&owner(request), kept, &claim).await {
        Ok(Put::Stored) => Ok(()),
        Ok(Put::Existing(body)) if body == claim.body => Ok(()),
        Ok(Put::Existing(_)) => Err(Ended::Silent(TAKEN)),
        Err(error) => Err(give_back(request, &error)),
    }
}

fn owner(request: &StepRequest) -> Owner {
    Owner { task_id: request.task_id.clone(), incarnation: request.incarnation }
}

fn key(request: &StepRequest) -> DocumentKey {
    let StepRequest { step, action, attempt, .. } = request;
    DocumentKey::Claim(Attempt { step: step.clone(), action: *action, number: *attempt })
}

fn give_back(request: &StepRequest, error: &PortError) -> Ended {
    let StepRequest { task_id, step, attempt, .. } = request;
    let error = chain(error);
    tracing::warn!(%task_id, %step, attempt, error, "call not claimed, and so not made");
    Ended::GivenBack
}
