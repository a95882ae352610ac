//! What happens in the bucket of payloads: what the oracle learns from its calls, and the objects that agents read and write.

use steward_agent::attempt::CallFault;
use steward_agent::payloads::{bucket_fault, check_object, requested_payload, response_key};
use steward_core::model::{
    messages::StepRequest,
    payload::{PayloadKey, PayloadReference},
};
use steward_runtime::{
    payloads::{Claim, ClaimOutcome},
    ports::PortError,
};

use serde_json::Value;

use super::{
    deployment::ScheduledEvent,
    fault_injector::FaultInjector,
    payload_records::{content, stored},
    payload_values::{Content, Reference},
};

/// What the oracle learns from the calls of the bucket.
impl FaultInjector {
    pub(super) fn observe_claim(
        &self,
        Claim { source, target, .. }: &Claim,
        outcome: &ClaimOutcome,
    ) {
        self.trace(|| format!("copies {} to {target}: {outcome:?}", source.key));
        self.sweep_after_claim();
    }

    pub(super) fn observe_deletion(&self, keys: &[PayloadKey]) {
        keys.iter().for_each(|key| self.trace(|| format!("deletes payload {key}")));
        self.deployment.check_payloads();
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
}

/// The payloads of an agent. The decisions are those of the HTTP agent.
impl FaultInjector {
    /// Reads the object that is the body of a request.
    pub(super) async fn open_payload(
        &self,
        request: &StepRequest,
    ) -> Result<Option<Content>, CallFault> {
        let Some(reference) = requested_payload(request)? else { return Ok(None) };
        let read = async { Ok(self.deployment.memory.payloads.content(&reference.key)) };
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
        let stored = self.deployment.memory.payloads.put_new(reference);
        self.trace(|| format!("stores {} with {}", stored.key, stored.sha256));
        self.deployment.state().oracle.payloads.stored += 1;
        self.deployment.check_payloads();
        stored
    }
}
