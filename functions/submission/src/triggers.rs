//! Events that submit tasks: a raw EventBridge event on the submissions queue becomes a submission for
//! each workflow whose trigger it matches.
//!
//! Every such workflow has a rule of its own, so an event for two of them arrives twice; and each of
//! the two messages is taken as one for both. That is harmless, for the same event gives the same ids
//! and inputs, and it means that no message depends on another.

use steward_core::{
    ports::{Definitions, PortError, Ports},
    submission::{event::Event, is_traceparent},
    trace::{Span, SpanKind},
};

use crate::{Receipt, SPAN, accepted, record_as, refused, say_whose, traced};

/// Records the tasks that an event submits. One workflow's refusal does not disturb another's task.
///
/// # Errors
/// A port failed; the next delivery makes it good.
pub(crate) async fn receive<P: Ports>(
    ports: &P,
    event: &Event,
    text: &str,
    traceparent: Option<String>,
) -> Result<Vec<Receipt>, PortError> {
    let refused =
        |refusal, task_id, traceparent| refused(ports, refusal, text, task_id, None, traceparent);
    let workflows = ports.definitions().triggered(event.source(), event.detail_type()).await?;
    if workflows.is_empty() {
        let traceparent = traceparent.filter(|text| is_traceparent(text));
        return Ok(vec![refused(event.not_wanted(), None, traceparent)]);
    }
    let mut receipts = Vec::new();
    for workflow in workflows {
        let mut span = Span::begin(SPAN, SpanKind::Consumer, traceparent.as_deref());
        let traceparent = traced(&span, traceparent.clone());
        let receipt = match event.submission(&workflow) {
            Ok(submission) => {
                say_whose(&mut span, &submission);
                let task_id = Some(submission.task_id.to_string());
                match record_as(ports, &submission, &workflow, traceparent.clone()).await? {
                    Ok(()) => accepted(ports, &submission, None, traceparent),
                    Err(refusal) => refused(refusal, task_id, traceparent),
                }
            }
            Err(refusal) => refused(refusal, None, traceparent),
        };
        receipts.push(receipt.seen(span));
    }
    Ok(receipts)
}
