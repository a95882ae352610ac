//! The contract between the scheduler and agents, generated from the types of the messages, so that it cannot differ from
//! what the roles send: an AsyncAPI document with the queues and messages, and a JSON Schema of each message.
//! `docs/agent-contract.md` has the rules that types cannot express. The schema of [lifecycle events](LifecycleEvent) for
//! subscribers of the event bus is generated in the same way, and has its own version.
//!
//! The version follows semantic versioning. A new optional field is a minor version: agents ignore fields that they do not
//! know. What an agent of an older version would misunderstand is a major version. An agent registers the major version.

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, transform};
use serde_json::{Map, Value, json};

use crate::{
    definition::schema::{DIALECT, PayloadSchema},
    limits,
    model::{
        lifecycle::LifecycleEvent,
        messages::{OverdueCall, StepReply, StepRequest},
        names::TaskId,
    },
};

/// The version of the contract. Its major version is [`AGENT_CONTRACT`](crate::model::registration::AGENT_CONTRACT).
pub const CONTRACT_VERSION: &str = "2.4.0";

/// The version of the schema of lifecycle events, which follows semantic versioning as well.
pub const LIFECYCLE_EVENT_VERSION: &str = "1.0.0";

/// A published document of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContractDocument {
    /// The AsyncAPI document: queues, messages and their schemas.
    AsyncApi,
    /// The JSON Schema of a request to an agent.
    Request,
    /// The JSON Schema of an agent's reply.
    Reply,
    /// The JSON Schema of a lifecycle event.
    LifecycleEvent,
}

impl ContractDocument {
    /// All documents.
    pub const ALL: [Self; 4] = [Self::AsyncApi, Self::Request, Self::Reply, Self::LifecycleEvent];

    /// The name of the file in `docs/contract/`.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::AsyncApi => "asyncapi.json",
            Self::Request => "request.schema.json",
            Self::Reply => "reply.schema.json",
            Self::LifecycleEvent => "lifecycle-event.schema.json",
        }
    }

    /// Generates the document.
    #[must_use]
    pub fn generate(self) -> Value {
        match self {
            Self::AsyncApi => async_api(),
            Self::Request => versioned(root_schema::<StepRequest>(), self),
            Self::LifecycleEvent => versioned(root_schema::<LifecycleEvent>(), self),
            Self::Reply => {
                let mut schema = root_schema::<StepReply>();
                add_type(&mut schema, "reply");
                versioned(schema, self)
            }
        }
    }
}

/// Checks that a message to an agent obeys the published schema.
///
/// # Errors
/// The violations, without values of the message.
pub fn check_request(message: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<PayloadSchema> =
        LazyLock::new(|| PayloadSchema::new(ContractDocument::Request.generate()));
    SCHEMA.validate("message", message)
}

/// Checks that an agent's reply obeys the published schema.
///
/// # Errors
/// The violations, without values of the message.
pub fn check_reply(message: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<PayloadSchema> =
        LazyLock::new(|| PayloadSchema::new(ContractDocument::Reply.generate()));
    SCHEMA.validate("message", message)
}

/// Checks a message in the scheduler's queue: a reply, or the wake that an agent may send when complete-by has passed.
/// Messages of others than agents are not part of the contract.
///
/// # Errors
/// The violations, without values of the message.
pub fn check_message_of_agent(message: &Value) -> Result<(), String> {
    static OVERDUE: LazyLock<PayloadSchema> = LazyLock::new(|| {
        let mut schema = root_schema::<Overdue>();
        add_type(&mut schema, "wake");
        PayloadSchema::new(schema.into())
    });
    let text = |name| message.get(name).and_then(Value::as_str);
    match (text("type"), text("cause")) {
        (Some("reply"), _) => check_reply(message),
        (Some("wake"), Some("overdue")) => OVERDUE.validate("message", message),
        _ => Ok(()),
    }
}

/// Checks that a lifecycle event obeys the published schema.
///
/// # Errors
/// The violations, without values of the event.
pub fn check_lifecycle_event(event: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<PayloadSchema> =
        LazyLock::new(|| PayloadSchema::new(ContractDocument::LifecycleEvent.generate()));
    SCHEMA.validate("event", event)
}

/// What an agent sends when complete-by has passed and a call has no known outcome. The scheduler records that the attempt may
/// have run, whatever another delivery of the request has reported, and recovers the step.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used; `Wake` is the message")]
struct Overdue {
    /// The task in the request.
    task_id: TaskId,
    /// Always `overdue`.
    cause: OverdueCause,
    /// The attempt, one of whose calls has no known outcome.
    call: OverdueCall,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
enum OverdueCause {
    /// Complete-by has passed.
    Overdue,
}

fn root_schema<T: JsonSchema>() -> Schema {
    schema_settings("/$defs").into_generator().into_root_schema_for::<T>()
}

/// The settings of the generator of published schemas, with the place of shared definitions.
#[must_use]
pub fn schema_settings(definitions_path: &'static str) -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = definitions_path.into();
    settings.with_transform(transform::RecursiveTransform(describe_plainly))
}

/// Doc comments are written for Rust: removes their links and line breaks, and formats that are names of Rust's types.
fn describe_plainly(schema: &mut Schema) {
    let is_of_rust =
        |format: &Value| format.as_str().is_some_and(|format| format.starts_with("uint"));
    if schema.get("format").is_some_and(is_of_rust) {
        schema.remove("format");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = plain_text(description);
    }
}

/// Replaces links such as ``[`name`](target)`` and ``[`name`]`` by the name, and line breaks by spaces.
fn plain_text(doc: &str) -> String {
    let mut parts = doc.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('`');
        match part.split_once("`]") {
            None => plain.push_str(part),
            Some((name, rest)) => {
                let target = rest.strip_prefix('(').and_then(|target| target.split_once(')'));
                plain.push_str(name);
                plain.push('`');
                plain.push_str(target.map_or(rest, |(_, after)| after));
            }
        }
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds the field that distinguishes the messages in the scheduler's queue.
fn add_type(schema: &mut Schema, name: &str) {
    let object = schema.ensure_object();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        let constant = json!({ "description": "The kind of message.", "const": name });
        properties.shift_insert(0, "type".to_owned(), constant);
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.insert(0, json!("type"));
    }
}

fn versioned(schema: Schema, document: ContractDocument) -> Value {
    let mut schema = schema.to_value();
    if let Value::Object(fields) = &mut schema {
        fields.shift_insert(0, "$schema".to_owned(), json!(DIALECT));
        let (contract, version) = match document {
            ContractDocument::AsyncApi | ContractDocument::Request | ContractDocument::Reply => {
                ("agent-contract", CONTRACT_VERSION)
            }
            ContractDocument::LifecycleEvent => ("lifecycle-events", LIFECYCLE_EVENT_VERSION),
        };
        let id = format!("urn:steward:{contract}:{version}:{}", document.file_name());
        fields.shift_insert(1, "$id".to_owned(), json!(id));
        fields.shift_insert(2, "version".to_owned(), json!(version));
    }
    schema
}

/// The AsyncAPI 3.0 document.
fn async_api() -> Value {
    let mut generator = schema_settings("/components/schemas").into_generator();
    let _: Schema = generator.subschema_for::<StepRequest>();
    let _: Schema = generator.subschema_for::<StepReply>();
    let _: Schema = generator.subschema_for::<Overdue>();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Agents of Steward",
            "version": CONTRACT_VERSION,
            "description": "An agent receives requests from its own SQS queue, and sends replies to the scheduler's queue. \
                The rules that a schema cannot express are in docs/agent-contract.md.",
        },
        "defaultContentType": "application/json",
        "channels": channels(),
        "operations": operations(),
        "components": { "messages": messages(), "schemas": schemas(&mut generator) },
    })
}

fn schemas(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schemas = generator.take_definitions(true);
    for (name, kind) in [("StepReply", "reply"), ("Overdue", "wake")] {
        if let Some(value) = schemas.get_mut(name)
            && let Ok(schema) = <&mut Schema>::try_from(value)
        {
            add_type(schema, kind);
        }
    }
    schemas.sort_keys();
    schemas
}

fn channels() -> Value {
    let message = |name: &str| json!({ "$ref": format!("#/components/messages/{name}") });
    let stack =
        json!({ "description": "The name of Steward's stack. `steward local` uses `steward`." });
    json!({
        "requests": {
            "address": "{stack}-agent-{agent}-requests",
            "description": "The agent's SQS queue. The scheduler derives its name from the agent's name. `steward local` omits `-requests`.",
            "parameters": { "stack": stack, "agent": { "description": "The name of the agent in workflow definitions." } },
            "messages": { "request": message("request") },
        },
        "replies": {
            "address": "{stack}-scheduler",
            "description": "The scheduler's SQS queue.",
            "parameters": { "stack": stack },
            "messages": { "reply": message("reply"), "overdue": message("overdue") },
        },
    })
}

/// The operations of the agent.
fn operations() -> Value {
    let channel = |name: &str| json!({ "$ref": format!("#/channels/{name}") });
    let message = |channel: &str, name: &str| json!([{ "$ref": format!("#/channels/{channel}/messages/{name}") }]);
    json!({
        "handleRequest": {
            "action": "receive",
            "summary": "Carry out one attempt at one step or at its undo, and reply.",
            "channel": channel("requests"),
            "messages": message("requests", "request"),
            "reply": { "channel": channel("replies"), "messages": message("replies", "reply") },
        },
        "reportOverdue": {
            "action": "send",
            "summary": "Report a call whose outcome was not known by complete-by.",
            "channel": channel("replies"),
            "messages": message("replies", "overdue"),
        },
    })
}

fn messages() -> Value {
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let traceparent = json!({
        "type": "string", "maxLength": limits::TRACEPARENT_CHARS_MAX,
        "description": "The W3C trace context. Message attribute of type String.",
    });
    let trace = json!({ "type": "object", "properties": { "traceparent": traceparent } });
    let redriven = json!({
        "type": "string",
        "description": "Present if an operator moved the message back from the dead-letter queue: it was delivered before.",
    });
    let headers = json!({ "type": "object", "properties": { "traceparent": traceparent, "redriven": redriven } });
    json!({
        "request": {
            "title": "Request", "summary": "Do or undo one step.", "headers": headers, "payload": schema("StepRequest"),
            "examples": [{ "name": "charge", "payload": request_example() }],
        },
        "reply": {
            "title": "Reply", "summary": "The outcome of an attempt.", "headers": trace, "payload": schema("StepReply"),
            "examples": [{ "name": "charged", "payload": reply_example() }],
        },
        "overdue": {
            "title": "Overdue", "summary": "The outcome of a call was not known by complete-by.", "headers": trace,
            "payload": schema("Overdue"),
            "examples": [{ "name": "overdue", "payload": overdue_example() }],
        },
    })
}

fn request_example() -> Value {
    json!({
        "task_id": "order-7", "step": "charge", "action": "do", "attempt": 1,
        "complete_by": "2026-11-23T12:00:30Z", "idempotency_key": "order-7/charge/do", "call_within_ms": 10_000,
        "agent": "payment", "method": "POST", "path": "/charges", "body": { "order": "order-7", "amount": 1200 },
        "incarnation": 1_795_435_200_000_u64,
    })
}

fn reply_example() -> Value {
    json!({
        "type": "reply", "task_id": "order-7", "step": "charge", "action": "do", "attempt": 1,
        "outcome": { "status": "completed", "output": { "charge": "c-1" } },
        "incarnation": 1_795_435_200_000_u64, "agent": "payment",
    })
}

fn overdue_example() -> Value {
    json!({
        "type": "wake", "task_id": "order-7", "cause": "overdue",
        "call": {
            "step": "charge", "action": "do", "attempt": 1, "incarnation": 1_795_435_200_000_u64, "agent": "payment",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{messages::SchedulerMessage, registration::AGENT_CONTRACT};

    #[test]
    fn registered_version_is_the_major_version() {
        assert_eq!(CONTRACT_VERSION.split('.').next(), Some(AGENT_CONTRACT.to_string().as_str()));
    }

    #[test]
    fn examples_are_valid_and_readable() {
        check_request(&request_example()).unwrap();
        serde_json::from_value::<StepRequest>(request_example()).unwrap();
        check_reply(&reply_example()).unwrap();
        serde_json::from_value::<SchedulerMessage>(reply_example()).unwrap();
    }

    #[test]
    fn overdue_message_is_a_wake_of_the_scheduler() {
        let document = ContractDocument::AsyncApi.generate();
        let schema = &document["components"]["schemas"]["Overdue"];
        assert_eq!(schema["required"], json!(["type", "task_id", "cause", "call"]));
        let wake: SchedulerMessage = serde_json::from_value(overdue_example()).unwrap();
        assert_eq!(serde_json::to_value(wake).unwrap(), overdue_example());
        check_message_of_agent(&overdue_example()).unwrap();
    }

    #[test]
    fn unknown_fields_are_valid_and_missing_fields_are_not() {
        let mut reply = reply_example();
        reply["new"] = json!(1);
        check_reply(&reply).unwrap();
        for (field, value) in [
            ("type", json!("answer")),
            ("attempt", json!("1")),
            ("outcome", json!({ "status": "done" })),
            ("outcome", json!({ "status": "deferred", "reason": "busy" })),
        ] {
            let mut wrong = reply_example();
            wrong[field] = value;
            assert!(check_reply(&wrong).is_err(), "{field}");
        }
        for field in ["type", "task_id", "step", "attempt", "outcome"] {
            let mut incomplete = reply_example();
            incomplete.as_object_mut().unwrap().remove(field);
            assert!(check_reply(&incomplete).is_err(), "{field}");
        }
    }

    #[test]
    fn descriptions_contain_no_links_of_rust() {
        assert_eq!(plain_text("The [`A`](a::A)\nand [`B`], `c`."), "The `A` and `B`, `c`.");
        for document in ContractDocument::ALL {
            let text = document.generate().to_string();
            assert!(!text.contains("[`") && !text.contains("uint"), "{text}");
        }
    }

    #[test]
    fn every_reference_has_a_target() {
        fn check(root: &Value, value: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        let pointer = target.strip_prefix('#').unwrap();
                        assert!(root.pointer(pointer).is_some(), "{target}");
                    }
                    fields.values().for_each(|value| check(root, value));
                }
                Value::Array(items) => items.iter().for_each(|value| check(root, value)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        for document in ContractDocument::ALL {
            let document = document.generate();
            check(&document, &document);
        }
    }
}
