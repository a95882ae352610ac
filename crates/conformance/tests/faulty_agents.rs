//! The whole kit against a tiny agent: all rules hold, and each planted fault breaks exactly the rules that it concerns.

#![cfg(test)]

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    types::{Message, MessageSystemAttributeName},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_conformance::{
    judge::verdicts,
    local::LocalEnvironment,
    request::CheckRequest,
    rule::{Rule, Verdict},
    run::{Patience, run},
    service::default_response,
};

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// No fault: it refuses requests that are not idempotent, and ignores `exclusive`, as an agent without a store does.
    HasNoStore,
    /// A second message with an attempt is refused as known, without `may_have_run`.
    RefusesDuplicates,
    IgnoresCompleteBy,
    DropsUnknownFields,
    DeletesFirst,
    ForgetsIncarnation,
    NewKeyForEachCall,
    CallsTwiceIfNotIdempotent,
    TimeOutIsFailure,
    DeletesPoison,
    CarriesOutUnknownAction,
    NeverDeletes,
    /// It looks at the attribute `redriven` alone.
    IgnoresReceiveCount,
    IgnoresCallWithin,
    ReasonWithRequest,
    ReasonWithResponse,
    /// It does not look for the claim of an earlier delivery.
    CallsAgainAfterRedelivery,
    /// It repeats a call that got 503, although the step is not idempotent.
    RepeatsIfNotIdempotent,
    /// Its claim counts for all attempts.
    ClaimsStep,
    /// A call without an answer is a failure if the step is not idempotent.
    DeniesIfNotIdempotent,
    /// It says `certain`, and calls when the request arrives again.
    CallsAfterCertain,
    CertainAfterRedelivery,
    CertainWithoutExclusive,
    /// It refuses for certain what another delivery has claimed.
    CertainAlthoughClaimed,
    ServesOtherAgents,
    AcceptsIncompleteRequests,
    RepliesAfterCompleteBy,
    RepliesToLateRedelivery,
    /// Its time limit ends when the response begins.
    WaitsForWholeResponse,
    IgnoresRetryDate,
    IgnoresAuth,
    IgnoresOutput,
    /// It deletes a message only after a reply.
    KeepsSilentRequests,
    /// It reports no call when complete-by passes during it.
    SilentAtCompleteBy,
    /// It stays silent if a redelivered request is too late, also after several deliveries.
    SilentIfLate,
    /// Its report of a call does not name the call.
    ReportsNoCall,
    /// It looks at the deliveries alone.
    IgnoresEarlierAttempt,
    /// A refusal after several deliveries is a failure.
    FailsAfterSeveral,
}

/// The agent. It has the queue pair of the environment, and handles one message at a time.
struct TinyAgent {
    sqs: Client,
    http: reqwest::Client,
    queue: String,
    replies: String,
    service: String,
    fault: Fault,
    /// The attempts that were handled.
    known: Vec<(String, u64)>,
    /// The attempts of which one delivery alone may call, and has claimed the call.
    claimed: Vec<(String, u64)>,
}

/// A request, as it was delivered.
struct Delivery<'r> {
    request: &'r Value,
    key: &'r str,
    redelivered: bool,
    /// How many other deliveries may have called.
    others: u64,
    once: bool,
    exclusive: bool,
}

/// In place of an outcome: complete-by passed, and the outcome of a call is not known.
const OVERDUE: &str = "overdue";

impl TinyAgent {
    async fn new(environment: &LocalEnvironment, fault: Fault) -> Self {
        let loader = aws_config::defaults(aws_config::BehaviorVersion::latest());
        let loader = loader.region(aws_config::Region::from_static("us-east-1")).test_credentials();
        let sdk = loader.endpoint_url(&environment.endpoint).load().await;
        let target = environment.target();
        Self {
            sqs: Client::new(&sdk),
            http: reqwest::Client::new(),
            queue: target.queue_url,
            replies: target.replies_url,
            service: environment.service.url(),
            fault,
            known: Vec::new(),
            claimed: Vec::new(),
        }
    }

    async fn poll(mut self) {
        loop {
            let request =
                self.sqs.receive_message().queue_url(&self.queue).max_number_of_messages(10);
            let request = request
                .wait_time_seconds(20)
                .message_attribute_names("All")
                .message_system_attribute_names(
                    MessageSystemAttributeName::ApproximateReceiveCount,
                );
            let received = request.send().await.unwrap().messages.unwrap_or_default();
            for message in received {
                let is_kept = self.fault == Fault::NeverDeletes;
                if self.handle(&message).await && !is_kept {
                    self.delete(&message).await;
                }
            }
        }
    }

    async fn delete(&self, message: &Message) {
        let delete = self.sqs.delete_message().queue_url(&self.queue);
        delete.receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
    }

    /// Returns whether the message may be deleted.
    async fn handle(&mut self, message: &Message) -> bool {
        let body = message.body().unwrap();
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        if request["task_id"].is_null() {
            return self.fault == Fault::DeletesPoison;
        }
        if request["action"] == "redo" && self.fault != Fault::CarriesOutUnknownAction {
            return false;
        }
        if request["agent"] != "tiny" && self.fault != Fault::ServesOtherAgents {
            return false;
        }
        if !is_complete(&request) && self.fault != Fault::AcceptsIncompleteRequests {
            return false;
        }
        if self.fault == Fault::DropsUnknownFields && body.contains("field_of_a_later_version") {
            return false;
        }
        if self.fault == Fault::DeletesFirst {
            self.delete(message).await;
        }
        let attributes = message.message_attributes.clone().unwrap_or_default();
        let receives =
            &message.attributes().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount];
        let is_counted = self.fault != Fault::IgnoresReceiveCount;
        let counted = if is_counted { receives.parse::<u64>().unwrap() - 1 } else { 0 };
        let earlier = if attributes.contains_key("redriven") { 2 } else { counted };
        let Some(outcome) = self.attempt(&request, earlier).await else {
            return self.fault != Fault::KeepsSilentRequests;
        };
        let is_overdue = outcome["status"] == OVERDUE;
        let mut reply = json!({});
        for name in ["task_id", "step", "action", "attempt", "incarnation"] {
            let forgets = self.fault == Fault::ForgetsIncarnation && !is_overdue;
            if name != "incarnation" || !forgets {
                reply[name] = request[name].clone();
            }
        }
        if is_overdue {
            let call = reply;
            reply = json!({ "type": "wake", "task_id": request["task_id"], "cause": "overdue" });
            if self.fault != Fault::ReportsNoCall {
                reply["call"] = call;
            }
        } else {
            reply["type"] = json!("reply");
            reply["outcome"] = outcome;
        }
        let send = self.sqs.send_message().queue_url(&self.replies).message_body(reply.to_string());
        let trace = attributes.into_iter().filter(|(name, _)| name == "traceparent").collect();
        send.set_message_attributes(Some(trace)).send().await.is_ok()
    }

    async fn attempt(&mut self, request: &Value, earlier: u64) -> Option<Value> {
        let redelivered = earlier > 0;
        let sent_before =
            request["may_have_run"] == true && self.fault != Fault::IgnoresEarlierAttempt;
        let others = earlier + u64::from(sent_before);
        let overdue = Some(json!({ "status": OVERDUE }));
        let key = request["idempotency_key"].as_str().unwrap_or("check-?-unreadable/?");
        let has_store = self.fault != Fault::HasNoStore;
        let once = request["idempotent"] == false;
        let exclusive = request["exclusive"] == true && has_store;
        let complete_by = request["complete_by"].as_str().and_then(|text| text.parse().ok());
        let complete_by: Timestamp =
            complete_by.unwrap_or_else(|| Timestamp::now() + Duration::from_secs(9));
        if complete_by < Timestamp::now() && self.fault != Fault::IgnoresCompleteBy {
            let late = json!({ "status": "deferred", "reason": "late", "retry_after_ms": 0, "may_have_run": true });
            let replies = !redelivered || self.fault == Fault::RepliesToLateRedelivery;
            let reports = others > 1 && !once && !exclusive && self.fault != Fault::SilentIfLate;
            return if replies { Some(late) } else { overdue.filter(|_| reports) };
        }
        let is_refused = request["auth"].is_object() && self.fault != Fault::IgnoresAuth
            || request["output"].is_string() && self.fault != Fault::IgnoresOutput;
        if is_refused {
            return failed(redelivered);
        }
        if once && !has_store {
            return failed(false);
        }
        let attempt = (key.to_owned(), request["attempt"].as_u64().unwrap_or(1));
        let refuses = self.fault == Fault::RefusesDuplicates && !once && !redelivered && !exclusive;
        if refuses && self.known.contains(&attempt) {
            return failed(false);
        }
        self.known.push(attempt);
        let delivery = Delivery { request, key, redelivered, others, once, exclusive };
        if !self.claims(&delivery) {
            let contradicts = self.fault == Fault::CertainAlthoughClaimed && exclusive;
            return contradicts.then(|| self.busy(&delivery, 60_000));
        }
        let outcome = self.call(&delivery, complete_by).await;
        let is_overdue = complete_by < Timestamp::now();
        let ignores = [Fault::RepliesAfterCompleteBy, Fault::IgnoresCompleteBy];
        if !is_overdue || ignores.contains(&self.fault) {
            return outcome;
        }
        overdue.filter(|_| self.fault != Fault::SilentAtCompleteBy)
    }

    /// Claims the call if one delivery alone may make it. Returns whether this delivery may.
    fn claims(&mut self, delivery: &Delivery<'_>) -> bool {
        let Delivery { request, key, redelivered, once, exclusive, .. } = *delivery;
        let fault = self.fault;
        let ignores_claim = fault == Fault::CallsTwiceIfNotIdempotent && once
            || fault == Fault::CallsAgainAfterRedelivery && once && redelivered
            || fault == Fault::CallsAfterCertain && exclusive;
        if !once && !exclusive || ignores_claim {
            return true;
        }
        let number = request["attempt"].as_u64().unwrap();
        let number = if self.fault == Fault::ClaimsStep { 0 } else { number };
        let claim = (key.to_owned(), number);
        let is_free = !self.claimed.contains(&claim);
        self.claimed.push(claim);
        is_free
    }

    async fn call(&self, delivery: &Delivery<'_>, complete_by: Timestamp) -> Option<Value> {
        let Delivery { request, others, once, exclusive, .. } = *delivery;
        let no_answer = |reason: &str| match once {
            true => failed(self.fault != Fault::DeniesIfNotIdempotent),
            false => Some(json!({ "status": "unknown", "reason": reason })),
        };
        let Ok(mut response) = self.send(delivery, complete_by).await else {
            if self.fault == Fault::TimeOutIsFailure {
                return failed(false);
            }
            return no_answer("no answer");
        };
        if response.status().is_server_error()
            && once
            && self.fault == Fault::RepeatsIfNotIdempotent
        {
            response = self.send(delivery, complete_by).await.unwrap();
        }
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").and_then(|text| text.to_str().ok());
        let has_date = retry_after.is_some_and(|text| text.contains("GMT"));
        let wait_ms =
            if has_date && self.fault == Fault::IgnoresRetryDate { 1_000 } else { 60_000 };
        let Ok(output) = response.bytes().await else { return no_answer("no end") };
        match status {
            200 if output.len() > 128 * 1024 => failed(true),
            200 => Some(
                json!({ "status": "completed", "output": serde_json::from_slice::<Value>(&output).unwrap_or_default() }),
            ),
            429 => Some(self.busy(delivery, wait_ms)),
            500.. => no_answer("503"),
            _ => {
                let several = others > 1 && !once && !exclusive;
                if several && self.fault != Fault::FailsAfterSeveral {
                    return no_answer("refused");
                }
                let mut outcome = failed(others > 0)?;
                if self.fault == Fault::ReasonWithRequest {
                    outcome["reason"] = json!(format!("refused: {}", request["body"]));
                } else if self.fault == Fault::ReasonWithResponse {
                    outcome["reason"] = json!(String::from_utf8_lossy(&output));
                }
                Some(outcome)
            }
        }
    }

    async fn send(
        &self,
        delivery: &Delivery<'_>,
        complete_by: Timestamp,
    ) -> reqwest::Result<reqwest::Response> {
        let Delivery { request, key, .. } = *delivery;
        let key = if self.fault == Fault::NewKeyForEachCall {
            format!("{key}-{}", Timestamp::now().as_nanosecond())
        } else {
            key.to_owned()
        };
        let left = complete_by.duration_since(Timestamp::now()).unsigned_abs();
        let within = Duration::from_millis(request["call_within_ms"].as_u64().unwrap());
        let is_late = self.fault == Fault::RepliesAfterCompleteBy;
        let longest = if is_late { left + Duration::from_secs(2) } else { left };
        let within =
            if self.fault == Fault::IgnoresCallWithin { left } else { within.min(longest) };
        let call = self.http.post(format!("{}/x", self.service)).header("idempotency-key", key);
        let call = call.body(request["body"].to_string());
        if self.fault == Fault::WaitsForWholeResponse && key_is_of(request, "dripping") {
            return call.timeout(left).send().await;
        }
        call.timeout(within).send().await
    }

    /// The deferral of a request that the service was too busy to carry out.
    fn busy(&self, delivery: &Delivery<'_>, wait_ms: u64) -> Value {
        let certain = (delivery.exclusive || self.fault == Fault::CertainWithoutExclusive)
            && (!delivery.redelivered || self.fault == Fault::CertainAfterRedelivery);
        json!({
            "status": "deferred", "reason": "busy", "retry_after_ms": wait_ms,
            "may_have_run": delivery.redelivered, "certain": certain,
        })
    }
}

/// Whether a request has the fields that this agent needs, with their types.
fn is_complete(request: &Value) -> bool {
    let texts = ["task_id", "step", "complete_by", "idempotency_key", "method", "path"];
    texts.iter().all(|name| request[name].is_string()) && request["attempt"].is_u64()
}

fn key_is_of(request: &Value, case: &str) -> bool {
    request["task_id"].as_str().is_some_and(|id| id.ends_with(case))
}

fn failed(may_have_run: bool) -> Option<Value> {
    Some(json!({ "status": "failed", "reason": "refused", "may_have_run": may_have_run }))
}

/// The numbers of the rules that the agent breaks, with what the kit observed.
async fn broken(fault: Fault) -> Vec<(String, String)> {
    let environment =
        LocalEnvironment::start("tiny".parse().unwrap(), default_response()).await.unwrap();
    let agent = tokio::spawn(TinyAgent::new(&environment, fault).await.poll());
    let template = CheckRequest::of_agent("tiny");
    let mut evidence = run(&environment.target(), &template, Patience::LOCAL).await.unwrap();
    agent.abort();
    evidence.log = Some(String::new());
    let verdicts = verdicts(&evidence).into_iter();
    let broken = verdicts.filter_map(|(rule, verdict): (Rule, Verdict)| match verdict {
        Verdict::Holds => None,
        Verdict::Broken(what) => Some((rule.to_string(), what)),
        Verdict::NotChecked(why) => {
            // Without its key, a call belongs to no case.
            assert_eq!(fault, Fault::NewKeyForEachCall, "{rule} was not checked: {why}");
            None
        }
    });
    broken.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_fault_breaks_exactly_its_rules() {
    let faults: [(Fault, &[&str]); 39] = [
        (Fault::None, &[]),
        (Fault::HasNoStore, &[]),
        (Fault::RefusesDuplicates, &["R8"]),
        (Fault::IgnoresCompleteBy, &["R11"]),
        (Fault::DropsUnknownFields, &["R4"]),
        (Fault::DeletesFirst, &["R2"]),
        (Fault::ForgetsIncarnation, &["R5", "R6"]),
        (Fault::NewKeyForEachCall, &["R9"]),
        (Fault::CallsTwiceIfNotIdempotent, &["R18"]),
        (Fault::TimeOutIsFailure, &["R14"]),
        (Fault::DeletesPoison, &["R3"]),
        (Fault::CarriesOutUnknownAction, &["R3"]),
        (Fault::NeverDeletes, &["R20"]),
        (Fault::IgnoresReceiveCount, &["R17"]),
        (Fault::IgnoresCallWithin, &["R14"]),
        (Fault::ReasonWithRequest, &["R22"]),
        (Fault::ReasonWithResponse, &["R22"]),
        (Fault::CallsAgainAfterRedelivery, &["R18"]),
        (Fault::RepeatsIfNotIdempotent, &["R18"]),
        (Fault::ClaimsStep, &["R10"]),
        (Fault::DeniesIfNotIdempotent, &["R14"]),
        (Fault::CallsAfterCertain, &["R21"]),
        (Fault::CertainAfterRedelivery, &["R21"]),
        (Fault::CertainWithoutExclusive, &["R21"]),
        (Fault::CertainAlthoughClaimed, &["R8", "R21"]),
        (Fault::ServesOtherAgents, &["R3"]),
        (Fault::AcceptsIncompleteRequests, &["R3"]),
        (Fault::RepliesAfterCompleteBy, &["R11"]),
        (Fault::RepliesToLateRedelivery, &["R11"]),
        (Fault::WaitsForWholeResponse, &["R14"]),
        (Fault::IgnoresRetryDate, &["R15"]),
        (Fault::IgnoresAuth, &["R23"]),
        (Fault::IgnoresOutput, &["R23"]),
        (Fault::KeepsSilentRequests, &["R20"]),
        (Fault::SilentAtCompleteBy, &["R11"]),
        (Fault::SilentIfLate, &["R11"]),
        (Fault::ReportsNoCall, &["R11"]),
        (Fault::IgnoresEarlierAttempt, &["R17"]),
        (Fault::FailsAfterSeveral, &["R17"]),
    ];
    let checks = faults.map(|(fault, rules)| (fault, rules, tokio::spawn(broken(fault))));
    let mut wrong = Vec::new();
    for (fault, rules, check) in checks {
        let broken = check.await.unwrap();
        if broken.iter().map(|(rule, _)| rule).ne(rules) {
            wrong.push((fault, rules, broken));
        }
    }
    assert!(wrong.is_empty(), "fault, expected rules, broken rules: {wrong:#?}");
}

/// The requests of an agent elsewhere to SQS do not pass the kit, and it has no log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_is_checked_through_its_queues() {
    let environment =
        LocalEnvironment::start("tiny".parse().unwrap(), default_response()).await.unwrap();
    let agent = tokio::spawn(TinyAgent::new(&environment, Fault::None).await.poll());
    let mut target = environment.target();
    target.capabilities.sees_sqs = false;
    let evidence = run(&target, &CheckRequest::of_agent("tiny"), Patience::REMOTE).await;
    agent.abort();
    let verdicts = verdicts(&evidence.unwrap()).into_iter();
    let unchecked = verdicts.filter_map(|(rule, verdict)| match verdict {
        Verdict::Holds => None,
        Verdict::NotChecked(_) => Some(rule.to_string()),
        Verdict::Broken(what) => panic!("{rule}: {what}"),
    });
    assert_eq!(unchecked.collect::<Vec<_>>(), ["R2", "R19", "R20"]);
}
