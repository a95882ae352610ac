//! What comes late, twice, or for an earlier task with the same id.

use super::*;

fn parent_then_undo(retention: &str) -> Value {
    json!({ "name": "parent", "version": 1, "complete_within": "2d", "retention": retention,
        "steps": { "deliver": { "workflow": { "name": "child" }, "recovery": { "then": "undo" } } } })
}

/// SQS delivers the submission of a step's task twice (or its handler dies before it acknowledges). The first
/// delivery finds no published workflow and is refused; the operator publishes it; the second is accepted.
#[tokio::test]
async fn a_rejected_child_submission_that_is_redelivered_starts_nothing() {
    let mut world = World::new(&[parent_then_undo("30d")]);
    world.held = Some(Vec::new());
    world.submit(submission("t", "parent")).await.unwrap();
    let message = world.held.take().unwrap().remove(0);
    // First delivery: refused, told to the parent. Its process dies before it acknowledges the message.
    world.receive(&message.body).await.unwrap_err();
    world.rest().await;
    // What the alert asks the operator to do.
    world.ports.definitions().publish(&serde_json::from_value(child()).unwrap()).unwrap();
    // Second delivery of the same message, after the visibility timeout.
    world.receive(&message.body).await.unwrap();
    world.rest().await;
    assert!(world.requests.is_empty());
    world.pass(3 * DAY).await;
    assert_eq!(world.state("t").await, ProcessState::Undone);
    assert_eq!(world.state("t:deliver").await, ProcessState::Undone);
}

/// The same, with a stricter version of the child published: one instance of Submission still has the old
/// version in its cache (10 s), another has the new one.
#[tokio::test]
async fn a_child_rejected_by_one_instance_and_accepted_by_another_is_undone() {
    let mut world = World::new(&[parent_then_undo("30d"), child()]);
    world.held = Some(Vec::new());
    world.submit(submission("t", "parent")).await.unwrap();
    let message = world.held.take().unwrap().remove(0);
    let mut strict = child();
    strict["version"] = json!(2);
    strict["input"] = json!({ "type": "object", "required": ["n"] });
    world.ports.definitions().publish(&serde_json::from_value(strict).unwrap()).unwrap();
    world.receive(&message.body).await.unwrap_err();
    // As an instance sees it whose cache is older.
    assert!(world.ports.definitions().unpublish(&"child".parse().unwrap(), 2));
    drop(world.receive(&message.body).await);
    world.rest().await;
    // It has begun, and is undone.
    world.completes("t:deliver", "ship", json!({ "id": "p-1" })).await;
    world.completes("t:deliver", "ship", json!(null)).await;
    assert_eq!(world.state("t:deliver").await, ProcessState::Undone);
    assert_eq!(world.state("t").await, ProcessState::Undone);
}

/// The submission of a step's task lies in the dead letters; the parent is undone, which leaves a tombstone; all
/// expires; the operator sends the dead letter back within its 14 days.
#[tokio::test]
async fn a_child_submission_that_arrives_after_its_tombstone_expired_starts_nothing() {
    let mut world = World::new(&[parent_then_undo("1h"), child()]);
    world.held = Some(Vec::new());
    world.submit(submission("t", "parent")).await.unwrap();
    let late = world.held.take().unwrap().remove(0);
    world.command("t", "c-1", json!({ "command": "undo" })).await;
    assert_eq!(world.state("t").await, ProcessState::Undone);
    assert_eq!(world.state("t:deliver").await, ProcessState::Undone);
    world.pass(6 * DAY).await;
    assert_eq!((world.load("t").await, world.load("t:deliver").await), (None, None));
    drop(world.receive(&late.body).await);
    world.rest().await;
    assert!(world.requests.is_empty(), "the task of a step of an Undone task began");
}

/// A bulk command is sent again to tasks without an answer; one of them has expired since, and its id is used by another.
#[tokio::test]
async fn a_command_for_an_earlier_task_with_the_same_id_is_rejected() {
    let two = json!({ "name": "two", "version": 1, "complete_within": "1d", "retention": "1h", "steps": {
        "charge": call("/charge"), "ship": { "agent": "a", "after": ["charge"], "request": { "path": "/ship" } } } });
    let mut world = World::new(&[two]);
    world.submit(submission("t", "two")).await.unwrap();
    world.completes("t", "charge", json!(null)).await;
    world.reply("t", "ship", refused()).await;
    assert_eq!(world.state("t").await, ProcessState::Error);
    let first = world.task("t").await;
    // The operator shipped by hand; the command is on its way when the task expires.
    let bulk = steward_runtime::bulk::Bulk {
        id: "run-1".parse().unwrap(),
        order: serde_json::from_value(json!({ "command": "complete", "step": "ship" })).unwrap(),
        by: "ann".to_owned(),
        why: "shipped by hand".to_owned(),
        at: world.ports.clock().now(),
        found_by: "state=Error".to_owned(),
        tasks: vec!["t".parse().unwrap()],
    };
    world.pass(2 * DAY).await;
    assert_eq!(world.load("t").await, None);
    world.submit(submission("t", "two")).await.unwrap();
    world.requests.retain(|(_, step), _| step == "charge");
    let second = world.task("t").await;
    assert_ne!(first.incarnation, second.incarnation);
    let sent = bulk.send(&world.ports, &bulk.tasks).await;
    assert!(sent.iter().all(Result::is_ok));
    world.rest().await;
    world.completes("t", "charge", json!(null)).await;
    let task = world.task("t").await;
    assert_ne!(task.process_state, ProcessState::Processed, "Processed, and ship was never called");
}

/// A slow save of an expired task meets a later task with its id, at the same revision.
#[tokio::test]
async fn a_save_of_an_earlier_task_with_the_same_id_is_rejected() {
    let mut world = World::new(&[one_call()]);
    world.submit(submission("t", "one")).await.unwrap();
    world.reply("t", "charge", refused()).await;
    let old = world.task("t").await;
    assert_eq!(old.process_state, ProcessState::Error);
    // A scheduler has loaded it for an operator's command, and is slow (retries of the SDK, lost races).
    world.ports.clock().advance(2 * HOUR);
    world.submit(submission("t", "one")).await.unwrap();
    while world.task("t").await.revision < old.revision {
        let n = world.task("t").await.revision;
        world.command("t", &format!("c-{n}"), json!({ "command": "resume" })).await; // refused, on record
    }
    let new = world.task("t").await;
    let slow = Task { revision: old.revision + 1, ..old.clone() };
    world.ports.store().save(&slow).await.unwrap();
    assert_eq!(
        world.task("t").await.incarnation,
        new.incarnation,
        "the new task is overwritten by the old"
    );
}

/// As docs/operations.md says: a child that was undone stays undone; the step is resubmitted with an edited input, and
/// another is made. Then SQS delivers the first child's report a second time.
#[tokio::test]
async fn a_report_of_an_earlier_child_is_not_applied_to_the_next_child() {
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "2d",
        "steps": { "deliver": { "workflow": { "name": "child" } } } });
    let mut world = World::new(&[parent, child()]);
    world.submit(submission("t", "parent")).await.unwrap();
    world.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    world.reply("t:deliver", "ship", refused()).await;
    let ended = world
        .sent
        .iter()
        .find(|message| message.body.contains("child_ended"))
        .unwrap()
        .body
        .clone();
    world.command("t", "c-1", json!({ "command": "resubmit", "input": {} })).await;
    world.schedule(&ended).await; // delivered again: at least once
    world.rest().await;
    assert_eq!(world.state("t").await, ProcessState::Processing);
    world.completes("t:deliver:c-1", "ship", json!({ "id": "p-2" })).await;
    world.command("t", "c-2", json!({ "command": "undo" })).await;
    // The shipment of the second child is being undone, and its parent waits for that.
    assert_eq!(world.state("t").await, ProcessState::Undoing);
    world.completes("t:deliver:c-1", "ship", json!(null)).await;
    assert_eq!(world.state("t:deliver:c-1").await, ProcessState::Undone);
    assert_eq!(world.state("t").await, ProcessState::Undone);
}

/// An operator's undo of a Processed child is refused, since its parent counts on it.
#[tokio::test]
async fn a_processed_child_is_not_undone_without_its_parent() {
    let mut world = World::new(&[parent("2d", "3h"), child()]);
    world.submit(submission("t", "parent")).await.unwrap();
    world.completes("t:deliver", "ship", json!({ "id": "p-1" })).await;
    world.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    let child = world.task("t:deliver").await;
    assert_eq!(child.process_state, ProcessState::Processed);
    assert!(child.commands[0].refused.as_ref().is_some_and(|why| why.contains("undo that task")));
}

/// The same duplicate, while the second child is being undone.
#[tokio::test]
async fn a_report_of_an_earlier_child_does_not_complete_the_undo_of_the_next() {
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "2d",
        "steps": { "deliver": { "workflow": { "name": "child" } },
            "last": { "agent": "a", "after": ["deliver"], "recovery": { "then": "undo" }, "request": { "path": "/last" } } } });
    let mut world = World::new(&[parent, child()]);
    world.submit(submission("t", "parent")).await.unwrap();
    world.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    world.reply("t:deliver", "ship", refused()).await;
    let ended = world
        .sent
        .iter()
        .find(|message| message.body.contains("child_ended"))
        .unwrap()
        .body
        .clone();
    world.command("t", "c-1", json!({ "command": "resubmit", "input": {} })).await;
    world.completes("t:deliver:c-1", "ship", json!({ "id": "p-2" })).await;
    world.reply("t", "last", refused()).await; // the service says no: the task is undone by itself
    world.schedule(&ended).await; // delivered again
    world.rest().await;
    assert_eq!(world.state("t").await, ProcessState::Undoing);
    // The undo of the shipment fails for good.
    world.reply("t:deliver:c-1", "ship", refused()).await;
    assert_eq!(world.state("t").await, ProcessState::Error);
}
