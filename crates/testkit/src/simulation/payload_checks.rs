//! The oracle's checks of payloads. They compare documents, requests and the bucket, and share no code with the functions.
//!
//! - What a document of a task refers to belongs to the task or to one of its child tasks, exists, and has the content that
//!   the client uploaded or the service returned. The content belongs to the client's task.
//! - A service receives the payload that the body of its request refers to, and never one of another task. A reference within
//!   a body arrives unchanged.
//! - A step fails because of a payload, and a child task is refused because of one, only if the reference is forged.
//! - As long as a task or one of its parents exists, the objects exist to which it refers. The deployment checks that
//!   ([`payload_sweeps`](super::payload_sweeps)).

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    document::{Document, DocumentKey},
    json_text::JsonText,
    messages::StepRequest,
    names::{Part, StepName},
    task::Task,
};
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::{DocumentPlan, DocumentSource, WorkPlan},
    expectations::TaskExpectations,
    oracle::Oracle,
    payload_values::{Content, Reference, has_marker, is_same, marked_values, references},
    task_record::{describe, has_stopped},
};

impl Oracle {
    /// Records the payloads of a new task, and checks them. `submitted` is the stored submission.
    pub(super) fn observe_submitted_payloads(&mut self, task: &Task, submitted: Option<&Value>) {
        self.payloads.observe_task(task);
        let input = submitted.and_then(|body| body.get("input"));
        // A child task that never begins needs no payloads.
        let Some(input) = input.filter(|input| has_marker(input) && !has_stopped(task)) else {
            return;
        };
        let place = self.payloads.place_of(task).map(str::to_owned);
        if let Some(place) = place.filter(|_| task.parent.is_none()) {
            for reference in references(input) {
                self.payloads.observe_owner(&reference.content, &place);
            }
        }
        self.check_references(task, input);
    }

    /// Records the payloads in the documents of a saved task, and checks them.
    pub(super) fn observe_stored_payloads(&mut self, task: &Task, documents: &[Document]) {
        for document in documents.iter().filter(|document| has_marker(&document.body)) {
            self.check_references(task, &document.body);
            let place = self.payloads.place_of(task).unwrap_or_default();
            let is_output = matches!(document.key, DocumentKey::Result(_));
            if is_output && has_foreign(place, &document.body) {
                let finding = format!("{}: passes on {}", task.task_id, document.body);
                self.violations.push(finding);
            }
        }
    }

    fn check_references(&mut self, task: &Task, value: &Value) {
        let found = self.payloads.observe_references(task, value);
        let id = &task.task_id;
        self.violations.extend(found.into_iter().map(|finding| format!("{id}: {finding}")));
    }

    /// Checks the document in a call, and the payload that its service received in place of the body.
    pub(super) fn check_document(
        &mut self,
        request: &StepRequest,
        received: Option<&Content>,
        ledger: &EffectLedger,
    ) {
        self.payloads.sent += u64::from(received.is_some());
        let StepRequest { task_id, step: part, action, .. } = request;
        let Some(expected) = TaskExpectations::of(self, ledger, task_id)
            .filter(|expected| expected.task.incarnation == request.incarnation)
        else {
            return;
        };
        let body = request.body.as_ref().map(JsonText::value).unwrap_or_default();
        let found = [
            expected.wrong_document(part, *action, &body),
            expected.wrong_payload(&body, received),
            expected.foreign_reference(&body),
        ];
        let of = describe(task_id, part, *action);
        self.violations.extend(found.into_iter().flatten().map(|found| format!("{of}: {found}")));
    }
}

impl TaskExpectations<'_> {
    /// What is wrong with the document of a request.
    fn wrong_document(&self, part: &Part, action: Action, body: &Value) -> Option<String> {
        let step = self.model.step(&part.step)?;
        let DocumentPlan { source, is_whole } =
            step.document.as_ref().filter(|_| action == Action::Do)?;
        let document = if *is_whole { Some(body) } else { body.get("document") };
        let document = document.unwrap_or(&Value::Null);
        let is_right = match source {
            DocumentSource::Output(step) => self.is_possible_output(step, document),
            DocumentSource::Input => {
                let input = self.oracle.final_input(self.task)?;
                input.get("document").is_some_and(|submitted| is_same(submitted, document))
            }
        };
        (!is_right).then(|| format!("received {document} as its document"))
    }

    /// What is wrong with the payload that a service received in place of the body `body`.
    fn wrong_payload(&self, body: &Value, received: Option<&Content>) -> Option<String> {
        let is_reference = body.as_object().is_some_and(|fields| fields.contains_key("$payload"));
        let Some(received) = received else {
            return is_reference.then(|| format!("received the reference {body}, not a payload"));
        };
        let Some(Reference { key, content }) = Reference::of(body) else {
            return Some(format!("received a payload, but its body is {body}"));
        };
        let records = &self.oracle.payloads;
        let place = records.place_of(self.task)?;
        let is_foreign = !key.starts_with(place) || !records.is_owner(place, received);
        if is_foreign {
            return Some(format!("received the payload {key} of another task"));
        }
        // A service may forge the digest of a payload of its own task.
        (received.bytes != content.bytes || records.object(&key).as_ref() != Some(received))
            .then(|| format!("received another content than that of {key}"))
    }

    /// A reference in a request that does not name a payload of the task.
    fn foreign_reference(&self, body: &Value) -> Option<String> {
        let records = &self.oracle.payloads;
        let place = records.place_of(self.task)?;
        let foreign = marked_values(body).into_iter().find(|value| !is_own(place, value))?;
        Some(format!("received the reference {foreign}, which is not the task's"))
    }

    /// Whether the undo of a step may fail because the step returned a reference that is not the task's.
    pub(super) fn has_foreign_output(&self, name: &StepName) -> bool {
        let Some(place) = self.oracle.payloads.place_of(self.task) else { return false };
        self.raw_outputs(name.as_str()).any(|value| has_foreign(place, value))
    }

    /// Whether a step may fail because of its document, or its child task be refused: a reference in it is forged.
    pub(super) fn has_unusable_document(&self, part: &Part) -> bool {
        let Some(step) = self.model.step(&part.step) else { return false };
        let Some(place) = self.oracle.payloads.place_of(self.task) else { return false };
        let records = &self.oracle.payloads;
        let mut outputs = step.sources().flat_map(|name| self.raw_outputs(name.as_str()));
        match (&step.work, &step.document) {
            (WorkPlan::Child(_), _) => outputs.any(|value| !records.may_pass_on(place, value)),
            (WorkPlan::Call { .. }, Some(DocumentPlan { is_whole: true, .. })) => {
                let is_marked = |value: &Value| value.get("$payload").is_some();
                outputs.any(|value| {
                    has_foreign(place, value)
                        || (is_marked(value) && !records.is_usable(place, value))
                })
            }
            (WorkPlan::Call { .. }, _) => outputs.any(|value| has_foreign(place, value)),
            (WorkPlan::Wait(_) | WorkPlan::Event(_), _) => false,
        }
    }

    /// Everything that services, callbacks and child tasks returned for a step.
    fn raw_outputs(&self, name: &str) -> impl Iterator<Item = &Value> {
        let accounts = self.ledger.task_accounts(self.id());
        let own = accounts.filter(move |(part, _)| part.step.as_str() == name);
        let returned =
            own.flat_map(|(_, account)| account.returned().chain(account.callback_outputs.iter()));
        returned.chain(self.oracle.payloads.child_outputs(self.id(), name))
    }

    /// Checks why the child task of a part was refused.
    pub(super) fn wrong_refusal(&self, part: &Part, reason: &str) -> Option<String> {
        let is_about_payloads = reason.contains("payload") || reason.contains("upload");
        // The lists of several items may hold more payloads than a submission.
        let are_too_many = reason.contains("payloads; the limit is");
        let is_right =
            are_too_many || self.oracle.has_late_messages || self.has_unusable_document(part);
        (is_about_payloads && !is_right)
            .then(|| format!("its child task was refused, but its payloads are right: {reason}"))
    }
}

/// Whether what a service returned has a reference that does not name a payload of the task with this place.
fn has_foreign(place: &str, returned: &Value) -> bool {
    // A large response is stored at its task.
    let is_foreign =
        |value: &&Value| Content::of_response(value).is_none() && !is_own(place, value);
    marked_values(returned).iter().any(is_foreign)
}

/// Whether a value with the key of references names a payload of the task with this place.
fn is_own(place: &str, value: &Value) -> bool {
    Reference::of(value).is_some_and(|reference| reference.key.starts_with(place))
}
