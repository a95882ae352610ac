//! Definitions: a version is published once and never changes.

use std::sync::Arc;

use serde_json::json;
use steward_aws::definitions::PublishError;
use steward_core::{
    limits,
    ports::{Definitions, Ports},
    workflow::Workflow,
};

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
