//! What a dead letter is about, as far as it can be read: as whoever receives from its queue would read
//! it. Never a payload, but for a submission, which the caller masks by its workflow.

use jiff::Timestamp;
use serde_json::Value;

use steward_core::{
    model::{
        messages::{
            Answer, ChildOutcome, Outcome, SchedulerMessage, StepRequest, Submission, mistake,
        },
        names::{CallbackFence, Part, TaskId},
    },
    submission::{self, event::Event},
};
use steward_runtime::ports::Queue;

/// What a message is about. What could not be read is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// What it is, for people, as `reply: attempt 2 completed`.
    pub what: String,
    /// The task.
    pub task_id: Option<TaskId>,
    /// Its step, or one item of it.
    pub step: Option<Part>,
    /// Until when an agent may act on it.
    pub complete_by: Option<Timestamp>,
    /// What was submitted.
    pub submission: Option<Submission>,
    /// Why its receiver cannot read it.
    pub problem: Option<String>,
}

/// Reads a message as the receiver from `queue` would.
#[must_use]
pub fn about(queue: &Queue, body: &str) -> About {
    match queue {
        Queue::Scheduler => read(body, heard),
        Queue::Agent(agent) => read(body, |request: StepRequest| About {
            what: format!("request to {agent}: {} #{}", request.action.name(), request.attempt),
            task_id: Some(request.task_id),
            step: Some(request.step),
            complete_by: Some(request.complete_by),
            ..About::default()
        }),
        Queue::Submissions | Queue::Rejected => submitted(body),
        Queue::Client(_) => unread(body, None),
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &str, about: impl FnOnce(T) -> About) -> About {
    match serde_json::from_str(body) {
        Ok(message) => about(message),
        Err(error) => unread(body, Some(mistake(&error))),
    }
}

/// A message that its receiver cannot read; its task's id may be there nonetheless.
fn unread(body: &str, problem: Option<String>) -> About {
    let value: Option<Value> = serde_json::from_str(body).ok();
    let task_id = value.as_ref().and_then(|value| value.get("task_id")?.as_str()?.parse().ok());
    About { what: "message".to_owned(), task_id, problem, ..About::default() }
}

fn heard(message: SchedulerMessage) -> About {
    let of = |what: String, task_id: TaskId, step: Option<Part>| About {
        what,
        task_id: Some(task_id),
        step,
        ..About::default()
    };
    match message {
        SchedulerMessage::Wake(wake) => of("wake".to_owned(), wake.task_id, None),
        SchedulerMessage::Reply(reply) => {
            let how = match reply.outcome {
                Outcome::Completed { .. } => "completed",
                Outcome::Failed { .. } => "failed",
                Outcome::Deferred { .. } => "was deferred",
                Outcome::Unknown { .. } => "was cut, outcome unknown",
            };
            let (action, attempt) = (reply.action.name(), reply.attempt);
            of(format!("reply: {action} #{attempt} {how}"), reply.task_id, Some(reply.step))
        }
        SchedulerMessage::Command(command) => {
            let what = format!("command of {}: {}", command.by, command.order.describe(&[]));
            of(what, command.task_id, None)
        }
        SchedulerMessage::Callback(callback) => {
            let how = match callback.answer {
                Answer::Completed { .. } => "completed",
                Answer::Failed { .. } => "failed",
                Answer::Heartbeat => "heartbeat",
            };
            let token = callback.token;
            let what = match token.fence {
                CallbackFence::Attempt(attempt) => format!("callback: #{attempt} {how}"),
                CallbackFence::Request { .. } => format!("callback: {how}"),
            };
            of(what, token.task_id, Some(token.step))
        }
        SchedulerMessage::Ask(ask) => {
            of(format!("asked for by another task: {}", ask.action.name()), ask.task_id, None)
        }
        SchedulerMessage::Keep(keep) => {
            of("kept for longer for another task".to_owned(), keep.task_id, None)
        }
        SchedulerMessage::ChildEnded(child) => {
            let how = match child.outcome {
                ChildOutcome::Processed { .. } => "Processed",
                ChildOutcome::Undone { .. } => "Undone",
                ChildOutcome::Error { .. } => "in Error",
                ChildOutcome::Refused { .. } => "refused",
            };
            of(format!("the task of a step is {how}"), child.task_id, Some(child.step))
        }
    }
}

fn submitted(body: &str) -> About {
    match Event::read(body) {
        Some(Ok(event)) => {
            let what = format!("event {} of {}", event.detail_type(), event.source());
            return About { what, ..About::default() };
        }
        Some(Err(refusal)) => return unread(body, Some(refusal.to_string())),
        None => {}
    }
    match submission::parse(body) {
        Ok(submission) => About {
            what: format!("submission for {}", submission.workflow),
            task_id: Some(submission.task_id.clone()),
            submission: Some(submission),
            ..About::default()
        },
        Err(refusal) => unread(body, Some(refusal.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(queue: &Queue, body: &str) -> (String, Option<String>, Option<String>) {
        let About { what, task_id, step, .. } = about(queue, body);
        (what, task_id.map(|id| id.to_string()), step.map(|step| step.to_string()))
    }

    #[test]
    fn a_message_says_which_task_and_step_it_is_about() {
        let agent = Queue::Agent("payment".parse().unwrap());
        let request = r#"{"task_id":"o-1","step":"charge","attempt":2,"complete_by":"2026-11-20T19:00:00Z",
            "idempotency_key":"o-1/charge/do","agent":"payment","method":"POST","path":"/charges"}"#;
        let cases = [
            (Queue::Scheduler, r#"{"type":"wake","task_id":"o-1","cause":"waited"}"#, "wake", None),
            (
                Queue::Scheduler,
                r#"{"type":"reply","task_id":"o-1","step":"ship[3]","attempt":2,"outcome":{"status":"completed","output":1}}"#,
                "reply: do #2 completed",
                Some("ship[3]"),
            ),
            (
                Queue::Scheduler,
                r#"{"type":"command","command_id":"c","task_id":"o-1","by":"anna","why":"w","order":{"command":"undo"}}"#,
                "command of anna: undo",
                None,
            ),
            (
                Queue::Scheduler,
                r#"{"type":"callback","token":"o-1/ask/1","answer":"completed","output":1}"#,
                "callback: #1 completed",
                Some("ask"),
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
            assert_eq!(said(&queue, body), expected, "{body}");
        }
    }

    #[test]
    fn what_its_receiver_cannot_read_is_told_with_the_reason_and_without_a_value() {
        let wake = about(&Queue::Scheduler, r#"{"type":"wake","task_id":"o-1","cause":"secret"}"#);
        assert_eq!(wake.task_id.map(|id| id.to_string()).as_deref(), Some("o-1"));
        let problem = wake.problem.unwrap();
        assert!(problem.starts_with("unknown variant"), "{problem}");
        assert!(!problem.contains("secret"), "{problem}");
        let text = about(&Queue::Submissions, "card 4111");
        assert_eq!(text.problem.as_deref(), Some("not a submission: not a JSON object"));
        assert_eq!((text.task_id, text.submission), (None, None));
    }
}
