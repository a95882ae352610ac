//! Takes over the payloads of a submission: the task gets a copy of each, before it is recorded. A copy without a task is deleted by
//! the supervisor.

use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::{
    limits,
    model::{messages::Submission, payload::FoundReference, task::Task, time::earlier},
    submission::{SubmissionRefusal, payloads::submitted_payloads},
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome},
    ports::{Clock, PortError, Ports},
};

/// Copies of one submission that are made at the same time.
const COPIES_AT_ONCE: usize = 4;

/// Whether a submission can be claimed: whether its references are valid and refer to what the sender may submit. Returns
/// whether there are any.
pub(crate) fn check(submission: &Submission) -> Result<bool, SubmissionRefusal> {
    Ok(!submitted_payloads(submission)?.is_empty())
}

/// Copies the payloads of `submission` to the place of `task`, which is not recorded yet.
pub(crate) async fn claim<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<Result<(), SubmissionRefusal>, PortError> {
    let found = match submitted_payloads(submission) {
        Ok(found) if found.is_empty() => return Ok(Ok(())),
        Ok(found) => found,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let refused = |pointer: &str, reason: &str| {
        let (pointer, reason) = (pointer.to_owned(), reason.to_owned());
        Ok(Err(SubmissionRefusal::InvalidPayload { pointer, reason }))
    };
    let Some(store) = ports.payloads() else {
        return refused("", "this deployment has no bucket of payloads");
    };
    let place = task.payload_place();
    let expired_before = earlier(ports.clock().now(), limits::UPLOAD_LIFETIME);
    let claims = found.into_iter().map(|FoundReference { pointer, reference }| {
        let target = place.claim_key(&reference.key, &reference.sha256);
        (pointer, Claim { source: reference, target, expired_before })
    });
    let outcomes = stream::iter(claims).map(|(pointer, claim)| async move {
        Ok::<_, PortError>((pointer, store.claim(&claim).await?))
    });
    let outcomes: Vec<_> = outcomes.buffered(COPIES_AT_ONCE).try_collect().await?;
    for (pointer, outcome) in outcomes {
        match outcome {
            ClaimOutcome::Claimed => {}
            ClaimOutcome::Refused(reason) => return refused(&pointer, reason),
        }
    }
    Ok(Ok(()))
}
