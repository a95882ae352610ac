//! Turns a submission, or an [event](event::ReceivedEvent) that triggers a workflow, into a new task, or refuses it with a reason.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    definition::{plan::Plan, workflow::Workflow},
    engine::placement::{place_documents, place_only_document},
    limits,
    model::{
        document::{Document, DocumentKey},
        inline_documents::InlineDocuments,
        integers::check_integers,
        json_text::to_json_value,
        messages::{Submission, mistake},
        names::Incarnation,
        rerun::Rerun,
        retention::retention_start,
        task::{ProcessState, StopCause, Task},
        time::{Timing, later},
    },
};

pub use refusal::SubmissionRefusal;

pub mod event;
mod labels;
pub mod payloads;
mod refusal;
pub mod rerun;

use labels::labels_of;
use payloads::claimed_submission;
use refusal::{attribute_text, too_large};

/// The queues to which notifications may be sent: exact URLs, or prefixes that end in `*`, which stands for the rest of a queue's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyQueues(Vec<String>);

impl ReplyQueues {
    /// Parses a comma-separated list.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(patterns.map(str::to_owned).collect())
    }

    /// Whether notifications may be sent to `url`.
    #[must_use]
    pub fn allow(&self, url: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => url.strip_prefix(prefix).is_some_and(is_end_of_queue_name),
            None => url == pattern,
        })
    }
}

/// Whether a text is the end of the name of an SQS queue: not of an account with a queue, and no query.
fn is_end_of_queue_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
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

/// Parses a submission from the text of a message.
///
/// # Errors
/// The refusal, with a reason that contains no values of the payload.
pub fn parse(text: &str) -> Result<Submission, SubmissionRefusal> {
    if text.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(too_large(text.len()));
    }
    // The parser would also accept an array, and would quote a bare string in its error message.
    if !text.trim_start().starts_with('{') {
        return Err(SubmissionRefusal::Malformed("not a JSON object".to_owned()));
    }
    let submission: Submission = serde_json::from_str(text)
        .map_err(|error| SubmissionRefusal::Malformed(parse_error_text(&error)))?;
    check_integers(text).map_err(|error| SubmissionRefusal::Malformed(error.to_string()))?;
    too_deep(&submission)?;
    Ok(submission)
}

fn too_deep(submission: &Submission) -> Result<(), SubmissionRefusal> {
    if limits::nests_too_deep(&submission.input) {
        let max = limits::JSON_DEPTH_MAX;
        return Err(SubmissionRefusal::TooLarge(format!(
            "the input nests deeper than {max} levels"
        )));
    }
    Ok(())
}

/// Describes a parse error in a form that is valid in a message attribute. The error quotes keys of the payload, which
/// may have any length and any characters.
fn parse_error_text(error: &serde_json::Error) -> String {
    attribute_text(&mistake(error), limits::REASON_CHARS_MAX)
}

/// Validates the input against the workflow's schema.
///
/// # Errors
/// The violations, with paths, types and limits, and without values.
pub fn check_input(submission: &Submission, workflow: &Workflow) -> Result<(), SubmissionRefusal> {
    let Some(schema) = &workflow.input else { return Ok(()) };
    // The schema's messages quote keys of the payload.
    schema.validate("input", &submission.input).map_err(|violations| {
        SubmissionRefusal::InvalidInput(attribute_text(&violations, limits::REASON_CHARS_MAX))
    })
}

/// The fields of an invalid submission that are needed to report its refusal, if they can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadableFields {
    /// The task id, for the notification and the alert.
    pub task_id: Option<String>,
    /// The queue for the notification.
    pub reply_to: Option<String>,
}

impl ReadableFields {
    /// Reads the fields from `text`. A field that cannot be read is absent.
    #[must_use]
    pub fn extract(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let field = |key: &str| value.get(key).and_then(Value::as_str);
        let task_id = field("task_id").map(|id| limits::short_line(id, limits::TASK_ID_CHARS_MAX));
        Self { task_id, reply_to: field("reply_to").map(str::to_owned) }
    }
}

/// Whether a text can be forwarded as `traceparent`, in a message attribute and in an HTTP header. With an invalid one, no
/// message of the task could be sent.
#[must_use]
pub fn is_traceparent(text: &str) -> bool {
    (1..=limits::TRACEPARENT_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Creates a new task with its submission. Returns the document with the submission if it does not fit into the task's
/// item.
///
/// # Errors
/// The refusal, if a label cannot be computed.
pub fn accept(
    submission: &Submission,
    plan: &Plan,
    traceparent: Option<String>,
    now: Timestamp,
    timing: Timing,
) -> Result<(Task, Option<Document>), SubmissionRefusal> {
    let labels = labels_of(submission, plan, now)?;
    let complete_by = later(now, plan.complete_within);
    let task = Task {
        task_id: submission.task_id.clone(),
        workflow: plan.name.clone(),
        version: plan.version,
        process_state: ProcessState::Pending,
        revision: 1,
        locked_by: None,
        saved_by: None,
        complete_by,
        failure_count: 0,
        submitted_at: now,
        incarnation: Incarnation::recorded_at(now),
        ended_at: None,
        // No attempt can be overdue before the shortest `complete_within` of the workflow. So a task that ends before
        // that updates the due index only at its end.
        due: Some(later(now, timing.pickup_within.min(plan.shortest_deadline()))),
        reply_to: submission.reply_to.clone(),
        tenant: submission.tenant.clone(),
        labels,
        parent: submission.parent.clone(),
        rerun: submission.rerun.as_ref().map(Rerun::from),
        retention_for_parent: submission.retention,
        retention_start: retention_start(complete_by, plan.complete_within),
        retention_s: plan.retention.map(|retention| retention.as_secs()),
        traceparent,
        error: None,
        resolved_at: None,
        undo_reason: None,
        undo_is_final: false,
        late_at: None,
        is_alert_due: false,
        stop_cause: StopCause::default(),
        paused_at: None,
        input_edit_id: None,
        commands: Vec::new(),
        steps: std::collections::BTreeMap::new(),
        documents: InlineDocuments::default(),
    };
    let mut task = if submission.undo { undone_before_start(task, now) } else { task };
    let documents = vec![submission_document(submission, &task, now)];
    let separate = place_documents(&mut task, plan, documents).pop();
    Ok((task, separate))
}

fn submission_document(submission: &Submission, task: &Task, now: Timestamp) -> Document {
    let body = to_json_value(&*claimed_submission(submission, &task.payload_place()));
    Document::new(DocumentKey::Submission, now, body)
}

/// Marks a task as undone before it began. If the submission that should run it arrives later, it finds this task and does
/// not run.
fn undone_before_start(task: Task, now: Timestamp) -> Task {
    Task {
        process_state: ProcessState::Undone,
        undo_reason: Some("undone before it began".to_owned()),
        ended_at: Some(now),
        due: None,
        ..task
    }
}

/// Creates the record of a child task that is to be undone although it has not begun and its workflow does not exist. If
/// the submission that should run the child arrives later, it finds this record and does not run. Returns the document with
/// the submission if it does not fit into the task's item.
#[must_use]
pub fn tombstone(submission: &Submission, now: Timestamp) -> (Task, Option<Document>) {
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
        incarnation: Incarnation::recorded_at(now),
        ended_at: None,
        due: None,
        reply_to: None,
        tenant: submission.tenant.clone(),
        labels: std::collections::BTreeMap::new(),
        parent: submission.parent.clone(),
        rerun: submission.rerun.as_ref().map(Rerun::from),
        retention_for_parent: submission.retention,
        retention_start: now,
        retention_s: None,
        traceparent: None,
        error: None,
        resolved_at: None,
        undo_reason: None,
        undo_is_final: false,
        late_at: None,
        is_alert_due: false,
        stop_cause: StopCause::default(),
        paused_at: None,
        input_edit_id: None,
        commands: Vec::new(),
        steps: std::collections::BTreeMap::new(),
        documents: InlineDocuments::default(),
    };
    let mut task = undone_before_start(task, now);
    let document = submission_document(submission, &task, now);
    let separate = place_only_document(&mut task, document);
    (task, separate)
}

/// Whether `task` was undone before it began, so that it can have no effects.
#[must_use]
pub fn is_tombstone(task: &Task) -> bool {
    task.process_state == ProcessState::Undone && task.steps.is_empty()
}

/// Whether `submission` is a repetition of the stored submission of `task`. Fields that the scheduler sets for each delivery
/// may differ.
#[must_use]
pub fn is_same_submission(task: &Task, stored: &Value, submission: &Submission) -> bool {
    let stored = serde_json::from_value::<Submission>(stored.clone());
    let submission = &*claimed_submission(submission, &task.payload_place());
    let Submission { undo, attempt, has_begun, retention, .. } = *submission;
    stored.is_ok_and(|stored| {
        Submission { undo, attempt, has_begun, retention, ..stored } == *submission
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_queues_match_exactly_or_by_prefix() {
        let queues = ReplyQueues::parse(" https://q/1/client-* , https://q/1/other ");
        assert!(queues.allow("https://q/1/client-a"));
        assert!(queues.allow("https://q/1/other"));
        assert!(!queues.allow("https://q/1/other2"));
        assert!(queues.allow("https://q/1/client-a_7.fifo"));
        for url in [
            "https://q/1/client-",
            "https://q/1/client-a/b",
            "https://q/1/client-a/../../2/other",
            "https://q/1/client-a?x=1",
            "https://q/1/client-%2e%2e",
            "https://q/1/client-a\\b",
            "https://q/1/client-a\n",
        ] {
            assert!(!queues.allow(url), "{url}");
        }
        // The prefix of a host names no queue.
        assert!(!ReplyQueues::parse("https://q/*").allow("https://q/1/other"));
        assert!(!ReplyQueues::parse("").allow("https://q/1/other"));
    }

    #[test]
    fn invalid_submission_is_refused_with_the_position_of_the_error() {
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
    fn refusal_is_short_and_printable_for_any_payload() {
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
    fn id_and_reply_queue_of_an_invalid_submission_are_read_if_possible() {
        let readable =
            ReadableFields::extract(r#"{"task_id":"a b","reply_to":"https://q/1/client-a","x":1}"#);
        let (task_id, reply_to) = ("a b".to_owned(), "https://q/1/client-a".to_owned());
        assert_eq!(readable, ReadableFields { task_id: Some(task_id), reply_to: Some(reply_to) });
        for text in ["{", "[]", r#"{"task_id":1,"reply_to":{}}"#] {
            assert_eq!(ReadableFields::extract(text), ReadableFields::default());
        }
    }

    #[test]
    fn traceparent_must_be_valid_in_a_header_and_in_an_attribute() {
        assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for text in ["", " ", "a\nb", "ü", &"a".repeat(1_000)] {
            assert!(!is_traceparent(text), "{text:?}");
        }
    }

    #[test]
    fn integer_that_would_lose_digits_is_refused() {
        let text = r#"{"task_id":"a","workflow":"order","input":{"id":18446744073709551616}}"#;
        assert_eq!(
            parse(text).unwrap_err().to_string(),
            "not a submission: an integer of more than 64 bits at line 1 column 49: it would lose digits; \
             send it as a string"
        );
        let largest = parse(&text.replace("616}", "615}")).unwrap();
        assert_eq!(largest.input["id"], serde_json::json!(u64::MAX));
    }

    #[test]
    fn oversized_submission_is_refused() {
        let text = format!(
            r#"{{"task_id":"a","workflow":"order","input":"{}"}}"#,
            "x".repeat(limits::DOCUMENT_BYTES_MAX)
        );
        assert!(parse(&text).unwrap_err().to_string().ends_with("the limit is 131072"));
    }
}
