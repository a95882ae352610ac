//! Submission's decision: what becomes of a submission, or of an [event](event::Event) that a workflow
//! is triggered by, or why it can never succeed. Pure.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    definition::workflow::Workflow,
    limits,
    model::{
        document::{Document, DocumentKey},
        integers::check_integers,
        messages::{Submission, mistake},
        names::{Incarnation, WorkflowName},
        task::{ProcessState, Task, kept_from},
        time::{Timing, later},
    },
};

pub mod event;

/// Why a submission is refused: it cannot succeed however often it is sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not a submission.
    #[error("not a submission: {0}")]
    Malformed(String),
    /// It is over a limit.
    #[error("{0}")]
    TooLarge(String),
    /// No such workflow is published.
    #[error("there is no workflow `{0}`")]
    UnknownWorkflow(String),
    /// The input is not what the workflow's schema says.
    #[error("{0}")]
    InvalidInput(String),
    /// An event that no published workflow is triggered by.
    #[error("no workflow is triggered by source `{source_name}` and detail-type `{detail_type}`")]
    NoTrigger {
        /// The event's source.
        source_name: String,
        /// Its detail-type.
        detail_type: String,
    },
    /// A workflow's trigger makes no submission of the event.
    #[error("workflow `{workflow}`: trigger.{key}: {reason}")]
    Trigger {
        /// The workflow.
        workflow: WorkflowName,
        /// Which of the trigger's templates.
        key: &'static str,
        /// Why; never a value.
        reason: String,
    },
    /// The queue for notices is not one that notices may go to.
    #[error("reply_to is not on the list of reply queues")]
    ReplyQueueNotAllowed,
    /// The id belongs to another task.
    #[error("task `{0}` exists already, with other content")]
    IdTaken(String),
    /// It came so late that the task that it is for may have expired.
    #[error("the submission came after the time of the task that it is for")]
    TooLate,
}

/// The queues that notices may go to: exact URLs, or with a `*` at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyQueues(Vec<String>);

impl ReplyQueues {
    /// Reads a comma-separated list.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(patterns.map(str::to_owned).collect())
    }

    /// Whether notices may go to `url`.
    #[must_use]
    pub fn allow(&self, url: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => url.starts_with(prefix),
            None => url == pattern,
        })
    }
}

impl std::str::FromStr for ReplyQueues {
    type Err = std::convert::Infallible;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        Ok(Self::parse(list))
    }
}

impl fmt::Display for ReplyQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Reads a submission from the text of a message.
///
/// # Errors
/// The refusal, which says what is wrong and never repeats the payload.
pub fn parse(text: &str) -> Result<Submission, Refusal> {
    if text.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(too_large(text.len()));
    }
    // The parser would take an array for one as well, and quote a bare text in its message.
    if !text.trim_start().starts_with('{') {
        return Err(Refusal::Malformed("not a JSON object".to_owned()));
    }
    let submission: Submission =
        serde_json::from_str(text).map_err(|error| Refusal::Malformed(plain(&error)))?;
    check_integers(text).map_err(|error| Refusal::Malformed(error.to_string()))?;
    too_deep(&submission)?;
    Ok(submission)
}

fn too_large(bytes: usize) -> Refusal {
    let max = limits::DOCUMENT_BYTES_MAX;
    Refusal::TooLarge(format!("a submission of {bytes} bytes; the limit is {max}"))
}

fn too_deep(submission: &Submission) -> Result<(), Refusal> {
    if limits::too_deep(&submission.input) {
        let max = limits::JSON_DEPTH_MAX;
        return Err(Refusal::TooLarge(format!("the input nests deeper than {max} levels")));
    }
    Ok(())
}

/// What the parser found, as a queue's attribute may hold it: it quotes keys, which may be of any length
/// and have any character.
fn plain(error: &serde_json::Error) -> String {
    visible(&mistake(error), limits::REASON_CHARS_MAX)
}

/// A text as a queue's attribute may hold it, at most this long.
fn visible(text: &str, chars_max: usize) -> String {
    let visible = |c: char| {
        if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }
    };
    let text: String = text.chars().map(visible).collect();
    limits::shorten(&text, chars_max)
}

/// Whether the input is what the workflow's schema says.
///
/// # Errors
/// What is wrong with it: places, types and limits, and no values.
pub fn check_input(submission: &Submission, workflow: &Workflow) -> Result<(), Refusal> {
    let Some(schema) = &workflow.input else { return Ok(()) };
    // The schema's messages quote keys, which are the client's.
    schema
        .validate(&submission.input)
        .map_err(|wrong| Refusal::InvalidInput(visible(&wrong, limits::REASON_CHARS_MAX)))
}

/// What a text that is no submission may still show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readable {
    /// The task's id, for the notice and the alert.
    pub task_id: Option<String>,
    /// The queue for the notice.
    pub reply_to: Option<String>,
}

impl Readable {
    /// Looks into `text`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let task_id = text("task_id").map(|id| limits::shorten(id, limits::TASK_ID_CHARS_MAX));
        Self { task_id, reply_to: text("reply_to").map(str::to_owned) }
    }
}

/// Whether a text can be handed on as `traceparent`: in a queue's attribute and in a header. One that
/// cannot would keep all of a task's messages from being sent.
#[must_use]
pub fn is_traceparent(text: &str) -> bool {
    (1..=limits::TRACEPARENT_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The new task and the document that goes with it.
#[must_use]
pub fn accept(
    submission: &Submission,
    workflow: &Workflow,
    traceparent: Option<String>,
    now: Timestamp,
    timing: Timing,
) -> (Task, Document) {
    let complete_by = later(now, workflow.complete_within);
    let task = Task {
        task_id: submission.task_id.clone(),
        workflow: workflow.name.clone(),
        version: workflow.version,
        process_state: ProcessState::Pending,
        revision: 1,
        locked_by: None,
        saved_by: None,
        complete_by,
        failure_count: 0,
        submitted_at: now,
        incarnation: Some(Incarnation::recorded_at(now)),
        ended_at: None,
        // No attempt can be past due before the shortest time that one may take: a quick task never
        // touches the index again until it ends.
        due: Some(later(now, timing.pickup_within.min(workflow.shortest_within()))),
        reply_to: submission.reply_to.clone(),
        parent: submission.parent.clone(),
        kept_for_parent: submission.keep,
        kept_from: Some(kept_from(complete_by, workflow.complete_within)),
        retention_s: workflow.retention.map(|retention| retention.as_secs()),
        traceparent,
        error: None,
        undo_reason: None,
        paused_at: None,
        input: None,
        commands: Vec::new(),
        steps: std::collections::BTreeMap::new(),
    };
    let task = if submission.undo { never_done(task, now) } else { task };
    let body = serde_json::to_value(submission).unwrap_or(Value::Null);
    (task, Document::new(DocumentKey::Submission, now, body))
}

/// A task that is undone before it was ever done: if the submission that asked for it still comes,
/// there is a task already.
fn never_done(task: Task, now: Timestamp) -> Task {
    Task {
        process_state: ProcessState::Undone,
        undo_reason: Some("undone before it began".to_owned()),
        ended_at: Some(now),
        due: None,
        ..task
    }
}

/// The record of a task of a step that is undone although no workflow can be found for it: whenever the
/// submission that asks for it to be done still comes, there is a task already.
#[must_use]
pub fn tombstone(submission: &Submission, now: Timestamp) -> (Task, Document) {
    let task = Task {
        task_id: submission.task_id.clone(),
        workflow: submission.workflow.clone(),
        version: submission.version.unwrap_or_default(),
        process_state: ProcessState::Pending,
        revision: 1,
        locked_by: None,
        saved_by: None,
        complete_by: now,
        failure_count: 0,
        submitted_at: now,
        incarnation: Some(Incarnation::recorded_at(now)),
        ended_at: None,
        due: None,
        reply_to: None,
        parent: submission.parent.clone(),
        kept_for_parent: submission.keep,
        kept_from: Some(now),
        retention_s: None,
        traceparent: None,
        error: None,
        undo_reason: None,
        paused_at: None,
        input: None,
        commands: Vec::new(),
        steps: std::collections::BTreeMap::new(),
    };
    let body = serde_json::to_value(submission).unwrap_or(Value::Null);
    (never_done(task, now), Document::new(DocumentKey::Submission, now, body))
}

/// Whether `task` was undone before it ever began: nothing of it can be left.
#[must_use]
pub fn is_tombstone(task: &Task) -> bool {
    task.process_state == ProcessState::Undone && task.steps.is_empty()
}

/// Whether a stored submission is the same as `submission`.
#[must_use]
pub fn is_same(stored: &Value, submission: &Submission) -> bool {
    let stored = serde_json::from_value::<Submission>(stored.clone());
    let Submission { undo, attempt, has_begun, keep, .. } = *submission;
    stored
        .is_ok_and(|stored| Submission { undo, attempt, has_begun, keep, ..stored } == *submission)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_queues_match_whole_or_by_prefix() {
        let queues = ReplyQueues::parse(" https://q/1/client-* , https://q/1/other ");
        assert!(queues.allow("https://q/1/client-a"));
        assert!(queues.allow("https://q/1/other"));
        assert!(!queues.allow("https://q/1/other2"));
        assert!(!ReplyQueues::parse("").allow("https://q/1/other"));
    }

    #[test]
    fn what_is_no_submission_is_refused_with_the_place() {
        for (text, reason) in [
            ("{", "not a submission: EOF while parsing an object at line 1 column 1"),
            (r#""secret""#, "not a submission: not a JSON object"),
            (r#"["a","order",null,{},null]"#, "not a submission: not a JSON object"),
            (
                r#"{"workflow":"order"}"#,
                "not a submission: missing field `task_id` at line 1 column 20",
            ),
            (
                r#"{"task_id":"a b","workflow":"order"}"#,
                "not a submission: task id `a b` is not valid: a letter or digit, then letters, digits, \
                 `-`, `_`, `.` and `:`, at most 128 characters at line 1 column 16",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn a_refusal_is_short_and_printable_whatever_it_quotes() {
        let long = parse(&format!(r#"{{"{}\u0007\uffff":1}}"#, "x".repeat(10_000)))
            .unwrap_err()
            .to_string();
        let start = "not a submission: unknown field `xxx";
        assert!(long.starts_with(start) && long.chars().count() <= 2_100, "{long}");
        let odd = parse(r#"{"a\u0007\uffff":1}"#).unwrap_err().to_string();
        assert!(
            odd.starts_with("not a submission: unknown field `a\u{fffd}\u{fffd}`, expected"),
            "{odd}"
        );
    }

    #[test]
    fn what_is_no_submission_may_still_show_its_id_and_the_clients_queue() {
        let readable = Readable::of(r#"{"task_id":"a b","reply_to":"https://q/1/client-a","x":1}"#);
        let (task_id, reply_to) = ("a b".to_owned(), "https://q/1/client-a".to_owned());
        assert_eq!(readable, Readable { task_id: Some(task_id), reply_to: Some(reply_to) });
        for text in ["{", "[]", r#"{"task_id":1,"reply_to":{}}"#] {
            assert_eq!(Readable::of(text), Readable::default());
        }
    }

    #[test]
    fn a_traceparent_must_fit_in_a_header_and_in_an_attribute() {
        assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for text in ["", " ", "a\nb", "ü", &"a".repeat(1_000)] {
            assert!(!is_traceparent(text), "{text:?}");
        }
    }

    #[test]
    fn an_integer_that_would_lose_digits_is_refused() {
        let text = r#"{"task_id":"a","workflow":"order","input":{"id":18446744073709551616}}"#;
        assert_eq!(
            parse(text).unwrap_err().to_string(),
            "not a submission: an integer of more than 64 bits at line 1 column 49: it would lose digits; \
             send it as a text"
        );
        let largest = parse(&text.replace("616}", "615}")).unwrap();
        assert_eq!(largest.input["id"], serde_json::json!(u64::MAX));
    }

    #[test]
    fn an_oversized_submission_is_refused() {
        let text = format!(
            r#"{{"task_id":"a","workflow":"order","input":"{}"}}"#,
            "x".repeat(limits::DOCUMENT_BYTES_MAX)
        );
        assert!(parse(&text).unwrap_err().to_string().ends_with("the limit is 131072"));
    }
}
