//! The function URL: signed requests only, problem documents for bad ones, and the task's status.

use std::rc::Rc;

use aws_credential_types::Credentials;
use reqwest::{Method, Response, header};
use serde_json::{Value, json};
use steward_demo::{scenario::Shipped, services::Fault};

use super::{
    emulator::{answered, root, signed, wait_for},
    place::{Kind, place},
    stack::Stack,
};

pub(super) async fn single_submissions_over_a_function_url(stack: Rc<Stack>) {
    let url = base_url(&stack, "STEWARD_FUNCTION_URL");
    let id = stack.order_with("http", "reserve", |fault| fault == Fault::Healthy);
    let order = Shipped::Order.scenario();
    let submission = json!({ "task_id": id, "workflow": order.name(), "input": order.input(1) });

    for _ in 0..2 {
        let answer = post(&url, &submission).await;
        assert_eq!(answer.status(), 202);
        assert_eq!(answer.headers()[header::LOCATION], format!("/tasks/{id}"));
    }
    let mut other = submission.clone();
    other["input"] = json!({ "amount": 0 });
    problem(post(&url, &other).await, 409).await;
    problem(post(&url, &json!({ "task_id": "x", "workflow": "nope" })).await, 400).await;
    problem(post(&url, &json!("not a submission")).await, 400).await;

    let processed = async || {
        let task = get(&url, &format!("tasks/{id}")).await;
        let (status, body) = (task.status(), task.text().await.unwrap());
        assert_eq!(status, 200, "{body}");
        let task: Value = serde_json::from_str(&body).unwrap();
        (task["process_state"] == "Processed").then_some(())
    };
    wait_for("a task over HTTP", processed).await;
    problem(get(&url, "tasks/nobody").await, 404).await;

    if place().enforces_iam("http: requests unsigned, and of an unknown signer") {
        only_known_signers_are_let_in(&url).await;
    }
}

async fn only_known_signers_are_let_in(url: &str) {
    let stranger = Credentials::new("AKIASTRANGER00000000", "guessed", None, None, "stranger");
    let refused = signed(&stranger, "lambda", (Method::GET, url), &[], "").await;
    assert_eq!(refused.status(), 403);
    assert_eq!(reqwest::get(url).await.unwrap().status(), 403);
}

/// A function URL. MiniStack's outputs have AWS's host name, and it serves a path.
pub(super) fn base_url(stack: &Stack, variable: &str) -> String {
    let url = stack.variable(variable);
    if place().kind != Kind::MiniStack {
        return url.to_owned();
    }
    let (id, _) = url.trim_start_matches("https://").split_once('.').unwrap();
    format!("{}/_aws/lambda-url/{id}/", place().endpoint("lambda"))
}

async fn post(url: &str, body: &Value) -> Response {
    let headers = [("content-type", "application/json")];
    let (url, body) = (format!("{url}tasks"), body.to_string());
    let ask = async || signed(&root(), "lambda", (Method::POST, &url), &headers, &body).await;
    answered("POST", ask).await
}

async fn get(url: &str, path: &str) -> Response {
    let url = format!("{url}{path}");
    answered("GET", async || signed(&root(), "lambda", (Method::GET, &url), &[], "").await).await
}

/// An RFC 9457 problem document of this status.
async fn problem(answer: Response, status: u16) {
    assert_eq!(answer.status(), status);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json");
    let problem: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
}
