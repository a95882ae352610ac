//! Undoes a child task at the request of its parent.

use steward_core::{
    engine::effect::Effect,
    model::{
        messages::{ChildOutcome, ParentStep, Submission},
        names::{TaskId, Tenant},
    },
    submission::{SubmissionRefusal, accept, tombstone},
};
use steward_runtime::{
    dispatch::OutgoingEffect,
    ports::{Clock, CreateOutcome, Definitions, PortError, Ports, StateStore},
};

use crate::{
    record::{is_task_of, just_deleted},
    submission_result::{SubmissionResult, accepted, report_to_parent},
};

/// Undoes a child task. If it exists, it gets a request for its undo. If it does not exist and has not started, it is
/// recorded as Undone, so that it cannot start any more; this needs neither a definition nor a valid input. If it had
/// started and no longer exists, it cannot be undone.
pub(crate) async fn undo_child<P: Ports>(
    ports: &P,
    submission: &Submission,
    parent: &ParentStep,
    traceparent: Option<String>,
) -> Result<SubmissionResult, PortError> {
    let (task_id, tenant) = (submission.task_id.clone(), submission.tenant.clone());
    let there = match ports.store().load(&task_id).await? {
        Some(there) => there,
        None if submission.has_begun || may_have_expired(ports, submission) => {
            let reason =
                format!("task `{task_id}` has expired or was deleted, so it cannot be undone");
            return Ok(undo_refused(parent, &task_id, reason, traceparent, tenant));
        }
        None => {
            let (name, now) = (&submission.workflow, ports.clock().now());
            let workflow = ports.definitions().workflow(name, submission.version).await?;
            let accepted = workflow.and_then(|workflow| {
                accept(submission, &workflow, traceparent.clone(), now, ports.timing()).ok()
            });
            let (task, separate) = accepted.unwrap_or_else(|| tombstone(submission, now));
            match ports.store().create(&task, separate.as_ref()).await? {
                CreateOutcome::Created => {
                    tracing::info!(%task_id, event = "submitted", to = "Undone", "task transition");
                    task
                }
                CreateOutcome::Exists(Some(there)) => *there,
                CreateOutcome::Exists(None) => return Err(just_deleted(&task_id)),
            }
        }
    };
    if !is_task_of(ports, submission, &there).await? {
        let reason = SubmissionRefusal::IdTaken(task_id.to_string()).to_string();
        return Ok(undo_refused(parent, &task_id, reason, traceparent, tenant));
    }
    Ok(accepted(ports, submission, &there, None, traceparent))
}

/// Whether the child task may have started, ended and expired since the message was sent.
pub(crate) fn may_have_expired<P: Ports>(ports: &P, submission: &Submission) -> bool {
    let (now, retention) = (ports.clock().now(), ports.timing().retention);
    submission.retention.is_some_and(|needed| needed.expires_at(retention) <= now)
}

/// The report to the parent that a child task cannot be undone; the undo of the parent's step fails.
pub(crate) fn undo_refused(
    parent: &ParentStep,
    task_id: &TaskId,
    reason: String,
    traceparent: Option<String>,
    tenant: Option<Tenant>,
) -> SubmissionResult {
    tracing::warn!(%task_id, reason, "child task cannot be undone");
    let outcome = ChildOutcome::Error { reason, not_undone: true, was_processed: false };
    let effect = Effect::ChildEnded(report_to_parent(parent, outcome));
    let refusal = SubmissionRefusal::IdTaken(task_id.to_string());
    SubmissionResult {
        result: Err(refusal),
        effects: vec![OutgoingEffect { effect, traceparent, tenant }],
    }
}
