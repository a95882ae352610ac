//! The verdicts on the agent's calls of the service, and on what it makes of the responses.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{contract::check_message_of_agent, limits};

use super::{Facts, Reply, did_run, text};
use crate::{
    case::{BUSY_FOR, Case, case_of_key},
    evidence::{ObservedEvent, SentRequest, delivery_count},
    rule::Verdict,
};

/// How much later than complete-by a call may be observed, because the clocks of the kit and of the agent may differ.
const CLOCK_SKEW_MS: i64 = 1_000;

/// How much longer than `call_within_ms` a call may be observed, besides the slack of the check.
const CALL_TOLERANCE: Duration = Duration::from_secs(2);

/// How much shorter the wait until a date may be.
const DATE_TOLERANCE: Duration = Duration::from_secs(5);

/// A reply to a request that was too late when it arrived, other than a deferral of its first delivery; or any other reply after
/// complete-by.
fn late_reply(reply: &Reply<'_>) -> Option<String> {
    let request = reply.request?;
    let (case, status) = (request.case, reply.status());
    let what = if case == Case::Late {
        (status != "deferred")
            .then(|| format!("the reply to a request after complete-by is {status}"))?
    } else if case == Case::LateRedriven {
        format!("the reply to a redelivered request after complete-by is {status}")
    } else {
        let complete_by: Timestamp = text(&request.message, "complete_by").parse().ok()?;
        let end = complete_by.as_millisecond() + CLOCK_SKEW_MS;
        (reply.at.as_millisecond() > end).then(|| "a reply after complete-by".to_owned())?
    };
    Some(format!("case `{}`: {what}", case.name()))
}

/// Whether a message reports a call of this request.
fn reports_call_of(wake: &Value, request: &SentRequest) -> bool {
    let sent = |name: &str| request.message.get(name);
    let call = wake.get("call");
    let has = |name: &str| call.and_then(|call| call.get(name)) == sent(name);
    let action = call.and_then(|call| call.get("action")).and_then(Value::as_str).unwrap_or("do");
    check_message_of_agent(wake).is_ok()
        && wake.get("cause").is_some_and(|cause| cause == "overdue")
        && wake.get("task_id") == sent("task_id")
        && ["step", "attempt", "incarnation"].into_iter().all(has)
        && sent("action").is_none_or(|sent| sent == action)
}

impl Facts<'_> {
    pub(super) fn keys_sent(&self) -> Verdict {
        if self.calls.is_empty() {
            return Verdict::NotChecked("the agent did not call the kit's service".to_owned());
        }
        Verdict::of(self.calls.iter().filter_map(|call| {
            let sent = call.key;
            let requests = self.requests.iter().map(|(_, request)| *request);
            let known = requests.map(|request| text(&request.message, "idempotency_key"));
            let is_known = known.into_iter().any(|key| sent == Some(key));
            (!is_known).then(|| match sent {
                None => "a call without `Idempotency-Key`".to_owned(),
                Some(_) => "a call with another key than that of its request".to_owned(),
            })
        }))
    }

    pub(super) fn complete_by_kept(&self) -> Verdict {
        let late_calls = self.calls.iter().filter_map(|call| {
            let key = call.key?;
            let mut requests = self.requests.iter().map(|(_, request)| *request);
            let request =
                requests.rfind(|request| text(&request.message, "idempotency_key") == key)?;
            let complete_by: Timestamp = text(&request.message, "complete_by").parse().ok()?;
            let late = call.at.as_millisecond() > complete_by.as_millisecond() + CLOCK_SKEW_MS;
            late.then(|| format!("case `{}`: a call after complete-by", request.case.name()))
        });
        let late_replies = self.replies.iter().filter_map(late_reply);
        Verdict::of(late_calls.chain(late_replies).chain(self.unreported_calls()))
    }

    /// The requests, one of whose calls has no known outcome, that have neither a reply nor a message that reports the call.
    fn unreported_calls(&self) -> impl Iterator<Item = String> {
        let requests = self.requests.iter().map(|(_, request)| *request);
        let unreported = requests.filter(|request| {
            let case = request.case;
            let is_unknown =
                case == Case::LateRedriven || case.may_be_overdue() && self.was_called_in(case);
            is_unknown
                && self.replies_in(case).next().is_none()
                && !self.wakes.iter().any(|wake| reports_call_of(wake, request))
        });
        unreported.map(|request| {
            format!("case `{}`: no message reports the call after complete-by", request.case.name())
        })
    }

    /// The reply has no output over the limit: the agent leaves it out, or reports a failure of a call that may have run.
    pub(super) fn large_output_failed(&self) -> Verdict {
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
            let left_out = reply.status() == "completed";
            (!failed && !left_out)
                .then(|| format!("the reply is {}{}", reply.status(), did_run(reply)))
        });
        let missing = self.replies_in(Case::LargeOutput).next().is_none();
        Verdict::of(
            wrong.chain(missing.then(|| "no reply to a call with a large response".to_owned())),
        )
    }

    /// A call that succeeded is not failed because of its body: that would undo the task.
    pub(super) fn any_body_completed(&self) -> Verdict {
        let replies = || self.replies_in(Case::TextOutput);
        let wrong = replies().filter(|reply| reply.status() != "completed");
        let wrong = wrong.map(|reply| {
            format!("the reply to 200 with a text is {}{}", reply.status(), did_run(reply))
        });
        let missing = replies().next().is_none();
        Verdict::of(wrong.chain(missing.then(|| "no reply to a call with a text".to_owned())))
    }

    /// A call without an answer is never denied, and ends in time.
    pub(super) fn unknown_outcomes_reported(&self) -> Verdict {
        let cases = [
            Case::Silent,
            Case::Dripping,
            Case::Unavailable,
            Case::OnceSilent,
            Case::OnceUnavailable,
        ];
        let called = cases.into_iter().filter(|case| self.was_called_in(*case));
        let wrong = called.flat_map(|case| self.replies_in(case).map(move |reply| (case, reply)));
        let wrong =
            wrong.filter(|(_, reply)| reply.status() == "completed" || reply.denies_effect());
        let wrong = wrong.map(|(case, reply)| {
            let case = case.name();
            format!("case `{case}`: the reply is {}{}", reply.status(), did_run(reply))
        });
        let endless = [Case::Silent, Case::OnceSilent, Case::Dripping];
        Verdict::of(wrong.chain(endless.into_iter().filter_map(|case| self.too_long_call(case))))
    }

    /// A call that took longer than `call_within_ms`. It ended when the agent closed the connection, or replied.
    fn too_long_call(&self, case: Case) -> Option<String> {
        let limit = case.call_within() + CALL_TOLERANCE + self.evidence.slack;
        let ended = self.evidence.observations.iter().filter_map(|observation| {
            let ObservedEvent::CallEnded { key: Some(key), lasted } = &observation.event else {
                return None;
            };
            (case_of_key(key) == Some(case)).then_some(*lasted)
        });
        let ended: Vec<_> = ended.collect();
        let calls: Vec<_> = self.calls_in(case).collect();
        let replied_in_time = calls.last().is_some_and(|call| {
            let in_time = |at: Timestamp| {
                Duration::try_from(at.duration_since(call.at)).is_ok_and(|lasted| lasted <= limit)
            };
            self.replies_in(case).any(|reply| in_time(reply.at))
        });
        let is_endless = ended.len() < calls.len() || ended.iter().any(|lasted| *lasted > limit);
        let within = case.call_within().as_millis();
        (is_endless && !replied_in_time).then(|| {
            format!("case `{}`: a call took longer than call_within_ms, {within}", case.name())
        })
    }

    pub(super) fn deferred_while_busy(&self) -> Verdict {
        let wrong = |case: Case, least: Duration| {
            let least = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
            self.replies_in(case).filter_map(move |reply| {
                let wait = reply.outcome().get("retry_after_ms").and_then(Value::as_u64);
                let deferred =
                    reply.status() == "deferred" && wait.is_some_and(|wait| wait >= least);
                (!deferred).then(|| {
                    let wait = wait.map(|wait| format!(" for {wait} ms")).unwrap_or_default();
                    let (case, status) = (case.name(), reply.status());
                    format!(
                        "case `{case}`: the reply to 429 with Retry-After in 60 s is {status}{wait}"
                    )
                })
            })
        };
        // A date has no fractions of a second, and the call took some time.
        let until_date = BUSY_FOR.saturating_sub(DATE_TOLERANCE);
        Verdict::of(wrong(Case::Busy, BUSY_FOR).chain(wrong(Case::BusyUntilDate, until_date)))
    }

    /// A call with `auth` is signed, and an output is what the request selects.
    pub(super) fn unsupported_refused(&self) -> Verdict {
        let unsigned = self.calls_in(Case::Signed).filter(|call| !call.is_signed);
        let unsigned = unsigned.map(|_| "case `signed`: a call without a signature".to_owned());
        let whole = self.replies_in(Case::Selected).filter(|reply| {
            reply.status() == "completed"
                && !reply.outcome().get("output").is_some_and(Value::is_number)
        });
        let whole =
            whole.map(|_| "case `selected`: another output than `response.status`".to_owned());
        Verdict::of(unsigned.chain(whole))
    }

    pub(super) fn refusal_failed(&self) -> Verdict {
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

    pub(super) fn redelivery_reported(&self) -> Verdict {
        // Without a second delivery, the agent has sent the reply to the first one again.
        let received_twice = self.replies_in(Case::ReceiveCount).filter(|reply| {
            let earlier = self.evidence.observations.get(..reply.position).unwrap_or_default();
            reply.request.is_some_and(|request| delivery_count(earlier, request) > 1)
        });
        let sent_before = self.replies_in(Case::RefusedRetry);
        let denied = received_twice.chain(sent_before).filter(|reply| reply.denies_effect());
        // Of several earlier deliveries, one may have been refused, and another may have taken effect.
        let redriven = self.replies_in(Case::Redriven);
        let certain = redriven.filter(|reply| reply.status() == "failed" || reply.denies_effect());
        Verdict::of(denied.chain(certain).map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            format!("case `{case}`: the reply is {}{}", reply.status(), did_run(reply))
        }))
    }
}
