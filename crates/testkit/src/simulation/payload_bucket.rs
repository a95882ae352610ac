//! The bucket of payloads with fault injection: an operation may be slow, fail before or after it took effect, or crash its
//! instance. Submission and supervisor use it as a port. The agent reads and writes objects.

use std::time::Duration;

use steward_agent::attempt::CallFault;
use steward_agent::payloads::{bucket_fault, check_object, requested_payload, response_key};
use steward_core::model::{
    messages::StepRequest,
    payload::{PayloadKey, PayloadReference},
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome, PayloadFuture, PayloadPage, PayloadStore, UploadRequest},
    ports::PortError,
};

use serde_json::Value;

use super::{
    deployment::ScheduledEvent,
    fault_injector::FaultInjector,
    payload_records::{content, stored},
    payload_values::{Content, Reference},
};

impl PayloadStore for FaultInjector {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        let copy = async move {
            let outcome = self.bucket().claim(claim).await?;
            let Claim { source, target, .. } = claim;
            self.trace(|| format!("copies {} to {target}: {outcome:?}", source.key));
            self.sweep_after_claim();
            Ok(outcome)
        };
        Box::pin(self.inject(move || format!("copy payload {}", claim.source.key), copy))
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        self.bucket().upload_request(reference, valid_for)
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        Box::pin(self.inject(|| "list payloads".to_owned(), self.bucket().task_payloads(after)))
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        let delete = async move {
            self.bucket().delete(keys).await?;
            keys.iter().for_each(|key| self.trace(|| format!("deletes payload {key}")));
            self.deployment.check_payloads();
            Ok(())
        };
        Box::pin(self.inject(move || format!("delete {} payloads", keys.len()), delete))
    }
}

/// The payloads of an agent. The decisions are those of the HTTP agent.
impl FaultInjector {
    fn bucket(&self) -> &dyn PayloadStore {
        self.deployment.memory.memory_payloads()
    }

    /// Often, a supervisor looks for objects to delete while a task is not recorded yet.
    fn sweep_after_claim(&self) {
        let share =
            self.deployment.plan.payloads.as_ref().map_or(0.0, |plan| plan.sweep_after_claim);
        let is_chosen = self.deployment.state().random.chance(share);
        if is_chosen {
            self.deployment.schedule(self.deployment.now(), ScheduledEvent::SweepPayloads(None));
        }
    }

    /// Reads the object that is the body of a request.
    pub(super) async fn open_payload(
        &self,
        request: &StepRequest,
    ) -> Result<Option<Content>, CallFault> {
        let Some(reference) = requested_payload(request)? else { return Ok(None) };
        let read = async { Ok(self.deployment.memory.memory_payloads().content(&reference.key)) };
        let opened = self.inject(|| format!("read payload {}", reference.key), read).await;
        let opened = opened.map_err(|error| bucket_fault(&error, false))?;
        check_object(&reference, opened.as_ref().map(|object| object.bytes))?;
        Ok(opened.as_ref().map(content))
    }

    /// Stores the response to a request, if it is too large for a message. Returns the output.
    pub(super) async fn store_response(
        &self,
        request: &StepRequest,
        response: Value,
    ) -> Result<Value, CallFault> {
        let Some(content) = Content::of_response(&response) else { return Ok(response) };
        let key = response_key(request).map(String::from);
        let reference = key.and_then(|key| stored(&Reference { key, content }));
        let Some(reference) = reference else { return Ok(Value::Null) };
        let store = async { Ok::<_, PortError>(self.put_response(&reference)) };
        let stored = self.inject(|| format!("store payload {}", reference.key), store).await;
        let stored = stored.map_err(|error| bucket_fault(&error, true))?;
        Ok(stored.to_value())
    }

    fn put_response(&self, reference: &PayloadReference) -> PayloadReference {
        let stored = self.deployment.memory.memory_payloads().put_new(reference);
        self.trace(|| format!("stores {} with {}", stored.key, stored.sha256));
        self.deployment.state().oracle.payloads.stored += 1;
        self.deployment.check_payloads();
        stored
    }
}
