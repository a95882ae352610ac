//! The published contract for agents, and the messages that the tests send.

use std::{fs, path::PathBuf};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::BeforeTransmitInterceptorContextRef},
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use serde_json::{Value, json};
use steward_core::{
    contract::{ContractDocument, check_lifecycle_event, check_reply, check_request},
    model::messages::StepRequest,
};
use steward_emulator::resources;

use crate::support::{
    TestDeployment, completed_reply, sequential_workflow, sqs_event, wake_message,
};

/// Checks each message to an agent, each reply of an agent and each lifecycle event against the published schemas. All AWS calls of
/// [`AdapterPorts`](crate::support::AdapterPorts) pass it.
#[derive(Debug)]
pub(crate) struct ContractCheck;

impl Intercept for ContractCheck {
    fn name(&self) -> &'static str {
        "contract check"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let operation = bag.load::<Metadata>().map_or("", |metadata| metadata.name());
        let violations: fn(&Value) -> Vec<String> = match operation {
            "SendMessageBatch" | "SendMessage" => violations,
            "PutEvents" => violations_of_events,
            _ => return Ok(()),
        };
        let body = context.request().body().bytes().unwrap_or_default();
        let violations = violations(&serde_json::from_slice(body)?);
        assert!(violations.is_empty(), "a message violates docs/contract: {violations:?}");
        Ok(())
    }
}

/// The violations of the contract in a request to SQS.
fn violations(request: &Value) -> Vec<String> {
    let queue = request["QueueUrl"].as_str().unwrap_or_default();
    let queue = queue.rsplit('/').next().unwrap_or_default();
    let agent_prefix = resources::AGENT_QUEUE.split('{').next().unwrap();
    let entries = request["Entries"].as_array();
    let entries = entries.map_or(vec![request], |entries| entries.iter().collect());
    let check = |entry: &Value| {
        let message: Value = serde_json::from_str(entry["MessageBody"].as_str()?).ok()?;
        if queue.starts_with(agent_prefix) {
            check_request(&message).err()
        } else if queue == resources::SCHEDULER_QUEUE && message["type"] == "reply" {
            check_reply(&message).err()
        } else {
            None
        }
    };
    entries.into_iter().filter_map(check).collect()
}

/// The violations of the contract in a request to EventBridge.
fn violations_of_events(request: &Value) -> Vec<String> {
    let entries = request["Entries"].as_array().into_iter().flatten();
    let check = |entry: &Value| {
        let event: Value = serde_json::from_str(entry["Detail"].as_str()?).ok()?;
        let detail_type = entry["DetailType"].as_str()?;
        if !detail_type.starts_with("steward.") {
            return None;
        }
        let is_type = event["type"] == detail_type;
        let wrong_type = (!is_type).then(|| format!("{} in a {detail_type}", event["type"]));
        check_lifecycle_event(&event).err().or(wrong_type)
    };
    entries.filter_map(check).collect()
}

fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// To update the files: `STEWARD_RENEW=1 cargo test --workspace --test steward agent_contract`.
#[test]
fn the_published_contract_is_up_to_date() {
    for document in ContractDocument::ALL {
        let path = repository().join("docs/contract").join(document.file_name());
        let generated = format!("{:#}\n", document.generate());
        if std::env::var_os("STEWARD_RENEW").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(published == generated, "{} is out of date", path.display());
    }
}

#[test]
fn a_message_that_the_schemas_do_not_allow_is_found() {
    let send = |queue: &str, body: Value| {
        let url = format!("http://127.0.0.1:4566/1/{queue}");
        json!({ "QueueUrl": url, "Entries": [{ "MessageBody": body.to_string() }] })
    };
    let reply = json!({ "type": "reply", "task_id": "t", "step": "s", "attempt": 1, "outcome": { "status": "lost" } });
    assert_eq!(violations(&send(resources::SCHEDULER_QUEUE, reply.clone())).len(), 1);
    assert_eq!(violations(&send("steward-agent-a", json!({ "task_id": "t" }))).len(), 1);
    assert!(violations(&send("client-a", reply)).is_empty());
}

#[test]
fn an_event_that_the_schema_does_not_allow_is_found() {
    let publish = |event: &Value| {
        let detail = event.to_string();
        violations_of_events(
            &json!({ "Entries": [{ "DetailType": "steward.task.processed", "Detail": detail }] }),
        )
    };
    let event = json!({
        "specversion": "1.0", "id": "t/0/processed/1", "source": "/steward/workflows/w", "subject": "t",
        "time": "2026-11-20T19:00:00Z", "datacontenttype": "application/json", "type": "steward.task.processed",
        "data": { "task_id": "t", "workflow": "w", "version": 1, "submitted_at": "2026-11-20T18:00:00Z" },
    });
    assert_eq!(publish(&event), Vec::<String>::new());
    for (key, value) in [
        ("specversion", json!("0.3")),
        ("type", json!("steward.task.ended")),
        ("type", json!("steward.task.undone")),
        ("type", json!("steward.task.error")),
        ("data", json!({ "task_id": "t", "workflow": "w", "version": 1 })),
        ("id", Value::Null),
        ("datacontenttype", json!("text/plain")),
    ] {
        let mut wrong = event.clone();
        wrong[key] = value;
        assert_eq!(publish(&wrong).len(), 1, "{wrong}");
    }
}

/// The requests of the scheduler pass the check, and so does a request that an older agent receives: it has a field that
/// the schema does not know.
#[tokio::test]
async fn requests_and_replies_of_a_task_obey_the_contract() {
    let deployment = TestDeployment::new(&sequential_workflow(2)).await;
    let ports = deployment.ports("scheduler");
    deployment.submit(&ports, &["o-1".to_owned()]).await;
    steward_scheduler::handle(&ports, sqs_event([wake_message("o-1")], 1)).await;
    let bodies = deployment.take_agent_messages().await;
    let mut request: Value = serde_json::from_str(&bodies[0]).unwrap();
    check_request(&request).unwrap();
    let reply = completed_reply(&serde_json::from_value::<StepRequest>(request.clone()).unwrap());
    check_reply(&serde_json::from_str(&reply).unwrap()).unwrap();
    request["field_of_a_later_release"] = json!({ "a": 1 });
    check_request(&request).unwrap();
}
