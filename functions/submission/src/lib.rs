//! Submission: validates requests, writes the document and the task in one transaction, and wakes the scheduler.
//!
//! Submission is idempotent: the same submission is accepted again; the same id with different content is refused. A
//! submission that can never succeed is refused at once and kept with the reason, instead of being retried until it is a
//! dead letter.
//!
//! ```text
//! queue or HTTP ──► parse ──► workflow? input? reply queue? payloads? ──► copy payloads, transaction ──► wake, notification "received"
//!   event ──► triggers ─┴────────┴── refused ──► rejected queue, notification "refused", alert
//! ```
//!
//! Events that steps wait for have a queue of their own ([`events`]).
//!
//! While a queue of its steps is too long, a new task waits before it is recorded ([`handle_with_intake`]).

use std::{collections::BTreeSet, panic::AssertUnwindSafe};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::{FutureExt, StreamExt, future::join, stream};
use steward_aws::batch::{Batch, BatchProgress, received_messages};
use steward_core::submission::{
    ReadableFields, ReplyQueues, event::ReceivedEvent, is_traceparent, parse,
};
use steward_runtime::{
    dispatch::send_effects,
    ports::{PortError, Ports, error_chain},
    trace::{SpanKind, TraceSpan},
};

pub mod events;
pub mod http;
mod intake;
mod payloads;
mod record;
mod submission_result;
mod triggers;
mod undo_child;

pub use crate::{intake::IntakeView, submission_result::SubmissionResult};
use crate::{
    intake::hold_back,
    record::{extend_for_parent, record},
    submission_result::{SPAN, accepted, refused, refused_child, set_task, task_traceparent},
    undo_child::undo_child,
};

/// The largest number of concurrent submissions of a batch.
const SUBMISSIONS_AT_ONCE: usize = 64;

/// Handles a batch like [`handle`], but first puts the submissions back whose tasks may not start now. Returns the messages
/// that SQS has to deliver again.
pub async fn handle_with_intake<P: Ports>(
    ports: &P,
    intake: &IntakeView,
    reply_queues: &ReplyQueues,
    batch: impl Into<Batch>,
) -> SqsBatchResponse {
    let Batch { event, progress } = batch.into();
    let (start, hold) = intake.divide(ports, event).await;
    let starting = process(ports, reply_queues, start, &progress);
    join(starting, hold_back(ports, hold, &progress)).await;
    progress.response()
}

/// Handles a batch of messages from the submissions queue. Returns the messages that SQS has to deliver again.
pub async fn handle<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    batch: impl Into<Batch>,
) -> SqsBatchResponse {
    let Batch { event, progress } = batch.into();
    process(ports, reply_queues, event, &progress).await;
    progress.response()
}

/// Records submissions, and sends their messages. A submission that is recorded and whose messages are not sent is
/// redelivered, and sends them then: submission is idempotent.
async fn process<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    event: SqsEvent,
    progress: &BatchProgress,
) {
    let receipts: Vec<_> = stream::iter(received_messages(event))
        .map(|message| async move {
            let traceparent = message.traceparent;
            let receipts = receive_any(ports, reply_queues, &message.body, traceparent);
            (message.message_id, AssertUnwindSafe(receipts).catch_unwind().await)
        })
        .buffer_unordered(SUBMISSIONS_AT_ONCE)
        .take_until(progress.last_start())
        .collect()
        .await;
    let (mut done, mut owners, mut effects) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (message_id, receipts) in receipts {
        match receipts {
            Ok(Ok(receipts)) => {
                let own: Vec<_> =
                    receipts.into_iter().flat_map(|receipt| receipt.effects).collect();
                owners.extend(own.iter().map(|_| message_id.clone()));
                effects.extend(own);
                done.insert(message_id);
            }
            Ok(Err(error)) => log_failure(&message_id, &error),
            Err(_) => {}
        }
    }
    for (message_id, sent) in owners.into_iter().zip(send_effects(ports, effects).await) {
        if let Err(error) = sent
            && done.remove(&message_id)
        {
            log_failure(&message_id, &error);
        }
    }
    done.into_iter().for_each(|message_id| progress.done(message_id));
}

fn log_failure(message_id: &str, error: &PortError) {
    tracing::warn!(
        message_id,
        error = error_chain(error),
        "submission not processed; it will be redelivered"
    );
}

/// Processes a message of the queue: a submission, or an event, which may start tasks of several workflows.
async fn receive_any<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    text: &str,
    traceparent: Option<String>,
) -> Result<Vec<SubmissionResult>, PortError> {
    match ReceivedEvent::read(text) {
        None => {
            let span = TraceSpan::begin(SPAN, SpanKind::Consumer, traceparent.as_deref());
            Ok(vec![process_submission(ports, reply_queues, text, traceparent, span).await?])
        }
        Some(Ok(event)) => triggers::receive(ports, &event, text, traceparent).await,
        Some(Err(refusal)) => {
            let traceparent = traceparent.filter(|text| is_traceparent(text));
            Ok(vec![refused(ports, refusal, text, None, None, traceparent)])
        }
    }
}

/// Processes one submission. Its task continues the trace of `span`, if there is one. Submission is idempotent, so the next
/// delivery makes up for a failure of a port at any point.
///
/// # Errors
/// A port failed. Either nothing was recorded, or only the task.
pub async fn process_submission<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    text: &str,
    traceparent: Option<String>,
    mut span: TraceSpan,
) -> Result<SubmissionResult, PortError> {
    let traceparent = task_traceparent(&span, traceparent);
    let is_allowed = |url: &String| reply_queues.allow(url);
    let submission = match parse(text) {
        Ok(submission) => submission,
        Err(refusal) => {
            let ReadableFields { task_id, reply_to } = ReadableFields::extract(text);
            let reply_to = reply_to.filter(is_allowed);
            return Ok(refused(ports, refusal, text, task_id, reply_to, traceparent).end_span(span));
        }
    };
    set_task(&mut span, &submission);
    if let Some(parent) = submission.parent.as_ref().filter(|_| submission.undo) {
        return Ok(undo_child(ports, &submission, parent, traceparent).await?.end_span(span));
    }
    let reply_to = submission.reply_to.clone().filter(is_allowed);
    match record(ports, &submission, reply_to.as_ref(), traceparent.clone()).await? {
        Ok(task) => {
            extend_for_parent(ports, &submission, &task).await?;
            Ok(accepted(ports, &submission, &task, reply_to, traceparent).end_span(span))
        }
        Err(refusal) => {
            if let Some(parent) = submission.parent {
                let (attempt, tenant) = (submission.attempt, submission.tenant);
                let refused = refused_child(refusal, parent, attempt, traceparent, tenant);
                return Ok(refused.end_span(span));
            }
            let id = Some(submission.task_id.to_string());
            Ok(refused(ports, refusal, text, id, reply_to, traceparent).end_span(span))
        }
    }
}
