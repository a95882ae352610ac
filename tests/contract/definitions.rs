//! Definitions: a version is immutable once published. It can be unpublished, and events find it by its trigger.

use std::sync::Arc;

use serde_json::json;
use steward_aws::definitions::PublishError;
use steward_core::{
    definition::{plan::Plan, workflow::Workflow},
    limits,
};
use steward_runtime::ports::{Definitions, Ports};

use super::{backends::Backend, samples::workflow};

async fn read<P: Ports>(ports: &P, name: &str, version: Option<u32>) -> Option<Arc<Plan>> {
    ports.definitions().workflow(&name.parse().unwrap(), version).await.unwrap()
}

/// The newest version that a new instance reads.
async fn newest(backend: &impl Backend, name: &str) -> Option<u32> {
    read(&backend.another_instance(), name, None).await.map(|workflow| workflow.version)
}

pub(super) async fn a_definition_is_read_unchanged(backend: impl Backend) {
    let published = workflow("order", 1);
    backend.publish_definition(&published).await.unwrap();
    for ports in [backend.ports().clone(), backend.another_instance()] {
        for version in [Some(1), None, Some(1)] {
            let read = read(&ports, "order", version).await.unwrap();
            assert_eq!(**read, published);
            // The order of fields is kept, too.
            assert_eq!(json!(*read).to_string(), json!(published).to_string());
        }
    }
}

pub(super) async fn the_newest_is_the_one_with_the_highest_version(backend: impl Backend) {
    for (version, expected) in [(2, 2), (10, 10), (9, 10), (1, 10)] {
        backend.publish_definition(&workflow("order", version)).await.unwrap();
        assert_eq!(newest(&backend, "order").await, Some(expected));
    }
    backend.publish_definition(&workflow("order2", 99)).await.unwrap();
    assert_eq!(newest(&backend, "order").await, Some(10));
    // Also after a read of another version by its number.
    let ports = backend.another_instance();
    read(&ports, "order", Some(9)).await.unwrap();
    assert_eq!(read(&ports, "order", None).await.unwrap().version, 10);
}

pub(super) async fn a_version_is_read_by_its_number(backend: impl Backend) {
    for version in [1, 2, 10] {
        backend.publish_definition(&workflow("order", version)).await.unwrap();
    }
    for version in [2, 10, 1, 2] {
        let read = read(backend.ports(), "order", Some(version)).await.unwrap();
        assert_eq!(**read, workflow("order", version));
    }
}

pub(super) async fn an_unpublished_definition_is_absent(backend: impl Backend) {
    let ports = backend.ports();
    assert_eq!(read(ports, "order", None).await, None);
    backend.publish_definition(&workflow("order", 2)).await.unwrap();
    assert_eq!(read(ports, "order", Some(1)).await, None);
    assert_eq!(read(ports, "order", Some(3)).await, None);
    assert_eq!(read(ports, "orde", None).await, None);
    assert_eq!(read(ports, "orders", Some(2)).await, None);
    // The earlier absence is not cached.
    assert!(read(ports, "order", None).await.is_some());
}

pub(super) async fn the_same_definition_can_be_published_again(backend: impl Backend) {
    for _ in 0..3 {
        backend.publish_definition(&workflow("order", 1)).await.unwrap();
    }
    assert_eq!(**read(backend.ports(), "order", None).await.unwrap(), workflow("order", 1));
}

pub(super) async fn a_version_never_changes(backend: impl Backend) {
    let first = workflow("order", 1);
    backend.publish_definition(&first).await.unwrap();
    let other = Workflow { description: "other".to_owned(), ..first.clone() };
    let refused = backend.publish_definition(&other).await.unwrap_err();
    assert!(
        matches!(&refused, PublishError::VersionTaken(name, 1) if *name == first.name),
        "{refused:?}"
    );
    assert_eq!(**read(&backend.another_instance(), "order", Some(1)).await.unwrap(), first);
    backend.publish_definition(&Workflow { version: 2, ..other }).await.unwrap();
}

pub(super) async fn a_definition_with_problems_is_rejected(backend: impl Backend) {
    let mut broken = workflow("order", 1);
    broken.version = 0;
    broken.steps["charge"].recovery.attempts.0 = 0;
    let problem = broken.problems()[0].to_string();
    let refused = backend.publish_definition(&broken).await.unwrap_err();
    assert!(matches!(&refused, PublishError::Invalid(why) if *why == problem), "{refused:?}");
    assert_eq!(read(&backend.another_instance(), "order", None).await, None);
}

pub(super) async fn a_definition_that_is_too_large_is_rejected(backend: impl Backend) {
    let sized = |version, bytes: usize| {
        let bare = Workflow { description: String::new(), ..workflow("order", version) };
        // An empty description is omitted together with its name.
        let spare = bytes - json!(bare).to_string().len() - r#""description":"","#.len();
        Workflow { description: "x".repeat(spare), ..bare }
    };
    let max = limits::DEFINITION_BYTES_MAX;
    backend.publish_definition(&sized(1, max)).await.unwrap();
    let refused = backend.publish_definition(&sized(2, max + 1)).await.unwrap_err();
    let why = format!("{} bytes; the limit is {max}", max + 1);
    assert!(matches!(&refused, PublishError::Invalid(reason) if *reason == why), "{refused:?}");
    assert_eq!(newest(&backend, "order").await, Some(1));
}

/// The version that a new instance gives to a new task.
async fn version_of_new_task(
    backend: &impl Backend,
    name: &str,
    version: Option<u32>,
) -> Option<u32> {
    let (another, name) = (backend.another_instance(), name.parse().unwrap());
    let published = another.definitions().published(&name, version);
    published.await.unwrap().map(|workflow| workflow.version)
}

pub(super) async fn an_unpublished_version_serves_only_its_existing_tasks(backend: impl Backend) {
    for version in [1, 2, 3] {
        backend.publish_definition(&workflow("order", version)).await.unwrap();
        assert_eq!(version_of_new_task(&backend, "order", Some(version)).await, Some(version));
    }
    for (unpublished, newest_left) in [(3, Some(2)), (1, Some(2)), (2, None)] {
        assert!(backend.unpublish_definition("order", unpublished).await);
        assert!(
            backend.unpublish_definition("order", unpublished).await,
            "a repeated unpublication succeeds"
        );
        assert_eq!(version_of_new_task(&backend, "order", Some(unpublished)).await, None);
        assert_eq!(version_of_new_task(&backend, "order", None).await, newest_left);
        assert_eq!(newest(&backend, "order").await, newest_left);
        let existing = read(&backend.another_instance(), "order", Some(unpublished)).await.unwrap();
        assert_eq!(**existing, workflow("order", unpublished));
    }
}

pub(super) async fn an_unpublished_version_can_only_be_republished_unchanged(
    backend: impl Backend,
) {
    let first = workflow("order", 1);
    backend.publish_definition(&first).await.unwrap();
    assert!(backend.unpublish_definition("order", 1).await);
    let other = Workflow { description: "other".to_owned(), ..first.clone() };
    let refused = backend.publish_definition(&other).await.unwrap_err();
    assert!(matches!(&refused, PublishError::VersionTaken(..)), "{refused:?}");
    assert_eq!(version_of_new_task(&backend, "order", None).await, None);
    backend.publish_definition(&first).await.unwrap();
    assert_eq!(version_of_new_task(&backend, "order", None).await, Some(1));
    assert_eq!(version_of_new_task(&backend, "order", Some(1)).await, Some(1));
}

pub(super) async fn an_absent_version_cannot_be_unpublished(backend: impl Backend) {
    backend.publish_definition(&workflow("order", 1)).await.unwrap();
    for (name, version) in [("order", 2), ("orders", 1)] {
        assert!(!backend.unpublish_definition(name, version).await);
        assert_eq!(version_of_new_task(&backend, name, Some(version)).await, None);
    }
    assert_eq!(version_of_new_task(&backend, "order", None).await, Some(1));
}

/// A workflow that is triggered by events of this source and detail type.
fn triggered_workflow(name: &str, version: u32, (source, detail_type): (&str, &str)) -> Workflow {
    let task_id = format!("{name}-${{ event.id }}");
    let trigger = json!({ "source": source, "detail_type": detail_type, "task_id": task_id });
    let trigger = Some(serde_json::from_value(trigger).unwrap());
    Workflow { trigger, ..workflow(name, version) }
}

/// The names and versions of the workflows that an event triggers.
async fn triggered_by<P: Ports>(ports: &P, (source, detail_type): (&str, &str)) -> Vec<String> {
    let found = ports.definitions().triggered(source, detail_type).await.unwrap();
    found.iter().map(|workflow| format!("{} {}", workflow.name, workflow.version)).collect()
}

pub(super) async fn an_event_finds_the_workflows_whose_newest_version_has_its_trigger(
    backend: impl Backend,
) {
    let (placed, paid) = (("shop", "Order Placed"), ("shop", "Order Paid"));
    // One instance that has read every earlier version, and one with empty caches.
    let ports = backend.ports();
    let expect = async |expected: &[(_, &[&str])]| {
        for (event, names) in expected {
            assert_eq!(triggered_by(ports, *event).await, *names, "{event:?}");
            assert_eq!(
                triggered_by(&backend.another_instance(), *event).await,
                *names,
                "{event:?}"
            );
        }
    };
    expect(&[(placed, &[]), (paid, &[])]).await;
    backend.publish_definition(&triggered_workflow("order", 1, placed)).await.unwrap();
    backend.publish_definition(&workflow("other", 1)).await.unwrap();
    expect(&[(placed, &["order 1"]), (paid, &[]), (("Order Placed", "shop"), &[])]).await;
    backend.publish_definition(&triggered_workflow("audit", 7, placed)).await.unwrap();
    expect(&[(placed, &["audit 7", "order 1"]), (paid, &[])]).await;
    // A newer version replaces the trigger of the older one.
    backend.publish_definition(&triggered_workflow("order", 2, paid)).await.unwrap();
    assert_eq!(triggered_by(ports, paid).await, ["order 2"], "a new trigger takes effect at once");
    expect(&[(placed, &["audit 7"]), (paid, &["order 2"])]).await;
    assert!(backend.unpublish_definition("order", 2).await);
    assert_eq!(triggered_by(&backend.another_instance(), placed).await, ["audit 7", "order 1"]);
    assert_eq!(triggered_by(&backend.another_instance(), paid).await, [""; 0]);
    backend.publish_definition(&workflow("order", 3)).await.unwrap();
    assert_eq!(triggered_by(&backend.another_instance(), placed).await, ["audit 7"]);
}

pub(super) async fn similar_triggers_are_distinguished(backend: impl Backend) {
    backend.publish_definition(&triggered_workflow("left", 1, ("a/b", "c"))).await.unwrap();
    backend.publish_definition(&triggered_workflow("right", 1, ("a", "b/c"))).await.unwrap();
    assert_eq!(triggered_by(&backend.another_instance(), ("a/b", "c")).await, ["left 1"]);
    assert_eq!(triggered_by(&backend.another_instance(), ("a", "b/c")).await, ["right 1"]);
    let max = limits::EVENT_TEXT_CHARS_MAX;
    let texts = ["\u{1f69a}", "\u{1f6b2}"].map(|sign| sign.repeat(max));
    let [truck, bicycle] = texts.each_ref().map(String::as_str);
    backend.publish_definition(&triggered_workflow("long", 1, (truck, truck))).await.unwrap();
    assert_eq!(triggered_by(&backend.another_instance(), (truck, truck)).await, ["long 1"]);
    assert_eq!(triggered_by(&backend.another_instance(), (truck, bicycle)).await, [""; 0]);
}

pub(super) async fn a_second_workflow_with_the_same_trigger_and_ids_is_rejected(
    backend: impl Backend,
) {
    let placed = ("shop", "Order Placed");
    let first = triggered_workflow("order", 1, placed);
    backend.publish_definition(&first).await.unwrap();
    let same = |version| Workflow {
        name: "audit".parse().unwrap(),
        version,
        ..triggered_workflow("order", 1, placed)
    };
    let refused = backend.publish_definition(&same(1)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "trigger.task_id: workflow `order` has the same trigger and the same task ids, so only one of \
         the two tasks would be recorded for each event; use distinct ids, such as `audit-${ event.id }`"
    );
    assert_eq!(triggered_by(&backend.another_instance(), placed).await, ["order 1"]);
    // A newer version of the same workflow replaces the older one.
    backend.publish_definition(&Workflow { version: 2, ..first }).await.unwrap();
    assert_eq!(triggered_by(&backend.another_instance(), placed).await, ["order 2"]);
    assert!(backend.unpublish_definition("order", 2).await);
    assert!(backend.unpublish_definition("order", 1).await);
    backend.publish_definition(&same(1)).await.unwrap();
    assert_eq!(triggered_by(&backend.another_instance(), placed).await, ["audit 1"]);
}
