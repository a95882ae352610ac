use std::time::Duration;

use serde_json::json;

use super::*;
use crate::model::{json_text::to_json_text, time::later};

const HOUR: Duration = Duration::from_secs(3600);

fn at(hours: u32) -> Timestamp {
    later(Timestamp::UNIX_EPOCH, HOUR * hours)
}

fn waiter(task: &str, attempt: u32, until: u32) -> Waiter {
    let (task_id, step) = (task.parse().unwrap(), "paid".parse().unwrap());
    let incarnation = Incarnation::recorded_at(at(0));
    Waiter { task_id, incarnation, step, attempt, until: at(until), tenant: None }
}

fn event(id: &str) -> ReplyOutcome {
    ReplyOutcome::Completed { output: json!({ "id": id }), may_continue: false }
}

/// Records an event, and returns the task that it completes.
fn record(record: &mut CorrelationRecord, id: &str, hours: u32) -> Option<String> {
    let (waiter, outcome) = record.record(id, event(id), at(hours))?;
    assert!(matches!(outcome, ReplyOutcome::Completed { .. }));
    Some(waiter.task_id.to_string())
}

/// What a step has when it begins to wait: the id of the event, or the reason why it fails.
fn subscribe(record: &mut CorrelationRecord, waiter: Waiter, hours: u32) -> Option<String> {
    match record.subscribe(waiter, at(hours))? {
        ReplyOutcome::Completed { output, .. } => Some(output["id"].as_str().unwrap().to_owned()),
        ReplyOutcome::Failed { reason, .. } => Some(reason),
        ReplyOutcome::Deferred { .. } | ReplyOutcome::Unknown { .. } => None,
    }
}

#[test]
fn an_event_completes_the_step_that_waits_for_it_and_so_does_its_repetition() {
    let mut found = CorrelationRecord::default();
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 5), 0), None);
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 5), 1), None, "a repeated subscription");
    assert_eq!(record(&mut found, "e-1", 2).as_deref(), Some("o-1"));
    assert_eq!(record(&mut found, "e-1", 3).as_deref(), Some("o-1"), "the reply may be lost");
    let again = subscribe(&mut found, waiter("o-1", 1, 5), 3);
    assert_eq!(again.as_deref(), Some("e-1"), "the reply may be lost");
}

#[test]
fn an_event_that_comes_before_the_step_waits_is_kept_for_a_day() {
    let mut found = CorrelationRecord::default();
    assert_eq!(record(&mut found, "e-1", 0), None);
    assert_eq!(record(&mut found, "e-2", 1), None, "the first event counts");
    let mut late = found.clone();
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 40), 23).as_deref(), Some("e-1"));
    assert_eq!(subscribe(&mut late, waiter("o-1", 1, 40), 24), None);
    assert_eq!(late.expires_at(), at(40));
}

#[test]
fn one_event_completes_one_step() {
    let mut found = CorrelationRecord::default();
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 5), 0), None);
    let refused = subscribe(&mut found, waiter("o-2", 1, 9), 1).unwrap();
    assert_eq!(
        refused,
        "step paid of task o-1 waits for an event with the same key, until 1970-01-01T05:00:00Z"
    );
    assert_eq!(record(&mut found, "e-1", 2).as_deref(), Some("o-1"));
    assert_eq!(subscribe(&mut found, waiter("o-2", 1, 9), 3), None, "the first has its event");
    assert_eq!(
        record(&mut found, "e-1", 3).as_deref(),
        Some("o-1"),
        "a duplicate is for the first"
    );
    assert_eq!(record(&mut found, "e-2", 4).as_deref(), Some("o-2"));
}

#[test]
fn an_event_for_a_second_step_that_comes_early_is_kept() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 1, 5), 0);
    record(&mut found, "e-1", 1);
    assert_eq!(record(&mut found, "e-2", 2), None);
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 5), 2).as_deref(), Some("e-1"));
    assert_eq!(subscribe(&mut found, waiter("o-2", 1, 9), 3).as_deref(), Some("e-2"));
}

#[test]
fn a_wait_that_is_over_blocks_no_other_and_takes_no_event() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 1, 5), 0);
    assert_eq!(record(&mut found, "e-1", 5), None, "too late for the first attempt");
    let mut other = found.clone();
    assert_eq!(subscribe(&mut found, waiter("o-1", 2, 9), 6).as_deref(), Some("e-1"));
    assert_eq!(subscribe(&mut other, waiter("o-2", 1, 9), 6).as_deref(), Some("e-1"));
}

#[test]
fn a_later_attempt_takes_the_place_of_an_earlier_one() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 1, 5), 0);
    assert_eq!(subscribe(&mut found, waiter("o-1", 2, 9), 1), None);
    let (waiter, _) = found.record("e-1", event("e-1"), at(6)).unwrap();
    assert_eq!(waiter.attempt, 2);
}

#[test]
fn an_older_subscription_that_arrives_late_changes_nothing() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 2, 9), 1);
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 9), 2), None);
    assert_eq!(subscribe(&mut found, waiter("o-2", 1, 2), 3), None, "its wait is over");
    let (waiter, _) = found.record("e-1", event("e-1"), at(4)).unwrap();
    assert_eq!(waiter.attempt, 2);
}

#[test]
fn a_task_that_uses_the_id_of_an_earlier_one_takes_its_place() {
    let of = |incarnation: i64, until| Waiter {
        incarnation: serde_json::from_value(json!(incarnation)).unwrap(),
        ..waiter("o-1", 1, until)
    };
    let mut found = CorrelationRecord::default();
    assert_eq!(subscribe(&mut found, of(1, 50), 0), None);
    assert_eq!(subscribe(&mut found, of(2, 60), 30), None);
    assert!(subscribe(&mut found, of(1, 50), 31).is_some(), "the earlier task waits no longer");
    assert_eq!(found.record("e-1", event("e-1"), at(32)).unwrap().0, of(2, 60));
}

#[test]
fn repetitions_of_earlier_pairs_disturb_no_later_one() {
    let mut found = CorrelationRecord::default();
    for n in 1..=3 {
        assert_eq!(subscribe(&mut found, waiter(&format!("o-{n}"), 1, 9), n), None);
        assert!(record(&mut found, &format!("e-{n}"), n).is_some());
    }
    assert_eq!(subscribe(&mut found, waiter("o-4", 1, 9), 4), None);
    // The first subscription and the first event arrive again.
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 9), 5), None);
    assert_eq!(record(&mut found, "e-1", 5).as_deref(), Some("o-1"));
    assert_eq!(record(&mut found, "e-4", 6).as_deref(), Some("o-4"));
}

#[test]
fn after_an_event_that_failed_the_step_another_attempt_waits_for_the_next() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 1, 9), 0);
    assert!(found.record("e-1", failed("too large".to_owned()), at(1)).is_some());
    assert_eq!(subscribe(&mut found, waiter("o-1", 1, 9), 2).as_deref(), Some("too large"));
    assert_eq!(subscribe(&mut found, waiter("o-1", 2, 9), 3), None);
    assert_eq!(record(&mut found, "e-2", 4).as_deref(), Some("o-1"));
}

#[test]
fn a_record_is_stored_without_loss() {
    let mut found = CorrelationRecord::default();
    subscribe(&mut found, waiter("o-1", 1, 5), 0);
    record(&mut found, "e-1", 1);
    record(&mut found, "e-2", 1);
    subscribe(&mut found, waiter("o-2", 1, 5), 0);
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<CorrelationRecord>(&text).unwrap(), found);
}

fn awaited(key: &str) -> AwaitedEvent {
    serde_json::from_value(json!({
        "source": "shop", "detail_type": "Paid", "key": key, "equals": "${ task.id }",
    }))
    .unwrap()
}

fn key(of: &str, value: &serde_json::Value) -> Result<String, InvalidCorrelationKey> {
    let (workflow, step) = ("order".parse().unwrap(), "paid".parse().unwrap());
    CorrelationKey::new(&workflow, &step, &awaited(of), value).map(|key| key.to_string())
}

#[test]
fn a_key_names_workflow_and_step_and_hides_the_value() {
    let (one, other) = ("${ event.detail.order }", "${ event.detail.id }");
    let found = key(one, &json!("o-1")).unwrap();
    assert_eq!(found.len(), "order/paid/".len() + 64);
    assert!(found.starts_with("order/paid/") && !found.contains("o-1"));
    assert_ne!(key(other, &json!("o-1")).unwrap(), found);
    assert_ne!(key(one, &json!("o-2")).unwrap(), found);
    assert_eq!(key(one, &json!(7)), key(one, &json!("7")));
}

#[test]
fn a_value_that_is_no_key_is_refused_without_the_value() {
    for value in [json!(null), json!(true), json!(1.5), json!(["secret"]), json!({ "a": 1 })] {
        let refused = key("${ event.id }", &value).unwrap_err();
        assert_eq!(refused, InvalidCorrelationKey::WrongType);
        assert_eq!(refused.to_string(), "the correlation key is neither a text nor an integer");
    }
    assert!(key("${ event.id }", &json!("")).is_err());
    let long = "x".repeat(limits::CORRELATION_KEY_CHARS_MAX + 1);
    assert_eq!(
        key("${ event.id }", &json!(long)).unwrap_err().to_string(),
        "the correlation key has 257 characters; it must have 1 to 256"
    );
}

/// The item of a record has at most 400 KB. EventBridge gives events ids of 36 characters.
#[test]
fn the_largest_record_fits_into_its_item() {
    let output = json!("x".repeat(limits::DOCUMENT_BYTES_MAX - 2));
    let event = ReplyOutcome::Completed { output, may_continue: false };
    let mut found = CorrelationRecord::default();
    for n in 0..=PAIRS_MAX {
        let task = format!("{n}{}", "x".repeat(limits::TASK_ID_CHARS_MAX - 1));
        let step = format!("{}[9999]", "s".repeat(limits::NAME_CHARS_MAX)).parse().unwrap();
        let tenant = Some("t".repeat(limits::TENANT_CHARS_MAX).parse().unwrap());
        let waiter = Waiter { step, tenant, ..waiter(&task, u32::MAX, 9) };
        assert_eq!(found.subscribe(waiter, at(1)), None);
        assert!(found.record(&format!("{n:036}"), event.clone(), at(1)).is_some());
    }
    assert!(found.record("kept", event, at(1)).is_none());
    let bytes = to_json_text(&found).len();
    assert!((2 * limits::DOCUMENT_BYTES_MAX..300_000).contains(&bytes), "{bytes}");
}
