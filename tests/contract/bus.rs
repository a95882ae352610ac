//! The event bus: what is published arrives whole, under its kind.

use serde_json::{Value, json};
use steward_core::model::{
    events::{BusEvent, Happened, TaskTrouble},
    task::ProcessState,
};
use steward_runtime::ports::{EventBus, Ports};

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

/// What was published, `count` events at least, in the order of kinds: a bus promises none.
async fn published(world: &impl World, count: usize) -> Vec<(String, Value)> {
    let mut published = world.published(count).await;
    published.sort_by(|(a, _), (b, _)| a.cmp(b));
    published
}

pub(super) async fn an_event_is_published_with_its_kind_and_content(world: impl World) {
    let (reason, at) = ("declined \u{1f4b3}\n".to_owned(), at(0));
    let events = vec![
        Happened::TaskInError(TaskTrouble {
            more_steps: 0,
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            steps: vec![step("charge").into(), step("pack").into()],
            reason: reason.clone(),
        }),
        Happened::SubmissionRefused { task_id: None, reason: reason.clone() },
        Happened::MessageCorrupt {
            role: "scheduler".to_owned(),
            message_id: "m-1".to_owned(),
            reason: reason.clone(),
        },
        Happened::TaskEnded {
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            version: 3,
            process_state: ProcessState::Processed,
        },
    ];
    let events = events.into_iter().map(|happened| BusEvent::new("t", at, happened)).collect();
    publish(world.ports(), events).await;
    let whole = |event: &str, data: Value| {
        json!({
            "metadata": {
                "event_id": format!("t/{event}/3989390400000"), "event": event,
                "schema_version": 1, "at": "2096-06-01T12:00:00Z",
            },
            "data": data,
        })
    };
    let expected = [
        (
            "Message Corrupt",
            whole(
                "message_corrupt",
                json!({ "role": "scheduler", "message_id": "m-1", "reason": reason }),
            ),
        ),
        ("Submission Refused", whole("submission_refused", json!({ "reason": reason }))),
        (
            "Task Ended",
            whole(
                "task_ended",
                json!({
                    "task_id": "t", "workflow": "order", "version": 3, "process_state": "Processed",
                }),
            ),
        ),
        (
            "Task In Error",
            whole(
                "task_in_error",
                json!({
                    "task_id": "t", "workflow": "order", "steps": ["charge", "pack"],
                    "reason": reason,
                }),
            ),
        ),
    ];
    let expected = expected.map(|(kind, content)| (kind.to_owned(), content));
    assert_eq!(published(&world, 4).await, expected);
    assert_eq!(published(&world, 0).await, [], "taken once");
}

pub(super) async fn more_than_ten_events_are_all_published(world: impl World) {
    for count in [1, 10, 11, 47] {
        let event = |n: usize| {
            let task_id = Some(n.to_string());
            let refused = Happened::SubmissionRefused { task_id, reason: String::new() };
            BusEvent::new("t", at(0), refused)
        };
        publish(world.ports(), (0..count).map(event).collect()).await;
        let events = published(&world, count).await;
        let id = |(_, content): &(_, Value)| {
            content["data"]["task_id"].as_str().unwrap().parse().unwrap()
        };
        let mut ids: Vec<usize> = events.iter().map(id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>());
    }
}

pub(super) async fn publishing_nothing_succeeds(world: impl World) {
    publish(world.ports(), Vec::new()).await;
    assert_eq!(world.published(0).await, []);
}
