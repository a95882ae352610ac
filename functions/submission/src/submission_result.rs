//! The result of a submission: the messages to the scheduler, to the client, to the parent task or to the rejected queue.

use steward_core::{
    engine::effect::Effect,
    model::{
        attempt::Action,
        events::{BusEvent, EventData},
        messages::{
            ChildEnded, ChildOutcome, NotificationStatus, ParentRequest, ParentStep,
            StatusNotification, Submission, Wake, WakeCause,
        },
        names::{TaskId, Tenant},
        task::Task,
    },
    submission::{SubmissionRefusal, is_tombstone, is_traceparent},
};
use steward_runtime::{
    dispatch::OutgoingEffect,
    metrics,
    ports::{Clock, Ports},
    trace::TraceSpan,
};

/// The name of a submission's span.
pub(crate) const SPAN: &str = "submit";

/// The result of a submission, and the messages that the caller must send. The caller sends them, so that the messages of
/// several submissions share a request.
#[derive(Debug)]
pub struct SubmissionResult {
    /// The id of the recorded task, or why the submission was refused.
    pub result: Result<TaskId, SubmissionRefusal>,
    /// The messages to send.
    pub effects: Vec<OutgoingEffect>,
}

impl SubmissionResult {
    /// Ends the span of the submission.
    pub(crate) fn end_span(self, span: TraceSpan) -> Self {
        span.end(if self.result.is_ok() { "received" } else { "refused" });
        self
    }
}

/// The `traceparent` for a new task and its messages: that of the span, or else the received one if it is valid.
pub(crate) fn task_traceparent(span: &TraceSpan, received: Option<String>) -> Option<String> {
    span.traceparent().or_else(|| received.filter(|text| is_traceparent(text)))
}

/// Adds the task and the workflow to a span.
pub(crate) fn set_task(span: &mut TraceSpan, submission: &Submission) {
    span.set("task_id", &submission.task_id);
    span.set("workflow", &submission.workflow);
}

/// The result of an accepted submission. A repeated submission sends the messages again, because the first ones may have been
/// lost.
pub(crate) fn accepted<P: Ports>(
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
            let wake = Wake::new(task_id.clone(), WakeCause::Submitted);
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
    let tenant = &task.tenant;
    let effects = effects.map(|effect| OutgoingEffect {
        effect,
        traceparent: traceparent.clone(),
        tenant: tenant.clone(),
    });
    let effects = effects.collect();
    SubmissionResult { result: Ok(task_id), effects }
}

/// The result of a refused child task: a report to the parent, whose step fails.
pub(crate) fn refused_child(
    refusal: SubmissionRefusal,
    parent: ParentStep,
    attempt: Option<u32>,
    traceparent: Option<String>,
    tenant: Option<Tenant>,
) -> SubmissionResult {
    let reason = refusal.to_string();
    metrics::submission_refused();
    tracing::warn!(task_id = %parent.task_id, step = %parent.step, reason, "submission of a child task refused");
    let id_taken = matches!(refusal, SubmissionRefusal::IdTaken(_));
    let ended = report_to_parent(&parent, ChildOutcome::Refused { reason, id_taken });
    let effect = Effect::ChildEnded(ChildEnded { attempt, ..ended });
    SubmissionResult {
        result: Err(refusal),
        effects: vec![OutgoingEffect { effect, traceparent, tenant }],
    }
}

/// The result of a refused submission: it goes to the rejected queue, with a notification and an alert.
pub(crate) fn refused<P: Ports>(
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
    // Nothing is recorded, so there is no task that has a tenant.
    let send = |effect| OutgoingEffect { effect, traceparent: traceparent.clone(), tenant: None };
    let effects = effects.map(send).collect();
    SubmissionResult { result: Err(refusal), effects }
}

/// The report of a child task to its parent.
pub(crate) fn report_to_parent(parent: &ParentStep, outcome: ChildOutcome) -> ChildEnded {
    let ParentStep { task_id, step, incarnation, .. } = parent.clone();
    let (attempt, child, revision) = (None, None, None);
    ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation }
}
