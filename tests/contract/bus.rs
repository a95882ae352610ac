//! The event bus: events arrive unchanged, with their detail type.

use serde_json::{Value, json};
use steward_core::model::{
    events::{BusEvent, EventData, TaskAlert},
    lifecycle::{DataContentType, LifecycleEvent, LifecycleEventContent, SpecVersion, TaskData},
};
use steward_runtime::ports::{EventBus, Ports};

use super::{
    backends::Backend,
    samples::{at, id, step},
};

async fn publish<P: Ports>(ports: &P, events: Vec<BusEvent>) {
    let count = events.len();
    let results = ports.bus().publish(events).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(results.len(), count);
}

/// Takes at least `count` published events, sorted by detail type because a bus guarantees no order.
async fn take_sorted_events(backend: &impl Backend, count: usize) -> Vec<(String, Value)> {
    let mut events = backend.take_events(count).await;
    events.sort_by(|(a, _), (b, _)| a.cmp(b));
    events
}

pub(super) async fn an_event_is_published_with_its_kind_and_content(backend: impl Backend) {
    let (reason, at) = ("declined \u{1f4b3}\n".to_owned(), at(0));
    let events = vec![
        EventData::TaskInError(TaskAlert {
            more_steps: 0,
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            steps: vec![step("charge").into(), step("pack").into()],
            reason: reason.clone(),
        }),
        EventData::SubmissionRefused { task_id: None, reason: reason.clone() },
        EventData::MessageCorrupt {
            role: "scheduler".to_owned(),
            message_id: "m-1".to_owned(),
            reason: reason.clone(),
        },
    ];
    let operator_events = events.into_iter().map(|happened| BusEvent::new("t", at, happened));
    let lifecycle_event = LifecycleEvent {
        specversion: SpecVersion::V1,
        id: "t/1/processed/2".to_owned(),
        source: "/steward/workflows/order".to_owned(),
        subject: id("t"),
        time: at,
        datacontenttype: DataContentType::Json,
        content: LifecycleEventContent::Processed(TaskData {
            task_id: id("t"),
            workflow: "order".parse().unwrap(),
            version: 3,
            submitted_at: at,
            parent_task_id: None,
        }),
    };
    let lifecycle_event = BusEvent::Lifecycle(Box::new(lifecycle_event));
    publish(backend.ports(), operator_events.chain([lifecycle_event]).collect()).await;
    let envelope = |event: &str, data: Value| {
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
            envelope(
                "message_corrupt",
                json!({ "role": "scheduler", "message_id": "m-1", "reason": reason }),
            ),
        ),
        ("Submission Refused", envelope("submission_refused", json!({ "reason": reason }))),
        (
            "Task In Error",
            envelope(
                "task_in_error",
                json!({
                    "task_id": "t", "workflow": "order", "steps": ["charge", "pack"],
                    "reason": reason,
                }),
            ),
        ),
        (
            "steward.task.processed",
            json!({
                "specversion": "1.0", "id": "t/1/processed/2", "source": "/steward/workflows/order", "subject": "t",
                "time": "2096-06-01T12:00:00Z", "datacontenttype": "application/json",
                "type": "steward.task.processed",
                "data": {
                    "task_id": "t", "workflow": "order", "version": 3, "submitted_at": "2096-06-01T12:00:00Z",
                },
            }),
        ),
    ];
    let expected = expected.map(|(kind, content)| (kind.to_owned(), content));
    assert_eq!(take_sorted_events(&backend, 4).await, expected);
    assert_eq!(take_sorted_events(&backend, 0).await, [], "a second take finds nothing");
}

pub(super) async fn more_than_ten_events_are_all_published(backend: impl Backend) {
    for count in [1, 10, 11, 47] {
        let event = |n: usize| {
            let task_id = Some(n.to_string());
            let refused = EventData::SubmissionRefused { task_id, reason: String::new() };
            BusEvent::new("t", at(0), refused)
        };
        publish(backend.ports(), (0..count).map(event).collect()).await;
        let events = take_sorted_events(&backend, count).await;
        let id = |(_, content): &(_, Value)| {
            content["data"]["task_id"].as_str().unwrap().parse().unwrap()
        };
        let mut ids: Vec<usize> = events.iter().map(id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>());
    }
}

pub(super) async fn publishing_nothing_succeeds(backend: impl Backend) {
    publish(backend.ports(), Vec::new()).await;
    assert_eq!(backend.take_events(0).await, []);
}
