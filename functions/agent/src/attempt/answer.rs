//! Whether a callback has completed the step while the agent repeats its call.

use steward_core::model::{
    attempt::AttemptId,
    document::{DocumentKey, DocumentOwner},
    messages::StepRequest,
};
use steward_runtime::ports::{Ports, StateStore, error_chain};

use super::{RemoteService, RunningAttempt, attempt_end::AttemptEnd};

impl<P: Ports, R: RemoteService> RunningAttempt<'_, P, R> {
    /// Ends the attempt before a further call if its step has completed by a callback. The agent has no access to tasks, so it reads
    /// the document with the answer, which the scheduler stores beside the task if no reply has come before. If it cannot be
    /// read, the agent calls again: the service recognises the call by its key.
    pub(super) async fn check_unanswered(&self) -> Result<(), AttemptEnd> {
        let request = self.delivered.request;
        if !request.callback {
            return Ok(());
        }
        let StepRequest { task_id, step, action, attempt, incarnation, .. } = request;
        let id = AttemptId { step: step.clone(), action: *action, number: *attempt };
        // The output of such a step comes only from a callback. A failure may be what another delivery of the request replied.
        let keys = [DocumentKey::Output(id)];
        let owner = DocumentOwner { task_id: task_id.clone(), incarnation: *incarnation };
        match self.ports.store().documents(&owner, &keys).await {
            Ok(found) if found.is_empty() => Ok(()),
            // The scheduler already counts the call as one that may be in progress. A reply would add nothing.
            Ok(_) => Err(AttemptEnd::Silent("a callback has completed the step")),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(%task_id, %step, attempt, error, "answer to the callback not read");
                Ok(())
            }
        }
    }
}
