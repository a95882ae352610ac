//! Events as a function URL hands them over (payload format 2.0), through the same adapter as in
//! Lambda, onto embedded AWS.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::sync::Arc;

use lambda_http::{
    Adapter, Context, LambdaEvent, Service, aws_lambda_events::encodings::Base64Data,
    request::LambdaRequest,
};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::{definition::workflow::Workflow, limits};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Ports, StateStore};
use steward_submission::http::service;

/// A deployment with one workflow, `strict`, and nothing running.
struct Deployment {
    aws: EmbeddedAws,
    config: Config,
}

impl Deployment {
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

    /// What the function answers, as Lambda gets it.
    async fn invoke(&self, event: Value) -> Value {
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let mut function = Adapter::from(service(Arc::new(self.ports()), reply_queues));
        let request: LambdaRequest = serde_json::from_str(&event.to_string()).unwrap();
        let answer = function.call(LambdaEvent::new(request, Context::default())).await.unwrap();
        serde_json::to_value(answer).unwrap()
    }

    async fn post(&self, submission: &Value) -> Value {
        self.invoke(event("POST", "/tasks", Some(submission.to_string().as_bytes()), false)).await
    }
}

/// An event of a function URL that asks for IAM's signature. Which bodies are encoded depends on
/// their content type.
fn event(method: &str, path: &str, body: Option<&[u8]>, encoded: bool) -> Value {
    let host = "abcdefghij.lambda-url.eu-west-1.on.aws";
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
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
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

fn submission(id: &str) -> Value {
    json!({ "task_id": id, "workflow": "strict", "input": { "name": "Zoë" } })
}

/// Status, content type and body of an answer.
fn read(answer: &Value) -> (u64, &str, Value) {
    assert_eq!(answer["isBase64Encoded"], false, "{answer}");
    let content_type = answer["headers"]["content-type"].as_str().unwrap_or_default();
    let body = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    (answer["statusCode"].as_u64().unwrap(), content_type, body)
}

fn assert_problem(answer: &Value, status: u64, kind: &str, title: &str, detail: &str) {
    let expected = json!({ "type": kind, "title": title, "status": status, "detail": detail });
    assert_eq!(read(answer), (status, "application/problem+json", expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_is_recorded_whichever_way_its_body_is_encoded() {
    let deployment = Deployment::new().await;
    for (id, encoded) in [("plain:1", false), ("encoded:1", true)] {
        let text = submission(id).to_string();
        for _ in 0..2 {
            let event = event("POST", "/tasks", Some(text.as_bytes()), encoded);
            let answer = deployment.invoke(event).await;
            let address = format!("/tasks/{id}");
            let accepted = json!({ "task_id": id, "href": address });
            assert_eq!(read(&answer), (202, "application/json", accepted));
            assert_eq!(answer["headers"]["location"], address);
        }
        let answer = deployment.invoke(event("GET", &format!("/tasks/{id}"), None, false)).await;
        let (status, content_type, task) = read(&answer);
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
    assert_eq!(wakes.messages().len(), 4, "one for each time that it was submitted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_says_which_kind_of_problem_it_is() {
    let deployment = Deployment::new().await;
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
            with("parent", json!({ "task_id": "other", "step": "s" })),
            400,
            "malformed-submission",
            "Malformed submission",
            "not a submission: `parent`, `undo`, `has_begun` and `keep` are not for clients",
        ),
        (
            with("undo", json!(true)),
            400,
            "malformed-submission",
            "Malformed submission",
            "not a submission: `parent`, `undo`, `has_begun` and `keep` are not for clients",
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
        let answer = deployment.post(&submission).await;
        assert_problem(&answer, status, &format!("urn:steward:{kind}"), title, detail);
    }
    let (malformed, title) = ("urn:steward:malformed-submission", "Malformed submission");
    let answer = deployment.invoke(event("POST", "/tasks", Some(b"{\"\xff\"}"), true)).await;
    assert_problem(&answer, 400, malformed, title, "not a submission: not UTF-8");
    let answer = deployment.invoke(event("POST", "/tasks", None, false)).await;
    assert_problem(&answer, 400, malformed, title, "not a submission: not a JSON object");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_said_to_be_whether_it_was_read_or_not() {
    let deployment = Deployment::new().await;
    let max = limits::MESSAGE_BYTES_MAX;
    for (bytes, said) in [(max, "of 256000"), (max + 1, "of more than 256000")] {
        let blank = vec![b' '; bytes];
        for encoded in [false, true] {
            let answer = deployment.invoke(event("POST", "/tasks", Some(&blank), encoded)).await;
            let detail = format!("a submission {said} bytes; the limit is 131072");
            let title = "Submission too large";
            assert_problem(&answer, 413, "urn:steward:submission-too-large", title, &detail);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_or_a_method_that_there_is_not_is_a_problem_too() {
    let deployment = Deployment::new().await;
    let ask = |method, path| deployment.invoke(event(method, path, None, false));
    let detail = "there is no task `none`";
    let none = ask("GET", "/tasks/none").await;
    assert_problem(&none, 404, "urn:steward:no-such-task", "No such task", detail);
    let detail = "task id `a b` is not valid: a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, \
                  at most 128 characters";
    for path in ["/tasks/a%20b", "/tasks/a b"] {
        let odd = ask("GET", path).await;
        assert_problem(&odd, 400, "urn:steward:malformed-task-id", "Malformed task id", detail);
    }
    let answer = ask("GET", "/tasks/%FF").await;
    let (status, content_type, problem) = read(&answer);
    assert_eq!((status, content_type), (400, "application/problem+json"));
    assert_eq!(problem["type"], "urn:steward:malformed-task-id");
    for path in ["/", "/tasks/", "/tasks/a/b", "/Tasks", "/t%C3%A4sks"] {
        let detail = format!("there is no `{path}`; there are `/tasks` and `/tasks/{{id}}`");
        for method in ["GET", "POST"] {
            assert_problem(&ask(method, path).await, 404, "about:blank", "Not Found", &detail);
        }
    }
    for (method, path, allowed) in [
        ("GET", "/tasks", "POST"),
        ("DELETE", "/tasks", "POST"),
        ("OPTIONS", "/tasks", "POST"),
        ("POST", "/tasks/none", "GET,HEAD"),
        ("PUT", "/tasks/none", "GET,HEAD"),
    ] {
        let answer = ask(method, path).await;
        let detail = format!("{method} is not for this address");
        assert_problem(&answer, 405, "about:blank", "Method Not Allowed", &detail);
        assert_eq!(answer["headers"]["allow"], allowed, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_port_cannot_do_may_be_asked_again_later() {
    let deployment = Deployment::new().await;
    let tables = aws_sdk_dynamodb::Client::new(&deployment.aws.sdk_config());
    tables.delete_table().table_name(resources::TASKS_TABLE).send().await.unwrap();
    let detail = "the state store did not answer; the same request again is safe";
    for answer in [
        deployment.post(&submission("x")).await,
        deployment.invoke(event("GET", "/tasks/x", None, false)).await,
    ] {
        assert_problem(&answer, 503, "about:blank", "Service Unavailable", detail);
        assert_eq!(answer["headers"]["retry-after"], "5");
    }
}
