//! What services return in runs with payloads: large responses, and forged references. And the forged references that clients
//! submit.

use serde_json::{Value, json};
use steward_core::model::messages::StepRequest;

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment, SimulationState},
    outputs,
    payload_plan::{ForgedSubmission, Forgery, PayloadPlan},
    payload_values::{Content, Reference},
    random::is_chosen,
    virtual_time::{HOUR, Millis},
};

/// The share of repeated calls that are answered with another large response than the first, such as a report with its time.
const OTHER_CONTENT_SHARE: f64 = 0.5;

impl SimulationState {
    /// The response of a service to a call that takes effect: one that is too large for a message, or one with a forged
    /// reference. `None` for a usual one.
    pub(super) fn payload_response(
        &mut self,
        plan: &PayloadPlan,
        request: &StepRequest,
        now: Millis,
    ) -> Option<Value> {
        let key = &request.idempotency_key;
        let records = &mut self.oracle.payloads;
        let place = records.place(&request.task_id, request.incarnation)?.to_owned();
        if is_chosen(key, "large", plan.large_responses) {
            let content = records.numbers.content();
            records.observe_owner(&content, &place);
            return Some(content.to_response());
        }
        if !is_chosen(key, "forged", plan.forged_responses) {
            return None;
        }
        let kinds =
            [Forgery::Missing, Forgery::OtherSize, Forgery::OtherDigest, Forgery::Malformed];
        let kind = self.random.pick(Forgery::Foreign, &kinds);
        let forged = self.forge(kind, Some(&place), now);
        Some(match self.random.chance(0.6) {
            true => forged,
            false => {
                let mut output = outputs::output(key, now);
                if let Some(fields) = output.as_object_mut() {
                    fields.insert("document".to_owned(), forged);
                }
                output
            }
        })
    }

    /// The response to a call that took effect. `answer` is what the ledger has for its idempotency key: sometimes, a service
    /// answers a repeated call with another large response.
    pub(super) fn response_of(
        &mut self,
        request: &StepRequest,
        answer: Value,
        is_repeat: bool,
    ) -> Value {
        let is_large = Content::of_response(&answer).is_some();
        if !is_large || !is_repeat || !self.random.chance(OTHER_CONTENT_SHARE) {
            return answer;
        }
        let records = &mut self.oracle.payloads;
        let place = records.place(&request.task_id, request.incarnation).map(str::to_owned);
        let content = records.numbers.content();
        records.observe_owner(&content, &place.unwrap_or_default());
        let other = content.to_response();
        self.ledger.record_other_answer(request, other.clone());
        other
    }

    /// A reference that must not be usable: for the task with this place, or for a client.
    fn forge(&mut self, kind: Forgery, place: Option<&str>, now: Millis) -> Value {
        let of_client = place.is_none();
        let own = place.unwrap_or("uploads/");
        let keys = self.oracle.payloads.task_keys();
        let other = |key: &&String| of_client || !key.starts_with(own);
        let reference = match kind {
            Forgery::Malformed => {
                let upload = self.oracle.payloads.numbers.upload().to_value();
                let marker = upload.get("$payload").cloned().unwrap_or_default();
                let beside = json!({ "$payload": marker, "note": "x" });
                return self.random.pick(json!({ "$payload": 5 }), &[beside]);
            }
            Forgery::Foreign => self.existing(keys.iter().filter(other)),
            Forgery::Missing => None,
            Forgery::OtherSize | Forgery::OtherDigest | Forgery::Expired if of_client => {
                let upload = self.oracle.payloads.numbers.upload();
                self.oracle.payloads.upload(&upload, now);
                Some(upload)
            }
            Forgery::OtherSize | Forgery::OtherDigest | Forgery::Expired => {
                self.existing(keys.iter().filter(|key| key.starts_with(own)))
            }
        };
        let missing = self.oracle.payloads.numbers.upload();
        let key = if of_client { missing.key } else { format!("{own}output/nowhere/do/1") };
        let missing = Reference { key, content: missing.content };
        let mut forged = reference.unwrap_or_else(|| missing.clone());
        match kind {
            Forgery::OtherSize => forged.content.bytes += 1,
            Forgery::OtherDigest => forged.content.sha256 = missing.content.sha256,
            Forgery::Foreign | Forgery::Missing | Forgery::Malformed | Forgery::Expired => {}
        }
        self.oracle.payloads.observe_forgery(forged.clone());
        forged.to_value()
    }

    fn existing<'a>(&mut self, keys: impl Iterator<Item = &'a String>) -> Option<Reference> {
        let keys: Vec<_> = keys.collect();
        let key = (*keys.get(self.random.index(keys.len())?)?).clone();
        let content = self.oracle.payloads.object(&key)?;
        Some(Reference { key, content })
    }
}

impl SimulatedDeployment {
    /// Schedules the forged references that clients submit.
    pub(super) fn schedule_forged_submissions(&self) {
        let Some(payloads) = &self.plan.payloads else { return };
        for (number, forged) in payloads.forged_submissions.iter().enumerate() {
            self.schedule(forged.at, ScheduledEvent::SubmitForged(number, None));
        }
    }

    /// The input of a forged submission. If its upload must expire first, schedules the submission for later.
    pub(super) fn forged_input(&self, number: usize, forged: &ForgedSubmission) -> Option<Value> {
        let mut input = self.plan.tasks.get(forged.task)?.input.clone();
        let now = self.now();
        let document = self.state().forge(forged.kind, None, now);
        input.as_object_mut()?.insert("document".to_owned(), document);
        self.state().oracle.payloads.forged_inputs.push(input.clone());
        if forged.kind != Forgery::Expired {
            return Some(input);
        }
        self.schedule(now + 25 * HOUR, ScheduledEvent::SubmitForged(number, Some(input)));
        None
    }
}
