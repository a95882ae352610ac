//! Submission: validates requests, writes the document and the task in one transaction, and wakes the scheduler.
//!
//! Submission is idempotent: the same submission is accepted again; the same id with different content is refused. A
//! submission that can never succeed is refused at once and kept with the reason, instead of being retried until it is a
//! dead letter.
//!
//! ```text
//! queue or HTTP ──► parse ──► workflow? input? reply queue? ──► transaction ──► wake, notification "received"
//!   event ──► triggers ─┴────────┴── refused ──► rejected queue, notification "refused", alert
//! ```

use std::panic::AssertUnwindSafe;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::{FutureExt, StreamExt, stream};
use steward_aws::batch::{received_messages, response};
use steward_core::{
    definition::workflow::Workflow,
    engine::effect::Effect,
    model::{
        attempt::Action,
        document::DocumentKey,
        events::{BusEvent, EventData},
        messages::{
            ChildEnded, ChildOutcome, ExtendRetention, NotificationStatus, ParentRequest,
            ParentStep, StatusNotification, Submission, Wake, WakeCause,
        },
        names::TaskId,
        task::Task,
    },
    submission::{
        ReadableFields, ReplyQueues, SubmissionRefusal, accept, check_input, event::TriggerEvent,
        is_same_submission, is_tombstone, is_traceparent, parse, tombstone,
    },
};
use steward_runtime::{
    dispatch::{Send, kept, send_effects},
    metrics,
    ports::{
        Channel, Clock, CreateOutcome, Definitions, PortError, Ports, StateStore, error_chain,
    },
    trace::{SpanKind, TraceSpan},
};

pub mod http;
mod triggers;

/// The largest number of concurrent submissions of a batch.
const SUBMISSIONS_AT_ONCE: usize = 64;

/// The name of a submission's span.
const SPAN: &str = "submit";

/// The result of a submission, and the messages that the caller must send. The caller sends them, so that the messages of
/// several submissions share a request.
#[derive(Debug)]
pub struct SubmissionResult {
    /// The id of the recorded task, or why the submission was refused.
    pub result: Result<TaskId, SubmissionRefusal>,
    /// The messages to send.
    pub sends: Vec<Send>,
}

impl SubmissionResult {
    /// Ends the span of the submission.
    fn end_span(self, span: TraceSpan) -> Self {
        span.end(if self.result.is_ok() { "received" } else { "refused" });
        self
    }
}

/// Handles a batch of messages from the submissions queue. Returns the messages that SQS has to deliver again.
pub async fn handle<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    event: SqsEvent,
) -> SqsBatchResponse {
    let receipts: Vec<_> = stream::iter(received_messages(event))
        .map(|message| async move {
            let traceparent = message.traceparent;
            let receipts = receive_any(ports, reply_queues, &message.body, traceparent);
            (message.message_id, AssertUnwindSafe(receipts).catch_unwind().await)
        })
        .buffer_unordered(SUBMISSIONS_AT_ONCE)
        .collect()
        .await;
    let (mut failed, mut owners, mut sends) = (Vec::new(), Vec::new(), Vec::new());
    for (message_id, receipts) in receipts {
        match receipts {
            Ok(Ok(receipts)) => {
                let own: Vec<_> = receipts.into_iter().flat_map(|receipt| receipt.sends).collect();
                owners.extend(own.iter().map(|_| message_id.clone()));
                sends.extend(own);
            }
            Ok(Err(error)) => {
                log_failure(&message_id, &error);
                failed.push(message_id);
            }
            Err(_) => failed.push(message_id),
        }
    }
    for (message_id, sent) in owners.into_iter().zip(send_effects(ports, sends).await) {
        if let Err(error) = sent
            && !failed.contains(&message_id)
        {
            log_failure(&message_id, &error);
            failed.push(message_id);
        }
    }
    response(failed)
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
    match TriggerEvent::read(text) {
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
            keep_for_parent(ports, &submission, &task).await?;
            Ok(accepted(ports, &submission, &task, reply_to, traceparent).end_span(span))
        }
        Err(refusal) => {
            if let Some(parent) = submission.parent {
                let attempt = submission.attempt;
                return Ok(refused_child(refusal, parent, attempt, traceparent).end_span(span));
            }
            let id = Some(submission.task_id.to_string());
            Ok(refused(ports, refusal, text, id, reply_to, traceparent).end_span(span))
        }
    }
}

/// The `traceparent` for a new task and its messages: that of the span, or else the received one if it is valid.
fn task_traceparent(span: &TraceSpan, received: Option<String>) -> Option<String> {
    span.traceparent().or_else(|| received.filter(|text| is_traceparent(text)))
}

/// Adds the task and the workflow to a span.
fn set_task(span: &mut TraceSpan, submission: &Submission) {
    span.set("task_id", &submission.task_id);
    span.set("workflow", &submission.workflow);
}

/// Records a submission as a task of its workflow, unless it was recorded before.
async fn record<P: Ports>(
    ports: &P,
    submission: &Submission,
    reply_to: Option<&String>,
    traceparent: Option<String>,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    if submission.reply_to.is_some() && reply_to.is_none() {
        return Ok(Err(SubmissionRefusal::ReplyQueueNotAllowed));
    }
    // The parent has abandoned the step since, or has requested it again.
    if submission.keep.is_some_and(|keep| keep.from < ports.clock().now()) {
        return unless_recorded(ports, submission, SubmissionRefusal::TooLate).await;
    }
    let (name, version) = (&submission.workflow, submission.version);
    let workflow = ports.definitions().published(name, version).await?;
    let workflow = workflow.ok_or_else(|| {
        let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
        SubmissionRefusal::UnknownWorkflow(format!("{name}{version}"))
    });
    match workflow {
        Ok(workflow) => record_as(ports, submission, &workflow, traceparent).await,
        Err(refusal) => unless_recorded(ports, submission, refusal).await,
    }
}

/// Records a submission as a task of `workflow`, unless it was recorded before.
async fn record_as<P: Ports>(
    ports: &P,
    submission: &Submission,
    workflow: &Workflow,
    traceparent: Option<String>,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    if let Err(refusal) = check_input(submission, workflow) {
        return unless_recorded(ports, submission, refusal).await;
    }
    let (task, document) =
        accept(submission, workflow, traceparent, ports.clock().now(), ports.timing());
    match ports.store().create(&task, &document).await? {
        CreateOutcome::Created => {
            let (task_id, workflow, version) = (&task.task_id, &task.workflow, task.version);
            tracing::info!(
                %task_id, %workflow, version, event = "submitted", to = "Pending", revision = 1,
                "task transition"
            );
            Ok(Ok(Box::new(task)))
        }
        CreateOutcome::Exists(Some(there)) => {
            let same = is_task_of(ports, submission, &there).await?;
            tracing::debug!(task_id = %submission.task_id, same, "task exists already");
            Ok(if same {
                Ok(there)
            } else {
                Err(SubmissionRefusal::IdTaken(submission.task_id.to_string()))
            })
        }
        CreateOutcome::Exists(None) => Err(just_deleted(&submission.task_id)),
    }
}

/// Extends the retention of an existing child task as far as its parent needs it. An earlier message of the parent about
/// that may have arrived before the child was recorded.
async fn keep_for_parent<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<(), PortError> {
    let (Some(parent), Some(until)) = (&submission.parent, submission.keep) else { return Ok(()) };
    let keep = ExtendRetention {
        task_id: task.task_id.clone(),
        parent: parent.task_id.clone(),
        incarnation: parent.incarnation,
        retention: until,
    };
    if task.with_extended_retention(&keep).is_none() {
        return Ok(());
    }
    ports.channel().send(vec![kept(keep)]).await.into_iter().collect()
}

/// The refusal, unless the same submission was recorded before. The definition may have changed or been unpublished since;
/// a repeated submission gets the same result as the first.
async fn unless_recorded<P: Ports>(
    ports: &P,
    submission: &Submission,
    refusal: SubmissionRefusal,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    let Some(task) = ports.store().load(&submission.task_id).await? else {
        return Ok(Err(refusal));
    };
    let recorded = is_task_of(ports, submission, &task).await?;
    Ok(if recorded { Ok(Box::new(task)) } else { Err(refusal) })
}

/// Whether `task` was recorded for this submission.
async fn is_task_of<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<bool, PortError> {
    let stored =
        ports.store().documents(&task.document_owner(), &[DocumentKey::Submission]).await?;
    Ok(stored.iter().any(|document| is_same_submission(&document.body, submission)))
}

/// Undoes a child task. If it exists, it gets a request for its undo. If it does not exist and has not started, it is
/// recorded as Undone, so that it cannot start any more; this needs neither a definition nor a valid input. If it had
/// started and no longer exists, it cannot be undone.
async fn undo_child<P: Ports>(
    ports: &P,
    submission: &Submission,
    parent: &ParentStep,
    traceparent: Option<String>,
) -> Result<SubmissionResult, PortError> {
    let task_id = submission.task_id.clone();
    let there = match ports.store().load(&task_id).await? {
        Some(there) => there,
        None if submission.has_begun || may_have_expired(ports, submission) => {
            let reason =
                format!("task `{task_id}` has expired or was deleted, so it cannot be undone");
            return Ok(undo_refused(parent, &task_id, reason, traceparent));
        }
        None => {
            let (name, now) = (&submission.workflow, ports.clock().now());
            let workflow = ports.definitions().workflow(name, submission.version).await?;
            let (task, document) = match workflow {
                Some(workflow) => {
                    accept(submission, &workflow, traceparent.clone(), now, ports.timing())
                }
                None => tombstone(submission, now),
            };
            match ports.store().create(&task, &document).await? {
                CreateOutcome::Created => {
                    tracing::info!(%task_id, event = "submitted", to = "Undone", "task transition");
                    task
                }
                CreateOutcome::Exists(Some(there)) => *there,
                CreateOutcome::Exists(None) => return Err(just_deleted(&task_id)),
            }
        }
    };
    if !is_task_of(ports, submission, &there).await? {
        let reason = SubmissionRefusal::IdTaken(task_id.to_string()).to_string();
        return Ok(undo_refused(parent, &task_id, reason, traceparent));
    }
    Ok(accepted(ports, submission, &there, None, traceparent))
}

/// Whether the child task may have started, ended and expired since the message was sent.
fn may_have_expired<P: Ports>(ports: &P, submission: &Submission) -> bool {
    let (now, retention) = (ports.clock().now(), ports.timing().retention);
    submission.keep.is_some_and(|keep| keep.expires_at(retention) <= now)
}

/// The report to the parent that a child task cannot be undone; the undo of the parent's step fails.
fn undo_refused(
    parent: &ParentStep,
    task_id: &TaskId,
    reason: String,
    traceparent: Option<String>,
) -> SubmissionResult {
    tracing::warn!(%task_id, reason, "child task cannot be undone");
    let outcome = ChildOutcome::Error { reason, not_undone: true };
    let effect = Effect::ChildEnded(report_to_parent(parent, outcome));
    let refusal = SubmissionRefusal::IdTaken(task_id.to_string());
    SubmissionResult { result: Err(refusal), sends: vec![Send { effect, traceparent }] }
}

/// The report of a child task to its parent.
fn report_to_parent(parent: &ParentStep, outcome: ChildOutcome) -> ChildEnded {
    let ParentStep { task_id, step, incarnation, .. } = parent.clone();
    let (attempt, child, revision) = (None, None, None);
    ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation }
}

fn just_deleted(task_id: &TaskId) -> PortError {
    let source = "another task with this id was deleted at the same time".into();
    PortError { operation: format!("create task {task_id}"), retryable: true, source }
}

/// The result of an accepted submission. A repeated submission sends the messages again, because the first ones may have been
/// lost.
fn accepted<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
    reply_to: Option<String>,
    traceparent: Option<String>,
) -> SubmissionResult {
    let task_id = submission.task_id.clone();
    // An existing child task may have ended since: then it reports to its parent again.
    let wake = match &submission.parent {
        // A tombstone never started, and its workflow may not exist.
        Some(parent) if is_tombstone(task) => {
            let reason = task.undo_reason.clone().unwrap_or_default();
            Effect::ChildEnded(report_to_parent(parent, ChildOutcome::Undone { reason }))
        }
        Some(_) => {
            let action = if submission.undo { Action::Undo } else { Action::Do };
            Effect::ParentRequest(ParentRequest {
                task_id: task_id.clone(),
                action,
                incarnation: task.incarnation,
            })
        }
        None => {
            let wake = Wake { task_id: task_id.clone(), cause: WakeCause::Submitted };
            Effect::Wake { wake, after: std::time::Duration::ZERO }
        }
    };
    let notice = reply_to.map(|queue| Effect::Notification {
        queue,
        notice: StatusNotification {
            task_id: Some(task_id.to_string()),
            status: NotificationStatus::Received,
            at: ports.clock().now(),
            reason: None,
            output: None,
        },
    });
    let effects = std::iter::once(wake).chain(notice);
    let sends = effects.map(|effect| Send { effect, traceparent: traceparent.clone() }).collect();
    SubmissionResult { result: Ok(task_id), sends }
}

/// The result of a refused child task: a report to the parent, whose step fails.
fn refused_child(
    refusal: SubmissionRefusal,
    parent: ParentStep,
    attempt: Option<u32>,
    traceparent: Option<String>,
) -> SubmissionResult {
    let reason = refusal.to_string();
    metrics::submission_refused();
    tracing::warn!(task_id = %parent.task_id, step = %parent.step, reason, "submission of a child task refused");
    let id_taken = matches!(refusal, SubmissionRefusal::IdTaken(_));
    let ended = report_to_parent(&parent, ChildOutcome::Refused { reason, id_taken });
    let effect = Effect::ChildEnded(ChildEnded { attempt, ..ended });
    SubmissionResult { result: Err(refusal), sends: vec![Send { effect, traceparent }] }
}

/// The result of a refused submission: it goes to the rejected queue, with a notification and an alert.
fn refused<P: Ports>(
    ports: &P,
    refusal: SubmissionRefusal,
    text: &str,
    task_id: Option<String>,
    reply_to: Option<String>,
    traceparent: Option<String>,
) -> SubmissionResult {
    let (reason, at) = (refusal.to_string(), ports.clock().now());
    metrics::submission_refused();
    tracing::warn!(task_id, reason, "submission refused");
    let data = EventData::SubmissionRefused { task_id: task_id.clone(), reason: reason.clone() };
    let alert = BusEvent::new(task_id.as_deref().unwrap_or("-"), at, data);
    let notice = reply_to.map(|queue| Effect::Notification {
        queue,
        notice: StatusNotification {
            task_id,
            status: NotificationStatus::Refused,
            at,
            reason: Some(reason.clone()),
            output: None,
        },
    });
    let reject = Effect::Reject { submission: text.to_owned(), reason };
    let effects = [reject, Effect::Publish(alert)].into_iter().chain(notice);
    let sends = effects.map(|effect| Send { effect, traceparent: traceparent.clone() }).collect();
    SubmissionResult { result: Err(refusal), sends }
}
