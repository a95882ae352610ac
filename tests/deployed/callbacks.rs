//! The public callback endpoint: an unsigned request is refused, and a signed URL completes its step once. The service is a
//! queue, from which the test reads the URL.

use reqwest::{Client, Response};
use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use super::{aws_requests::with_retries, http::reachable, stack::Stack};

/// A step that awaits a callback.
const ASKS: &str = r#"
name: asks
version: 1
steps:
  ask:
    agent: sender
    callback: { within: 1h, answer: { type: object, required: [ok] } }
    request: { path: "/${ input.queue }", body: { answer_at: "${ callback.url }" } }
output: ${ steps.ask.output }
"#;

/// `url` reads the URL of the callback.
pub(super) async fn service_answers_by_signed_url(
    stack: &Stack,
    queue: &str,
    url: impl AsyncFn() -> Value,
) {
    stack.publish(ASKS).await;
    stack.submit("asks", "asks", &json!({ "queue": queue })).await;
    let request = url().await;
    let url = reachable(request["answer_at"].as_str().unwrap());
    let forged = format!("{}{}", url.rsplit_once('.').unwrap().0, ".AAAA");
    problem(post(&forged, "{}").await, 403, "wrong-callback-signature").await;
    problem(post(&url, "{}").await, 400, "invalid-answer").await;
    assert_eq!(post(&url, r#"{ "ok": true }"#).await.status(), 202);
    let task = stack.ended("asks").await;
    assert_eq!(task.process_state, ProcessState::Processed, "{:?}", task.error);
    problem(post(&url, r#"{ "ok": true }"#).await, 409, "callback-already-answered").await;
}

async fn post(url: &str, body: &str) -> Response {
    let send = async || Client::new().post(url).body(body.to_owned()).send().await.unwrap();
    with_retries("POST", send).await
}

async fn problem(response: Response, status: u16, name: &str) {
    assert_eq!(response.status(), status);
    let problem: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(problem["type"], format!("urn:steward:{name}"));
}
