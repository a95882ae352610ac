//! Submission: takes requests in, writes the document and the task in one transaction, and wakes the
//! scheduler. The same submission again is accepted again, quietly; the same id with other content is
//! refused. What can never succeed is refused at once with a reason and kept, not retried until it
//! dies.
//!
//! ```text
//! queue or HTTP ──► parse ──► workflow? input? reply queue? ──► transaction ──► wake, notice "received"
//!   event ──► triggers ─┴────────┴── refused ──► rejected queue, notice "refused", alert
//! ```

use std::panic::AssertUnwindSafe;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::{FutureExt, StreamExt, stream};
use steward_aws::batch::{received, response};
use steward_core::{
    definition::workflow::Workflow,
    engine::effect::Effect,
    model::{
        attempt::Action,
        document::DocumentKey,
        events::{BusEvent, Happened},
        messages::{
            Ask, ChildEnded, ChildOutcome, Keep, NoticeStatus, Parent, StatusNotice, Submission,
            Wake, WakeCause,
        },
        names::TaskId,
        task::Task,
    },
    submission::{
        Readable, Refusal, ReplyQueues, accept, check_input, event::Event, is_same, is_tombstone,
        is_traceparent, parse, tombstone,
    },
};
use steward_runtime::{
    dispatch::{Send, carry_out, kept},
    metrics,
    ports::{Channel, Clock, Created, Definitions, PortError, Ports, StateStore, chain},
    trace::{Span, SpanKind},
};

pub mod http;
mod triggers;

/// Submissions of one batch in hand at once.
const SUBMISSIONS_AT_ONCE: usize = 64;

/// The name of a submission's span.
const SPAN: &str = "submit";

/// What became of a submission, and what must be told; the telling is the caller's, so that many
/// share a request.
#[derive(Debug)]
pub struct Receipt {
    /// The recorded task, or why there is none.
    pub result: Result<TaskId, Refusal>,
    /// What to tell whom.
    pub sends: Vec<Send>,
}

impl Receipt {
    /// Ends the span of the submission.
    fn seen(self, span: Span) -> Self {
        span.end(if self.result.is_ok() { "received" } else { "refused" });
        self
    }
}

/// Handles a batch of messages from the submissions queue.
pub async fn handle<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    event: SqsEvent,
) -> SqsBatchResponse {
    let receipts: Vec<_> = stream::iter(received(event))
        .map(|message| async move {
            let traceparent = message.traceparent;
            let received = receive_any(ports, reply_queues, &message.body, traceparent);
            (message.message_id, AssertUnwindSafe(received).catch_unwind().await)
        })
        .buffer_unordered(SUBMISSIONS_AT_ONCE)
        .collect()
        .await;
    let (mut failed, mut owners, mut sends) = (Vec::new(), Vec::new(), Vec::new());
    for (message_id, receipts) in receipts {
        match receipts {
            Ok(Ok(receipts)) => {
                let told: Vec<_> = receipts.into_iter().flat_map(|receipt| receipt.sends).collect();
                owners.extend(told.iter().map(|_| message_id.clone()));
                sends.extend(told);
            }
            Ok(Err(error)) => {
                log_failure(&message_id, &error);
                failed.push(message_id);
            }
            Err(_) => failed.push(message_id),
        }
    }
    for (message_id, sent) in owners.into_iter().zip(carry_out(ports, sends).await) {
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
        error = chain(error),
        "submission not done; it will be delivered again"
    );
}

/// Takes in a message of the queue: a submission, or an event, which may be one for several workflows.
async fn receive_any<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    text: &str,
    traceparent: Option<String>,
) -> Result<Vec<Receipt>, PortError> {
    match Event::read(text) {
        None => {
            let span = Span::begin(SPAN, SpanKind::Consumer, traceparent.as_deref());
            Ok(vec![receive(ports, reply_queues, text, traceparent, span).await?])
        }
        Some(Ok(event)) => triggers::receive(ports, &event, text, traceparent).await,
        Some(Err(refusal)) => {
            let traceparent = traceparent.filter(|text| is_traceparent(text));
            Ok(vec![refused(ports, refusal, text, None, None, traceparent)])
        }
    }
}

/// Records one submission, whose trace is that of `span` if there is one. Submitting again is harmless,
/// so a failure of the port at any point is made good by the next delivery.
///
/// # Errors
/// A port failed; nothing, or nothing but the task, has been recorded.
pub async fn receive<P: Ports>(
    ports: &P,
    reply_queues: &ReplyQueues,
    text: &str,
    traceparent: Option<String>,
    mut span: Span,
) -> Result<Receipt, PortError> {
    let traceparent = traced(&span, traceparent);
    let allowed = |url: &String| reply_queues.allow(url);
    let submission = match parse(text) {
        Ok(submission) => submission,
        Err(refusal) => {
            let Readable { task_id, reply_to } = Readable::of(text);
            let reply_to = reply_to.filter(allowed);
            return Ok(refused(ports, refusal, text, task_id, reply_to, traceparent).seen(span));
        }
    };
    say_whose(&mut span, &submission);
    if let Some(parent) = submission.parent.as_ref().filter(|_| submission.undo) {
        return Ok(to_be_undone(ports, &submission, parent, traceparent).await?.seen(span));
    }
    let reply_to = submission.reply_to.clone().filter(allowed);
    match record(ports, &submission, reply_to.as_ref(), traceparent.clone()).await? {
        Ok(task) => {
            keep_for_parent(ports, &submission, &task).await?;
            Ok(accepted(ports, &submission, &task, reply_to, traceparent).seen(span))
        }
        Err(refusal) => {
            if let Some(parent) = submission.parent {
                let attempt = submission.attempt;
                return Ok(refused_to_parent(refusal, parent, attempt, traceparent).seen(span));
            }
            let id = Some(submission.task_id.to_string());
            Ok(refused(ports, refusal, text, id, reply_to, traceparent).seen(span))
        }
    }
}

/// What a new task and its messages carry: the span that they follow from, or what came, if it can be
/// handed on.
fn traced(span: &Span, came: Option<String>) -> Option<String> {
    span.traceparent().or_else(|| came.filter(|text| is_traceparent(text)))
}

fn say_whose(span: &mut Span, submission: &Submission) {
    span.set("task_id", &submission.task_id);
    span.set("workflow", &submission.workflow);
}

async fn record<P: Ports>(
    ports: &P,
    submission: &Submission,
    reply_to: Option<&String>,
    traceparent: Option<String>,
) -> Result<Result<Box<Task>, Refusal>, PortError> {
    if submission.reply_to.is_some() && reply_to.is_none() {
        return Ok(Err(Refusal::ReplyQueueNotAllowed));
    }
    // The step that it is for has been given up since, or asks again.
    if submission.keep.is_some_and(|keep| keep.from < ports.clock().now()) {
        return unless_recorded(ports, submission, Refusal::TooLate).await;
    }
    let (name, version) = (&submission.workflow, submission.version);
    let workflow = ports.definitions().published(name, version).await?;
    let workflow = workflow.ok_or_else(|| {
        let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
        Refusal::UnknownWorkflow(format!("{name}{version}"))
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
) -> Result<Result<Box<Task>, Refusal>, PortError> {
    if let Err(refusal) = check_input(submission, workflow) {
        return unless_recorded(ports, submission, refusal).await;
    }
    let (task, document) =
        accept(submission, workflow, traceparent, ports.clock().now(), ports.timing());
    match ports.store().create(&task, &document).await? {
        Created::Created => {
            let (task_id, workflow, version) = (&task.task_id, &task.workflow, task.version);
            tracing::info!(
                %task_id, %workflow, version, event = "submitted", to = "Pending", revision = 1,
                "task transition"
            );
            Ok(Ok(Box::new(task)))
        }
        Created::Exists(Some(there)) => {
            let same = is_of(ports, submission, &there).await?;
            tracing::debug!(task_id = %submission.task_id, same, "submitted before");
            Ok(if same { Ok(there) } else { Err(Refusal::IdTaken(submission.task_id.to_string())) })
        }
        Created::Exists(None) => Err(just_deleted(&submission.task_id)),
    }
}

/// Has a task that was recorded before kept for as long as the task that it runs for says now: a message
/// that said so may have come before the task was recorded.
async fn keep_for_parent<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<(), PortError> {
    let (Some(parent), Some(until)) = (&submission.parent, submission.keep) else { return Ok(()) };
    let keep = Keep {
        task_id: task.task_id.clone(),
        parent: parent.task_id.clone(),
        incarnation: parent.incarnation,
        kept: until,
    };
    if task.kept_for(&keep).is_none() {
        return Ok(());
    }
    ports.channel().send(vec![kept(keep)]).await.into_iter().collect()
}

/// The refusal, unless this very submission was recorded before: the definition may have changed
/// since, or be published no more, and a client who repeats itself is told the same as before.
async fn unless_recorded<P: Ports>(
    ports: &P,
    submission: &Submission,
    refusal: Refusal,
) -> Result<Result<Box<Task>, Refusal>, PortError> {
    let Some(task) = ports.store().load(&submission.task_id).await? else {
        return Ok(Err(refusal));
    };
    let recorded = is_of(ports, submission, &task).await?;
    Ok(if recorded { Ok(Box::new(task)) } else { Err(refusal) })
}

/// Whether `task` is what was recorded of this very submission.
async fn is_of<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<bool, PortError> {
    let stored = ports.store().documents(&task.owner(), &[DocumentKey::Submission]).await?;
    Ok(stored.iter().any(|document| is_same(&document.body, submission)))
}

/// A task that runs for a step is to be undone. If it is there, it is asked. If it is not, it is recorded as
/// undone, so that it cannot begin any more: also if no workflow is found for it, or its input is not
/// what the workflow takes. If it had begun and is gone, nobody can undo it.
async fn to_be_undone<P: Ports>(
    ports: &P,
    submission: &Submission,
    parent: &Parent,
    traceparent: Option<String>,
) -> Result<Receipt, PortError> {
    let task_id = submission.task_id.clone();
    let there = match ports.store().load(&task_id).await? {
        Some(there) => there,
        None if submission.has_begun || may_have_expired(ports, submission) => {
            let reason =
                format!("task `{task_id}` has expired or was deleted: it cannot be undone");
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
                Created::Created => {
                    tracing::info!(%task_id, event = "submitted", to = "Undone", "task transition");
                    task
                }
                Created::Exists(Some(there)) => *there,
                Created::Exists(None) => return Err(just_deleted(&task_id)),
            }
        }
    };
    if !is_of(ports, submission, &there).await? {
        let reason = Refusal::IdTaken(task_id.to_string()).to_string();
        return Ok(undo_refused(parent, &task_id, reason, traceparent));
    }
    Ok(accepted(ports, submission, &there, None, traceparent))
}

/// Whether the task that is asked for may have begun, ended and expired since the message was sent.
fn may_have_expired<P: Ports>(ports: &P, submission: &Submission) -> bool {
    let (now, retention) = (ports.clock().now(), ports.timing().retention);
    submission.keep.is_some_and(|keep| keep.expires_at(retention) <= now)
}

/// The undo of a step fails: its task cannot be undone.
fn undo_refused(
    parent: &Parent,
    task_id: &TaskId,
    reason: String,
    traceparent: Option<String>,
) -> Receipt {
    tracing::warn!(%task_id, reason, "the task of a step cannot be undone");
    let outcome = ChildOutcome::Error { reason, not_undone: true };
    let effect = Effect::ChildEnded(to_parent(parent, outcome));
    let refusal = Refusal::IdTaken(task_id.to_string());
    Receipt { result: Err(refusal), sends: vec![Send { effect, traceparent }] }
}

fn to_parent(parent: &Parent, outcome: ChildOutcome) -> ChildEnded {
    let Parent { task_id, step, incarnation, .. } = parent.clone();
    let (attempt, child, revision) = (None, None, None);
    ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation }
}

fn just_deleted(task_id: &TaskId) -> PortError {
    let source = "the task that was in its place has just been deleted".into();
    PortError { operation: format!("create task {task_id}"), retryable: true, source }
}

/// Told also for a repeated submission: the first telling may have been lost with its process.
fn accepted<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
    reply_to: Option<String>,
    traceparent: Option<String>,
) -> Receipt {
    let task_id = submission.task_id.clone();
    // What was recorded before may have ended since: then whoever it runs for is told again.
    let wake = match &submission.parent {
        // It never began, and its workflow may not be there to ask it by.
        Some(parent) if is_tombstone(task) => {
            let reason = task.undo_reason.clone().unwrap_or_default();
            Effect::ChildEnded(to_parent(parent, ChildOutcome::Undone { reason }))
        }
        Some(_) => {
            let action = if submission.undo { Action::Undo } else { Action::Do };
            Effect::Ask(Ask { task_id: task_id.clone(), action, incarnation: task.incarnation })
        }
        None => {
            let wake = Wake { task_id: task_id.clone(), cause: WakeCause::Submitted };
            Effect::Wake { wake, after: std::time::Duration::ZERO }
        }
    };
    let notice = reply_to.map(|queue| Effect::Notice {
        queue,
        notice: StatusNotice {
            task_id: Some(task_id.to_string()),
            status: NoticeStatus::Received,
            at: ports.clock().now(),
            reason: None,
            output: None,
        },
    });
    let effects = std::iter::once(wake).chain(notice);
    let sends = effects.map(|effect| Send { effect, traceparent: traceparent.clone() }).collect();
    Receipt { result: Ok(task_id), sends }
}

/// The step that the task was to run for fails, and that is told to whom it concerns.
fn refused_to_parent(
    refusal: Refusal,
    parent: Parent,
    attempt: Option<u32>,
    traceparent: Option<String>,
) -> Receipt {
    let reason = refusal.to_string();
    metrics::submission_refused();
    tracing::warn!(task_id = %parent.task_id, step = %parent.step, reason, "the task of a step refused");
    let id_taken = matches!(refusal, Refusal::IdTaken(_));
    let ended = to_parent(&parent, ChildOutcome::Refused { reason, id_taken });
    let effect = Effect::ChildEnded(ChildEnded { attempt, ..ended });
    Receipt { result: Err(refusal), sends: vec![Send { effect, traceparent }] }
}

fn refused<P: Ports>(
    ports: &P,
    refusal: Refusal,
    text: &str,
    task_id: Option<String>,
    reply_to: Option<String>,
    traceparent: Option<String>,
) -> Receipt {
    let (reason, at) = (refusal.to_string(), ports.clock().now());
    metrics::submission_refused();
    tracing::warn!(task_id, reason, "submission refused");
    let data = Happened::SubmissionRefused { task_id: task_id.clone(), reason: reason.clone() };
    let alert = BusEvent::new(task_id.as_deref().unwrap_or("-"), at, data);
    let notice = reply_to.map(|queue| Effect::Notice {
        queue,
        notice: StatusNotice {
            task_id,
            status: NoticeStatus::Refused,
            at,
            reason: Some(reason.clone()),
            output: None,
        },
    });
    let kept = Effect::Reject { submission: text.to_owned(), reason };
    let effects = [kept, Effect::Publish(alert)].into_iter().chain(notice);
    let sends = effects.map(|effect| Send { effect, traceparent: traceparent.clone() }).collect();
    Receipt { result: Err(refusal), sends }
}
