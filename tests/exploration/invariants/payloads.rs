//! Invariants of payloads: agents and child tasks know the place of the task, and an agent sends only what belongs to it.

use steward_core::{
    engine::effect::Effect,
    model::{json_text::JsonText, payload::PayloadPlace, task::Task},
};

use super::CheckedTransition;
use crate::exploration::successors::PARENT_INCARNATION;

impl CheckedTransition<'_> {
    /// Every request and every submission of a child task has the place of the task, unless it follows from the task's id. A
    /// body that is a reference is one to an object in that place.
    pub(super) fn check_payloads(&self, after: &Task, violated: &mut Vec<String>) {
        let own = format!("{}@{}/", after.task_id, after.incarnation);
        let (place, named) = match self.workflow.is_child {
            true => {
                let place = format!("tasks/p@{PARENT_INCARNATION}/{own}");
                (place.clone(), Some(place))
            }
            false => (format!("tasks/{own}"), None),
        };
        let is_named = |place: &Option<PayloadPlace>| {
            place.as_ref().map(PayloadPlace::as_str) == named.as_deref()
        };
        for request in self.requests() {
            let body = request.body.as_ref().map(JsonText::value).unwrap_or_default();
            let key = body.get("$payload").map(|reference| reference["key"].as_str().unwrap());
            if !is_named(&request.payload_place) {
                violated.push(format!("{}: a request has the place of its task", request.step));
            }
            if key.is_some_and(|key| !key.starts_with(&place)) {
                violated.push(format!("{}: an agent sends what belongs to the task", request.step));
            }
        }
        for effect in self.effects {
            let Effect::Submit(submission) = effect else { continue };
            if !submission.parent.as_ref().is_some_and(|parent| is_named(&parent.payload_place)) {
                let id = &submission.task_id;
                violated.push(format!("{id}: its submission has the place of its parent"));
            }
        }
    }
}
