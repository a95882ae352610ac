//! Definitions: a version is published once and never changes; it may be unpublished, and is found by
//! its trigger.

use std::sync::Arc;

use serde_json::json;
use steward_aws::definitions::PublishError;
use steward_core::{definition::workflow::Workflow, limits};
use steward_runtime::ports::{Definitions, Ports};

use super::{samples::workflow, worlds::World};

async fn read<P: Ports>(ports: &P, name: &str, version: Option<u32>) -> Option<Arc<Workflow>> {
    ports.definitions().workflow(&name.parse().unwrap(), version).await.unwrap()
}

/// The version that a new instance takes for the newest.
async fn newest(world: &impl World, name: &str) -> Option<u32> {
    read(&world.another(), name, None).await.map(|workflow| workflow.version)
}

pub(super) async fn a_definition_reads_as_it_was_published(world: impl World) {
    let published = workflow("order", 1);
    world.publish_definition(&published).await.unwrap();
    for ports in [world.ports().clone(), world.another()] {
        for version in [Some(1), None, Some(1)] {
            let read = read(&ports, "order", version).await.unwrap();
            assert_eq!(*read, published);
            // Also in the order in which people wrote it.
            assert_eq!(json!(*read).to_string(), json!(published).to_string());
        }
    }
}

pub(super) async fn the_newest_is_the_one_with_the_highest_version(world: impl World) {
    for (version, expected) in [(2, 2), (10, 10), (9, 10), (1, 10)] {
        world.publish_definition(&workflow("order", version)).await.unwrap();
        assert_eq!(newest(&world, "order").await, Some(expected));
    }
    world.publish_definition(&workflow("order2", 99)).await.unwrap();
    assert_eq!(newest(&world, "order").await, Some(10));
    // Once it was read by its number, as a task does, too.
    let ports = world.another();
    read(&ports, "order", Some(9)).await.unwrap();
    assert_eq!(read(&ports, "order", None).await.unwrap().version, 10);
}

pub(super) async fn a_version_is_read_by_its_number(world: impl World) {
    for version in [1, 2, 10] {
        world.publish_definition(&workflow("order", version)).await.unwrap();
    }
    for version in [2, 10, 1, 2] {
        let read = read(world.ports(), "order", Some(version)).await.unwrap();
        assert_eq!(*read, workflow("order", version));
    }
}

pub(super) async fn what_was_not_published_is_not_there(world: impl World) {
    let ports = world.ports();
    assert_eq!(read(ports, "order", None).await, None);
    world.publish_definition(&workflow("order", 2)).await.unwrap();
    assert_eq!(read(ports, "order", Some(1)).await, None);
    assert_eq!(read(ports, "order", Some(3)).await, None);
    assert_eq!(read(ports, "orde", None).await, None);
    assert_eq!(read(ports, "orders", Some(2)).await, None);
    // That it was not there before is not remembered.
    assert!(read(ports, "order", None).await.is_some());
}

pub(super) async fn the_same_may_be_published_again(world: impl World) {
    for _ in 0..3 {
        world.publish_definition(&workflow("order", 1)).await.unwrap();
    }
    assert_eq!(*read(world.ports(), "order", None).await.unwrap(), workflow("order", 1));
}

pub(super) async fn a_version_never_changes(world: impl World) {
    let first = workflow("order", 1);
    world.publish_definition(&first).await.unwrap();
    let other = Workflow { description: "other".to_owned(), ..first.clone() };
    let refused = world.publish_definition(&other).await.unwrap_err();
    assert!(matches!(&refused, PublishError::Taken(name, 1) if *name == first.name), "{refused:?}");
    assert_eq!(*read(&world.another(), "order", Some(1)).await.unwrap(), first);
    world.publish_definition(&Workflow { version: 2, ..other }).await.unwrap();
}

pub(super) async fn a_definition_with_problems_is_refused(world: impl World) {
    let mut broken = workflow("order", 1);
    broken.version = 0;
    broken.steps["charge"].recovery.attempts.0 = 0;
    let problem = broken.problems()[0].to_string();
    let refused = world.publish_definition(&broken).await.unwrap_err();
    assert!(matches!(&refused, PublishError::Invalid(why) if *why == problem), "{refused:?}");
    assert_eq!(read(&world.another(), "order", None).await, None);
}

pub(super) async fn a_definition_that_is_too_large_is_refused(world: impl World) {
    let sized = |version, bytes: usize| {
        let bare = Workflow { description: String::new(), ..workflow("order", version) };
        // An empty description is left out, name and all.
        let spare = bytes - json!(bare).to_string().len() - r#""description":"","#.len();
        Workflow { description: "x".repeat(spare), ..bare }
    };
    let max = limits::DEFINITION_BYTES_MAX;
    world.publish_definition(&sized(1, max)).await.unwrap();
    let refused = world.publish_definition(&sized(2, max + 1)).await.unwrap_err();
    let why = format!("{} bytes; the limit is {max}", max + 1);
    assert!(matches!(&refused, PublishError::Invalid(said) if *said == why), "{refused:?}");
    assert_eq!(newest(&world, "order").await, Some(1));
}

/// The version that a new task takes, as a new instance sees it.
async fn for_a_new_task(world: &impl World, name: &str, version: Option<u32>) -> Option<u32> {
    let (another, name) = (world.another(), name.parse().unwrap());
    let published = another.definitions().published(&name, version);
    published.await.unwrap().map(|workflow| workflow.version)
}

pub(super) async fn a_version_that_is_unpublished_is_for_its_own_tasks_only(world: impl World) {
    for version in [1, 2, 3] {
        world.publish_definition(&workflow("order", version)).await.unwrap();
        assert_eq!(for_a_new_task(&world, "order", Some(version)).await, Some(version));
    }
    for (unpublished, newest_left) in [(3, Some(2)), (1, Some(2)), (2, None)] {
        assert!(world.unpublish_definition("order", unpublished).await);
        assert!(world.unpublish_definition("order", unpublished).await, "again is harmless");
        assert_eq!(for_a_new_task(&world, "order", Some(unpublished)).await, None);
        assert_eq!(for_a_new_task(&world, "order", None).await, newest_left);
        assert_eq!(newest(&world, "order").await, newest_left);
        let its_own = read(&world.another(), "order", Some(unpublished)).await.unwrap();
        assert_eq!(*its_own, workflow("order", unpublished));
    }
}

pub(super) async fn once_unpublished_the_same_may_be_published_again_and_nothing_else(
    world: impl World,
) {
    let first = workflow("order", 1);
    world.publish_definition(&first).await.unwrap();
    assert!(world.unpublish_definition("order", 1).await);
    let other = Workflow { description: "other".to_owned(), ..first.clone() };
    let refused = world.publish_definition(&other).await.unwrap_err();
    assert!(matches!(&refused, PublishError::Taken(..)), "{refused:?}");
    assert_eq!(for_a_new_task(&world, "order", None).await, None);
    world.publish_definition(&first).await.unwrap();
    assert_eq!(for_a_new_task(&world, "order", None).await, Some(1));
    assert_eq!(for_a_new_task(&world, "order", Some(1)).await, Some(1));
}

pub(super) async fn what_is_not_there_cannot_be_unpublished(world: impl World) {
    world.publish_definition(&workflow("order", 1)).await.unwrap();
    for (name, version) in [("order", 2), ("orders", 1)] {
        assert!(!world.unpublish_definition(name, version).await);
        assert_eq!(for_a_new_task(&world, name, Some(version)).await, None);
    }
    assert_eq!(for_a_new_task(&world, "order", None).await, Some(1));
}

/// A workflow that events of this source and detail-type submit tasks to.
fn triggered(name: &str, version: u32, (source, detail_type): (&str, &str)) -> Workflow {
    let task_id = format!("{name}-${{ event.id }}");
    let trigger = json!({ "source": source, "detail_type": detail_type, "task_id": task_id });
    let trigger = Some(serde_json::from_value(trigger).unwrap());
    Workflow { trigger, ..workflow(name, version) }
}

/// The workflows that an event submits tasks to, by name and version.
async fn found<P: Ports>(ports: &P, (source, detail_type): (&str, &str)) -> Vec<String> {
    let found = ports.definitions().triggered(source, detail_type).await.unwrap();
    found.iter().map(|workflow| format!("{} {}", workflow.name, workflow.version)).collect()
}

pub(super) async fn a_trigger_finds_the_workflows_that_have_it_now(world: impl World) {
    let (placed, paid) = (("shop", "Order Placed"), ("shop", "Order Paid"));
    // One instance that has seen every version before, and one that has seen nothing.
    let ports = world.ports();
    let expect = async |expected: &[(_, &[&str])]| {
        for (event, names) in expected {
            assert_eq!(found(ports, *event).await, *names, "{event:?}");
            assert_eq!(found(&world.another(), *event).await, *names, "{event:?}");
        }
    };
    expect(&[(placed, &[]), (paid, &[])]).await;
    world.publish_definition(&triggered("order", 1, placed)).await.unwrap();
    world.publish_definition(&workflow("other", 1)).await.unwrap();
    expect(&[(placed, &["order 1"]), (paid, &[]), (("Order Placed", "shop"), &[])]).await;
    world.publish_definition(&triggered("audit", 7, placed)).await.unwrap();
    expect(&[(placed, &["audit 7", "order 1"]), (paid, &[])]).await;
    // A newer version moves the trigger; what the old one said no longer counts.
    world.publish_definition(&triggered("order", 2, paid)).await.unwrap();
    assert_eq!(found(ports, paid).await, ["order 2"], "just published, and not missed");
    expect(&[(placed, &["audit 7"]), (paid, &["order 2"])]).await;
    assert!(world.unpublish_definition("order", 2).await);
    assert_eq!(found(&world.another(), placed).await, ["audit 7", "order 1"]);
    assert_eq!(found(&world.another(), paid).await, [""; 0]);
    world.publish_definition(&workflow("order", 3)).await.unwrap();
    assert_eq!(found(&world.another(), placed).await, ["audit 7"]);
}

pub(super) async fn triggers_that_look_alike_are_told_apart(world: impl World) {
    world.publish_definition(&triggered("left", 1, ("a/b", "c"))).await.unwrap();
    world.publish_definition(&triggered("right", 1, ("a", "b/c"))).await.unwrap();
    assert_eq!(found(&world.another(), ("a/b", "c")).await, ["left 1"]);
    assert_eq!(found(&world.another(), ("a", "b/c")).await, ["right 1"]);
    let max = limits::EVENT_TEXT_CHARS_MAX;
    let texts = ["\u{1f69a}", "\u{1f6b2}"].map(|sign| sign.repeat(max));
    let [truck, bicycle] = texts.each_ref().map(String::as_str);
    world.publish_definition(&triggered("long", 1, (truck, truck))).await.unwrap();
    assert_eq!(found(&world.another(), (truck, truck)).await, ["long 1"]);
    assert_eq!(found(&world.another(), (truck, bicycle)).await, [""; 0]);
}

pub(super) async fn of_two_workflows_with_the_same_trigger_and_ids_one_is_refused(
    world: impl World,
) {
    let placed = ("shop", "Order Placed");
    let first = triggered("order", 1, placed);
    world.publish_definition(&first).await.unwrap();
    let same = |version| Workflow {
        name: "audit".parse().unwrap(),
        version,
        ..triggered("order", 1, placed)
    };
    let refused = world.publish_definition(&same(1)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "trigger.task_id: workflow `order` has the same trigger and the same task ids, so only one of \
         the two tasks would be recorded for each event; use distinct ids, such as `audit-${ event.id }`"
    );
    assert_eq!(found(&world.another(), placed).await, ["order 1"]);
    // A newer version of the same workflow takes the place of the older one.
    world.publish_definition(&Workflow { version: 2, ..first }).await.unwrap();
    assert_eq!(found(&world.another(), placed).await, ["order 2"]);
    assert!(world.unpublish_definition("order", 2).await);
    assert!(world.unpublish_definition("order", 1).await);
    world.publish_definition(&same(1)).await.unwrap();
    assert_eq!(found(&world.another(), placed).await, ["audit 1"]);
}
