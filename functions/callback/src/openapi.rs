//! The OpenAPI 3.1 description of the callback API. Its schemas are generated from the types of requests and responses.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use steward_core::{
    contract::schema_settings,
    limits,
    model::names::{Part, TaskId},
};
use steward_http::{list_enum_values, problem_schema};

use crate::{answer::FailedStep, problem::PROBLEMS, webhooks::AcceptedWebhook};

/// The response to a callback that was sent to the scheduler.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AcceptedCallback {
    /// The task.
    pub(crate) task_id: TaskId,
    /// Its step, or an item of it.
    pub(crate) step: Part,
    /// What was sent: `completed`, `failed` or `heartbeat`.
    pub(crate) answer: &'static str,
}

/// The description. `docs/contract/callbacks-openapi.json` is a copy.
#[must_use]
pub fn description() -> Value {
    let mut generator = schema_settings("/components/schemas").into_generator();
    let _: Schema = generator.subschema_for::<FailedStep>();
    let _: Schema = generator.subschema_for::<AcceptedCallback>();
    let _: Schema = generator.subschema_for::<AcceptedWebhook>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem_schema(&PROBLEMS));
    list_enum_values(&mut schemas);
    schemas.sort_keys();
    let output = json!({ "application/json": { "schema": {
        "description": "The output of the step: any JSON that obeys the schema `callback.answer` of the step. Null if the body is empty.",
    } } });
    let failure = json!({ "application/json": { "schema": reference("FailedStep") } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Steward callbacks",
            "version": "1.0.0",
            "summary": "Answer the call of a step that awaits a callback; send a signed webhook.",
            "description": "Callbacks: the signed token in the URL is the only credential: keep the URL secret. Use the URL from the request \
                unchanged, or with `/fail` or `/heartbeat` after it. A request that got no response, or a 5xx, may be repeated.",
        },
        "paths": {
            "/callbacks/{token}": {
                "get": page(),
                "post": operation("complete", "Complete the step.", Some((false, output))),
            },
            "/callbacks/{token}/fail": { "post": operation("fail", "Fail the step.", Some((true, failure))) },
            "/callbacks/{token}/heartbeat": {
                "post": operation("heartbeat", "Report that the work is still in progress.", None),
            },
            "/webhooks/{name}": { "post": webhook() },
            "/openapi.json": { "get": {
                "operationId": "describe",
                "summary": "This description.",
                "responses": { "200": { "description": "OpenAPI 3.1.", "content": { "application/json": {} } } },
            } },
        },
        "components": { "schemas": schemas },
    })
}

/// The page of a callback.
fn page() -> Value {
    let html = |description: &str| {
        let content = json!({ "text/html": { "schema": { "type": "string" } } });
        json!({ "description": description, "content": content })
    };
    json!({
        "operationId": "show",
        "summary": "A page on which a person answers the callback.",
        "description": "For browsers: a request whose `Accept` prefers `text/html`. It changes nothing. Its form, whose fields are not part \
            of this API, is sent to the same URL.",
        "parameters": [token()],
        "responses": {
            "200": html("The form."),
            "400": html("The URL is not valid."),
            "403": html("The signature is wrong, or its key is unknown."),
            "404": html("The task does not exist any more."),
            "405": problem("The request does not prefer HTML."),
            "409": html("The step does not await this answer: it has one, or it was requested again."),
            "410": html("The URL has expired, or the time for the answer is over."),
            "503": html("Not now: send the same request again after `Retry-After` seconds."),
        },
    })
}

/// The parameter of all routes of a callback.
fn token() -> Value {
    json!({
        "name": "token", "in": "path", "required": true, "schema": { "type": "string" },
        "description": "The signed token: the last part of `callback.url`.",
    })
}

/// The route of webhooks.
fn webhook() -> Value {
    let accepted = |description: &str| {
        let content = json!({ "application/json": { "schema": reference("AcceptedWebhook") } });
        json!({ "description": description, "content": content })
    };
    json!({
        "operationId": "webhook",
        "summary": "A signed webhook of another service, which becomes an event on the event bus.",
        "description": "The configuration of the deployment names the header with the signature, and its scheme. A webhook that was \
            sent before changes nothing.",
        "parameters": [{
            "name": "name", "in": "path", "required": true, "schema": { "type": "string" },
            "description": "The name of the webhook in the configuration of the deployment.",
        }],
        "requestBody": { "required": true, "content": { "application/json": { "schema": { "type": "object" } } } },
        "responses": {
            "200": accepted("The event of this webhook was published before."),
            "202": accepted("The event was published."),
            "400": problem("The signature is missing or malformed, or the body is not a JSON object with the configured values."),
            "403": problem("The signature is wrong, or too old."),
            "404": problem("No webhook with this name is configured."),
            "413": problem(&format!("The body has more than {} bytes.", limits::DOCUMENT_BYTES_MAX)),
            "503": problem("Not now: send the same request again after `Retry-After` seconds."),
        },
    })
}

fn problem(description: &str) -> Value {
    let content = json!({ "application/problem+json": { "schema": reference("Problem") } });
    json!({ "description": description, "content": content })
}

/// A route. `body` is its content, and whether it is required.
fn operation(id: &str, summary: &str, body: Option<(bool, Value)>) -> Value {
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "parameters": [token()],
        "responses": {
            "202": {
                "description": "The answer was sent to the scheduler. The scheduler refuses it if its time ends meanwhile.",
                "content": { "application/json": { "schema": reference("AcceptedCallback") } },
            },
            "400": problem("The URL or the answer is not valid."),
            "403": problem("The signature is wrong, or its key is unknown."),
            "404": problem("The task does not exist any more."),
            "409": problem("The step does not await this answer: it has one, or it was requested again."),
            "410": problem("The URL has expired, or the time for the answer is over."),
            "413": problem(&format!("The answer has more than {} bytes.", limits::DOCUMENT_BYTES_MAX)),
            "503": problem("Not now: send the same request again after `Retry-After` seconds."),
        },
    });
    if let (Some((required, content)), Some(fields)) = (body, operation.as_object_mut()) {
        fields
            .insert("requestBody".to_owned(), json!({ "required": required, "content": content }));
    }
    operation
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
