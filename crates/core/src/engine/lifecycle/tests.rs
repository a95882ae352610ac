use serde_json::{Value, json};

use super::*;
use crate::{contract::check_lifecycle_event, model::items::ItemRecords};

fn plan(lifecycle_events: &Value) -> Plan {
    let call = |after: Value| json!({ "agent": "a", "after": after, "request": { "path": "/" } });
    let mut ship = call(json!(["charge"]));
    ship["for_each"] = json!({ "items": "${ input }" });
    let definition = json!({
        "name": "order", "version": 2, "lifecycle_events": lifecycle_events,
        "steps": { "charge": call(json!([])), "ship": ship },
    });
    serde_json::from_value(definition).unwrap()
}

fn task(process_state: &str, steps: Value) -> Task {
    let task = json!({
        "task_id": "o-1", "workflow": "order", "v": 2, "i": 1_000, "k": 9_000, "process_state": process_state, "revision": 1,
        "complete_by": 9_000_000, "submitted_at": 1_000, "ended_at": 5_000, "steps": steps,
    });
    serde_json::from_value(task).unwrap()
}

/// The id and the data of each event, which obeys the published schema.
fn published(effects: Vec<Effect>) -> Vec<(String, Value)> {
    let event = |effect| {
        let Effect::Publish(event) = effect else { panic!("no event: {effect:?}") };
        let event = serde_json::to_value(event).unwrap();
        check_lifecycle_event(&event).unwrap();
        (event["id"].as_str().unwrap().to_owned(), event["data"].clone())
    };
    effects.into_iter().map(event).collect()
}

fn ids(effects: Vec<Effect>) -> Vec<String> {
    published(effects).into_iter().map(|(id, _)| id).collect()
}

fn now() -> Timestamp {
    Timestamp::from_second(7).unwrap()
}

#[test]
fn a_change_has_the_chosen_events_of_what_changed() {
    let before = task("Processing", json!({ "charge": { "s": "r", "a": 1, "b": 9_000 } }));
    let after = task("Processing", json!({ "charge": { "s": "c", "a": 1 } }));
    let all = plan(&json!(LifecycleEventKind::ALL));
    let completed = published(events_of_change(&all, &before, &after, now()));
    let data = json!({
        "task_id": "o-1", "workflow": "order", "version": 2, "submitted_at": "1970-01-01T00:00:01Z",
        "step": "charge", "attempt": 1,
    });
    assert_eq!(completed, [("o-1/1000/charge/completed/1".to_owned(), data)]);
    assert_eq!(events_of_change(&all, &after, &after, now()), []);
    let others = plan(&json!(["submitted", "step_failed", "processed", "undone", "error"]));
    assert_eq!(events_of_change(&others, &before, &after, now()), []);
    let pending = task("Pending", json!({}));
    assert_eq!(ids(events_of_change(&all, &pending, &before, now())), ["o-1/1000/submitted"]);
}

#[test]
fn a_decision_publishes_at_most_a_hundred_failed_items() {
    let ship = |state: StepState| {
        let mut task = task("Undoing", json!({}));
        let mut record = StepRecord::new(StepState::RunningItems);
        record.items =
            Some(ItemRecords::with_started(150, (0..150).map(|_| StepRecord::new(state.clone()))));
        task.steps.insert("ship".parse().unwrap(), record);
        task
    };
    let before = ship(StepState::waiting(Some(2), now()));
    let after = ship(StepState::Failed { attempt: Some(2) });
    let all = plan(&json!(LifecycleEventKind::ALL));
    let failed = ids(events_of_change(&all, &before, &after, now()));
    assert_eq!(failed.len(), 100);
    assert_eq!(
        (failed[0].as_str(), failed[99].as_str()),
        ("o-1/1000/ship[0]/failed/2", "o-1/1000/ship[99]/failed/2")
    );
    assert_eq!(ids(lost_events(&all, &after, &MayHaveLost::Wake, now())).len(), 101);
}

#[test]
fn what_may_have_been_lost_depends_on_the_cause() {
    let all = plan(&json!(LifecycleEventKind::ALL));
    let steps = json!({
        "charge": { "s": "c", "a": 2, "o": "c-7" },
        "ship": { "s": "c", "a": 0, "p": { "n": 0 } },
    });
    let task = task("Processing", steps);
    let lost = |cause| ids(lost_events(&all, &task, &cause, now()));
    let (submitted, charge, ship) =
        ("o-1/1000/submitted", "o-1/1000/charge/completed/2/c-7", "o-1/1000/ship/completed");
    let (step, other) = ("charge".parse().unwrap(), "ship".parse().unwrap());
    assert_eq!(lost(MayHaveLost::Wake), [submitted, ship]);
    assert_eq!(lost(MayHaveLost::Reply(&step)), [charge, ship]);
    assert_eq!(lost(MayHaveLost::Reply(&other)), [ship]);
    assert_eq!(lost(MayHaveLost::Command), [submitted, charge, ship]);
    assert_eq!(lost(MayHaveLost::Sweep), Vec::<String>::new());
}

#[test]
fn the_end_of_a_task_is_identified_by_its_time() {
    let all = plan(&json!(LifecycleEventKind::ENDS));
    let end = |state, undo_reason: Value| {
        let mut task = task(state, json!({}));
        task.undo_reason = serde_json::from_value(undo_reason).unwrap();
        published(end_event(&all, &task).into_iter().collect())
    };
    let [(id, data)] = end("Error", json!("asked")).try_into().unwrap();
    assert_eq!((id.as_str(), &data["undo_failed"]), ("o-1/1000/error/5000", &json!(true)));
    let [(id, data)] = end("Error", Value::Null).try_into().unwrap();
    assert_eq!((id.as_str(), &data["undo_failed"]), ("o-1/1000/error/5000", &json!(false)));
    assert_eq!(end("Undone", json!("asked"))[0].0, "o-1/1000/undone/5000");
    assert_eq!(end("Processed", Value::Null)[0].0, "o-1/1000/processed/5000");
    assert_eq!(end("Undoing", json!("asked")), []);
}

#[test]
fn a_child_that_was_undone_before_it_began_has_no_events() {
    let mut tombstone = task("Undone", json!({}));
    assert!(!never_began(&tombstone));
    tombstone.ended_at = Some(tombstone.submitted_at);
    assert!(never_began(&tombstone));
}
