//! What is stored with the outcome of an attempt: its times, and what the service said.

use super::*;
use crate::{
    engine::{
        effect::Effect,
        event::Event,
        tests::{TaskDriver, reply as reply_to},
    },
    model::{inline_documents::InlineDocuments, task::Task},
};

/// Returns the documents of the step that a task with one step of 30 seconds stores for these events, each at a time
/// in seconds.
fn documents(events: &[(i64, Event)]) -> Vec<Document> {
    run(events).0
}

/// Returns the same, with the task and the effects after the last event.
fn run(events: &[(i64, Event)]) -> (Vec<Document>, Task, Vec<Effect>) {
    let step = json!({ "agent": "a", "complete_within": "30s", "request": { "path": "/a" } });
    let definition = json!({ "complete_within": "10m", "steps": { "a": step } });
    let mut driver = TaskDriver::new(definition, &Value::Null);
    let (mut stored, mut last_effects) = (Vec::new(), Vec::new());
    for (second, event) in events {
        let (documents, effects) = driver.apply_at(*second, event);
        stored.extend(documents);
        last_effects = effects;
    }
    let inline = driver.task.documents.iter();
    stored.extend(inline.filter(|document| document.key != DocumentKey::Submission));
    (stored, driver.task, last_effects)
}

fn completed(times: AttemptTimes) -> Event {
    reply(ReplyOutcome::Completed { output: Value::Null, may_continue: false }, times)
}

fn reply(outcome: ReplyOutcome, times: AttemptTimes) -> Event {
    Event::ReplyReceived(StepReply { times, ..reply_to("a", Action::Do, 1, outcome) })
}

fn at(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}

#[test]
fn the_times_in_a_reply_are_stored_with_the_output() {
    let times = AttemptTimes { queued_at: at(6), called_at: at(7), answered_at: at(8) };
    let stored = documents(&[(5, Event::Wake), (9, completed(times))]);
    assert_eq!(stored.iter().map(|document| document.times).collect::<Vec<_>>(), [times]);
}

#[test]
fn the_send_time_of_an_attempt_is_known_without_a_reply_or_without_times_in_it() {
    let sent = AttemptTimes { queued_at: at(5), ..AttemptTimes::default() };
    for end in [(9, completed(AttemptTimes::default())), (36, Event::Swept)] {
        let stored = documents(&[(5, Event::Wake), end]);
        assert_eq!(stored.iter().map(|document| document.times).collect::<Vec<_>>(), [sent]);
    }
}

/// A step may be deferred any number of times, so its deferrals keep less.
#[test]
fn what_the_service_said_is_stored_with_a_deferral_and_shortened() {
    let outcome = ReplyOutcome::Deferred {
        reason: "HTTP 429".to_owned(),
        retry_after_ms: 1_000,
        may_have_run: false,
        certain: false,
        call_in_doubt: false,
        detail: ErrorDetail::of_body("busy ".repeat(200).as_bytes()),
    };
    let events = [(5, Event::Wake), (9, reply(outcome, AttemptTimes::default()))];
    let (stored, ..) = run(&events);
    let [deferral] = stored.as_slice() else { panic!("{stored:?}") };
    assert!(matches!(deferral.key, DocumentKey::Deferral(_)));
    let detail = deferral.body["detail"].as_str().unwrap();
    assert!(detail.starts_with("busy ") && detail.len() <= limits::DEFERRAL_DETAIL_BYTES_MAX);
}

#[test]
fn what_the_service_said_is_stored_with_the_failure_and_nowhere_else() {
    let (reason, detail) = ("HTTP 402".to_owned(), ErrorDetail::of_body(b"card s3cret"));
    let failed = ReplyOutcome::Failed {
        reason: reason.clone(),
        may_have_run: false,
        call_in_doubt: false,
        detail: detail.clone(),
    };
    for outcome in [failed, ReplyOutcome::Unknown { reason, detail }] {
        let events = [(5, Event::Wake), (9, reply(outcome, AttemptTimes::default()))];
        let (stored, mut task, effects) = run(&events);
        let [failure] = stored.as_slice() else { panic!("{stored:?}") };
        assert_eq!(
            (&failure.body["reason"], &failure.body["detail"]),
            (&json!("HTTP 402"), &json!("card s3cret"))
        );
        assert!(!effects.is_empty(), "the alert");
        task.documents = InlineDocuments::default();
        let elsewhere = format!("{effects:?} {}", serde_json::to_string(&task).unwrap());
        assert!(!elsewhere.contains("s3cret"), "{elsewhere}");
    }
}
