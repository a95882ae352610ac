//! Retention: a task and its documents expire only after its end, however long the task lives.

use serde_json::json;
use steward_core::model::task::{ProcessState, Task};
use steward_runtime::ports::{Ports, StateStore};
use steward_test_world::ExpiredItem;

use super::harness::*;

#[tokio::test]
async fn a_retention_shorter_than_complete_within_counts_from_the_end() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("1h", "30d", "20d")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.complete("t", "charge", large(json!({ "id": "c-1" }))).await;
    deployment.run_for(20 * DAY + HOUR).await;
    assert_eq!(request_body(&deployment, "t", "ship"), json!({ "charge": "c-1" }));
    deployment.reply("t", "ship", refused_outcome()).await;
    assert_eq!(request_body(&deployment, "t", "charge"), json!({ "charge": "c-1" }));
    deployment.complete("t", "charge", json!(null)).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
    deployment.run_for(HOUR / 2).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
    deployment.run_for(HOUR).await;
    assert_eq!(deployment.find_task("t").await, None);
    deployment.run_for(90 * DAY).await;
    assert_eq!(deployment.ports.store().expired(jiff::Timestamp::MAX), []);
}

#[tokio::test]
async fn a_task_that_is_paused_for_months_keeps_its_documents() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("1h", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.complete("t", "charge", large(json!({ "id": "c-1" }))).await;
    deployment.command("t", "c-1", json!({ "command": "pause" })).await;
    deployment.run_for(90 * DAY).await;
    deployment.command("t", "c-2", json!({ "command": "resume" })).await;
    assert_eq!(request_body(&deployment, "t", "ship"), json!({ "charge": "c-1" }));
    deployment.reply("t", "ship", refused_outcome()).await;
    assert_eq!(request_body(&deployment, "t", "charge"), json!({ "charge": "c-1" }));
    deployment.complete("t", "charge", json!(null)).await;
    assert_eq!(
        (deployment.process_state("t").await, deployment.alert_reasons("t")),
        (ProcessState::Undone, Vec::new())
    );
}

#[tokio::test]
async fn a_task_that_is_cancelled_after_a_long_pause_is_kept_for_the_retention_time() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("2h", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.command("t", "c-1", json!({ "command": "pause" })).await;
    deployment.run_for(90 * DAY).await;
    deployment.command("t", "c-2", json!({ "command": "cancel" })).await;
    deployment.resolve("t").await;
    deployment.run_for(HOUR).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
    deployment.run_for(2 * HOUR).await;
    assert_eq!(deployment.find_task("t").await, None);
}

#[tokio::test]
async fn a_task_in_error_is_kept_with_its_documents_until_an_operator_settles_it() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("1h", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.complete("t", "charge", large(json!({ "id": "c-1" }))).await;
    deployment.command("t", "c-1", json!({ "command": "cancel" })).await;
    deployment.run_for(90 * DAY).await;
    let owner = deployment.task("t").await.document_owner();
    let output = "step/charge/1/output".parse().unwrap();
    assert_eq!(deployment.ports.store().documents(&owner, &[output]).await.unwrap().len(), 1);
    // It can still be continued, with its outputs.
    deployment.command("t", "c-2", json!({ "command": "undo" })).await;
    assert_eq!(request_body(&deployment, "t", "charge"), json!({ "charge": "c-1" }));
    deployment.reply("t", "charge", refused_outcome()).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
    deployment.run_for(10 * DAY).await;
    assert!(deployment.task("t").await.is_unresolved());
    deployment.resolve("t").await;
    deployment.run_for(2 * HOUR).await;
    assert_eq!(deployment.find_task("t").await, None);
    deployment.run_for(5 * DAY).await;
    assert_eq!(deployment.ports.store().expired(jiff::Timestamp::MAX), []);
}

#[tokio::test]
async fn the_children_of_a_task_in_error_are_kept_with_it() {
    let mut deployment = MemoryDeployment::new(&[parent_workflow("2d", "1h"), child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.complete("t:deliver", "ship", large(json!({ "id": "p-1" }))).await;
    deployment.command("t", "c-1", json!({ "command": "cancel" })).await;
    deployment.run_for(60 * DAY).await;
    deployment.command("t", "c-2", json!({ "command": "undo" })).await;
    assert_eq!(request_body(&deployment, "t:deliver", "ship"), json!({ "parcel": "p-1" }));
}

#[tokio::test]
async fn what_cannot_be_settled_is_refused() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    let resolve = json!({ "command": "resolve" });
    deployment.command("t", "c-1", resolve.clone()).await;
    deployment.reply("t", "charge", refused_outcome()).await;
    deployment.command("t", "c-2", resolve.clone()).await;
    deployment.command("t", "c-3", resolve).await;
    let refused = |task: Task| task.commands.into_iter().map(|command| command.refused);
    let refused: Vec<_> = refused(deployment.task("t").await).collect();
    let unfinished = "the task is Processing, and has no Error to resolve".to_owned();
    assert_eq!(refused, [Some(unfinished), None, Some("the Error is resolved".to_owned())]);
    // What continues the task reopens the question.
    deployment.command("t", "c-4", json!({ "command": "resubmit" })).await;
    deployment.reply("t", "charge", refused_outcome()).await;
    assert!(deployment.task("t").await.is_unresolved());
}

#[tokio::test]
async fn a_task_that_is_undone_just_before_it_expires_keeps_its_documents() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("20d", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.complete("t", "charge", large(json!({ "id": "c-1" }))).await;
    deployment.run_for(HOUR).await;
    deployment.complete("t", "ship", json!(null)).await;
    deployment.run_for(19 * DAY).await;
    deployment.command("t", "c-1", json!({ "command": "undo" })).await;
    deployment.command("t", "c-2", json!({ "command": "pause" })).await;
    deployment.run_for(60 * DAY).await;
    deployment.command("t", "c-3", json!({ "command": "resume" })).await;
    assert_eq!(request_body(&deployment, "t", "charge"), json!({ "charge": "c-1" }));
    deployment.complete("t", "charge", json!(null)).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
}

#[tokio::test]
async fn a_missing_document_is_an_error_and_the_alert_names_it() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("1h", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.complete("t", "charge", large(json!({ "id": "c-1" }))).await;
    let owner = (deployment.task("t").await).document_owner();
    let key = "step/charge/1/output".parse().unwrap();
    deployment.ports.store().delete_expired(&ExpiredItem::Document(owner, key));
    deployment.requests.clear();
    deployment.run_for(HOUR).await;
    assert_eq!(deployment.requests.len(), 0, "no request with a null instead of the document");
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
    let alerts = deployment.alert_reasons("t");
    assert!(
        alerts.iter().all(|why| why.contains("`step/charge/1/output` is missing")),
        "{alerts:?}"
    );
    assert!(!alerts.is_empty());
}
