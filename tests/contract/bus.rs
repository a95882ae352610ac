//! The event bus: what is published arrives whole, under its kind.

use serde_json::{Value, json};
use steward_core::{
    messages::{Alert, BusEvent, TaskEnded},
    ports::{EventBus, Ports},
    task::ProcessState,
};

use super::{
    samples::{at, id, step},
    worlds::World,
};

async fn publish<P: Ports>(ports: &P, events: Vec<BusEvent>) {
    let count = events.len();
    let answers = ports.bus().publish(events).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers.len(), count);
}

/// What was published, in the order of kinds: a bus promises none.
async fn published(world: &impl World) -> Vec<(String, Value)> {
    let mut published = world.published().await;
    published.sort_by(|(a, _), (b, _)| a.cmp(b));
    published
}

pub(super) async fn an_event_is_published_with_its_kind_and_content(world: impl World) {
    let (reason, at) = ("declined \u{1f4b3}\n".to_owned(), at(0));
    let events = vec![
        BusEvent::Alert(Alert::TaskInError {
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            steps: vec![step("charge"), step("pack")],
            reason: reason.clone(),
            at,
        }),
        BusEvent::Alert(Alert::SubmissionRefused { task_id: None, reason: reason.clone(), at }),
        BusEvent::Alert(Alert::MessageCorrupt {
            role: "scheduler".to_owned(),
            message_id: "m-1".to_owned(),
            reason: reason.clone(),
            at,
        }),
        BusEvent::TaskEnded(TaskEnded {
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            version: 3,
            process_state: ProcessState::Processed,
            at,
        }),
    ];
    publish(world.ports(), events).await;
    let at = "2026-06-01T12:00:00Z";
    let expected = [
        (
            "Message Corrupt",
            json!({
                "alert": "message_corrupt", "role": "scheduler", "message_id": "m-1",
                "reason": reason, "at": at,
            }),
        ),
        (
            "Submission Refused",
            json!({ "alert": "submission_refused", "reason": reason, "at": at }),
        ),
        (
            "Task Ended",
            json!({
                "task_id": "t", "workflow": "order", "version": 3, "process_state": "Processed",
                "at": at,
            }),
        ),
        (
            "Task In Error",
            json!({
                "alert": "task_in_error", "task_id": "t", "workflow": "order",
                "steps": ["charge", "pack"], "reason": reason, "at": at,
            }),
        ),
    ];
    assert_eq!(published(&world).await, expected.map(|(kind, content)| (kind.to_owned(), content)));
    assert_eq!(published(&world).await, [], "taken once");
}

pub(super) async fn more_than_ten_events_are_all_published(world: impl World) {
    for count in [1, 10, 11, 47] {
        let event = |n: usize| {
            BusEvent::Alert(Alert::SubmissionRefused {
                task_id: Some(n.to_string()),
                reason: String::new(),
                at: at(0),
            })
        };
        publish(world.ports(), (0..count).map(event).collect()).await;
        let events = published(&world).await;
        let id = |(_, content): &(_, Value)| content["task_id"].as_str().unwrap().parse().unwrap();
        let mut ids: Vec<usize> = events.iter().map(id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>());
    }
}

pub(super) async fn to_publish_nothing_is_harmless(world: impl World) {
    publish(world.ports(), Vec::new()).await;
    assert_eq!(world.published().await, []);
}
