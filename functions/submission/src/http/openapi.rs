//! The OpenAPI 3.1 description of the HTTP API. Its schemas are generated from the types of requests and responses.

use schemars::{JsonSchema, Schema, generate::SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use steward_core::{
    contract::schema_settings,
    model::{messages::Submission, names::TaskId},
};
use steward_http::{list_enum_values, problem_schema};
use steward_operator::view::TaskView;

use super::{
    payloads::{NewPayload, PreparedUpload},
    problem::PROBLEMS,
    wait::WAIT_MAX,
};

/// The response to a submission whose end is not awaited.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SubmittedTask<'a> {
    /// The task's id.
    pub(super) task_id: &'a TaskId,
    /// The task's address, relative to the host.
    pub(super) href: &'a str,
}

/// The fields of a submission that only the scheduler sets.
const INTERNAL: [&str; 6] = ["parent", "undo", "attempt", "has_begun", "keep", "rerun"];

/// The description. `docs/contract/openapi.json` is a copy.
#[must_use]
pub fn description() -> Value {
    let mut generator = schema_settings("/components/schemas").into_generator();
    let _: Schema = generator.subschema_for::<Submission>();
    let _: Schema = generator.subschema_for::<TaskView>();
    let _: Schema = generator.subschema_for::<SubmittedTask<'_>>();
    let _: Schema = generator.subschema_for::<NewPayload>();
    let _: Schema = generator.subschema_for::<PreparedUpload>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Steward",
            "version": "1.0.0",
            "summary": "Submit a task, and read its state.",
            "description": "Requests to a deployment are signed (AWS Signature Version 4, service `lambda`). \
                A request that got no response, or a 5xx, may be repeated: the task id makes a submission idempotent.",
        },
        "paths": {
            "/tasks": { "post": submit() },
            "/tasks/{id}": { "get": status() },
            "/payloads": { "post": payload() },
            "/openapi.json": { "get": {
                "operationId": "describe",
                "summary": "This description.",
                "responses": { "200": { "description": "OpenAPI 3.1.", "content": { "application/json": {} } } },
            } },
        },
        "components": { "schemas": schemas(&mut generator), "parameters": { "wait": wait(), "prefer": prefer() } },
    })
}

fn submit() -> Value {
    let location = json!({ "Location": { "schema": { "type": "string" }, "description": "The task's address." } });
    json!({
        "operationId": "submit",
        "summary": "Submit a task.",
        "description": "The same submission again starts no second task. It gets 202 again; with `wait`, the state of the task.",
        "parameters": [reference("parameters", "wait"), reference("parameters", "prefer"), {
            "name": "traceparent", "in": "header", "schema": { "type": "string" },
            "description": "The W3C trace context. It is sent with every call that Steward makes for the task.",
        }],
        "requestBody": { "required": true, "content": json_content("Submission") },
        "responses": {
            "200": {
                "description": "The task was awaited and has ended: Processed, Undone or Error.",
                "headers": location, "content": json_content("TaskView"),
            },
            "202": {
                "description": "The task is recorded. If it was awaited, its state.",
                "headers": location,
                "content": { "application/json": { "schema": { "anyOf": [
                    reference("schemas", "SubmittedTask"), reference("schemas", "TaskView"),
                ] } } },
            },
            "400": problem("The submission is refused, and the same again would be."),
            "409": problem("The id is that of another task."),
            "413": problem("The submission is too large."),
            "503": unavailable(),
        },
    })
}

fn status() -> Value {
    json!({
        "operationId": "status",
        "summary": "Read a task.",
        "parameters": [
            {
                "name": "id", "in": "path", "required": true, "description": "The task's id.",
                "schema": reference("schemas", "TaskId"),
            },
            reference("parameters", "wait"), reference("parameters", "prefer"),
        ],
        "responses": {
            "200": { "description": "The task.", "content": json_content("TaskView") },
            "400": problem("The id or the wait is not valid."),
            "404": problem("There is no such task, or its retention time is over."),
            "503": unavailable(),
        },
    })
}

fn payload() -> Value {
    json!({
        "operationId": "preparePayload",
        "summary": "Prepare the upload of a payload.",
        "description": "For an input that is too large for a submission. Send the request in `upload`, then submit the reference in \
            `payload` in place of the content. The same request again prepares another upload.",
        "requestBody": { "required": true, "content": json_content("NewPayload") },
        "responses": {
            "201": { "description": "The upload is prepared.", "content": json_content("PreparedUpload") },
            "400": problem("The request is refused, and the same again would be."),
            "413": problem("The payload is too large."),
            "501": problem("The deployment has no bucket of payloads."),
            "503": unavailable(),
        },
    })
}

fn wait() -> Value {
    json!({
        "name": "wait", "in": "query", "schema": { "type": "string", "examples": ["10s"] },
        "description": format!("Respond when the task has ended, but at most this time later. At most {WAIT_MAX:?}."),
    })
}

fn prefer() -> Value {
    json!({
        "name": "Prefer", "in": "header", "schema": { "type": "string", "examples": ["wait=10"] },
        "description": "Like the parameter `wait`, in seconds (RFC 7240). A longer wait is shortened.",
    })
}

fn schemas(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schemas = generator.take_definitions(true);
    if let Some(Value::Object(properties)) =
        schemas.get_mut("Submission").and_then(|schema| schema.get_mut("properties"))
    {
        INTERNAL.iter().for_each(|name| drop(properties.shift_remove(*name)));
    }
    // What only these fields refer to.
    ["ParentStep", "DocumentRetention", "Incarnation", "PayloadPlace", "RerunSource"]
        .iter()
        .for_each(|name| drop(schemas.shift_remove(*name)));
    schemas.insert("Problem".to_owned(), problem_schema(&PROBLEMS));
    list_enum_values(&mut schemas);
    schemas.sort_keys();
    schemas
}

fn problem(description: &str) -> Value {
    json!({ "description": description, "content": problem_content() })
}

fn problem_content() -> Value {
    json!({ "application/problem+json": { "schema": reference("schemas", "Problem") } })
}

fn unavailable() -> Value {
    json!({
        "description": "Not now: send the same request again after `Retry-After` seconds.",
        "headers": { "Retry-After": { "schema": { "type": "integer" } } },
        "content": problem_content(),
    })
}

fn json_content(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference("schemas", schema) } })
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}
