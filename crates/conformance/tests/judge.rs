//! The verdicts on evidence that is written by hand: that of a faultless agent, and changes of it.

#![cfg(test)]

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_conformance::{
    case::{Case, PAYLOAD_MARK, ServiceBehaviour, task_id},
    evidence::{
        Capabilities, Evidence, Observation, ObservedEvent, ObservedServiceCall, ReceivedReply,
        SentRequest,
    },
    judge::verdicts,
    request::{CheckRequest, poison},
    rule::{Rule, Verdict},
};

const RUN: &str = "1";
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What a faultless agent does in a case: the status of its reply, if there is one, and whether it calls.
fn faultless(case: Case) -> (Option<Value>, bool) {
    let failed = |may_have_run: bool| json!({ "status": "failed", "reason": "no", "may_have_run": may_have_run });
    let deferred =
        |ms: u64| json!({ "status": "deferred", "reason": "late", "retry_after_ms": ms });
    let unknown = json!({ "status": "unknown", "reason": "no answer" });
    let completed = json!({ "status": "completed", "output": {} });
    let outcome = match case.service() {
        _ if case == Case::LateRedriven => return (None, false),
        _ if case == Case::Redriven => unknown,
        _ if case == Case::Overdue => return (None, true),
        _ if matches!(case, Case::Signed | Case::Selected) => return (Some(failed(false)), false),
        ServiceBehaviour::Works if case == Case::Late => return (Some(deferred(0)), false),
        ServiceBehaviour::Works | ServiceBehaviour::Text => completed,
        ServiceBehaviour::LargeOutput => failed(true),
        ServiceBehaviour::Refuses => failed(case != Case::Refused),
        ServiceBehaviour::Busy
        | ServiceBehaviour::BusyUntilDate
        | ServiceBehaviour::BusyUntilRetry => deferred(60_000),
        ServiceBehaviour::Silent | ServiceBehaviour::Drips if !case.is_once() => unknown,
        ServiceBehaviour::Unavailable if !case.is_once() => return (None, true),
        ServiceBehaviour::Silent | ServiceBehaviour::Drips | ServiceBehaviour::Unavailable => {
            failed(true)
        }
    };
    (Some(outcome), true)
}

/// The evidence of a faultless agent, after changes of its replies.
fn evidence(change: impl Fn(Case, &mut Value)) -> Evidence {
    let template = CheckRequest::of_agent("a");
    let now = Timestamp::from_second(1_000).unwrap();
    let mut observations = Vec::new();
    let mut observe = |event| observations.push(Observation { at: now, event });
    for case in Case::ALL {
        let message = template.request(RUN, case, 1, now);
        let request =
            SentRequest { case, message: message.clone(), traceparent: TRACEPARENT.to_owned() };
        observe(ObservedEvent::Requested(request));
        let (outcome, calls) = faultless(case);
        if calls {
            let key = Some(message["idempotency_key"].as_str().unwrap().to_owned());
            observe(ObservedEvent::Called(ObservedServiceCall {
                key: key.clone(),
                is_signed: false,
            }));
            observe(ObservedEvent::CallEnded { key, lasted: Duration::from_secs(1) });
        }
        let no_reply = outcome.is_none();
        if let Some(outcome) = outcome {
            let mut reply = json!({ "type": "reply", "outcome": outcome });
            for name in ["task_id", "step", "action", "attempt", "incarnation"] {
                reply[name] = message[name].clone();
            }
            change(case, &mut reply);
            let body = reply.to_string();
            observe(ObservedEvent::Sent { body: body.clone() });
            observe(ObservedEvent::Replied(ReceivedReply {
                body,
                traceparent: Some(TRACEPARENT.to_owned()),
            }));
        }
        if calls && no_reply || case == Case::LateRedriven {
            let mut wake = json!({ "type": "wake", "cause": "overdue", "call": {} });
            wake["task_id"] = message["task_id"].clone();
            for name in ["step", "action", "attempt", "incarnation"] {
                wake["call"][name] = message[name].clone();
            }
            change(case, &mut wake);
            observe(ObservedEvent::Replied(ReceivedReply {
                body: wake.to_string(),
                traceparent: None,
            }));
        }
        observe(ObservedEvent::Deleted { body: message.to_string() });
    }
    let capabilities = Capabilities { plays_service: true, sees_sqs: true };
    let (log, slack) = (Some("3 requests".to_owned()), Duration::ZERO);
    Evidence { observations, capabilities, log, slack, skipped: Vec::new() }
}

/// The rules that do not hold.
fn broken(evidence: &Evidence) -> Vec<Rule> {
    let verdicts = verdicts(evidence).into_iter();
    verdicts.filter(|(_, verdict)| *verdict != Verdict::Holds).map(|(rule, _)| rule).collect()
}

fn replied(status: Value) -> ObservedEvent {
    let message = CheckRequest::of_agent("a").request(
        RUN,
        Case::Duplicate,
        1,
        Timestamp::from_second(1_000).unwrap(),
    );
    let mut reply = json!({ "type": "reply", "outcome": status });
    for name in ["task_id", "step", "action", "attempt", "incarnation"] {
        reply[name] = message[name].clone();
    }
    ObservedEvent::Replied(ReceivedReply {
        body: reply.to_string(),
        traceparent: Some(TRACEPARENT.to_owned()),
    })
}

fn with(event: ObservedEvent) -> Evidence {
    let mut evidence = evidence(|_, _| {});
    evidence.observations.push(Observation { at: Timestamp::from_second(1_001).unwrap(), event });
    evidence
}

#[test]
fn all_rules_hold_for_a_faultless_agent() {
    assert_eq!(broken(&evidence(|_, _| {})), []);
}

#[test]
fn a_changed_reply_breaks_its_rule_alone() {
    type Change = fn(Case, &mut Value);
    let changes: [(Rule, Change); 21] = [
        (Rule::Schema, |_, reply| reply["times"] = json!({ "called_at": 7 })),
        (Rule::Echo, |case, reply| {
            if case == Case::Item {
                reply["step"] = json!("greet");
            }
        }),
        (Rule::Echo, |_, reply| reply["incarnation"] = json!(1)),
        (Rule::CompleteBy, |case, reply| {
            if case == Case::Late {
                reply["outcome"] = json!({ "status": "unknown", "reason": "late" });
            }
        }),
        (Rule::LargeOutput, |case, reply| {
            if case == Case::LargeOutput {
                reply["outcome"]["may_have_run"] = json!(false);
            }
        }),
        (Rule::AnyBody, |case, reply| {
            if case == Case::TextOutput {
                reply["outcome"] = json!({ "status": "failed", "reason": "no JSON" });
            }
        }),
        (Rule::UnknownOutcome, |case, reply| {
            if case == Case::Silent {
                reply["outcome"] = json!({ "status": "failed", "reason": "slow" });
            }
        }),
        (Rule::Deferral, |case, reply| {
            if case == Case::Busy {
                reply["outcome"]["retry_after_ms"] = json!(1_000);
            }
        }),
        (Rule::Refusal, |case, reply| {
            if case == Case::Refused {
                reply["outcome"] = json!({ "status": "unknown", "reason": "422" });
            }
        }),
        (Rule::Redelivery, |case, reply| {
            if case == Case::Redriven {
                reply["outcome"] =
                    json!({ "status": "failed", "reason": "422", "may_have_run": true });
            }
        }),
        (Rule::Redelivery, |case, reply| {
            if case == Case::RefusedRetry {
                reply["outcome"]["may_have_run"] = json!(false);
            }
        }),
        (Rule::CompleteBy, |case, message| {
            if case == Case::Overdue {
                message["call"]["attempt"] = json!(2);
            }
        }),
        (Rule::CompleteBy, |case, message| {
            if case == Case::Unavailable {
                message.as_object_mut().unwrap().remove("call");
            }
        }),
        (Rule::CompleteBy, |case, message| {
            if case == Case::LateRedriven {
                message["cause"] = json!("recovery");
            }
        }),
        (Rule::UnknownOutcome, |case, reply| {
            if case == Case::OnceSilent {
                reply["outcome"]["may_have_run"] = json!(false);
            }
        }),
        (Rule::UnknownOutcome, |case, reply| {
            if case == Case::OnceUnavailable {
                reply["outcome"]["may_have_run"] = json!(false);
            }
        }),
        (Rule::Once, |case, reply| {
            if case == Case::OnceRedriven {
                reply["outcome"] = json!({ "status": "failed", "reason": "no" });
            }
        }),
        (Rule::Certain, |case, reply| {
            if case == Case::ExclusiveRedriven {
                reply["outcome"]["certain"] = json!(true);
            }
        }),
        (Rule::Certain, |case, reply| {
            if case == Case::Busy {
                reply["outcome"]["certain"] = json!(true);
            }
        }),
        (Rule::Reason, |case, reply| {
            if case == Case::Refused {
                reply["outcome"]["reason"] = json!(format!("422: {PAYLOAD_MARK}"));
            }
        }),
        (Rule::Reason, |case, reply| {
            if case == Case::Busy {
                reply["outcome"]["reason"] = json!(PAYLOAD_MARK);
            }
        }),
    ];
    for (rule, change) in changes {
        assert_eq!(broken(&evidence(change)), [rule]);
    }
}

#[test]
fn further_observations_break_their_rules_alone() {
    let key = |case| Some(format!("{}/greet/do", task_id(RUN, case)));
    let request = |case| {
        CheckRequest::of_agent("a").request(RUN, case, 2, Timestamp::from_second(1_000).unwrap())
    };
    let poison = poison(RUN, &CheckRequest::of_agent("a"));
    let unreadable_key = Some(format!("check-{RUN}-unreadable/greet/redo"));
    let cases = [
        (Rule::DeleteLast, ObservedEvent::Deleted { body: request(Case::Plain).to_string() }),
        (Rule::Poison, ObservedEvent::Deleted { body: poison[0].clone() }),
        (Rule::Poison, ObservedEvent::Deleted { body: poison[1].clone() }),
        (Rule::Poison, ObservedEvent::Deleted { body: poison[2].clone() }),
        (
            Rule::Poison,
            ObservedEvent::Called(ObservedServiceCall { key: unreadable_key, is_signed: false }),
        ),
        (Rule::Duplicates, replied(json!({ "status": "failed", "reason": "known" }))),
        (Rule::Key, ObservedEvent::Called(ObservedServiceCall { key: None, is_signed: false })),
        (
            Rule::Key,
            ObservedEvent::Called(ObservedServiceCall {
                key: Some("k".to_owned()),
                is_signed: false,
            }),
        ),
        (
            Rule::CompleteBy,
            ObservedEvent::Called(ObservedServiceCall { key: key(Case::Late), is_signed: false }),
        ),
        (
            Rule::Once,
            ObservedEvent::Called(ObservedServiceCall { key: key(Case::Once), is_signed: false }),
        ),
        (
            Rule::Once,
            ObservedEvent::Called(ObservedServiceCall {
                key: key(Case::OnceBusy),
                is_signed: false,
            }),
        ),
    ];
    for (rule, event) in cases {
        assert_eq!(broken(&with(event.clone())), [rule], "{event:?}");
    }
    let repeated = replied(json!({ "status": "failed", "reason": "known", "may_have_run": true }));
    assert_eq!(broken(&with(repeated)), []);
}

#[test]
fn a_missing_reply_breaks_the_rule_of_its_case() {
    for (rule, case) in [
        (Rule::Answer, Case::Undo),
        (Rule::DeleteLast, Case::LostReply),
        (Rule::Poison, Case::Batch),
        (Rule::UnknownFields, Case::UnknownField),
        (Rule::Retry, Case::Retry),
        (Rule::LargeRequest, Case::LargeRequest),
        (Rule::LargeOutput, Case::LargeOutput),
        (Rule::AnyBody, Case::TextOutput),
        (Rule::Refusal, Case::Refused),
    ] {
        let mut evidence = evidence(|_, _| {});
        let task = task_id(RUN, case);
        evidence.observations.retain(|observation| match &observation.event {
            ObservedEvent::Replied(reply) => !reply.body.contains(&task),
            // Nor is the request deleted: SQS delivers it again and again.
            ObservedEvent::Sent { body } | ObservedEvent::Deleted { body } => !body.contains(&task),
            ObservedEvent::Requested(_)
            | ObservedEvent::Polled
            | ObservedEvent::Delivered { .. }
            | ObservedEvent::Called(_)
            | ObservedEvent::CallEnded { .. } => true,
        });
        assert_eq!(broken(&evidence), [rule], "{case:?}");
    }
}

#[test]
fn payload_in_the_log_and_a_lost_trace_are_found() {
    let mut evidence = evidence(|_, _| {});
    evidence.log = Some(format!("received {PAYLOAD_MARK}"));
    assert_eq!(broken(&evidence), [Rule::Logs]);
    evidence.log = Some(String::new());
    for observation in &mut evidence.observations {
        if let ObservedEvent::Replied(reply) = &mut observation.event {
            reply.traceparent = None;
        }
    }
    assert_eq!(broken(&evidence), [Rule::Trace]);
}

#[test]
fn what_the_kit_cannot_see_is_not_checked() {
    let mut evidence = evidence(|_, _| {});
    evidence.capabilities = Capabilities::default();
    evidence.log = None;
    let unseen: Vec<_> = verdicts(&evidence)
        .into_iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::NotChecked(_)))
        .map(|(rule, _)| rule.to_string())
        .collect();
    assert_eq!(
        unseen,
        ["R2", "R9", "R13", "R14", "R15", "R16", "R17", "R18", "R19", "R20", "R21", "R24"]
    );
}

#[test]
fn nothing_else_is_checked_of_an_agent_that_never_replies() {
    let mut evidence = evidence(|_, _| {});
    evidence
        .observations
        .retain(|observation| !matches!(observation.event, ObservedEvent::Replied(_)));
    let mut verdicts = verdicts(&evidence).into_iter();
    assert!(matches!(verdicts.next(), Some((Rule::Answer, Verdict::Broken(_)))));
    assert!(verdicts.all(|(_, verdict)| matches!(verdict, Verdict::NotChecked(_))));
}

#[test]
fn a_call_that_outlasts_call_within_ms_breaks_r14_unless_the_reply_came_in_time() {
    let late = Timestamp::from_second(1_007).unwrap();
    let lengthened = |replied_late: bool| {
        let mut evidence = evidence(|_, _| {});
        let task = task_id(RUN, Case::Silent);
        for observation in &mut evidence.observations {
            if let ObservedEvent::CallEnded { key: Some(key), lasted } = &mut observation.event
                && key.contains(&task)
            {
                *lasted = Duration::from_secs(8);
            }
            let is_reply = matches!(&observation.event, ObservedEvent::Replied(reply) if reply.body.contains(&task));
            if is_reply && replied_late {
                observation.at = late;
            }
        }
        evidence
    };
    assert_eq!(broken(&lengthened(true)), [Rule::UnknownOutcome]);
    assert_eq!(broken(&lengthened(false)), []);
}

#[test]
fn a_denial_after_a_second_delivery_breaks_r17_alone() {
    let denied = |deliveries: usize| {
        let mut evidence = evidence(|case, reply| {
            if case == Case::ReceiveCount {
                reply["outcome"]["may_have_run"] = json!(false);
            }
        });
        let template = CheckRequest::of_agent("a");
        let at = Timestamp::from_second(1_000).unwrap();
        let body = template.request(RUN, Case::ReceiveCount, 1, at).to_string();
        let delivered = Observation { at, event: ObservedEvent::Delivered { body } };
        evidence.observations.splice(0..0, vec![delivered; deliveries]);
        evidence
    };
    assert_eq!(broken(&denied(2)), [Rule::Redelivery]);
    assert_eq!(broken(&denied(1)), []);
}

#[test]
fn a_call_after_a_certain_deferral_breaks_r21_alone() {
    let certain = || {
        evidence(|case, reply| {
            if case == Case::Exclusive {
                reply["outcome"]["certain"] = json!(true);
            }
        })
    };
    assert_eq!(broken(&certain()), []);
    let mut called = certain();
    let key = Some(format!("{}/greet/do", task_id(RUN, Case::Exclusive)));
    let event = ObservedEvent::Called(ObservedServiceCall { key, is_signed: false });
    called.observations.push(Observation { at: Timestamp::from_second(1_001).unwrap(), event });
    assert_eq!(broken(&called), [Rule::Certain]);
}

#[test]
fn a_request_with_a_reply_that_stays_in_the_queue_breaks_r20_alone() {
    let mut evidence = evidence(|_, _| {});
    let task = task_id(RUN, Case::Item);
    evidence.observations.retain(
        |observation| !matches!(&observation.event, ObservedEvent::Deleted { body } if body.contains(&task)),
    );
    assert_eq!(broken(&evidence), [Rule::Deletion]);
}
