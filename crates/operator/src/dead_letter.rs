//! Summaries of dead letters. Each message is parsed as the consumer of its queue would parse it. A summary contains no
//! payload, except of a submission, whose input the caller must mask by the workflow.

use jiff::Timestamp;
use serde_json::Value;

use steward_core::{
    correlation::EventSubscription,
    model::{
        messages::{
            CallbackOutcome, ChildOutcome, ReplyOutcome, SchedulerMessage, StepRequest, Submission,
            mistake,
        },
        names::{Part, TaskId},
    },
    submission::{self, event::ReceivedEvent},
};
use steward_runtime::ports::Queue;

/// The summary of a message. Fields that could not be read are absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageSummary {
    /// What kind of message it is, as `reply: do #2 completed`.
    pub what: String,
    /// The task that it belongs to.
    pub task_id: Option<TaskId>,
    /// The step, or the item of one.
    pub step: Option<Part>,
    /// The deadline until which an agent may act on it.
    pub complete_by: Option<Timestamp>,
    /// The submission, if it is one.
    pub submission: Option<Submission>,
    /// Why its consumer cannot parse it.
    pub problem: Option<String>,
}

/// Summarizes a message as the consumer of `queue` would parse it.
#[must_use]
pub fn summarize(queue: &Queue, body: &str) -> MessageSummary {
    match queue {
        Queue::Scheduler | Queue::Commands => parse_as(body, scheduler_message),
        Queue::Agent(agent) => parse_as(body, |request: StepRequest| MessageSummary {
            what: format!("request to {agent}: {} #{}", request.action.name(), request.attempt),
            task_id: Some(request.task_id),
            step: Some(request.step),
            complete_by: Some(request.complete_by),
            ..MessageSummary::default()
        }),
        Queue::Submissions | Queue::Rejected => submission_or_event(body),
        Queue::Events => event_or_subscription(body),
        Queue::Client(_) | Queue::Sweeps => unparsable(body, None),
    }
}

fn parse_as<T: serde::de::DeserializeOwned>(
    body: &str,
    summarize: impl FnOnce(T) -> MessageSummary,
) -> MessageSummary {
    match serde_json::from_str(body) {
        Ok(message) => summarize(message),
        Err(error) => unparsable(body, Some(mistake(&error))),
    }
}

fn event_or_subscription(body: &str) -> MessageSummary {
    if ReceivedEvent::read(body).is_some() {
        return submission_or_event(body);
    }
    parse_as(body, |EventSubscription { waiter, .. }| MessageSummary {
        what: format!("wait for an event: #{}", waiter.attempt),
        task_id: Some(waiter.task_id),
        step: Some(waiter.step),
        complete_by: Some(waiter.until),
        ..MessageSummary::default()
    })
}

/// A message that its consumer cannot parse. It may have a readable task id nonetheless.
fn unparsable(body: &str, problem: Option<String>) -> MessageSummary {
    let value: Option<Value> = serde_json::from_str(body).ok();
    let task_id = value.as_ref().and_then(|value| value.get("task_id")?.as_str()?.parse().ok());
    MessageSummary { what: "message".to_owned(), task_id, problem, ..MessageSummary::default() }
}

fn scheduler_message(message: SchedulerMessage) -> MessageSummary {
    let summary = |what: String, task_id: TaskId, step: Option<Part>| MessageSummary {
        what,
        task_id: Some(task_id),
        step,
        ..MessageSummary::default()
    };
    match message {
        SchedulerMessage::Wake(wake) => summary("wake".to_owned(), wake.task_id, None),
        SchedulerMessage::Reply(reply) => {
            let outcome = match reply.outcome {
                ReplyOutcome::Completed { .. } => "completed",
                ReplyOutcome::Failed { .. } => "failed",
                ReplyOutcome::Deferred { .. } => "deferred",
                ReplyOutcome::Unknown { .. } => "timed out, outcome unknown",
            };
            let (action, attempt) = (reply.action.name(), reply.attempt);
            summary(
                format!("reply: {action} #{attempt} {outcome}"),
                reply.task_id,
                Some(reply.step),
            )
        }
        SchedulerMessage::Command(command) => {
            let what = format!("command from {}: {}", command.by, command.action.describe(&[]));
            summary(what, command.task_id, None)
        }
        SchedulerMessage::Callback(callback) => {
            let answer = match callback.outcome {
                CallbackOutcome::Completed { .. } => "completed",
                CallbackOutcome::Failed { .. } => "failed",
                CallbackOutcome::Heartbeat => "heartbeat",
            };
            let token = callback.token;
            summary(format!("callback: {answer}"), token.task_id, Some(token.step))
        }
        SchedulerMessage::ParentRequest(ask) => summary(
            format!("{} requested by the parent task", ask.action.name()),
            ask.task_id,
            None,
        ),
        SchedulerMessage::ExtendRetention(request) => summary(
            "longer retention requested by the parent task".to_owned(),
            request.task_id,
            None,
        ),
        SchedulerMessage::ChildEnded(child) => {
            let outcome = match child.outcome {
                ChildOutcome::Processed { .. } => "Processed",
                ChildOutcome::Undone { .. } => "Undone",
                ChildOutcome::Error { .. } => "Error",
                ChildOutcome::Refused { .. } => "refused",
            };
            summary(format!("child task ended: {outcome}"), child.task_id, Some(child.step))
        }
    }
}

fn submission_or_event(body: &str) -> MessageSummary {
    match ReceivedEvent::read(body) {
        Some(Ok(event)) => {
            let what = format!("event {} from {}", event.detail_type(), event.source());
            return MessageSummary { what, ..MessageSummary::default() };
        }
        Some(Err(refusal)) => return unparsable(body, Some(refusal.to_string())),
        None => {}
    }
    match submission::parse(body) {
        Ok(submission) => MessageSummary {
            what: format!("submission for {}", submission.workflow),
            task_id: Some(submission.task_id.clone()),
            submission: Some(submission),
            ..MessageSummary::default()
        },
        Err(refusal) => unparsable(body, Some(refusal.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary_of(queue: &Queue, body: &str) -> (String, Option<String>, Option<String>) {
        let MessageSummary { what, task_id, step, .. } = summarize(queue, body);
        (what, task_id.map(|id| id.to_string()), step.map(|step| step.to_string()))
    }

    #[test]
    fn a_summary_has_the_task_and_the_step() {
        let agent = Queue::Agent("payment".parse().unwrap());
        let request = r#"{"task_id":"o-1","step":"charge","attempt":2,"complete_by":"2026-11-20T19:00:00Z",
            "idempotency_key":"o-1/charge/do","incarnation":7,"call_within_ms":9,"agent":"payment","method":"POST","path":"/charges"}"#;
        let cases = [
            (Queue::Scheduler, r#"{"type":"wake","task_id":"o-1","cause":"waited"}"#, "wake", None),
            (
                Queue::Scheduler,
                r#"{"type":"reply","task_id":"o-1","step":"ship[3]","attempt":2,"incarnation":7,"outcome":{"status":"completed","output":1}}"#,
                "reply: do #2 completed",
                Some("ship[3]"),
            ),
            (
                Queue::Scheduler,
                r#"{"type":"command","command_id":"c","task_id":"o-1","by":"anna","why":"w","issued_at":"2026-11-20T12:00:00Z","order":{"command":"undo"}}"#,
                "command from anna: undo",
                None,
            ),
            (
                Queue::Scheduler,
                r#"{"type":"callback","token":"o-1/ask/i0mfvx3k5z","answer":"completed","output":1}"#,
                "callback: completed",
                Some("ask"),
            ),
            (agent, request, "request to payment: do #2", Some("charge")),
            (
                Queue::Submissions,
                r#"{"task_id":"o-1","workflow":"order"}"#,
                "submission for order",
                None,
            ),
        ];
        for (queue, body, what, step) in cases {
            let expected = (what.to_owned(), Some("o-1".to_owned()), step.map(str::to_owned));
            assert_eq!(summary_of(&queue, body), expected, "{body}");
        }
    }

    #[test]
    fn an_unparsable_message_has_a_reason_and_shows_no_value() {
        let wake =
            summarize(&Queue::Scheduler, r#"{"type":"wake","task_id":"o-1","cause":"secret"}"#);
        assert_eq!(wake.task_id.map(|id| id.to_string()).as_deref(), Some("o-1"));
        let problem = wake.problem.unwrap();
        assert!(problem.starts_with("unknown variant"), "{problem}");
        assert!(!problem.contains("secret"), "{problem}");
        let text = summarize(&Queue::Submissions, "card 4111");
        assert_eq!(text.problem.as_deref(), Some("not a submission: not a JSON object"));
        assert_eq!((text.task_id, text.submission), (None, None));
    }
}
