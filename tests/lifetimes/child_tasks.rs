//! Lifetimes of child tasks: they expire with their parent, and a missing child is not taken for an undone one.

use serde_json::json;
use steward_core::model::{
    messages::{ReplyOutcome, SchedulerMessage},
    task::ProcessState,
};
use steward_runtime::ports::{Clock, Ports};
use steward_test_world::ExpiredItem;

use super::harness::*;
use crate::support::sqs_event;

#[tokio::test]
async fn a_child_task_does_not_expire_before_its_parent() {
    for is_paused in [false, true] {
        let within = if is_paused { "2d" } else { "100d" };
        let wait = if is_paused { "1h" } else { "30d" };
        let mut deployment =
            MemoryDeployment::new(&[parent_workflow(within, wait), child_workflow()]);
        deployment.submit(submission("t", "parent")).await.unwrap();
        deployment.complete("t:deliver", "ship", json!({ "id": "p-1" })).await;
        assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Processed);
        if is_paused {
            deployment.command("t", "c-1", json!({ "command": "pause" })).await;
            deployment.run_for(60 * DAY).await;
            deployment.command("t", "c-2", json!({ "command": "resume" })).await;
        } else {
            deployment.run_for(30 * DAY + HOUR).await;
        }
        deployment.reply("t", "last", refused_outcome()).await;
        assert_eq!(request_body(&deployment, "t:deliver", "ship"), json!({ "parcel": "p-1" }));
        deployment.complete("t:deliver", "ship", json!(null)).await;
        assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
        assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
        // Later both tasks and all their documents expire.
        deployment.run_for(200 * DAY).await;
        assert_eq!(deployment.ports.store().expired(jiff::Timestamp::MAX), []);
        assert_eq!(
            (deployment.find_task("t").await, deployment.find_task("t:deliver").await),
            (None, None)
        );
    }
}

#[tokio::test]
async fn a_missing_child_task_does_not_count_as_undone() {
    let mut deployment = MemoryDeployment::new(&[parent_workflow("2d", "1h"), child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.complete("t:deliver", "ship", json!({ "id": "p-1" })).await;
    deployment.ports.store().delete_expired(&ExpiredItem::Task("t:deliver".parse().unwrap()));
    deployment.run_for(HOUR).await;
    deployment.reply("t", "last", refused_outcome()).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
    assert!(deployment.alert_reasons("t")[0].contains("`t:deliver` has expired or was deleted"));
    assert_eq!(deployment.find_task("t:deliver").await, None);
}

/// Nothing runs for weeks, the report of the child task is lost, and the child expires: it may have begun. The result is
/// the same if the request to undo the child was delayed for as long.
#[tokio::test]
async fn a_child_task_that_may_have_expired_does_not_count_as_never_begun() {
    for is_undo_delayed in [false, true] {
        let mut deployment =
            MemoryDeployment::new(&[parent_workflow("2d", "1h"), child_workflow()]);
        deployment.submit(submission("t", "parent")).await.unwrap();
        let done = ReplyOutcome::Completed { output: json!({ "id": "p-1" }), may_continue: false };
        let reply = SchedulerMessage::Reply(deployment.reply_to("t:deliver", "ship", done));
        deployment.schedule(&json!(reply).to_string()).await;
        drop(deployment.ports.channel().take_all());
        assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Processed);

        if is_undo_delayed {
            deployment.held_submissions = Some(Vec::new());
            deployment.command("t", "c-1", json!({ "command": "undo" })).await;
        }
        deployment.ports.clock().advance(60 * DAY);
        for item in deployment.ports.store().expired(deployment.ports.clock().now()) {
            deployment.ports.store().delete_expired(&item);
        }
        for message in deployment.held_submissions.take().unwrap_or_default() {
            drop(deployment.receive_submission(&message.body).await);
        }
        deployment.deliver_all().await;
        deployment.sweep().await;
        if !is_undo_delayed {
            deployment.command("t", "c-1", json!({ "command": "undo" })).await;
        }
        assert_eq!(deployment.process_state("t").await, ProcessState::Error, "{is_undo_delayed}");
        assert_eq!(deployment.find_task("t:deliver").await, None);
    }
}

/// The undo of a child task overtakes its delayed submission. When the undo arrives, the workflow of the child is
/// unpublished, or no longer accepts the input.
#[tokio::test]
async fn a_child_task_undone_before_its_submission_arrived_never_begins() {
    for is_published in [false, true] {
        let mut deployment =
            MemoryDeployment::new(&[parent_workflow("2d", "1h"), child_workflow()]);
        deployment.held_submissions = Some(Vec::new());
        deployment.submit(submission("t", "parent")).await.unwrap();
        let late = deployment.held_submissions.take().unwrap().remove(0);
        if is_published {
            let mut strict = child_workflow();
            strict["version"] = json!(2);
            strict["input"] = json!({ "type": "object", "required": ["n"] });
            let strict = serde_json::from_value(strict).unwrap();
            deployment.ports.definitions().publish(&strict).unwrap();
        } else {
            assert!(deployment.ports.definitions().unpublish(&"child".parse().unwrap(), 1));
        }
        deployment.command("t", "c-1", json!({ "command": "undo" })).await;
        assert_eq!(deployment.process_state("t").await, ProcessState::Undone);
        deployment
            .ports
            .definitions()
            .publish(&serde_json::from_value(child_workflow()).unwrap())
            .unwrap();
        for _ in 0..2 {
            drop(deployment.receive_submission(&late.body).await);
            deployment.deliver_all().await;
        }
        assert_eq!(deployment.requests.len(), 0, "published: {is_published}");
        assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
    }
}

/// A rejected submission does not prove that no child task exists.
#[tokio::test]
async fn a_rejected_submission_does_not_complete_an_undo() {
    let mut deployment = MemoryDeployment::new(&[parent_workflow("2d", "1h"), child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.held_submissions = Some(Vec::new());
    deployment.command("t", "c-1", json!({ "command": "undo" })).await;
    let refused = json!({ "type": "child_ended", "task_id": "t", "step": "deliver",
        "incarnation": deployment.task("t").await.incarnation,
        "outcome": { "status": "refused", "reason": "no such workflow" } });
    deployment.schedule(&refused.to_string()).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Undoing);
}

/// The scheduler refuses an operator's undo of a Processed child, because its parent depends on it.
#[tokio::test]
async fn a_processed_child_is_not_undone_without_its_parent() {
    let mut deployment = MemoryDeployment::new(&[parent_workflow("2d", "3h"), child_workflow()]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    deployment.complete("t:deliver", "ship", json!({ "id": "p-1" })).await;
    deployment.command("t:deliver", "u-1", json!({ "command": "undo" })).await;
    let child = deployment.task("t:deliver").await;
    assert_eq!(child.process_state, ProcessState::Processed);
    assert!(child.commands[0].refused.as_ref().is_some_and(|why| why.contains("undo that task")));
}

/// A child task is undone, and two of its steps take effect after all, in one batch, and have no undo. One report and one alert
/// tell about all.
#[tokio::test]
async fn changes_of_a_child_task_in_one_save_are_reported_together() {
    let step = |name: &str| json!({ "agent": "a", "recovery": { "then": "undo" }, "request": { "path": format!("/{name}") } });
    let steps = json!({ "box": step("box"), "seal": step("seal"), "tape": step("tape") });
    let child = json!({ "name": "child", "version": 1, "steps": steps });
    let deliver = json!({ "workflow": { "name": "child" }, "recovery": { "then": "undo" } });
    let parent = json!({ "name": "parent", "version": 1, "steps": { "deliver": deliver } });
    let mut deployment = MemoryDeployment::new(&[parent, child]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    let done = || ReplyOutcome::Completed { output: json!(null), may_continue: false };
    let replies = [
        ("box", refused_outcome()),
        ("seal", refused_outcome()),
        ("tape", refused_outcome()),
        ("seal", done()),
        ("tape", done()),
    ];
    let replies = replies.map(|(step, outcome)| {
        let reply = deployment.reply_to("t:deliver", step, outcome);
        json!(SchedulerMessage::Reply(reply)).to_string()
    });
    deployment.schedule_batch(sqs_event(replies, 1)).await;
    deployment.deliver_all().await;
    assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Error);
    let reasons = deployment.alert_reasons("t:deliver");
    assert!(reasons.last().unwrap().contains("tape"), "{reasons:?}");
    assert!(reasons.last().unwrap().contains("seal"), "{reasons:?}");
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);

    // The child is undone, and reports that at another revision.
    deployment.command("t:deliver", "r-1", json!({ "command": "resubmit" })).await;
    deployment.deliver_all().await;
    deployment.complete("t:deliver", "seal", json!(null)).await;
    deployment.complete("t:deliver", "tape", json!(null)).await;
    assert_eq!(deployment.process_state("t:deliver").await, ProcessState::Undone);
}
