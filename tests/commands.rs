//! Who may send commands: the right to send to the scheduler's queue is not the right to act as an operator. The tests
//! send messages under the identities of the sender, of an agent and of the console, and read what the task records.

use serde_json::{Value, json};
use steward_core::model::{
    command::{Caller, CommandSource},
    task::Task,
};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::{
    TestDeployment, commands_event, failed_message_ids, scheduler_instance, sequential_workflow,
    sqs_event, wake_message,
};

/// The unique id of the console's role, and its session, which has the name of the function.
const CONSOLE_ROLE: &str = "AROACONSOLE";
const CONSOLE: &str = "AROACONSOLE:steward-console";

/// A session of an agent's role.
const AGENT: &str = "AROAAGENT:steward-agent-a";

fn command(id: &str, by: &str, order: &str) -> String {
    json!({
        "type": "command", "command_id": id, "task_id": "t", "by": by, "why": "a test", "issued_at": jiff::Timestamp::now(),
        "order": { "command": order },
    })
    .to_string()
}

/// A deployment with the task `t`, whose first step is running.
async fn running_task() -> TestDeployment {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    deployment.take_scheduler_messages().await;
    let wake = sqs_event([wake_message("t")], 1);
    steward_scheduler::handle(&deployment.ports("scheduler"), wake).await;
    deployment.take_agent_requests().await;
    deployment.take_alerts().await;
    deployment
}

fn caller(task: &Task) -> (String, CommandSource) {
    let Caller { sender, via } = task.commands.last().unwrap().caller.clone();
    (sender.to_string(), via)
}

/// Hands an event to the scheduler, which refuses its only message: the task does not change, and there is an alert with
/// this reason.
async fn assert_refused(
    deployment: &TestDeployment,
    event: aws_lambda_events::sqs::SqsEvent,
    reason: &str,
) {
    let before = deployment.task("t").await;
    let instance = scheduler_instance(CONSOLE_ROLE);
    let response =
        steward_scheduler::handle_with(&deployment.ports("scheduler"), &instance, event).await;
    assert_eq!(failed_message_ids(&response), ["m-0"], "it becomes a dead letter");
    assert_eq!(deployment.task("t").await, before);
    let alerts = deployment.take_alerts().await;
    let [alert] = alerts.as_slice() else { panic!("{alerts:?}") };
    assert_eq!(alert["detail-type"], "Message Corrupt");
    let text = alert["detail"]["data"]["reason"].as_str().unwrap();
    assert!(text.contains(reason), "{text}");
}

#[tokio::test]
async fn a_command_in_the_schedulers_own_queue_is_refused_with_an_alert() {
    let deployment = running_task().await;
    let mut event = sqs_event([command("c-1", "boss", "cancel")], 1);
    // As an agent sends it: SQS states the sender, which does not help.
    for record in &mut event.records {
        record.event_source_arn = Some("arn:aws:sqs:us-east-1:1:scheduler".to_owned());
        record.attributes.insert("SenderId".to_owned(), AGENT.to_owned());
    }
    assert_refused(&deployment, event, &format!("sent by {AGENT}: a command outside")).await;
}

#[tokio::test]
async fn a_command_without_a_sender_is_refused_with_an_alert() {
    let deployment = running_task().await;
    let event = commands_event([command("c-1", "boss", "cancel")], None);
    assert_refused(&deployment, event, "whose sender SQS does not state").await;
}

/// An operator may not pretend to be an agent either.
#[tokio::test]
async fn a_reply_in_the_commands_queue_is_refused_with_an_alert() {
    let deployment = running_task().await;
    let reply = json!({
        "type": "reply", "task_id": "t", "step": "step_1", "attempt": 1, "incarnation": 7,
        "outcome": { "status": "completed", "output": null },
    });
    let event = commands_event([reply.to_string()], Some("AIDAANN"));
    assert_refused(&deployment, event, "only commands and callbacks").await;
}

#[tokio::test]
async fn the_recorded_caller_is_the_sender_and_not_the_stated_name() {
    let deployment = running_task().await;
    let (ports, instance) = (deployment.ports("scheduler"), scheduler_instance(CONSOLE_ROLE));
    let event = commands_event([command("c-1", "boss", "pause")], Some("AROAOPS:ann"));
    steward_scheduler::handle_with(&ports, &instance, event).await;
    let task = deployment.task("t").await;
    assert_eq!(task.commands[0].by, "boss");
    assert_eq!(caller(&task), ("AROAOPS:ann".to_owned(), CommandSource::Direct));
    let alerts = deployment.take_alerts().await;
    let published = &alerts[0]["detail"]["data"];
    assert_eq!(published["by"], "boss");
    assert_eq!(published["caller"], json!({ "sender": "AROAOPS:ann", "via": "direct" }));
}

#[tokio::test]
async fn a_name_counts_as_authenticated_only_from_the_consoles_role() {
    let deployment = running_task().await;
    let (ports, instance) = (deployment.ports("scheduler"), scheduler_instance(CONSOLE_ROLE));
    let attribute = json!({
        "stringValue": "true", "dataType": "String", "stringListValues": [], "binaryListValues": [],
    });
    for (id, sender, marks, via) in [
        ("c-1", CONSOLE, &["authenticated"][..], CommandSource::Console),
        ("c-2", "AROAOTHER:steward-console", &["authenticated"], CommandSource::Direct),
        ("c-3", CONSOLE, &["authenticated", "redriven"], CommandSource::Redrive),
        ("c-4", CONSOLE, &[], CommandSource::Direct),
    ] {
        let mut event = commands_event([command(id, "ada@example.com", "pause")], Some(sender));
        let marks: serde_json::Map<_, _> =
            marks.iter().map(|name| ((*name).to_owned(), attribute.clone())).collect();
        event.records[0].message_attributes = serde_json::from_value(Value::Object(marks)).unwrap();
        steward_scheduler::handle_with(&ports, &instance, event).await;
        let task = deployment.task("t").await;
        assert_eq!(caller(&task), (sender.to_owned(), via), "{id}");
    }
}

/// With real queues and event sources: the embedded SQS states the access key id of the signature as the sender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_cannot_act_as_an_operator_and_an_operator_acts_under_its_own_id() {
    let wait = json!({ "name": "wait", "version": 1, "steps": { "rest": { "wait": "1h" } } });
    let workflows = vec![serde_json::from_value(wait).unwrap()];
    let host = Host::start(HostOptions { workflows, ..HostOptions::default() }).await.unwrap();
    let mut events = host.aws.subscribe_events();
    let send = async |sender: &str, queue: &str, body: String| {
        let sqs = aws_sdk_sqs::Client::new(&host.aws.sdk_config_of(sender));
        sqs.send_message().queue_url(queue).message_body(body).send().await.unwrap();
    };
    let submission = json!({ "task_id": "t", "workflow": "wait" }).to_string();
    send("AIDACLIENT", &host.config.submissions_queue_url, submission).await;
    let task = async || host.ports.store().load(&"t".parse().unwrap()).await.unwrap();
    while task().await.is_none_or(|task| task.revision < 2) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let before = task().await;

    send(AGENT, &host.config.scheduler_queue_url, command("c-1", "ann", "cancel")).await;
    let refused = events.recv().await.unwrap();
    assert_eq!(refused["detail-type"], "Message Corrupt");
    assert_eq!(task().await, before);

    send("AIDAANN", &host.config.commands_queue_url, command("c-2", "boss", "cancel")).await;
    while events.recv().await.unwrap()["detail-type"] != "Operator Command" {}
    let cancelled = task().await.unwrap();
    assert_eq!(cancelled.commands.len(), 1);
    assert_eq!(caller(&cancelled), ("AIDAANN".to_owned(), CommandSource::Direct));
}
