//! The whole kit against a tiny agent: all rules hold, and each planted fault breaks exactly the rules that it concerns.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    types::{Message, MessageAttributeValue, MessageSystemAttributeName},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_conformance::{
    case::RequestTemplate,
    judge::verdicts,
    local::LocalEnvironment,
    rule::{Rule, Verdict},
    run::{Patience, run},
    service::default_response,
};

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A further delivery of an attempt is refused as known, without `may_have_run`.
    RefusesDuplicates,
    IgnoresCompleteBy,
    DropsUnknownFields,
    DeletesFirst,
    ForgetsIncarnation,
    NewKeyForEachCall,
    CallsTwiceIfNotIdempotent,
    TimeOutIsFailure,
    DeletesPoison,
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
}

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
                if self.handle(&message).await {
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
        if self.fault == Fault::DropsUnknownFields && body.contains("field_of_a_later_version") {
            return false;
        }
        if self.fault == Fault::DeletesFirst {
            self.delete(message).await;
        }
        let attributes = message.message_attributes.clone().unwrap_or_default();
        let receives = message.attributes().unwrap()
            [&MessageSystemAttributeName::ApproximateReceiveCount]
            .clone();
        let redelivered = receives != "1" || attributes.contains_key("redriven");
        let Some(outcome) = self.attempt(&request, redelivered).await else { return true };
        let mut reply = json!({ "type": "reply", "outcome": outcome });
        for name in ["task_id", "step", "action", "attempt", "incarnation"] {
            if name != "incarnation" || self.fault != Fault::ForgetsIncarnation {
                reply[name] = request[name].clone();
            }
        }
        let traceparent = attributes["traceparent"].string_value().unwrap();
        let traceparent =
            MessageAttributeValue::builder().data_type("String").string_value(traceparent);
        let send = self.sqs.send_message().queue_url(&self.replies).message_body(reply.to_string());
        send.message_attributes("traceparent", traceparent.build().unwrap()).send().await.is_ok()
    }

    async fn attempt(&mut self, request: &Value, redelivered: bool) -> Option<Value> {
        let failed = |may_have_run: bool| {
            Some(json!({ "status": "failed", "reason": "refused", "may_have_run": may_have_run }))
        };
        let key = request["idempotency_key"].as_str().unwrap();
        if request["idempotent"] == false && self.fault != Fault::CallsTwiceIfNotIdempotent {
            return failed(false);
        }
        let attempt = (key.to_owned(), request["attempt"].as_u64().unwrap());
        if self.fault == Fault::RefusesDuplicates && self.known.contains(&attempt) {
            return failed(false);
        }
        self.known.push(attempt);
        let complete_by: Timestamp = request["complete_by"].as_str().unwrap().parse().unwrap();
        if complete_by < Timestamp::now() && self.fault != Fault::IgnoresCompleteBy {
            let late = json!({ "status": "deferred", "reason": "late", "retry_after_ms": 0, "may_have_run": true });
            return (!redelivered).then_some(late);
        }
        let key = if self.fault == Fault::NewKeyForEachCall {
            format!("{key}-{}", Timestamp::now().as_nanosecond())
        } else {
            key.to_owned()
        };
        let within = Duration::from_millis(request["call_within_ms"].as_u64().unwrap());
        let call = self.http.post(format!("{}/x", self.service)).header("idempotency-key", key);
        let Ok(response) = call.body(request["body"].to_string()).timeout(within).send().await
        else {
            if self.fault == Fault::TimeOutIsFailure {
                return failed(false);
            }
            return Some(json!({ "status": "unknown", "reason": "no answer" }));
        };
        let status = response.status().as_u16();
        let output = response.bytes().await.unwrap();
        match status {
            200 if output.len() > 128 * 1024 => failed(true),
            200 => Some(
                json!({ "status": "completed", "output": serde_json::from_slice::<Value>(&output).unwrap() }),
            ),
            429 => {
                Some(json!({ "status": "deferred", "reason": "busy", "retry_after_ms": 60_000 }))
            }
            500.. => Some(json!({ "status": "unknown", "reason": "503" })),
            _ => failed(redelivered),
        }
    }
}

/// The numbers of the rules that the agent breaks.
async fn broken(fault: Fault) -> Vec<String> {
    let environment =
        LocalEnvironment::start("tiny".parse().unwrap(), default_response()).await.unwrap();
    let agent = tokio::spawn(TinyAgent::new(&environment, fault).await.poll());
    let template = RequestTemplate::of_agent("tiny");
    let mut evidence = run(&environment.target(), &template, Patience::LOCAL).await.unwrap();
    agent.abort();
    evidence.log = Some(String::new());
    let verdicts = verdicts(&evidence).into_iter();
    let broken = verdicts.filter_map(|(rule, verdict): (Rule, Verdict)| match verdict {
        Verdict::Holds => None,
        Verdict::Broken(_) => Some(rule.to_string()),
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
    let faults: [(Fault, &[&str]); 10] = [
        (Fault::None, &[]),
        (Fault::RefusesDuplicates, &["R8"]),
        (Fault::IgnoresCompleteBy, &["R11"]),
        (Fault::DropsUnknownFields, &["R4"]),
        (Fault::DeletesFirst, &["R2"]),
        (Fault::ForgetsIncarnation, &["R6"]),
        (Fault::NewKeyForEachCall, &["R9"]),
        (Fault::CallsTwiceIfNotIdempotent, &["R18"]),
        (Fault::TimeOutIsFailure, &["R14"]),
        (Fault::DeletesPoison, &["R3"]),
    ];
    let checks = faults.map(|(fault, rules)| (fault, rules, tokio::spawn(broken(fault))));
    for (fault, rules, check) in checks {
        assert_eq!(check.await.unwrap(), rules, "{fault:?}");
    }
}
