//! Invalid submissions over HTTP.

use aws_sdk_sqs::types::Message;
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::{Value, json};
use steward_core::limits;
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

use super::{fixture::*, samples::*};

/// A host with an HTTP endpoint and two workflows; and the URL of its tasks.
async fn start_host() -> (Host, String) {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let options = HostOptions {
        listen,
        workflows: vec![order_workflow(), strict_workflow(1, 10)],
        ..HostOptions::default()
    };
    let host = Host::start(options).await.unwrap();
    let tasks = format!("http://{}/tasks", host.address.unwrap());
    (host, tasks)
}

async fn post(tasks: &str, text: impl ToString) -> reqwest::Response {
    Client::new().post(tasks).body(text.to_string()).send().await.unwrap()
}

async fn assert_problem(response: reqwest::Response, status: u16, title: &str, detail: &str) {
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    assert_eq!(response.status().as_u16(), status);
    let kind = match response.status().canonical_reason() {
        Some(reason) if reason == title => "about:blank".to_owned(),
        _ => format!("urn:steward:{}", title.to_lowercase().replace(' ', "-")),
    };
    let expected = json!({ "type": kind, "title": title, "status": status, "detail": detail });
    assert_eq!(response.text().await.unwrap(), expected.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_over_http_is_accepted_with_its_location_each_time() {
    let (host, tasks) = start_host().await;
    let mut first = None;
    for _ in 0..2 {
        let response = post(&tasks, order_submission("shop:7")).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(response.headers()[LOCATION], "/tasks/shop:7");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(
            response.text().await.unwrap(),
            r#"{"task_id":"shop:7","href":"/tasks/shop:7"}"#
        );
        let task = host.ports.store().load(&"shop:7".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(
            *first.get_or_insert(task.submitted_at),
            task.submitted_at,
            "the task is recorded once"
        );
    }
    let task = Client::new().get(format!("{tasks}/shop:7")).send().await.unwrap();
    assert_eq!(task.status(), StatusCode::OK);
    let task: Value = serde_json::from_str(&task.text().await.unwrap()).unwrap();
    assert_eq!(task["task_id"], "shop:7");
    assert_eq!((&task["workflow"], &task["version"]), (&json!("order"), &json!(2)));
    assert_eq!(task["submitted_at"], json!(first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_over_http_explains_why_and_is_neither_kept_nor_alerted() {
    let (host, tasks) = start_host().await;
    assert_eq!(post(&tasks, order_submission("taken")).await.status(), StatusCode::ACCEPTED);
    let client =
        resources::create_queue(&host.aws.sdk_config(), "client-shop", None).await.unwrap();
    for bad in invalid_submissions(&client, "https://unlisted-queue") {
        let (status, title) = match bad.reason.as_str() {
            reason if reason.starts_with("not a submission") => (400, "Malformed submission"),
            reason if reason.starts_with("there is no workflow") => (400, "Unknown workflow"),
            reason if reason.starts_with("input.amount") => (400, "Invalid input"),
            reason if reason.starts_with("reply_to") => (400, "Reply queue not allowed"),
            reason if reason.starts_with("task `taken`") => (409, "Task id taken"),
            _ => (413, "Submission too large"),
        };
        assert_problem(post(&tasks, &bad.text).await, status, title, &bad.reason).await;
    }
    let not_text =
        Client::new().post(&tasks).body(b"{\"input\":\"\xff\"}".to_vec()).send().await.unwrap();
    assert_problem(not_text, 400, "Malformed submission", "not a submission: not UTF-8").await;
    for queue in
        [host.queue_url(resources::REJECTED_QUEUE), host.queue_url(resources::ALERTS_QUEUE), client]
    {
        let request = host.sqs().receive_message().queue_url(&queue).max_number_of_messages(10);
        let response = request.send().await.unwrap();
        // The accepted task causes this alert, because the host has no agents.
        let is_of_accepted_task =
            |message: &&Message| message.body().unwrap().contains("\"Agent Missing\"");
        let others: Vec<_> =
            response.messages().iter().filter(|m| !is_of_accepted_task(m)).collect();
        assert_eq!(others, [] as [&Message; 0], "{queue}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_read_over_http_by_its_id() {
    let (_host, tasks) = start_host().await;
    let get = |id: &'static str| Client::new().get(format!("{tasks}/{id}")).send();
    assert_problem(get("none").await.unwrap(), 404, "No such task", "there is no task `none`")
        .await;
    let detail = "task id `a/b` is not valid: a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, \
                  at most 128 characters";
    assert_problem(get("a%2Fb").await.unwrap(), 400, "Malformed task id", detail).await;
    let wrong = Client::new().delete(&tasks).send().await.unwrap();
    let detail = "this route does not support DELETE";
    assert_problem(wrong, 405, "Method Not Allowed", detail).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_message_limit_is_rejected_over_http() {
    let (_host, tasks) = start_host().await;
    let response = post(&tasks, " ".repeat(limits::MESSAGE_BYTES_MAX)).await;
    let reason = "a submission of 256000 bytes; the limit is 131072";
    assert_problem(response, 413, "Submission too large", reason).await;
    let response = post(&tasks, " ".repeat(limits::MESSAGE_BYTES_MAX + 1)).await;
    let reason = "a submission of more than 256000 bytes; the limit is 131072";
    assert_problem(response, 413, "Submission too large", reason).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_state_store_over_http_is_a_retryable_error() {
    let (host, tasks) = start_host().await;
    drop_tasks_table(&host.aws.sdk_config()).await;
    let detail = "the state store did not respond; the same request can be safely repeated";
    assert_problem(
        post(&tasks, order_submission("good")).await,
        503,
        "Service Unavailable",
        detail,
    )
    .await;
    let task = Client::new().get(format!("{tasks}/good")).send().await.unwrap();
    assert_problem(task, 503, "Service Unavailable", detail).await;
}
