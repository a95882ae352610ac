//! Holds every message of Steward's functions to the published contract.

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept, SharedInterceptor, context::BeforeTransmitInterceptorContextRef,
        },
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use serde_json::Value;
use steward_core::contract::{check_lifecycle_event, check_message_of_agent, check_request};

use crate::resources;

/// Panics if a function sends a message to an agent, a message of an agent or a lifecycle event that the published schemas do
/// not allow. All functions of a [`Host`](crate::host::Host) have it in builds with debug assertions.
#[derive(Debug)]
pub struct ContractCheck;

impl ContractCheck {
    /// The check, for `AwsPorts::with_interceptors`.
    #[must_use]
    pub fn interceptor() -> SharedInterceptor {
        SharedInterceptor::new(Self)
    }
}

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
        let body = context.request().body().bytes().unwrap_or_default();
        let violations = violations(operation, &serde_json::from_slice(body).unwrap_or_default());
        assert!(violations.is_empty(), "a message violates docs/contract: {violations:?}");
        Ok(())
    }
}

/// The violations of the contract in a request to SQS or EventBridge.
fn violations(operation: &str, request: &Value) -> Vec<String> {
    match operation {
        "SendMessageBatch" | "SendMessage" => violations_of_messages(request),
        "PutEvents" => violations_of_events(request),
        _ => Vec::new(),
    }
}

fn violations_of_messages(request: &Value) -> Vec<String> {
    let queue = text(request, "QueueUrl").and_then(|url| url.rsplit('/').next());
    let queue = queue.unwrap_or_default();
    let is_of_agent = resources::AGENT_QUEUE
        .strip_suffix("{agent}")
        .is_some_and(|prefix| queue.starts_with(prefix));
    let check = |entry: &Value| {
        let message: Value = serde_json::from_str(text(entry, "MessageBody")?).ok()?;
        match queue {
            _ if is_of_agent => check_request(&message).err().or_else(|| unknown_attribute(entry)),
            resources::SCHEDULER_QUEUE => check_message_of_agent(&message).err(),
            _ => None,
        }
    };
    match request.get("Entries").and_then(Value::as_array) {
        Some(entries) => entries.iter().filter_map(check).collect(),
        None => check(request).into_iter().collect(),
    }
}

/// A message attribute of a request to an agent that the contract does not know.
fn unknown_attribute(entry: &Value) -> Option<String> {
    let names = entry.get("MessageAttributes")?.as_object()?.keys();
    let mut unknown = names.filter(|name| !["traceparent", "redriven"].contains(&name.as_str()));
    unknown.next().map(|name| format!("unknown message attribute `{name}`"))
}

fn violations_of_events(request: &Value) -> Vec<String> {
    let entries = request.get("Entries").and_then(Value::as_array).into_iter().flatten();
    let check = |entry: &Value| {
        let event: Value = serde_json::from_str(text(entry, "Detail")?).ok()?;
        let detail_type = text(entry, "DetailType")?;
        if !detail_type.starts_with("steward.") {
            return None;
        }
        let is_type = text(&event, "type") == Some(detail_type);
        let wrong_type = (!is_type).then(|| format!("another `type` in a {detail_type}"));
        check_lifecycle_event(&event).err().or(wrong_type)
    };
    entries.filter_map(check).collect()
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_that_the_schemas_do_not_allow_is_found() {
        let send = |queue: &str, body: Value| {
            let url = format!("http://127.0.0.1:4566/1/{queue}");
            json!({ "QueueUrl": url, "Entries": [{ "MessageBody": body.to_string() }] })
        };
        let reply = json!({ "type": "reply", "task_id": "t", "step": "s", "attempt": 1, "incarnation": 7, "outcome": { "status": "lost" } });
        assert_eq!(
            violations_of_messages(&send(resources::SCHEDULER_QUEUE, reply.clone())).len(),
            1
        );
        assert_eq!(
            violations_of_messages(&send("steward-agent-a", json!({ "task_id": "t" }))).len(),
            1
        );
        assert!(violations_of_messages(&send("client-a", reply)).is_empty());
        let call = json!({ "step": "s", "attempt": 1, "incarnation": 7 });
        let wake =
            |id: Value| json!({ "type": "wake", "cause": "overdue", "task_id": id, "call": call });
        assert_eq!(
            violations_of_messages(&send(resources::SCHEDULER_QUEUE, wake(json!("t")))).len(),
            0
        );
        assert_eq!(
            violations_of_messages(&send(resources::SCHEDULER_QUEUE, wake(json!(7)))).len(),
            1
        );
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
}
