//! The verdicts on how an agent treats the messages in its queue.

use serde_json::Value;

use super::{Facts, text};
use crate::{
    case::{Case, case_of_key, is_unreadable_task},
    evidence::{ObservedEvent, undeleted},
    rule::Verdict,
};

impl Facts<'_> {
    pub(super) fn deleted_last(&self) -> Verdict {
        let mut sent: Vec<Value> = Vec::new();
        let mut early = Vec::new();
        for observation in &self.evidence.observations {
            match &observation.event {
                ObservedEvent::Sent { body } => {
                    sent.push(serde_json::from_str(body).unwrap_or_default())
                }
                ObservedEvent::Deleted { body } => {
                    let request: Value = serde_json::from_str(body).unwrap_or_default();
                    let is_reply = |reply: &&Value| {
                        ["task_id", "attempt"]
                            .iter()
                            .all(|name| reply.get(name) == request.get(name))
                    };
                    let case = case_of_key(text(&request, "idempotency_key"));
                    if case.is_some_and(Case::needs_reply)
                        && !sent.iter().any(|reply| is_reply(&reply))
                    {
                        early.push(case.map(Case::name).unwrap_or_default());
                    }
                }
                ObservedEvent::Requested(_)
                | ObservedEvent::Polled
                | ObservedEvent::Delivered { .. }
                | ObservedEvent::Replied(_)
                | ObservedEvent::Called(_)
                | ObservedEvent::CallEnded { .. } => {}
            }
        }
        if let Some(case) = early.first() {
            let count = early.len();
            return Verdict::Broken(format!(
                "{count} requests were deleted before their replies were sent, the first in case `{case}`"
            ));
        }
        self.answered(&[Case::LostReply])
    }

    pub(super) fn poison_left(&self) -> Verdict {
        let deleted = self.evidence.observations.iter().filter_map(|observation| {
            let ObservedEvent::Deleted { body } = &observation.event else { return None };
            let request: Value = serde_json::from_str(body).unwrap_or_default();
            let is_unreadable =
                request.get("task_id").is_none() || is_unreadable_task(text(&request, "task_id"));
            is_unreadable.then(|| "an unreadable message was deleted".to_owned())
        });
        let handled = (self.handled_unreadable > 0)
            .then(|| "a call or a reply for an unreadable request".to_owned());
        match Verdict::of(handled.into_iter().chain(deleted)) {
            Verdict::Holds => self.answered(&[Case::Batch]),
            broken @ (Verdict::Broken(_) | Verdict::NotChecked(_)) => broken,
        }
    }

    pub(super) fn deleted_after_reply(&self) -> Verdict {
        let undeleted = undeleted(&self.evidence.observations);
        let count = undeleted.len();
        let first = undeleted.first().map(|request| request.case.name());
        Verdict::of(
            first.map(|case| {
                format!("{count} requests were not deleted, the first in case `{case}`")
            }),
        )
    }
}
