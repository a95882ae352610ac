//! Triggers: an EventBridge event on the submissions queue becomes a submission for each workflow whose trigger matches it.
//!
//! Each of these workflows has its own EventBridge rule, so an event for two workflows arrives twice, and each message
//! submits both tasks. That is harmless, because an event always produces the same task ids and inputs. It makes each
//! message independent of the others.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::{
    definition::plan::Plan,
    submission::{event::ReceivedEvent, is_traceparent},
};
use steward_runtime::{
    ports::{Definitions, PortError, Ports},
    trace::{SpanKind, TraceSpan},
};

use crate::{
    record::record_as,
    submission_result::{SPAN, SubmissionResult, accepted, refused, set_task, task_traceparent},
};

/// The largest number of concurrent submissions of an event.
const TASKS_AT_ONCE: usize = 16;

/// Records the tasks that an event submits, concurrently. The refusal of one workflow does not affect the other tasks.
///
/// # Errors
/// A port failed; SQS redelivers the message.
pub(crate) async fn receive<P: Ports>(
    ports: &P,
    event: &ReceivedEvent,
    text: &str,
    traceparent: Option<String>,
) -> Result<Vec<SubmissionResult>, PortError> {
    let plans = ports.definitions().triggered(event.source(), event.detail_type()).await?;
    if plans.is_empty() {
        let traceparent = traceparent.filter(|text| is_traceparent(text));
        return Ok(vec![refused(ports, event.no_trigger_refusal(), text, None, None, traceparent)]);
    }
    let traceparent = traceparent.as_deref();
    let recorded = stream::iter(plans)
        .map(|plan| async move { record(ports, event, text, traceparent, plan).await });
    recorded.buffered(TASKS_AT_ONCE).try_collect().await
}

/// Records the task of one workflow.
async fn record<P: Ports>(
    ports: &P,
    event: &ReceivedEvent,
    text: &str,
    traceparent: Option<&str>,
    plan: Arc<Plan>,
) -> Result<SubmissionResult, PortError> {
    let refused =
        |refusal, task_id, traceparent| refused(ports, refusal, text, task_id, None, traceparent);
    let mut span = TraceSpan::begin(SPAN, SpanKind::Consumer, traceparent);
    let traceparent = task_traceparent(&span, traceparent.map(str::to_owned));
    let result = match event.submission(&plan) {
        Ok(submission) => {
            set_task(&mut span, &submission);
            let task_id = Some(submission.task_id.to_string());
            match record_as(ports, &submission, &plan, traceparent.clone()).await? {
                Ok(task) => accepted(ports, &submission, &task, None, traceparent),
                Err(refusal) => refused(refusal, task_id, traceparent),
            }
        }
        Err(refusal) => refused(refusal, None, traceparent),
    };
    Ok(result.end_span(span))
}
