//! Messages about child tasks that arrive late, twice, or for an earlier child.

use serde_json::{Value, json};
use steward_core::model::task::ProcessState;
use steward_runtime::ports::Ports;

use super::harness::*;

fn parent_with_undo(retention: &str) -> Value {
    json!({ "name": "parent", "version": 1, "complete_within": "2d", "retention": retention,
        "steps": { "deliver": { "workflow": { "name": "child" }, "recovery": { "then": "undo" } } } })
}

/// SQS delivers the submission of a child task twice, or its handler crashes before it acknowledges it. The first delivery
/// finds no published workflow and is rejected. Then the operator publishes the workflow, and the second is accepted.
#[tokio::test]
async fn a_rejected_child_submission_that_is_redelivered_starts_nothing() {
    let mut deployment = MemoryDeployment::new(&[parent_with_undo("30d")]);
    deployment.held_submissions = Some(Vec::new());
    deployment.submit(submission("t", "parent")).await.unwrap();
    let message = deployment.held_submissions.take().unwrap().remove(0);
    // First delivery: rejected, and reported to the parent. The process crashes before it acknowledges the message.
    deployment.receive_submission(&message.body).await.unwrap_err();
    deployment.deliver_all().await;
    // The operator does what the alert requires.
    deployment
        .ports
        .definitions()
        .publish(&serde_json::from_value(child_workflow()).unwrap())
        .unwrap();
    // Second delivery of the same message, after the visibility timeout.
    deployment.receive_submission(&message.body).await.unwrap();
    deployment.deliver_all().await;
    assert!(deployment.requests.is_empty());
    deployment.run_for(3 * DAY).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
    assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
}

/// A stricter version of the child workflow is published. One instance of Submission has the new version; another still
/// has the old version in its cache for up to 10 s.
#[tokio::test]
async fn a_child_rejected_by_one_instance_and_accepted_by_another_is_undone() {
    let mut deployment = MemoryDeployment::new(&[parent_with_undo("30d"), child_workflow()]);
    deployment.held_submissions = Some(Vec::new());
    deployment.submit(submission("t", "parent")).await.unwrap();
    let message = deployment.held_submissions.take().unwrap().remove(0);
    let mut strict = child_workflow();
    strict["version"] = json!(2);
    strict["input"] = json!({ "type": "object", "required": ["n"] });
    deployment.ports.definitions().publish(&serde_json::from_value(strict).unwrap()).unwrap();
    deployment.receive_submission(&message.body).await.unwrap_err();
    // Simulates the instance with the older cache.
    assert!(deployment.ports.definitions().unpublish(&"child".parse().unwrap(), 2));
    drop(deployment.receive_submission(&message.body).await);
    deployment.deliver_all().await;
    // The child begins, and is undone.
    deployment.complete("t:deliver", "ship", json!({ "id": "p-1" })).await;
    deployment.complete("t:deliver", "ship", json!(null)).await;
    assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
}

/// The submission of a child task becomes a dead letter. The undo of the parent leaves a tombstone. Everything expires,
/// and the operator redrives the dead letter within its 14 days.
#[tokio::test]
async fn a_child_submission_that_arrives_after_its_tombstone_expired_starts_nothing() {
    let mut deployment = MemoryDeployment::new(&[parent_with_undo("1h"), child_workflow()]);
    deployment.held_submissions = Some(Vec::new());
    deployment.submit(submission("t", "parent")).await.unwrap();
    let late = deployment.held_submissions.take().unwrap().remove(0);
    deployment.command("t", "c-1", json!({ "command": "undo" })).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
    assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
    deployment.run_for(6 * DAY).await;
    assert_eq!(
        (deployment.find_task("t").await, deployment.find_task("t:deliver").await),
        (None, None)
    );
    drop(deployment.receive_submission(&late.body).await);
    deployment.deliver_all().await;
    assert!(deployment.requests.is_empty(), "a child task of an Undone task began");
}

/// An undone child stays undone. The operator resubmits the step with an edited input, which creates another child. Then
/// SQS delivers the report of the first child a second time.
#[tokio::test]
async fn a_report_of_an_earlier_child_is_not_applied_to_the_next_child() {
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "2d",
        "steps": { "deliver": { "workflow": { "name": "child" } } } });
    let mut deployment = MemoryDeployment::new(&[parent, child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    deployment.reply("t:deliver", "ship", refused_outcome()).await;
    let ended = deployment
        .scheduler_messages
        .iter()
        .find(|message| message.body.contains("child_ended"))
        .unwrap()
        .body
        .clone();
    deployment.command("t", "c-1", json!({ "command": "resubmit", "input": {} })).await;
    deployment.schedule(&ended).await; // the second delivery
    deployment.deliver_all().await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Processing);
    deployment.complete("t:deliver:c-1", "ship", json!({ "id": "p-2" })).await;
    deployment.command("t", "c-2", json!({ "command": "undo" })).await;
    // The parent waits until the second child is undone.
    assert_eq!(deployment.process_state("t").await, ProcessState::Undoing);
    deployment.complete("t:deliver:c-1", "ship", json!(null)).await;
    assert_eq!(deployment.process_state("t:deliver:c-1").await, ProcessState::Undone);
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
}

/// The report of the first child is delivered again while the second child is being undone.
#[tokio::test]
async fn a_report_of_an_earlier_child_does_not_complete_the_undo_of_the_next() {
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "2d",
        "steps": { "deliver": { "workflow": { "name": "child" } },
            "last": { "agent": "a", "after": ["deliver"], "recovery": { "then": "undo" }, "request": { "path": "/last" } } } });
    let mut deployment = MemoryDeployment::new(&[parent, child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    deployment.reply("t:deliver", "ship", refused_outcome()).await;
    let ended = deployment
        .scheduler_messages
        .iter()
        .find(|message| message.body.contains("child_ended"))
        .unwrap()
        .body
        .clone();
    deployment.command("t", "c-1", json!({ "command": "resubmit", "input": {} })).await;
    deployment.complete("t:deliver:c-1", "ship", json!({ "id": "p-2" })).await;
    deployment.reply("t", "last", refused_outcome()).await; // the failure starts an undo of the task
    deployment.schedule(&ended).await; // the second delivery
    deployment.deliver_all().await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undoing);
    // The undo of the shipment fails permanently.
    deployment.reply("t:deliver:c-1", "ship", refused_outcome()).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
}
