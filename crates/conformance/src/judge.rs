//! Decides from the evidence which rules of the contract hold. Pure: the same evidence always gives the same verdicts.

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{contract::check_reply, limits};

use crate::{
    case::{BUSY_FOR, Case, PAYLOAD_MARK, case_of_key},
    evidence::{Event, Evidence, ReceivedReply, SentRequest, ServiceCall},
    rule::{Rule, Verdict},
};

/// How much later than complete-by a call may be observed, because the clocks of the kit and of the agent may differ.
const CLOCK_SKEW_MS: i64 = 1_000;

/// The verdict on each rule, by number.
#[must_use]
pub fn verdicts(evidence: &Evidence) -> Vec<(Rule, Verdict)> {
    let facts = Facts::of(evidence);
    Rule::ALL.into_iter().map(|rule| (rule, facts.verdict(rule))).collect()
}

/// The evidence by kind.
struct Facts<'e> {
    evidence: &'e Evidence,
    requests: Vec<(Timestamp, &'e SentRequest)>,
    replies: Vec<Reply<'e>>,
    calls: Vec<(Timestamp, &'e ServiceCall)>,
}

/// A message in the queue of replies that is JSON, or its error.
struct Reply<'e> {
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
        for observation in &evidence.observations {
            match &observation.event {
                Event::Requested(request) => requests.push((observation.at, request)),
                Event::Replied(reply) => received.push(reply),
                Event::Called(call) => calls.push((observation.at, call)),
                Event::Sent { .. } | Event::Deleted { .. } => {}
            }
        }
        let reply = |received: &'e ReceivedReply| {
            let message: Value = serde_json::from_str(&received.body).unwrap_or_default();
            // What an agent may send when complete-by has passed; it is no reply.
            if message.get("type").is_some_and(|kind| kind == "wake") {
                return None;
            }
            let request = requests.iter().map(|(_, request)| *request);
            let request = best_match(request, &message);
            Some(Reply { received, message, request })
        };
        let replies = received.into_iter().filter_map(reply).collect();
        Self { evidence, requests, replies, calls }
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
            Rule::Retry => self.answered(&[Case::Retry]),
            Rule::CompleteBy => self.complete_by_kept(),
            Rule::LargeRequest => self.answered(&[Case::LargeRequest]),
            Rule::LargeOutput => self.large_output_failed(),
            Rule::UnknownOutcome => self.unknown_outcomes_reported(),
            Rule::Deferral => self.deferred_while_busy(),
            Rule::Refusal => self.refusal_failed(),
            Rule::Redelivery => self.redelivery_reported(),
            Rule::Once => self.called_once(),
            Rule::Logs => self.no_payload_logged(),
        }
    }

    /// Why the rule cannot be checked.
    fn obstacle(&self, rule: Rule) -> Option<&'static str> {
        let capabilities = self.evidence.capabilities;
        let case = match rule {
            Rule::Key | Rule::Once if !capabilities.plays_service => return Some(OTHER_SERVICE),
            Rule::DeleteLast if !capabilities.sees_sqs => {
                return Some("the agent's requests to SQS do not pass the kit: use --command");
            }
            Rule::Logs if self.evidence.log.is_none() => {
                return Some("the agent's log is elsewhere: use --command");
            }
            Rule::LargeRequest => Case::LargeRequest,
            Rule::LargeOutput => Case::LargeOutput,
            Rule::UnknownOutcome => Case::Silent,
            Rule::Deferral => Case::Busy,
            Rule::Refusal => Case::Refused,
            Rule::Redelivery => Case::Redelivered,
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
            | Rule::Logs => return None,
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
        self.calls.iter().any(|(_, call)| call.key.as_deref().and_then(case_of_key) == Some(case))
    }

    fn replies_in(&self, case: Case) -> impl Iterator<Item = &Reply<'e>> {
        self.replies.iter().filter(move |reply| reply.is_of(case))
    }

    /// Every attempt of these cases has a reply.
    fn answered(&self, cases: &[Case]) -> Verdict {
        let requests = self.requests.iter().filter(|(_, request)| cases.contains(&request.case));
        Verdict::of(requests.filter_map(|(_, request)| {
            let attempt = request.message.get("attempt");
            let answered =
                self.replies_in(request.case).any(|reply| reply.message.get("attempt") == attempt);
            let (case, attempt) = (request.case.name(), attempt.unwrap_or(&Value::Null));
            (!answered).then(|| format!("no reply in case `{case}`, attempt {attempt}"))
        }))
    }

    fn deleted_last(&self) -> Verdict {
        let mut sent: Vec<Value> = Vec::new();
        let mut early = Vec::new();
        for observation in &self.evidence.observations {
            match &observation.event {
                Event::Sent { body } => sent.push(serde_json::from_str(body).unwrap_or_default()),
                Event::Deleted { body } => {
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
                Event::Requested(_) | Event::Replied(_) | Event::Called(_) => {}
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

    fn poison_left(&self) -> Verdict {
        let deleted = self.evidence.observations.iter().filter_map(|observation| {
            let Event::Deleted { body } = &observation.event else { return None };
            let request: Value = serde_json::from_str(body).unwrap_or_default();
            request.get("task_id").is_none().then(|| "an unreadable message was deleted".to_owned())
        });
        match Verdict::of(deleted) {
            Verdict::Holds => self.answered(&[Case::Batch]),
            broken @ (Verdict::Broken(_) | Verdict::NotChecked(_)) => broken,
        }
    }

    fn replies_obey_schema(&self) -> Verdict {
        Verdict::of(self.replies.iter().filter_map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            check_reply(&reply.message).err().map(|error| format!("case `{case}`: {error}"))
        }))
    }

    fn echoed(&self) -> Verdict {
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

    fn trace_continued(&self) -> Verdict {
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

    fn no_contradictions(&self) -> Verdict {
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

    fn keys_sent(&self) -> Verdict {
        if self.calls.is_empty() {
            return Verdict::NotChecked("the agent did not call the kit's service".to_owned());
        }
        Verdict::of(self.calls.iter().filter_map(|(_, call)| {
            let sent = call.key.as_deref();
            let requests = self.requests.iter().map(|(_, request)| request);
            let known = requests.map(|request| text(&request.message, "idempotency_key"));
            let is_known = known.into_iter().any(|key| sent == Some(key));
            (!is_known).then(|| match sent {
                None => "a call without `Idempotency-Key`".to_owned(),
                Some(_) => "a call with another key than that of its request".to_owned(),
            })
        }))
    }

    fn complete_by_kept(&self) -> Verdict {
        let late_calls = self.calls.iter().filter_map(|(at, call)| {
            let key = call.key.as_deref()?;
            let mut requests = self.requests.iter().map(|(_, request)| request);
            let request =
                requests.rfind(|request| text(&request.message, "idempotency_key") == key)?;
            let complete_by: Timestamp = text(&request.message, "complete_by").parse().ok()?;
            let late = at.as_millisecond() > complete_by.as_millisecond() + CLOCK_SKEW_MS;
            late.then(|| format!("case `{}`: a call after complete-by", request.case.name()))
        });
        let late_replies = self.replies_in(Case::Late).filter(|reply| reply.status() != "deferred");
        let late_replies = late_replies.map(|reply| {
            format!("case `late`: the reply to a request after complete-by is {}", reply.status())
        });
        Verdict::of(late_calls.chain(late_replies))
    }

    fn large_output_failed(&self) -> Verdict {
        let too_large = self.replies.iter().filter_map(|reply| {
            let output = reply.outcome().get("output").map_or(0, |output| output.to_string().len());
            let body = reply.received.body.len();
            (output > limits::DOCUMENT_BYTES_MAX || body > limits::MESSAGE_BYTES_MAX)
                .then(|| format!("a reply of {body} bytes with an output of {output} bytes"))
        });
        match Verdict::of(too_large) {
            Verdict::Holds => {}
            broken @ (Verdict::Broken(_) | Verdict::NotChecked(_)) => return broken,
        }
        let wrong = self.replies_in(Case::LargeOutput).filter_map(|reply| {
            let failed = reply.status() == "failed" && reply.may_have_run();
            (!failed).then(|| format!("the reply is {}{}", reply.status(), did_run(reply)))
        });
        let missing = self.replies_in(Case::LargeOutput).next().is_none();
        Verdict::of(
            wrong.chain(missing.then(|| "no reply to a call with a large response".to_owned())),
        )
    }

    fn unknown_outcomes_reported(&self) -> Verdict {
        let replies = self.replies_in(Case::Silent).chain(self.replies_in(Case::Unavailable));
        let wrong = replies.filter(|reply| reply.status() == "completed" || reply.denies_effect());
        Verdict::of(wrong.map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            format!("case `{case}`: the reply is {}{}", reply.status(), did_run(reply))
        }))
    }

    fn deferred_while_busy(&self) -> Verdict {
        let wanted = u64::try_from(BUSY_FOR.as_millis()).unwrap_or(u64::MAX);
        let wrong = self.replies_in(Case::Busy).filter_map(|reply| {
            let wait = reply.outcome().get("retry_after_ms").and_then(Value::as_u64);
            let deferred = reply.status() == "deferred" && wait.is_some_and(|wait| wait >= wanted);
            (!deferred).then(|| {
                let wait = wait.map(|wait| format!(" for {wait} ms")).unwrap_or_default();
                format!("the reply to 429 with Retry-After: 60 is {}{wait}", reply.status())
            })
        });
        Verdict::of(wrong)
    }

    fn refusal_failed(&self) -> Verdict {
        let mut replies = self.replies_in(Case::Refused);
        Verdict::of(match replies.next() {
            None => Some("no reply to a call that the service refused".to_owned()),
            Some(reply) if reply.status() != "failed" => {
                Some(format!("the reply to 422 is {}", reply.status()))
            }
            Some(reply) if text(reply.outcome(), "reason").is_empty() => {
                Some("the reason is empty".to_owned())
            }
            Some(_) => None,
        })
    }

    fn redelivery_reported(&self) -> Verdict {
        let wrong = self.replies_in(Case::Redelivered).filter(|reply| reply.denies_effect());
        Verdict::of(wrong.map(|reply| format!("the reply is {}{}", reply.status(), did_run(reply))))
    }

    fn called_once(&self) -> Verdict {
        let calls = self
            .calls
            .iter()
            .filter(|(_, call)| call.key.as_deref().and_then(case_of_key) == Some(Case::Once));
        let calls = calls.count();
        let denied = self.replies_in(Case::Once).filter(|reply| calls > 0 && reply.denies_effect());
        let denied = denied
            .map(|reply| format!("one call, and a reply {}{}", reply.status(), did_run(reply)));
        let repeated =
            (calls > 1).then(|| format!("{calls} calls for two messages of one attempt"));
        let silent = calls == 0 && self.replies_in(Case::Once).next().is_none();
        let silent = silent.then(|| "neither a call nor a reply".to_owned());
        Verdict::of(repeated.into_iter().chain(denied).chain(silent))
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
