//! A command that an agent forges is refused, and an operator's command is recorded with its sender.

use std::rc::Rc;

use serde_json::json;
use steward_core::model::command::CommandSource;
use steward_demo::{example_workflow::ExampleWorkflow, services::Fault};

use super::{
    aws_requests::{call, root, wait_for},
    functions::processes,
    stack::Stack,
    target::{TargetKind, deployment_target},
};

/// Sends a command as an agent and as an operator. Runs after the tasks of other checks, because it needs the credentials
/// of a running agent.
pub(super) async fn only_operators_command(stack: Rc<Stack>) {
    let id = stack.order_with("commands", "reserve", |fault| fault == Fault::Healthy);
    let order = ExampleWorkflow::Order.scenario();
    stack.submit(&id, order.name(), &order.input(2)).await;
    stack.ended(&id).await;
    let command = |command_id: &str| {
        let order = json!({ "command": "undo" });
        let command = json!({
            "type": "command", "command_id": command_id, "task_id": id, "by": "boss",
            "why": "an end-to-end test", "issued_at": jiff::Timestamp::now(), "order": order,
        });
        command.to_string()
    };
    let agent = match deployment_target().shows_processes("forged command: sent as root") {
        true => processes(&stack.name_of("agent-payment")).pop().unwrap().credentials(),
        false => root(),
    };
    let target = "AmazonSQS.SendMessage";
    let queue = |name: &str| deployment_target().queue_url(&stack.name_of(name));
    let body = json!({ "QueueUrl": queue("scheduler"), "MessageBody": command("forged") });
    let (status, sent) = call(&agent, "sqs", target, &body).await;
    assert_eq!(status, 200, "an agent may send to the scheduler's queue: {sent}");
    let message_id = sent["MessageId"].as_str().unwrap().to_owned();
    let alerted = async || stack.alerted.lock().unwrap().contains(&message_id).then_some(());
    wait_for("the alert about the forged command", alerted).await;
    if deployment_target().enforces_iam("commands queue: refused to an agent") {
        let body = json!({ "QueueUrl": queue("commands"), "MessageBody": command("denied") });
        let (status, refused) = call(&agent, "sqs", target, &body).await;
        assert!(status != 200 && refused.to_string().contains("AccessDenied"), "{refused}");
    }
    assert_eq!(stack.task(&id).await.unwrap().commands, []);

    let body = json!({ "QueueUrl": queue("commands"), "MessageBody": command("own") });
    let (status, sent) = call(&root(), "sqs", target, &body).await;
    assert_eq!(status, 200, "{sent}");
    let on_record = async || stack.task(&id).await?.commands.into_iter().next();
    let record = wait_for("an operator's command", on_record).await;
    let caller = record.caller;
    assert_eq!(
        (record.id.as_str(), record.by.as_str(), caller.via),
        ("own", "boss", CommandSource::Direct)
    );
    // The emulators state the account's id for every sender, so they cannot show that each sender has its own.
    if deployment_target().kind != TargetKind::Aws {
        assert_eq!(caller.sender.as_str(), deployment_target().account);
    }
}
