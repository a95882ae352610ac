//! Plays the scheduler: sends the requests of all cases to the agent's queue, and collects what happens.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    case::{Case, RequestTemplate, case_of_key, poison, task_id},
    evidence::{Capabilities, Event, Evidence, Observation, ReceivedReply, Recorder, SentRequest},
};

/// The agent, as the kit reaches it.
#[derive(Debug, Clone)]
pub struct Target {
    /// A client of both queues.
    pub sqs: Client,
    /// The queue of the agent.
    pub queue_url: String,
    /// The queue of its replies. During the check, no other process may receive from it.
    pub replies_url: String,
    /// Where observations are recorded.
    pub recorder: Recorder,
    /// What else records observations there.
    pub capabilities: Capabilities,
}

/// How long the kit waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the first reply: the agent may have to start.
    pub first_reply: Duration,
    /// For any other reply.
    pub reply: Duration,
    /// For a reply that should not come.
    pub settle: Duration,
}

impl Patience {
    /// For an agent on this machine.
    pub const LOCAL: Self = Self {
        first_reply: Duration::from_secs(30),
        reply: Duration::from_secs(8),
        settle: Duration::from_millis(700),
    };
    /// For an agent elsewhere.
    pub const REMOTE: Self = Self {
        first_reply: Duration::from_secs(60),
        reply: Duration::from_secs(15),
        settle: Duration::from_secs(3),
    };
}

/// How long the reply is awaited that the kit refused first: the request is delivered again after the visibility timeout.
const LOST_REPLY_WITHIN: Duration = Duration::from_secs(20);

/// How long after complete-by the kit still looks for calls and replies.
const AFTER_COMPLETE_BY: Duration = Duration::from_millis(1_500);

/// How long the cases last in which the service does not work.
const FAULT_LASTS: Duration = Duration::from_secs(3);

/// Runs all cases, at most two minutes if the agent replies at all. The log of the agent is not part of the evidence yet.
///
/// # Errors
/// SQS refuses a request of the kit.
pub async fn run(
    target: &Target,
    template: &RequestTemplate,
    patience: Patience,
) -> Result<Evidence> {
    let run = Timestamp::now().as_millisecond().to_string();
    let mut receiver = JoinSet::new();
    receiver.spawn(receive_replies(target.clone(), run.clone()));
    let check = Check { target, template, patience, run };
    let skipped = check.all_cases().await?;
    let observations = target.recorder.observations();
    Ok(Evidence { observations, capabilities: target.capabilities, log: None, skipped })
}

/// Receives and records the messages of this run in the queue of replies.
async fn receive_replies(target: Target, run: String) {
    loop {
        let request = target.sqs.receive_message().queue_url(&target.replies_url);
        let request = request.max_number_of_messages(10).wait_time_seconds(5);
        let Ok(response) = request.message_attribute_names("All").send().await else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        for message in response.messages.unwrap_or_default() {
            let receipt = message.receipt_handle.unwrap_or_default();
            let delete = target.sqs.delete_message().queue_url(&target.replies_url);
            // A message that is not deleted is received again, after the check.
            let _ = delete.receipt_handle(receipt).send().await;
            let body = message.body.unwrap_or_default();
            let attributes = message.message_attributes.unwrap_or_default();
            let traceparent = attributes.get("traceparent");
            let traceparent = traceparent.and_then(|value| value.string_value.clone());
            // A reply to an earlier, interrupted check.
            if body.contains("check-") && !body.contains(&run) {
                continue;
            }
            target.recorder.record(Event::Replied(ReceivedReply { body, traceparent }));
        }
    }
}

struct Check<'c> {
    target: &'c Target,
    template: &'c RequestTemplate,
    patience: Patience,
    run: String,
}

impl Check<'_> {
    /// Runs the cases; returns those that were skipped.
    async fn all_cases(&self) -> Result<Vec<(Case, &'static str)>> {
        let mut skipped = Vec::new();
        self.send(&[self.request(Case::Plain, 1)]).await?;
        if !self.replied(Case::Plain, 1, self.patience.first_reply).await {
            return Ok(skipped);
        }
        for case in Case::ALL.into_iter().filter(|case| *case != Case::Plain) {
            if case.needs_service() && !self.target.capabilities.plays_service {
                continue;
            }
            if case == Case::LostReply && !self.target.capabilities.sees_sqs {
                continue;
            }
            if case == Case::LargeRequest && !self.template.body.is_object() {
                skipped.push((case, "the body of the given request is not an object"));
                continue;
            }
            if case == Case::Busy && self.target.capabilities.sees_sqs {
                // The cases from here on may open a circuit breaker.
                self.replied(Case::LostReply, 1, LOST_REPLY_WITHIN).await;
            }
            self.one_case(case).await?;
        }
        Ok(skipped)
    }

    async fn one_case(&self, case: Case) -> Result<()> {
        let Patience { reply, settle, .. } = self.patience;
        match case {
            // The reply is awaited later.
            Case::LostReply => self.send(&[self.request(case, 1)]).await?,
            Case::Plain
            | Case::Undo
            | Case::Item
            | Case::UnknownField
            | Case::LargeRequest
            | Case::LargeOutput
            | Case::Refused => {
                self.send(&[self.request(case, 1)]).await?;
                self.replied(case, 1, reply).await;
            }
            Case::Redelivered => {
                self.send_as(&[self.request(case, 1)], &[], true).await?;
                self.replied(case, 1, reply).await;
            }
            Case::Batch => {
                let poison = poison(&self.run);
                self.send_as(&[self.request(case, 1)], &poison, false).await?;
                self.replied(case, 1, reply).await;
            }
            Case::Duplicate | Case::Once => {
                let request = self.request(case, 1);
                self.send(&[request.clone(), request]).await?;
                self.replied(case, 1, reply).await;
                tokio::time::sleep(settle).await;
            }
            Case::Retry => {
                self.send(&[self.request(case, 1)]).await?;
                self.replied(case, 1, reply).await;
                self.send(&[self.request(case, 2)]).await?;
                self.replied(case, 2, reply).await;
            }
            Case::Late => {
                self.send(&[self.request(case, 1)]).await?;
                self.replied(case, 1, settle * 2).await;
            }
            Case::Busy | Case::Silent | Case::Unavailable => {
                self.send(&[self.request(case, 1)]).await?;
                self.replied(case, 1, FAULT_LASTS + AFTER_COMPLETE_BY).await;
            }
        }
        Ok(())
    }

    fn request(&self, case: Case, attempt: u32) -> Value {
        self.template.request(&self.run, case, attempt, Timestamp::now())
    }

    /// Waits for a reply to this attempt; returns whether there is one.
    async fn replied(&self, case: Case, attempt: u32, within: Duration) -> bool {
        let task = task_id(&self.run, case);
        let is_reply = |observation: &Observation| {
            let Event::Replied(reply) = &observation.event else { return false };
            let reply: Value = serde_json::from_str(&reply.body).unwrap_or_default();
            let field = |name| reply.get(name);
            field("task_id").is_some_and(|id| *id == task)
                && field("attempt").is_some_and(|number| *number == attempt)
        };
        let any = |observations: &[Observation]| observations.iter().any(is_reply);
        self.target.recorder.wait_for(within, any).await
    }

    async fn send(&self, requests: &[Value]) -> Result<()> {
        self.send_as(requests, &[], false).await
    }

    /// Sends unreadable messages and requests in one batch.
    async fn send_as(&self, requests: &[Value], poison: &[String], redriven: bool) -> Result<()> {
        let mut entries = Vec::new();
        for body in poison {
            let entry = SendMessageBatchRequestEntry::builder().id(entries.len().to_string());
            entries.push(entry.message_body(body).build()?);
        }
        for request in requests {
            let key = request.get("idempotency_key").and_then(Value::as_str).unwrap_or_default();
            let case = case_of_key(key).context("a request of a case")?;
            let traceparent = self.traceparent(case);
            let entry = SendMessageBatchRequestEntry::builder().id(entries.len().to_string());
            let mut entry = entry.message_body(request.to_string());
            entry = entry.message_attributes("traceparent", attribute(&traceparent)?);
            if redriven {
                entry = entry.message_attributes("redriven", attribute("true")?);
            }
            entries.push(entry.build()?);
            let message = request.clone();
            let sent = SentRequest { case, message, traceparent };
            self.target.recorder.record(Event::Requested(sent));
        }
        let batch = self.target.sqs.send_message_batch().queue_url(&self.target.queue_url);
        let sent = batch.set_entries(Some(entries)).send().await;
        let sent = sent.with_context(|| format!("send to {}", self.target.queue_url))?;
        ensure!(sent.failed().is_empty(), "{} refused a request", self.target.queue_url);
        Ok(())
    }

    /// A trace of its own for each case.
    fn traceparent(&self, case: Case) -> String {
        let number = Case::ALL.iter().position(|other| *other == case).unwrap_or_default();
        format!("00-{:0>30}{number:02}-00f067aa0ba902b7-01", self.run)
    }
}

fn attribute(text: &str) -> Result<MessageAttributeValue> {
    Ok(MessageAttributeValue::builder().data_type("String").string_value(text).build()?)
}
