//! Plays the scheduler: sends the requests of all cases to the agent's queue, and collects what happens.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    case::{Case, case_of_key, task_id},
    evidence::{
        Capabilities, Evidence, Observation, ObservedEvent, ReceivedReply, Recorder, SentRequest,
        delivery_count, undeleted,
    },
    request::{CheckRequest, poison},
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
    /// For the agent's first request to its queue, if the kit sees it: the agent has to start.
    pub start: Duration,
    /// For the first reply.
    pub first_reply: Duration,
    /// For any other reply.
    pub reply: Duration,
    /// For a reply that should not come.
    pub silence: Duration,
}

impl Patience {
    /// For an agent on this machine.
    pub const LOCAL: Self = Self {
        start: Duration::from_secs(60),
        first_reply: Duration::from_secs(30),
        reply: Duration::from_secs(15),
        silence: Duration::from_secs(1),
    };
    /// For an agent elsewhere.
    pub const REMOTE: Self = Self {
        start: Duration::ZERO,
        first_reply: Duration::from_secs(60),
        reply: Duration::from_secs(20),
        silence: Duration::from_secs(3),
    };
}

/// How long the kit waits for the second delivery of a request whose reply it refused: longer than the visibility timeout.
const REDELIVERED_WITHIN: Duration = Duration::from_secs(20);

/// How long after complete-by the kit still looks for calls and messages. An agent may delay the report of a call by some
/// seconds, so that complete-by has passed by the scheduler's clock too.
const AFTER_COMPLETE_BY: Duration = Duration::from_secs(6);

/// After this many missing replies in a row, the kit waits only for [`IMPATIENT`]: the agent has probably stopped.
const MISSING_REPLIES_MAX: u32 = 3;

/// See [`MISSING_REPLIES_MAX`].
const IMPATIENT: Duration = Duration::from_secs(3);

/// The largest slack of a check.
const SLACK_MAX: Duration = Duration::from_secs(4);

/// Runs all cases, in less than ninety seconds if the agent replies without delay. The log of the agent is not part of the evidence yet.
///
/// # Errors
/// SQS refuses a request of the kit.
pub async fn run(target: &Target, template: &CheckRequest, patience: Patience) -> Result<Evidence> {
    let run = Timestamp::now().as_millisecond().to_string();
    let mut receiver = JoinSet::new();
    receiver.spawn(receive_replies(target.clone(), run.clone()));
    let mut check = Check {
        target,
        template: template.clone(),
        patience,
        run,
        missing_in_row: AtomicU32::new(0),
    };
    let skipped = check.all_cases().await?;
    let observations = target.recorder.observations();
    let (capabilities, slack) = (target.capabilities, check.template.slack);
    Ok(Evidence { observations, capabilities, log: None, slack, skipped })
}

/// Receives and records the messages of this run in the queue of replies.
async fn receive_replies(target: Target, run: String) {
    loop {
        let request = target.sqs.receive_message().queue_url(&target.replies_url);
        let request = request.max_number_of_messages(10).wait_time_seconds(5);
        let Ok(response) = request.message_attribute_names("All").send().await else {
            sleep(Duration::from_millis(500)).await;
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
            target.recorder.record(ObservedEvent::Replied(ReceivedReply { body, traceparent }));
        }
    }
}

struct Check<'c> {
    target: &'c Target,
    template: CheckRequest,
    patience: Patience,
    run: String,
    missing_in_row: AtomicU32,
}

impl Check<'_> {
    /// Runs the cases; returns those that were skipped.
    async fn all_cases(&mut self) -> Result<Vec<(Case, &'static str)>> {
        let mut skipped = Vec::new();
        if !self.first_case().await? {
            return Ok(skipped);
        }
        for case in Case::ALL.into_iter().filter(|case| *case != Case::Plain) {
            if !self.is_possible(case) {
                continue;
            }
            if case == Case::LargeRequest && !self.template.body.is_object() {
                skipped.push((case, "the body of the given request is not an object"));
                continue;
            }
            if case == Case::FIRST_OUTAGE {
                self.redeliveries_handled().await;
            }
            self.one_case(case).await?;
        }
        self.replied(Case::LateRedriven, 1, self.patience.silence).await;
        self.replied_requests_deleted().await;
        Ok(skipped)
    }

    fn is_possible(&self, case: Case) -> bool {
        let Capabilities { plays_service, sees_sqs } = self.target.capabilities;
        (plays_service || !case.needs_service()) && (sees_sqs || !case.loses_reply())
    }

    /// Waits until the agent polls its queue, then runs the first case and measures the agent's delay. Returns whether the
    /// agent replied.
    async fn first_case(&mut self) -> Result<bool> {
        let has_started = |observations: &[Observation]| {
            observations
                .iter()
                .any(|observation| matches!(observation.event, ObservedEvent::Polled))
        };
        if self.target.capabilities.sees_sqs {
            self.target.recorder.wait_for(self.patience.start, has_started).await;
        }
        let begun = Instant::now();
        self.send(&[self.request(Case::Plain, 1)]).await?;
        let is_replied = self.replied(Case::Plain, 1, self.patience.first_reply).await;
        let delay = begun.elapsed();
        self.template.slack = (delay * 2).min(SLACK_MAX);
        self.patience.silence += delay.min(SLACK_MAX);
        Ok(is_replied)
    }

    async fn one_case(&self, case: Case) -> Result<()> {
        let Patience { reply, silence, .. } = self.patience;
        let within_attempt = case.complete_within() + self.template.slack + AFTER_COMPLETE_BY;
        match case {
            // The replies are awaited later.
            Case::LostReply | Case::ReceiveCount | Case::OnceLostReply => {
                self.send(&[self.request(case, 1)]).await
            }
            Case::Plain
            | Case::Undo
            | Case::Item
            | Case::UnknownField
            | Case::LargeRequest
            | Case::LargeOutput
            | Case::TextOutput
            | Case::Signed
            | Case::Selected
            | Case::Busy
            | Case::BusyUntilDate
            | Case::Refused
            | Case::RefusedRetry => self.request_and_wait(case, 1, reply).await,
            Case::Redriven | Case::ExclusiveRedriven => {
                self.send_as(&[self.request(case, 1)], &[], true).await?;
                self.replied(case, 1, reply).await;
                Ok(())
            }
            Case::Batch => {
                let poison = poison(&self.run, &self.template);
                self.send_as(&[self.request(case, 1)], &poison, false).await?;
                self.replied(case, 1, reply).await;
                Ok(())
            }
            Case::Duplicate | Case::Once | Case::ExclusiveTwice => {
                let request = self.request(case, 1);
                self.send(&[request.clone(), request]).await?;
                self.replied(case, 1, reply).await;
                sleep(silence).await;
                Ok(())
            }
            Case::OnceRedriven => self.repeat_after_reply(case, true).await,
            Case::Exclusive => self.repeat_after_reply(case, false).await,
            Case::OnceBusy => {
                self.repeat_after_reply(case, false).await?;
                self.request_and_wait(case, 2, reply).await
            }
            Case::Retry => {
                self.request_and_wait(case, 1, reply).await?;
                self.request_and_wait(case, 2, reply).await
            }
            Case::Late => self.request_and_wait(case, 1, silence * 2).await,
            Case::LateRedriven => {
                self.send_as(&[self.request(case, 1)], &[], true).await?;
                sleep(silence).await;
                Ok(())
            }
            Case::Silent
            | Case::Overdue
            | Case::Dripping
            | Case::Unavailable
            | Case::OnceSilent
            | Case::OnceUnavailable => self.request_and_wait(case, 1, within_attempt).await,
        }
    }

    async fn request_and_wait(&self, case: Case, attempt: u32, within: Duration) -> Result<()> {
        self.send(&[self.request(case, attempt)]).await?;
        self.replied(case, attempt, within).await;
        Ok(())
    }

    /// Sends a request, and the same request again after the reply.
    async fn repeat_after_reply(&self, case: Case, redriven: bool) -> Result<()> {
        let request = [self.request(case, 1)];
        self.send(&request).await?;
        self.replied(case, 1, self.patience.reply).await;
        self.send_as(&request, &[], redriven).await?;
        sleep(self.patience.silence).await;
        Ok(())
    }

    /// Waits until the agent has handled the second deliveries of the requests whose replies the kit refused.
    async fn redeliveries_handled(&self) {
        if !self.target.capabilities.sees_sqs {
            return;
        }
        let are_redelivered = |observations: &[Observation]| {
            let requests = observations.iter().filter_map(|observation| {
                let ObservedEvent::Requested(request) = &observation.event else { return None };
                Some(request)
            });
            let mut losing = requests.filter(|request| request.case.loses_reply());
            losing.all(|request| delivery_count(observations, request) > 1)
        };
        self.target.recorder.wait_for(REDELIVERED_WITHIN, are_redelivered).await;
        for case in Case::ALL.into_iter().filter(|case| case.loses_reply()) {
            if self.is_possible(case) {
                // An agent that has claimed the call stays silent.
                let Patience { reply, silence, .. } = self.patience;
                self.replied(case, 1, if case.is_once() { silence } else { reply }).await;
            }
        }
    }

    /// Gives the agent the time to delete the requests to which it replied.
    async fn replied_requests_deleted(&self) {
        let within = self.patience.silence * 3;
        let are_deleted = |observations: &[Observation]| undeleted(observations).is_empty();
        self.target.recorder.wait_for(within, are_deleted).await;
    }

    fn request(&self, case: Case, attempt: u32) -> Value {
        self.template.request(&self.run, case, attempt, Timestamp::now())
    }

    /// Waits for a reply to this attempt, or for the report of its call; returns whether there is one.
    async fn replied(&self, case: Case, attempt: u32, within: Duration) -> bool {
        let task = task_id(&self.run, case);
        let is_reply = |observation: &Observation| {
            let ObservedEvent::Replied(reply) = &observation.event else { return false };
            let reply: Value = serde_json::from_str(&reply.body).unwrap_or_default();
            let number = reply.get("attempt").or_else(|| reply.pointer("/call/attempt"));
            reply.get("task_id").is_some_and(|id| *id == task)
                && number.is_some_and(|number| *number == attempt)
        };
        let any = |observations: &[Observation]| observations.iter().any(is_reply);
        let is_stopped = self.missing_in_row.load(Ordering::Relaxed) >= MISSING_REPLIES_MAX;
        let within = if is_stopped { within.min(IMPATIENT) } else { within };
        let is_replied = self.target.recorder.wait_for(within, any).await;
        if is_replied {
            self.missing_in_row.store(0, Ordering::Relaxed);
        } else {
            self.missing_in_row.fetch_add(1, Ordering::Relaxed);
        }
        is_replied
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
            self.target.recorder.record(ObservedEvent::Requested(sent));
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
