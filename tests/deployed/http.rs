//! The function URL of the submission: accepts only signed requests, returns problem documents for invalid ones, and returns
//! the status of a task.

use std::rc::Rc;

use aws_credential_types::Credentials;
use reqwest::{Method, Response, header};
use serde_json::{Value, json};
use steward_demo::{example_workflow::ExampleWorkflow, services::Fault};

use super::{
    aws_requests::{root, signed, wait_for, with_retries},
    stack::Stack,
    target::{TargetKind, deployment_target},
};

pub(super) async fn function_url_accepts_submissions(stack: Rc<Stack>) {
    let url = base_url(&stack, "STEWARD_FUNCTION_URL");
    let id = stack.order_with("http", "reserve", |fault| fault == Fault::Healthy);
    let order = ExampleWorkflow::Order.scenario();
    let submission = json!({ "task_id": id, "workflow": order.name(), "input": order.input(1) });

    for _ in 0..2 {
        let response = post(&url, &submission).await;
        assert_eq!(response.status(), 202);
        assert_eq!(response.headers()[header::LOCATION], format!("/tasks/{id}"));
    }
    let mut other = submission.clone();
    other["input"] = json!({ "amount": 0 });
    problem(post(&url, &other).await, 409).await;
    problem(post(&url, &json!({ "task_id": "x", "workflow": "nope" })).await, 400).await;
    problem(post(&url, &json!("not a submission")).await, 400).await;

    let processed = async || {
        let task = get(&url, &format!("tasks/{id}?wait=20s")).await;
        let (status, body) = (task.status(), task.text().await.unwrap());
        assert_eq!(status, 200, "{body}");
        let task: Value = serde_json::from_str(&body).unwrap();
        (task["process_state"] == "Processed").then_some(())
    };
    wait_for("a task over HTTP", processed).await;
    // The task has ended, so the repeated submission returns it at once.
    let ended = post_to(&url, "tasks?wait=20s", &submission).await;
    assert_eq!(ended.status(), 200);
    assert_eq!(get(&url, "openapi.json").await.status(), 200);
    problem(get(&url, "tasks/unknown").await, 404).await;

    if deployment_target().enforces_iam("http: requests unsigned, and of an unknown signer") {
        unknown_signers_are_refused(&url).await;
    }
}

async fn unknown_signers_are_refused(url: &str) {
    let stranger = Credentials::new("AKIASTRANGER00000000", "guessed", None, None, "stranger");
    let refused = signed(&stranger, "lambda", (Method::GET, url), &[], "").await;
    assert_eq!(refused.status(), 403);
    assert_eq!(reqwest::get(url).await.unwrap().status(), 403);
}

/// The function URL in a variable.
pub(super) fn base_url(stack: &Stack, variable: &str) -> String {
    reachable(stack.variable(variable))
}

/// The address of a function URL. MiniStack's outputs contain AWS's host name, but MiniStack serves the function at a path.
pub(super) fn reachable(url: &str) -> String {
    if deployment_target().kind != TargetKind::MiniStack {
        return url.to_owned();
    }
    let (id, rest) = url.trim_start_matches("https://").split_once('.').unwrap();
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    format!("{}/_aws/lambda-url/{id}/{path}", deployment_target().endpoint("lambda"))
}

async fn post(url: &str, body: &Value) -> Response {
    post_to(url, "tasks", body).await
}

async fn post_to(url: &str, path: &str, body: &Value) -> Response {
    let headers = [("content-type", "application/json")];
    let (url, body) = (format!("{url}{path}"), body.to_string());
    let send = async || signed(&root(), "lambda", (Method::POST, &url), &headers, &body).await;
    with_retries("POST", send).await
}

async fn get(url: &str, path: &str) -> Response {
    let url = format!("{url}{path}");
    with_retries("GET", async || signed(&root(), "lambda", (Method::GET, &url), &[], "").await)
        .await
}

/// Checks that the response is an RFC 9457 problem document with this status.
async fn problem(response: Response, status: u16) {
    assert_eq!(response.status(), status);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    let problem: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
}
