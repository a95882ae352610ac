//! Claims of attempts that only one delivery may carry out. A delivery that finds another delivery's claim to call does not
//! call: the other one may still reply, and if it died, the supervisor recovers the attempt after complete-by. A delivery
//! that finds a refusal repeats it.

use steward_core::model::messages::StepRequest;
use steward_runtime::{
    claims::{self, ClaimKey, OtherClaim, Refusal},
    ports::{PortError, Ports, error_chain},
};

use super::attempt_end::AttemptEnd;

/// Why the agent does not call.
const ALREADY_CLAIMED: &str =
    "an earlier delivery may have made the call, which must not be repeated";

/// Succeeds if no delivery has claimed the attempt of `request`.
pub(crate) async fn check_unclaimed<P: Ports>(
    ports: &P,
    request: &StepRequest,
) -> Result<(), AttemptEnd> {
    unless_claimed(request, claims::find_claim(ports, &ClaimKey::of(request)).await)
}

/// Claims the attempt of `request`: to call, or to refuse the call. `call_name` must be unique to the claim.
pub(crate) async fn claim<P: Ports>(
    ports: &P,
    request: &StepRequest,
    call_name: &str,
    refused: Option<&Refusal>,
) -> Result<(), AttemptEnd> {
    let claimed = claims::claim(ports, &ClaimKey::of(request), call_name, refused).await;
    unless_claimed(request, claimed)
}

fn unless_claimed(
    request: &StepRequest,
    other: Result<Option<OtherClaim>, PortError>,
) -> Result<(), AttemptEnd> {
    match other {
        Ok(None) => Ok(()),
        Ok(Some(OtherClaim::Refused(refusal))) => Err(AttemptEnd::Outcome(refusal.into_outcome())),
        Ok(Some(OtherClaim::Call)) => Err(AttemptEnd::Silent(ALREADY_CLAIMED)),
        Err(error) => Err(requeue(request, &error)),
    }
}

fn requeue(request: &StepRequest, error: &PortError) -> AttemptEnd {
    let StepRequest { task_id, step, attempt, .. } = request;
    let error = error_chain(error);
    tracing::warn!(%task_id, %step, attempt, error, "call not made, because its claim could not be stored");
    AttemptEnd::Requeued
}
