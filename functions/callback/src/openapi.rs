//! The OpenAPI 3.1 description of the callback API. Its schemas are generated from the types of requests and responses.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use steward_core::{
    contract::schema_settings,
    limits,
    model::names::{Part, TaskId},
};
use steward_http::problem_schema;

use crate::{answer::FailedStep, problem::PROBLEMS};

/// The response to a callback that was sent to the scheduler.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AcceptedCallback<'a> {
    /// The task.
    pub(crate) task_id: &'a TaskId,
    /// Its step, or an item of it.
    pub(crate) step: &'a Part,
    /// What was sent: `completed`, `failed` or `heartbeat`.
    pub(crate) answer: &'static str,
}

/// The description. `docs/contract/callbacks-openapi.json` is a copy.
#[must_use]
pub fn description() -> Value {
    let mut generator = schema_settings("/components/schemas").into_generator();
    let _: Schema = generator.subschema_for::<FailedStep>();
    let _: Schema = generator.subschema_for::<AcceptedCallback<'_>>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem_schema(&PROBLEMS));
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
            "summary": "Answer the call of a step that awaits a callback.",
            "description": "The signed token in the URL is the only credential: keep the URL secret. Use the URL from the request \
                unchanged, or with `/fail` or `/heartbeat` after it. A request that got no response, or a 5xx, may be repeated.",
        },
        "paths": {
            "/callbacks/{token}": { "post": operation("complete", "Complete the step.", Some((false, output))) },
            "/callbacks/{token}/fail": { "post": operation("fail", "Fail the step.", Some((true, failure))) },
            "/callbacks/{token}/heartbeat": {
                "post": operation("heartbeat", "Report that the work is still in progress.", None),
            },
            "/openapi.json": { "get": {
                "operationId": "describe",
                "summary": "This description.",
                "responses": { "200": { "description": "OpenAPI 3.1.", "content": { "application/json": {} } } },
            } },
        },
        "components": { "schemas": schemas },
    })
}

/// A route. `body` is its content, and whether it is required.
fn operation(id: &str, summary: &str, body: Option<(bool, Value)>) -> Value {
    let problem = |description: &str| {
        let content = json!({ "application/problem+json": { "schema": reference("Problem") } });
        json!({ "description": description, "content": content })
    };
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "parameters": [{
            "name": "token", "in": "path", "required": true, "schema": { "type": "string" },
            "description": "The signed token: the last part of `callback.url`.",
        }],
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

#[cfg(test)]
mod tests {
    use super::*;

    /// To update the file: `STEWARD_RENEW=1 cargo test -p steward-callback`.
    #[test]
    fn the_published_description_is_up_to_date() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract/callbacks-openapi.json");
        let generated = format!("{:#}\n", description());
        if std::env::var_os("STEWARD_RENEW").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap_or_default() == generated, "out of date");
    }
}
