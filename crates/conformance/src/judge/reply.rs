//! The verdicts on the form of replies, and on what they say together.

use steward_core::contract::check_reply;

use super::{Facts, Reply, text, trace_id};
use crate::{case::PAYLOAD_MARK, rule::Verdict};

impl Facts<'_> {
    pub(super) fn replies_obey_schema(&self) -> Verdict {
        Verdict::of(self.replies.iter().filter_map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            check_reply(&reply.message).err().map(|error| format!("case `{case}`: {error}"))
        }))
    }

    pub(super) fn echoed(&self) -> Verdict {
        Verdict::of(self.replies.iter().filter_map(|reply| {
            let Some(request) = reply.request else {
                return Some("a reply names a task that the kit did not request".to_owned());
            };
            let changed = ["task_id", "step", "action", "attempt", "incarnation"].into_iter();
            let changed: Vec<_> = changed
                .filter(|name| {
                    let absent_is_do = *name == "action" && reply.message.get(name).is_none();
                    let expected = request.message.get(name);
                    match absent_is_do {
                        true => expected.is_some_and(|action| action != "do"),
                        false => reply.message.get(name) != expected,
                    }
                })
                .collect();
            let (case, changed) =
                (request.case.name(), (!changed.is_empty()).then(|| changed.join(", ")));
            changed.map(|changed| format!("case `{case}`: {changed}"))
        }))
    }

    pub(super) fn trace_continued(&self) -> Verdict {
        Verdict::of(self.replies.iter().filter_map(|reply| {
            let request = reply.request?;
            let continued = reply.received.traceparent.as_deref().map(trace_id);
            let is_continued = continued == Some(trace_id(&request.traceparent));
            let case = request.case.name();
            (!is_continued).then(|| {
                format!("case `{case}`: the reply has no `traceparent` of the request's trace")
            })
        }))
    }

    pub(super) fn no_contradictions(&self) -> Verdict {
        let pairs = self.replies.iter().enumerate().flat_map(|(n, first)| {
            self.replies.iter().skip(n + 1).map(move |second| (first, second))
        });
        Verdict::of(pairs.filter_map(|(first, second)| {
            let (a, b) = (first.request?, second.request?);
            let same =
                a.case == b.case && first.message.get("attempt") == second.message.get("attempt");
            let completed = |reply: &Reply<'_>| reply.status() == "completed";
            let contradicts = same
                && (completed(first) && second.denies_effect()
                    || first.denies_effect() && completed(second));
            contradicts.then(|| {
                let (case, first, second) = (a.case.name(), first.status(), second.status());
                format!("case `{case}`: first {first}, then {second} without may_have_run")
            })
        }))
    }

    pub(super) fn no_payload_in_reasons(&self) -> Verdict {
        let reason = |reply: &&Reply<'_>| text(reply.outcome(), "reason").contains(PAYLOAD_MARK);
        let exposed = self.replies.iter().filter(reason);
        Verdict::of(exposed.map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            format!("case `{case}`: the reason contains a payload of the kit")
        }))
    }
}
