//! What is sent again, and what is not: the effects of redelivered messages, and documents that a lost decision wrote.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        command::{Command, CommandAction},
        document::Document,
        messages::{SchedulerMessage, StepRequest},
        names::Part,
        task::{ProcessState, Task},
    },
};
use steward_runtime::ports::{Clock, Ports, StateStore};

use crate::support::{
    AdapterPorts, TestDeployment, commands_event, completed_reply, failed_message_ids,
    scheduler_instance, sqs_event, wake_message,
};

/// A step of 60 items, of which 40 run at once.
fn wide() -> Workflow {
    let items: Vec<u32> = (0..60).collect();
    let each = json!({
        "agent": "a", "for_each": { "items": format!("${{ {} }}", json!(items)), "at_once": 40 },
        "request": { "path": "/x", "body": "${ item }" },
    });
    workflow(&json!({ "each": each }))
}

fn workflow(steps: &Value) -> Workflow {
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": steps })).unwrap()
}

/// A task whose first forty items run, and their requests.
async fn running_items() -> (TestDeployment, AdapterPorts, Vec<StepRequest>) {
    let deployment = TestDeployment::new(&wide()).await;
    let ports = deployment.ports("scheduler");
    deployment.submit(&ports, &["t".to_owned()]).await;
    deployment.take_scheduler_messages().await;
    handle(&ports, [wake_message("t")], 1).await;
    let mut requests = deployment.take_agent_requests().await;
    requests.sort_by(|one, other| one.step.cmp(&other.step));
    assert_eq!(requests.len(), 40);
    (deployment, ports, requests)
}

async fn handle(ports: &AdapterPorts, messages: impl IntoIterator<Item = String>, receives: u32) {
    let response = steward_scheduler::handle(ports, sqs_event(messages, receives)).await;
    assert_eq!(failed_message_ids(&response), [""; 0]);
}

async fn command_to(ports: &AdapterPorts, command: String) {
    let (instance, event) = (scheduler_instance(""), commands_event([command], Some("AIDAANN")));
    let response = steward_scheduler::handle_with(ports, &instance, event).await;
    assert_eq!(failed_message_ids(&response), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivered_messages_of_one_batch_repeat_a_request_once() {
    let (deployment, ports, _) = running_items().await;
    handle(&ports, (0..10).map(|_| wake_message("t")), 2).await;
    let again = deployment.take_agent_requests().await;
    assert_eq!(again.len(), 40);
    assert!(again.iter().all(|request| request.may_have_run));
}

/// Otherwise the requests of a wide step would multiply: each causes another reply, which may be redelivered too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivered_replies_of_items_repeat_the_requests_of_few_others() {
    let (deployment, ports, requests) = running_items().await;
    let replies: Vec<_> = requests.iter().take(10).map(completed_reply).collect();
    handle(&ports, replies.clone(), 1).await;
    let started: BTreeSet<Part> =
        deployment.take_agent_requests().await.into_iter().map(|request| request.step).collect();
    assert_eq!(started.len(), 10);

    handle(&ports, [replies[3].clone()], 2).await;
    let again = deployment.take_agent_requests().await;
    assert_eq!(again.len(), 10);
    assert!(again.iter().any(|request| request.step.item == Some(49)), "the newest item");

    // The replies of a batch are redelivered together. Between them they repeat all that their save started.
    handle(&ports, replies, 2).await;
    let again = deployment.take_agent_requests().await;
    let again: BTreeSet<_> = again.into_iter().map(|request| request.step).collect();
    assert!(again.is_superset(&started), "{again:?}");
}

/// Two operators edit a large input at the same time. The first decision on the second edit stored its document and then lost
/// the race, so the stored document does not contain the first edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_whose_stored_document_is_outdated_is_refused() {
    let call = json!({
        "agent": "a", "recovery": { "then": "alert" },
        "request": { "path": "/x", "body": "${ input }" },
    });
    let deployment = TestDeployment::new(&workflow(&json!({ "step_1": call }))).await;
    let ports = deployment.ports("scheduler");
    let input = json!({ "note": "x".repeat(2_000), "a": 0, "b": 0 });
    let submission = json!({ "task_id": "t", "workflow": "line", "input": input }).to_string();
    let queues = deployment.config.reply_queues.clone();
    steward_submission::handle(&ports, &queues, sqs_event([submission], 1)).await;
    deployment.take_scheduler_messages().await;
    handle(&ports, [wake_message("t")], 1).await;
    let request = deployment.take_agent_requests().await.remove(0);
    let failed = json!({ "status": "failed", "reason": "HTTP 402", "may_have_run": false });
    handle(&ports, [reply(&request, &failed)], 1).await;

    let command = |id: &str, patch: Value| {
        let action = CommandAction::Resubmit { step: None, input: Some(patch), did_not_run: false };
        let (command_id, task_id) = (id.parse().unwrap(), "t".parse().unwrap());
        let (by, why, issued_at) = ("ann".to_owned(), "a test".to_owned(), Timestamp::now());
        let command = Command { command_id, task_id, by, why, action, issued_at };
        serde_json::to_string(&SchedulerMessage::Command(command)).unwrap()
    };
    let task = deployment.task("t").await;
    assert_eq!(task.process_state, ProcessState::Error);
    let outdated = json!({ "input": { "note": "x".repeat(2_000), "a": 0, "b": 2 } });
    put(&ports, &task, "input/second", outdated).await;
    command_to(&ports, command("first", json!({ "a": 1 }))).await;
    let request = deployment.take_agent_requests().await.remove(0);
    handle(&ports, [reply(&request, &failed)], 1).await;

    command_to(&ports, command("second", json!({ "b": 2 }))).await;
    let task = deployment.task("t").await;
    let refused = task.commands.last().unwrap().refused.as_deref();
    assert_eq!(refused, Some("another change came first; send the command again"));
    command_to(&ports, command("third", json!({ "b": 2 }))).await;
    let request = deployment.take_agent_requests().await.remove(0);
    let body = request.body.unwrap().value();
    assert_eq!((&body["a"], &body["b"]), (&json!(1), &json!(2)));
}

fn reply(request: &StepRequest, outcome: &Value) -> String {
    let mut reply: Value = serde_json::from_str(&completed_reply(request)).unwrap();
    reply["outcome"] = outcome.clone();
    reply.to_string()
}

async fn put(ports: &AdapterPorts, task: &Task, key: &str, body: Value) {
    let document = Document::new(key.parse().unwrap(), ports.clock().now(), body);
    let (owner, retention) = (task.document_owner(), task.document_retention());
    ports.store().put_document(&owner, retention, &document).await.unwrap();
}
