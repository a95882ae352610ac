//! An id that a second task uses: documents, messages, commands and saves of the first task do not affect the second.

use serde_json::json;
use steward_core::model::{
    messages::{ReplyOutcome, SchedulerMessage},
    task::{ProcessState, Task},
};
use steward_runtime::ports::{Clock, OutgoingMessage, Ports, StateStore};
use steward_test_world::ExpiredItem;

use super::harness::*;

#[tokio::test]
async fn an_id_can_be_reused_when_only_documents_of_its_earlier_task_remain() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    deployment.complete("t", "charge", json!("first")).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Processed);
    deployment.ports.clock().advance(10 * DAY);
    // A repeated submission is accepted and starts a new task, whether or not the expired task is already deleted.
    for keeps_task in [true, false] {
        if !keeps_task {
            deployment.ports.store().delete_expired(&ExpiredItem::Task("t".parse().unwrap()));
        }
        let before = deployment.ports.store().expired(deployment.ports.clock().now());
        assert!(!before.is_empty());
        deployment.submit(submission("t", "one")).await.unwrap();
        let second = deployment.task("t").await;
        assert_eq!(second.process_state, ProcessState::Processing);
        deployment.complete("t", "charge", json!("second")).await;
        let key = "step/charge/1/output".parse().unwrap();
        let second = deployment.task("t").await;
        let output = deployment.ports.store().documents_of(&second, &[key]).await.unwrap();
        assert_eq!(output[0].body, json!("second"));
        deployment.ports.clock().advance(10 * DAY);
    }
    // After the expiry, a submission with other content is accepted, too.
    let mut other = submission("t", "one");
    other["input"] = json!("other");
    deployment.submit(other).await.unwrap();
    assert_eq!(deployment.process_state("t").await, ProcessState::Processing);
}

#[tokio::test]
async fn messages_about_an_earlier_task_with_the_same_id_are_ignored() {
    let child = json!({ "name": "child", "version": 1, "retention": "1h",
        "steps": { "ship": call_step("/ship") } });
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "1d", "retention": "1h",
        "steps": {
            "charge": call_step("/charge"),
            "deliver": { "workflow": { "name": "child" } },
            "approve": { "agent": "a", "callback": { "within": "1h" },
                "request": { "path": "/ask/${ callback.token }" } },
        } });
    let mut deployment = MemoryDeployment::new(&[parent, child]);
    deployment.submit(submission("t", "parent")).await.unwrap();
    let done = ReplyOutcome::Completed { output: json!("first"), may_continue: false };
    let reply = deployment.reply_to("t", "charge", done.clone());
    let path = &deployment.requests[&("t".to_owned(), "approve".to_owned())].path;
    let token = path.trim_start_matches("/ask/").replace("%2F", "/");
    deployment.complete("t", "approve", json!(null)).await;
    deployment.complete("t:deliver", "ship", json!(null)).await;
    let is_child_report = |message: &&OutgoingMessage| message.body.contains("child_ended");
    let ended = deployment.scheduler_messages.iter().find(is_child_report).unwrap().body.clone();
    let child_inquiry = deployment
        .scheduler_messages
        .iter()
        .find(|message| message.body.contains("\"ask\""))
        .unwrap();
    let child_inquiry = child_inquiry.body.replace("\"do\"", "\"undo\"");
    deployment.command("t", "c-1", json!({ "command": "cancel" })).await;
    deployment.resolve("t").await;
    deployment.ports.clock().advance(60 * DAY);
    deployment.submit(submission("t", "parent")).await.unwrap();
    let before = (deployment.task("t").await, deployment.task("t:deliver").await);
    assert_eq!(before.0.process_state, ProcessState::Processing);
    let answer = json!({ "type": "callback", "token": token, "answer": "failed", "reason": "no" });
    for old in [
        json!(SchedulerMessage::Reply(reply)).to_string(),
        answer.to_string(),
        ended.clone(),
        child_inquiry,
    ] {
        deployment.schedule(&old).await;
        assert_eq!(
            (deployment.task("t").await, deployment.task("t:deliver").await),
            before,
            "{old}"
        );
    }
}

/// A bulk command is sent again to unanswered tasks. One of them expired meanwhile, and its id is reused.
#[tokio::test]
async fn a_command_for_an_earlier_task_with_the_same_id_is_rejected() {
    let two = json!({ "name": "two", "version": 1, "complete_within": "1d", "retention": "1h", "steps": {
        "charge": call_step("/charge"), "ship": { "agent": "a", "after": ["charge"], "request": { "path": "/ship" } } } });
    let mut deployment = MemoryDeployment::new(&[two]);
    deployment.submit(submission("t", "two")).await.unwrap();
    deployment.complete("t", "charge", json!(null)).await;
    deployment.reply("t", "ship", refused_outcome()).await;
    assert_eq!(deployment.process_state("t").await, ProcessState::Error);
    let first = deployment.task("t").await;
    // The operator shipped manually. The command is in its queue when the task expires.
    let bulk = steward_runtime::bulk::BulkCommand {
        id: "run-1".parse().unwrap(),
        action: serde_json::from_value(json!({ "command": "complete", "step": "ship" })).unwrap(),
        by: "ann".to_owned(),
        why: "shipped by hand".to_owned(),
        at: deployment.ports.clock().now(),
        found_by: "state=Error".to_owned(),
        tasks: vec!["t".parse().unwrap()],
    };
    deployment.resolve("t").await;
    deployment.run_for(2 * DAY).await;
    assert_eq!(deployment.find_task("t").await, None);
    deployment.submit(submission("t", "two")).await.unwrap();
    deployment.requests.retain(|(_, step), _| step == "charge");
    let second = deployment.task("t").await;
    assert_ne!(first.incarnation, second.incarnation);
    let sent = bulk.send(&deployment.ports, &bulk.tasks).await;
    assert!(sent.iter().all(Result::is_ok));
    deployment.deliver_all().await;
    deployment.complete("t", "charge", json!(null)).await;
    let task = deployment.task("t").await;
    assert_ne!(
        task.process_state,
        ProcessState::Processed,
        "the task is Processed without a call of ship"
    );
}

/// A delayed save of an expired task conflicts with a later task that has the same id and revision.
#[tokio::test]
async fn a_save_of_an_earlier_task_with_the_same_id_is_rejected() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    deployment.reply("t", "charge", refused_outcome()).await;
    let old = deployment.task("t").await;
    assert_eq!(old.process_state, ProcessState::Error);
    // A scheduler loaded the task for an operator's command, and is delayed by retries or lost races.
    deployment.ports.clock().advance(2 * HOUR);
    deployment.submit(submission("t", "one")).await.unwrap();
    while deployment.task("t").await.revision < old.revision {
        let n = deployment.task("t").await.revision;
        deployment.command("t", &format!("c-{n}"), json!({ "command": "resume" })).await; // refused and recorded
    }
    let new = deployment.task("t").await;
    let slow = Task { revision: old.revision + 1, ..old.clone() };
    deployment.ports.store().save(&slow).await.unwrap();
    assert_eq!(
        deployment.task("t").await.incarnation,
        new.incarnation,
        "the save of the old task replaced the new one"
    );
}
