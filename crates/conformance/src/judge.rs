//! Decides from the evidence which rules of the contract hold. Pure: the same evidence always gives the same verdicts.

mod queue;
mod reply;
mod service;
mod single_delivery;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    case::{Case, PAYLOAD_MARK, case_of_key, is_unreadable_task},
    evidence::{Evidence, ObservedEvent, ReceivedReply, SentRequest},
    rule::{Rule, Verdict},
};

/// The verdict on each rule, by number.
#[must_use]
pub fn verdicts(evidence: &Evidence) -> Vec<(Rule, Verdict)> {
    let facts = Facts::of(evidence);
    Rule::ALL.into_iter().map(|rule| (rule, facts.verdict(rule))).collect()
}

/// The evidence by kind.
struct Facts<'e> {
    evidence: &'e Evidence,
    /// With their positions among the observations.
    requests: Vec<(usize, &'e SentRequest)>,
    replies: Vec<Reply<'e>>,
    /// The messages that report a call without a known outcome.
    wakes: Vec<Value>,
    calls: Vec<Call<'e>>,
    /// The number of calls and replies for the request with an unknown action.
    handled_unreadable: usize,
}

/// A call of the service.
struct Call<'e> {
    at: Timestamp,
    /// Among the observations.
    position: usize,
    key: Option<&'e str>,
    is_signed: bool,
}

/// A message in the queue of replies that is JSON, or its error.
struct Reply<'e> {
    at: Timestamp,
    /// Among the observations.
    position: usize,
    received: &'e ReceivedReply,
    message: Value,
    /// The request that it belongs to, by task and attempt.
    request: Option<&'e SentRequest>,
}

impl Reply<'_> {
    fn outcome(&self) -> &Value {
        self.message.get("outcome").unwrap_or(&Value::Null)
    }

    fn status(&self) -> &str {
        text(self.outcome(), "status")
    }

    /// Whether the reply says that no call took effect.
    fn denies_effect(&self) -> bool {
        matches!(self.status(), "failed" | "deferred") && !self.may_have_run()
    }

    fn is_certain(&self) -> bool {
        self.outcome().get("certain") == Some(&Value::Bool(true))
    }

    fn may_have_run(&self) -> bool {
        self.outcome().get("may_have_run") == Some(&Value::Bool(true))
    }

    fn is_of(&self, case: Case) -> bool {
        self.request.is_some_and(|request| request.case == case)
    }
}

impl<'e> Facts<'e> {
    fn of(evidence: &'e Evidence) -> Self {
        let (mut requests, mut received, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let mut handled_unreadable = 0;
        for (position, observation) in evidence.observations.iter().enumerate() {
            let at = observation.at;
            match &observation.event {
                ObservedEvent::Requested(request) => requests.push((position, request)),
                ObservedEvent::Replied(reply) => received.push((position, at, reply)),
                ObservedEvent::Called(call) => {
                    let key = call.key.as_deref();
                    match key.and_then(|key| key.split_once('/')) {
                        Some((task, _)) if is_unreadable_task(task) => handled_unreadable += 1,
                        _ => calls.push(Call { at, position, key, is_signed: call.is_signed }),
                    }
                }
                ObservedEvent::Polled
                | ObservedEvent::Delivered { .. }
                | ObservedEvent::CallEnded { .. }
                | ObservedEvent::Sent { .. }
                | ObservedEvent::Deleted { .. } => {}
            }
        }
        let (mut replies, mut wakes) = (Vec::new(), Vec::new());
        for (position, at, received) in received {
            let message: Value = serde_json::from_str(&received.body).unwrap_or_default();
            if message.get("type").is_some_and(|kind| kind == "wake") {
                wakes.push(message);
                continue;
            }
            let request = requests.iter().map(|(_, request)| *request);
            let request = best_match(request, &message);
            replies.push(Reply { at, position, received, message, request });
        }
        let readable = |reply: &Reply<'_>| !is_unreadable_task(text(&reply.message, "task_id"));
        handled_unreadable += replies.iter().filter(|reply| !readable(reply)).count();
        replies.retain(readable);
        Self { evidence, requests, replies, wakes, calls, handled_unreadable }
    }

    fn verdict(&self, rule: Rule) -> Verdict {
        if rule != Rule::Answer && self.replies.is_empty() {
            return Verdict::NotChecked("the agent sent no reply".to_owned());
        }
        if let Some(reason) = self.obstacle(rule) {
            return Verdict::NotChecked(reason.to_owned());
        }
        match rule {
            Rule::Answer => self.answered(&[Case::Plain, Case::Undo, Case::Item]),
            Rule::DeleteLast => self.deleted_last(),
            Rule::Poison => self.poison_left(),
            Rule::UnknownFields => self.answered(&[Case::UnknownField]),
            Rule::Schema => self.replies_obey_schema(),
            Rule::Echo => self.echoed(),
            Rule::Trace => self.trace_continued(),
            Rule::Duplicates => self.no_contradictions(),
            Rule::Key => self.keys_sent(),
            Rule::Retry => self.retries_answered(),
            Rule::CompleteBy => self.complete_by_kept(),
            Rule::LargeRequest => self.answered(&[Case::LargeRequest]),
            Rule::LargeOutput => self.large_output_failed(),
            Rule::AnyBody => self.any_body_completed(),
            Rule::UnknownOutcome => self.unknown_outcomes_reported(),
            Rule::Deferral => self.deferred_while_busy(),
            Rule::Refusal => self.refusal_failed(),
            Rule::Redelivery => self.redelivery_reported(),
            Rule::Once => self.called_once(),
            Rule::Logs => self.no_payload_logged(),
            Rule::Deletion => self.deleted_after_reply(),
            Rule::Certain => self.certain_is_final(),
            Rule::Reason => self.no_payload_in_reasons(),
            Rule::Unsupported => self.unsupported_refused(),
        }
    }

    /// Why the rule cannot be checked.
    fn obstacle(&self, rule: Rule) -> Option<&'static str> {
        let capabilities = self.evidence.capabilities;
        let case = match rule {
            Rule::Key | Rule::Once | Rule::Certain if !capabilities.plays_service => {
                return Some(OTHER_SERVICE);
            }
            Rule::DeleteLast | Rule::Deletion if !capabilities.sees_sqs => {
                return Some("the agent's requests to SQS do not pass the kit: use --command");
            }
            Rule::Logs if self.evidence.log.is_none() => {
                return Some("the agent's log is elsewhere: use --command");
            }
            Rule::LargeRequest => Case::LargeRequest,
            Rule::LargeOutput => Case::LargeOutput,
            Rule::AnyBody => Case::TextOutput,
            Rule::UnknownOutcome => Case::Silent,
            Rule::Deferral => Case::Busy,
            Rule::Refusal => Case::Refused,
            Rule::Redelivery => Case::Redriven,
            Rule::Answer
            | Rule::DeleteLast
            | Rule::Poison
            | Rule::UnknownFields
            | Rule::Schema
            | Rule::Echo
            | Rule::Trace
            | Rule::Duplicates
            | Rule::Key
            | Rule::Retry
            | Rule::CompleteBy
            | Rule::Once
            | Rule::Logs
            | Rule::Deletion
            | Rule::Certain
            | Rule::Reason
            | Rule::Unsupported => return None,
        };
        if let Some((_, reason)) =
            self.evidence.skipped.iter().find(|(skipped, _)| *skipped == case)
        {
            return Some(reason);
        }
        if case.needs_service() && !capabilities.plays_service {
            return Some(OTHER_SERVICE);
        }
        // Without a call, the service's behaviour had no influence.
        if case.needs_service() && !self.was_called_in(case) {
            return Some("the agent did not call the kit's service with the idempotency key");
        }
        None
    }

    fn was_called_in(&self, case: Case) -> bool {
        self.calls_in(case).next().is_some()
    }

    fn calls_in(&self, case: Case) -> impl Iterator<Item = &Call<'e>> {
        self.calls.iter().filter(move |call| call.key.and_then(case_of_key) == Some(case))
    }

    fn replies_in(&self, case: Case) -> impl Iterator<Item = &Reply<'e>> {
        self.replies.iter().filter(move |reply| reply.is_of(case))
    }

    /// Every attempt of these cases has a reply.
    fn answered(&self, cases: &[Case]) -> Verdict {
        self.answered_if(|request| cases.contains(&request.case))
    }

    /// Every further attempt has a reply. The service was busy at the first one of `once-busy`.
    fn retries_answered(&self) -> Verdict {
        self.answered_if(|request| {
            let is_second = request.message.get("attempt").is_some_and(|number| *number == 2);
            request.case == Case::Retry || request.case == Case::OnceBusy && is_second
        })
    }

    /// Every request with this property has a reply.
    fn answered_if(&self, property: impl Fn(&SentRequest) -> bool) -> Verdict {
        let requests = self.requests.iter().filter(|(_, request)| property(request));
        Verdict::of(requests.filter_map(|(_, request)| {
            let attempt = request.message.get("attempt");
            let answered =
                self.replies_in(request.case).any(|reply| reply.message.get("attempt") == attempt);
            let (case, attempt) = (request.case.name(), attempt.unwrap_or(&Value::Null));
            (!answered).then(|| format!("no reply in case `{case}`, attempt {attempt}"))
        }))
    }

    fn no_payload_logged(&self) -> Verdict {
        let log = self.evidence.log.as_deref().unwrap_or_default();
        let logged = log.contains(PAYLOAD_MARK);
        Verdict::of(logged.then(|| "the agent's output contains a payload of the kit".to_owned()))
    }
}

const OTHER_SERVICE: &str =
    "the agent calls a service that the kit does not play: use --command or --service";

/// The request that a reply belongs to: of the same task, and if possible of the same attempt.
fn best_match<'e>(
    requests: impl Iterator<Item = &'e SentRequest>,
    reply: &Value,
) -> Option<&'e SentRequest> {
    let of_task = requests.filter(|request| request.message.get("task_id") == reply.get("task_id"));
    let of_task: Vec<_> = of_task.collect();
    let same_attempt =
        of_task.iter().find(|request| request.message.get("attempt") == reply.get("attempt"));
    same_attempt.or(of_task.first()).copied()
}

fn did_run(reply: &Reply<'_>) -> &'static str {
    if reply.denies_effect() { " without may_have_run" } else { "" }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The trace id of a `traceparent`.
fn trace_id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or_default()
}
