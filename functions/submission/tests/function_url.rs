//! The HTTP API with events of a function URL (payload format 2.0), through the same adapter as in Lambda, on embedded AWS.

#![cfg(test)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lambda_http::{
    Adapter, Context, LambdaEvent, Service, aws_lambda_events::encodings::Base64Data,
    request::LambdaRequest,
};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::{
    definition::{schema::PayloadSchema, workflow::Workflow},
    limits,
    model::task::{ProcessState, Task},
};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Ports, StateStore};
use steward_submission::http::{openapi::description, service};

/// A deployment with one workflow, `strict`, and no running functions.
struct ApiDeployment {
    aws: EmbeddedAws,
    config: Config,
}

impl ApiDeployment {
    async fn new() -> Self {
        let aws = EmbeddedAws::in_memory().unwrap();
        let config = resources::create(&aws, &[]).await.unwrap();
        let deployment = Self { aws, config };
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "strict", "version": 1,
            "input": { "type": "object", "properties": { "name": { "type": "string" } } },
            "steps": { "a": { "wait": "1s" } },
        }))
        .unwrap();
        deployment.ports().definitions().publish(&workflow).await.unwrap();
        deployment
    }

    fn ports(&self) -> AwsPorts {
        AwsPorts::new(&self.aws.sdk_config(), &self.config, "submission-http")
    }

    /// Invokes the function, and returns its response to Lambda.
    async fn invoke(&self, event: Value) -> Value {
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let mut function = Adapter::from(service(Arc::new(self.ports()), reply_queues));
        let request: LambdaRequest = serde_json::from_str(&event.to_string()).unwrap();
        let response = function.call(LambdaEvent::new(request, Context::default())).await.unwrap();
        let response = serde_json::to_value(response).unwrap();
        assert_eq!(undescribed(&event, &response), None, "{event} {response}");
        response
    }

    async fn post(&self, submission: &Value) -> Value {
        self.invoke(event("POST", "/tasks", Some(submission.to_string().as_bytes()), false)).await
    }
}

/// An event of a function URL with IAM authentication. Lambda encodes bodies of some content types in base64.
fn event(method: &str, path: &str, body: Option<&[u8]>, encoded: bool) -> Value {
    let host = "abcdefghij.lambda-url.eu-west-1.on.aws";
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let body = body.map(|body| match encoded {
        true => {
            let mut data = Base64Data::default();
            data.0 = body.to_vec();
            serde_json::to_value(data).unwrap()
        }
        false => json!(std::str::from_utf8(body).unwrap()),
    });
    let content_type = if encoded { "application/octet-stream" } else { "application/json" };
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query,
        "headers": {
            "host": host, "content-type": content_type, "accept": "*/*", "x-forwarded-proto": "https",
            "x-forwarded-port": "443", "x-forwarded-for": "192.0.2.1", "user-agent": "curl/8.10.1",
            "x-amzn-trace-id": "Root=1-62ecd163-5f302e550dcde3b12402207d",
            "x-amz-date": "20261120T120000Z", "authorization": "AWS4-HMAC-SHA256 …",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
        "requestContext": {
            "accountId": "123456789012", "apiId": "abcdefghij", "authentication": null,
            "authorizer": { "iam": {
                "accessKey": "AKIA...", "accountId": "123456789012", "callerId": "AIDA...",
                "cognitoIdentity": null, "principalOrgId": "o-abc", "userId": "AIDA...",
                "userArn": "arn:aws:iam::123456789012:user/shop",
            } },
            "domainName": host, "domainPrefix": "abcdefghij",
            "http": {
                "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                "userAgent": "curl/8.10.1",
            },
            "requestId": "e1506fd5-9e7b-434f-bd42-4f8fa224b599", "routeKey": "$default",
            "stage": "$default", "time": "20/Nov/2026:12:00:00 +0000", "timeEpoch": 1795176000000_u64,
        },
        "body": body, "isBase64Encoded": encoded,
    })
}

/// What the OpenAPI description does not say of this exchange: a status, or a body that violates the schema.
fn undescribed(event: &Value, response: &Value) -> Option<String> {
    let path = match event["rawPath"].as_str().unwrap() {
        "/tasks" => "/tasks",
        path if path.starts_with("/tasks/") && path.matches('/').count() == 2 => "/tasks/{id}",
        path => path,
    };
    let method = event["requestContext"]["http"]["method"].as_str().unwrap().to_lowercase();
    let description = description();
    let operation = &description["paths"][path][method];
    let status = response["statusCode"].to_string();
    if operation.is_null() {
        return (!["404", "405"].contains(&status.as_str())).then(|| format!("{path} {status}"));
    }
    let schema_of = |of: &Value, media_type: &str| {
        let mut schema = of["content"][media_type]["schema"].clone();
        let fields = schema.as_object_mut()?;
        fields.insert("components".to_owned(), description["components"].clone());
        Some(PayloadSchema::new(schema))
    };
    let refused = status != "200" && status != "202";
    let sent = event["body"].as_str().filter(|_| !refused && event["isBase64Encoded"] == false);
    if let Some(body) = sent {
        let schema = schema_of(&operation["requestBody"], "application/json").unwrap();
        schema.validate("body", &serde_json::from_str(body).unwrap()).unwrap();
    }
    let media_type = response["headers"]["content-type"].as_str().unwrap_or_default();
    let Some(schema) = schema_of(&operation["responses"][&status], media_type) else {
        return Some(format!("{status} with {media_type}"));
    };
    schema
        .validate("body", &serde_json::from_str(response["body"].as_str().unwrap()).unwrap())
        .err()
}

/// To update the file: `STEWARD_RENEW=1 cargo test -p steward-submission`.
#[test]
fn the_published_description_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract/openapi.json");
    let generated = format!("{:#}\n", description());
    if std::env::var_os("STEWARD_RENEW").is_some() {
        std::fs::write(path, &generated).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap_or_default() == generated, "out of date");
}

#[test]
fn an_exchange_that_the_description_does_not_allow_is_found() {
    let event = event("GET", "/tasks/a", None, false);
    let response = |status: u16, body: Value| {
        let headers = json!({ "content-type": "application/json" });
        json!({ "statusCode": status, "headers": headers, "body": body.to_string() })
    };
    let found = undescribed(&event, &response(418, json!({})));
    assert_eq!(found.as_deref(), Some("418 with application/json"));
    let found = undescribed(&event, &response(200, json!({ "task_id": "a" })));
    assert!(found.unwrap().contains("\"workflow\" is a required property"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_function_describes_itself() {
    let deployment = ApiDeployment::new().await;
    let request = event("GET", "/openapi.json", None, false);
    let reply_queues = Arc::new(deployment.config.reply_queues.clone());
    let mut function = Adapter::from(service(Arc::new(deployment.ports()), reply_queues));
    let request: LambdaRequest = serde_json::from_str(&request.to_string()).unwrap();
    let response = function.call(LambdaEvent::new(request, Context::default())).await.unwrap();
    let response = serde_json::to_value(response).unwrap();
    assert_eq!(read(&response), (200, "application/json", description()));
}

fn submission(id: &str) -> Value {
    json!({ "task_id": id, "workflow": "strict", "input": { "name": "Zoë" } })
}

/// Status, content type and body of a response.
fn read(response: &Value) -> (u64, &str, Value) {
    assert_eq!(response["isBase64Encoded"], false, "{response}");
    let content_type = response["headers"]["content-type"].as_str().unwrap_or_default();
    let body = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
    (response["statusCode"].as_u64().unwrap(), content_type, body)
}

fn assert_problem(response: &Value, status: u64, kind: &str, title: &str, detail: &str) {
    let expected = json!({ "type": kind, "title": title, "status": status, "detail": detail });
    assert_eq!(read(response), (status, "application/problem+json", expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_is_recorded_with_a_plain_or_encoded_body() {
    let deployment = ApiDeployment::new().await;
    for (id, encoded) in [("plain:1", false), ("encoded:1", true)] {
        let text = submission(id).to_string();
        for _ in 0..2 {
            let event = event("POST", "/tasks", Some(text.as_bytes()), encoded);
            let response = deployment.invoke(event).await;
            let url = format!("/tasks/{id}");
            let accepted = json!({ "task_id": id, "href": url });
            assert_eq!(read(&response), (202, "application/json", accepted));
            assert_eq!(response["headers"]["location"], url);
        }
        let response = deployment.invoke(event("GET", &format!("/tasks/{id}"), None, false)).await;
        let (status, content_type, task) = read(&response);
        assert_eq!((status, content_type), (200, "application/json"));
        assert_eq!((&task["task_id"], &task["workflow"]), (&json!(id), &json!("strict")));
        assert_eq!((&task["process_state"], &task["revision"]), (&json!("Pending"), &json!(1)));
        let task = deployment.ports().store().load(&id.parse().unwrap()).await.unwrap().unwrap();
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(task.traceparent.as_deref(), Some(trace));
    }
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let wakes = sqs.receive_message().queue_url(&deployment.config.scheduler_queue_url);
    let wakes = wakes.max_number_of_messages(10).send().await.unwrap();
    assert_eq!(wakes.messages().len(), 4, "each submission sends a wake");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_has_the_type_of_its_problem() {
    let deployment = ApiDeployment::new().await;
    assert_eq!(read(&deployment.post(&submission("taken")).await).0, 202);
    let with = |key: &str, value: Value| {
        let mut submission = submission("x");
        submission[key] = value;
        submission
    };
    let other = json!({ "task_id": "taken", "workflow": "strict", "input": { "name": "Ada" } });
    let exists = "task `taken` exists already, with other content";
    let deep = (0..=limits::JSON_DEPTH_MAX).fold(json!(1), |value, _| json!([value]));
    for (submission, status, kind, title, detail) in [
        (
            json!("x"),
            400,
            "malformed-submission",
            "Malformed submission",
            "not a submission: not a JSON object",
        ),
        (
            with("parent", json!({ "task_id": "other", "incarnation": 1, "step": "s" })),
            400,
            "malformed-submission",
            "Malformed submission",
            "not a submission: clients must not set `parent`, `undo`, `has_begun`, `keep` or `rerun`",
        ),
        (
            with("undo", json!(true)),
            400,
            "malformed-submission",
            "Malformed submission",
            "not a submission: clients must not set `parent`, `undo`, `has_begun`, `keep` or `rerun`",
        ),
        (
            with("workflow", json!("nope")),
            400,
            "unknown-workflow",
            "Unknown workflow",
            "there is no workflow `nope`",
        ),
        (
            with("input", json!({ "name": 1 })),
            400,
            "invalid-input",
            "Invalid input",
            "input.name: it is not of type \"string\"",
        ),
        (
            with("reply_to", json!("https://stranger")),
            400,
            "reply-queue-not-allowed",
            "Reply queue not allowed",
            "reply_to is not on the list of allowed reply queues",
        ),
        (
            with("input", deep),
            413,
            "submission-too-large",
            "Submission too large",
            "the input nests deeper than 32 levels",
        ),
        (other, 409, "task-id-taken", "Task id taken", exists),
    ] {
        let response = deployment.post(&submission).await;
        assert_problem(&response, status, &format!("urn:steward:{kind}"), title, detail);
    }
    let (malformed, title) = ("urn:steward:malformed-submission", "Malformed submission");
    let response = deployment.invoke(event("POST", "/tasks", Some(b"{\"\xff\"}"), true)).await;
    assert_problem(&response, 400, malformed, title, "not a submission: not UTF-8");
    let response = deployment.invoke(event("POST", "/tasks", None, false)).await;
    assert_problem(&response, 400, malformed, title, "not a submission: not a JSON object");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_too_large_is_refused_before_or_after_it_is_read() {
    let deployment = ApiDeployment::new().await;
    let max = limits::MESSAGE_BYTES_MAX;
    for (bytes, size) in [(max, "of 256000"), (max + 1, "of more than 256000")] {
        let blank = vec![b' '; bytes];
        for encoded in [false, true] {
            let response = deployment.invoke(event("POST", "/tasks", Some(&blank), encoded)).await;
            let detail = format!("a submission {size} bytes; the limit is 131072");
            let title = "Submission too large";
            assert_problem(&response, 413, "urn:steward:submission-too-large", title, &detail);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_route_or_method_is_a_problem() {
    let deployment = ApiDeployment::new().await;
    let request = |method, path| deployment.invoke(event(method, path, None, false));
    let detail = "there is no task `none`";
    let none = request("GET", "/tasks/none").await;
    assert_problem(&none, 404, "urn:steward:no-such-task", "No such task", detail);
    let detail = "task id `a b` is not valid: a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, \
                  at most 128 characters";
    for path in ["/tasks/a%20b", "/tasks/a b"] {
        let invalid = request("GET", path).await;
        assert_problem(&invalid, 400, "urn:steward:malformed-task-id", "Malformed task id", detail);
    }
    let response = request("GET", "/tasks/%FF").await;
    let (status, content_type, problem) = read(&response);
    assert_eq!((status, content_type), (400, "application/problem+json"));
    assert_eq!(problem["type"], "urn:steward:malformed-task-id");
    for path in ["/", "/tasks/", "/tasks/a/b", "/Tasks", "/t%C3%A4sks"] {
        let detail = format!(
            "there is no route `{path}`; the routes are `/tasks`, `/tasks/{{id}}`, `/payloads` and `/openapi.json`"
        );
        for method in ["GET", "POST"] {
            assert_problem(&request(method, path).await, 404, "about:blank", "Not Found", &detail);
        }
    }
    for (method, path, allowed) in [
        ("GET", "/tasks", "POST"),
        ("DELETE", "/tasks", "POST"),
        ("OPTIONS", "/tasks", "POST"),
        ("POST", "/tasks/none", "GET,HEAD"),
        ("PUT", "/tasks/none", "GET,HEAD"),
    ] {
        let response = request(method, path).await;
        let detail = format!("this route does not support {method}");
        assert_problem(&response, 405, "about:blank", "Method Not Allowed", &detail);
        assert_eq!(response["headers"]["allow"], allowed, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_a_port_can_be_retried_later() {
    let deployment = ApiDeployment::new().await;
    let tables = aws_sdk_dynamodb::Client::new(&deployment.aws.sdk_config());
    tables.delete_table().table_name(resources::TASKS_TABLE).send().await.unwrap();
    let detail = "the state store did not respond; the same request can be safely repeated";
    for response in [
        deployment.post(&submission("x")).await,
        deployment.invoke(event("GET", "/tasks/x", None, false)).await,
    ] {
        assert_problem(&response, 503, "about:blank", "Service Unavailable", detail);
        assert_eq!(response["headers"]["retry-after"], "5");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_for_the_end_of_its_task() {
    let deployment = ApiDeployment::new().await;
    let text = submission("waited").to_string();
    let post = async |query: &str| {
        let path = format!("/tasks?{query}");
        deployment.invoke(event("POST", &path, Some(text.as_bytes()), false)).await
    };
    let get = async |query: &str| {
        deployment.invoke(event("GET", &format!("/tasks/waited?{query}"), None, false)).await
    };
    // Nothing runs the task, so it does not end.
    let begun = Instant::now();
    let response = post("wait=200ms").await;
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let (status, _, task) = read(&response);
    assert_eq!((status, &task["process_state"]), (202, &json!("Pending")));
    assert_eq!(response["headers"]["location"], "/tasks/waited");
    assert_eq!(read(&get("wait=1ms").await).2["process_state"], "Pending");

    let end = async {
        let (ports, id) = (deployment.ports(), "waited".parse().unwrap());
        let task = ports.store().load(&id).await.unwrap().unwrap();
        let (process_state, revision) = (ProcessState::Undone, task.revision + 1);
        ports.store().save(&Task { process_state, revision, ..task }).await.unwrap();
    };
    let (response, ()) = tokio::join!(get("wait=20s"), end);
    let (status, _, task) = read(&response);
    assert_eq!((status, &task["process_state"]), (200, &json!("Undone")));
    let (status, _, task) = read(&post("wait=20s").await);
    assert_eq!((status, &task["process_state"]), (200, &json!("Undone")));
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited although the task had ended");

    for response in [post("wait=1h").await, get("wait=1h").await] {
        let detail = "`wait` must be at most 25s; repeat the request to wait longer";
        assert_problem(&response, 400, "urn:steward:invalid-wait", "Invalid wait", detail);
    }
}
