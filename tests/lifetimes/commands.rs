//! Outputs that operators set by a command.

use std::time::Duration;

use serde_json::json;
use steward_core::{
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, Transition},
        documents::LoadedDocuments,
        event::Event,
        transition::transition,
    },
    model::{
        command::Command,
        task::{ProcessState, Task},
    },
};
use steward_runtime::ports::{Clock, Ports, StateStore};

use super::harness::*;

/// The scheduler crashes after it wrote the output of a command and before it saved the task. Then the next attempt
/// begins, and the redelivered command is refused.
#[tokio::test]
async fn a_command_that_lost_a_race_does_not_replace_the_services_output() {
    let workflow = json!({ "name": "w", "version": 1, "complete_within": "2d",
        "output": "${ steps.charge.output.id }",
        "steps": { "charge": { "agent": "a", "complete_within": "1m", "request": { "path": "/charge" },
            "undo": { "request": { "path": "/refund", "body": "${ steps.charge.output.id }" } } } } });
    let definition: Plan = serde_json::from_value(workflow.clone()).unwrap();
    let mut deployment = MemoryDeployment::new(&[workflow]);
    deployment.submit(submission("t", "w")).await.unwrap();
    deployment.ports.clock().advance(Duration::from_secs(90));
    let task = deployment.task("t").await;
    let decide = |task: &Task, event: &Event| {
        let context = DecisionContext {
            now: deployment.ports.clock().now(),
            actor: "other",
            redelivered: false,
            lost_starts: None,
            timing: deployment.ports.timing(),
            callback_urls: None,
        };
        match transition(&definition, task, &LoadedDocuments::new(), event, context).unwrap() {
            Transition::Apply { task, documents, .. } => (*task, documents),
            other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
        }
    };
    // The step waits for its next attempt when the scheduler decides on the command.
    let (waiting, _) = decide(&task, &Event::Swept);
    let command: Command = serde_json::from_value(json!({
        "command_id": "c-1", "task_id": "t", "by": "ann", "why": "a test", "issued_at": deployment.ports.clock().now(),
        "order": { "command": "complete", "step": "charge", "output": large(json!({ "id": "TILL" })) },
    }))
    .unwrap();
    let (_, documents) = decide(
        &waiting,
        &Event::CommandReceived(command.clone().received_from("AIDAANN".parse().unwrap())),
    );
    assert!(!documents.is_empty());
    for document in documents {
        let (owner, retention) = (task.document_owner(), task.document_retention());
        deployment.ports.store().put_document(&owner, retention, &document).await.unwrap();
    }
    deployment.sweep().await;
    deployment.ports.clock().advance(HOUR);
    deployment.sweep().await;
    assert_eq!(deployment.requests[&("t".to_owned(), "charge".to_owned())].attempt, 2);
    deployment
        .command(
            "t",
            "c-1",
            json!({ "command": "complete", "step": "charge",
        "output": { "id": "TILL" } }),
        )
        .await;
    deployment.complete("t", "charge", json!({ "id": "c-7" })).await;
    let task = deployment.task("t").await;
    assert_eq!(task.process_state, ProcessState::Processed);
    assert!(task.commands[0].refused.is_some());
    let result = steward_operator::view::result_key_of(&task).unwrap();
    let result = deployment.ports.store().documents_of(&task, &[result]).await.unwrap();
    assert_eq!(result[0].body, json!("c-7"));
    deployment.command("t", "c-2", json!({ "command": "undo" })).await;
    assert_eq!(request_body(&deployment, "t", "charge"), json!("c-7"));
}

#[tokio::test]
async fn an_output_set_by_an_operator_is_read_by_the_next_step() {
    let mut deployment = MemoryDeployment::new(&[charge_wait_ship("1h", "2d", "1h")]);
    deployment.submit(submission("t", "slow")).await.unwrap();
    deployment.reply("t", "charge", refused_outcome()).await;
    deployment
        .command(
            "t",
            "c-1",
            json!({ "command": "complete", "output": { "id": "set-by-operator" } }),
        )
        .await;
    deployment.run_for(2 * HOUR).await;
    assert_eq!(request_body(&deployment, "t", "ship"), json!({ "charge": "set-by-operator" }));
}
