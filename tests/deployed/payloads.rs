//! Payloads on the deployed stack: a client uploads one with a signed URL, the agent sends it to a service, and stores the large
//! response of the service in the bucket. Each function has only its own permissions for that.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::DefaultBodyLimit, http::HeaderMap, routing::post};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    agent_stacks::{delete_agent, deploy_agent},
    aws_requests::{root, signed, wait_for, with_retries},
    http::base_url,
    stack::Stack,
    target::{TargetKind, deployment_target},
};

use crate::support::serve;

const AGENT: &str = "archive";

const WORKFLOW: &str = r#"
name: archive
version: 1
steps:
  store:
    agent: archive
    request: { path: /store, body: "${ input.document }" }
  again:
    after: [store]
    agent: archive
    request: { path: /again, body: "${ steps.store.output }" }
output: "${ steps.store.output }"
"#;

/// The bytes of the document: fewer than a part of an upload in parts.
const DOCUMENT_BYTES: usize = 1024 * 1024;

/// The bytes of the response: more than a part.
const RESPONSE_BYTES: usize = 6 * 1024 * 1024;

type Received = Arc<Mutex<Vec<(String, String)>>>;

pub(super) async fn payloads_go_to_a_service_and_back(stack: Rc<Stack>) {
    let (service, received) = start_service().await;
    let service = stack.forwarder.url_of(AGENT, &service);
    let bucket = stack.variable("STEWARD_PAYLOADS_BUCKET");
    let parameters = [format!("BaseUrl={service}"), format!("PayloadsBucket={bucket}")];
    deploy_agent(&stack, AGENT, &parameters).await;
    stack.publish(WORKFLOW).await;
    let url = base_url(&stack, "STEWARD_FUNCTION_URL");

    let document = vec![7; DOCUMENT_BYTES];
    let payload = json!({
        "bytes": document.len(), "sha256": digest(&document), "content_type": "application/pdf",
    });
    let (status, prepared) = request(&url, Method::POST, "payloads", &payload).await;
    assert_eq!(status, 201, "{prepared}");
    assert_eq!(send(&prepared["upload"], vec![8; DOCUMENT_BYTES]).await, 400);
    assert_eq!(send(&prepared["upload"], document.clone()).await, 200);
    if deployment_target().kind == TargetKind::Aws {
        // The URL is signed with `if-none-match`, so it replaces nothing.
        assert_eq!(send(&prepared["upload"], document.clone()).await, 412);
    }
    let submission = json!({
        "task_id": "archive-1", "workflow": "archive", "input": { "document": prepared["payload"] },
    });
    let (status, body) = request(&url, Method::POST, "tasks", &submission).await;
    assert_eq!(status, 202, "{body}");
    let mut unknown = submission.clone();
    unknown["task_id"] = json!("archive-2");
    unknown["input"]["document"]["$payload"]["key"] = json!("uploads/0123");
    let (status, problem) = request(&url, Method::POST, "tasks", &unknown).await;
    assert_eq!((status, &problem["type"]), (400, &json!("urn:steward:invalid-payload")));

    let processed = async || {
        let (_, task) = request(&url, Method::GET, "tasks/archive-1?wait=20s", &json!({})).await;
        (task["process_state"] == "Processed").then_some(task)
    };
    let task = wait_for("the task with a payload", processed).await;
    let reference = &task["output"]["$payload"];
    assert_eq!(reference["bytes"], RESPONSE_BYTES, "{task}");
    let response = digest(&vec![b'x'; RESPONSE_BYTES]);
    assert_eq!(reference["sha256"], json!(response));
    let expected = [("/store", digest(&document)), ("/again", response)];
    let expected = expected.map(|(path, digest)| (path.to_owned(), digest));
    assert_eq!(*received.lock().unwrap(), expected);
    delete_agent(&stack, AGENT).await;
}

/// A service that answers `/store` with a large document. It records the paths and the digests of bodies.
async fn start_service() -> (String, Received) {
    let received = Received::default();
    let record = |path: &'static str, answer: Vec<u8>| {
        let received = received.clone();
        post(move |_: HeaderMap, body: Bytes| async move {
            received.lock().unwrap().push((path.to_owned(), digest(&body)));
            answer
        })
    };
    let routes = Router::new()
        .route("/store", record("/store", vec![b'x'; RESPONSE_BYTES]))
        .route("/again", record("/again", b"{}".to_vec()))
        .layer(DefaultBodyLimit::disable());
    let url = serve(routes).await;
    (url, received)
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request to the function URL.
async fn request(url: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let headers = [("content-type", "application/json")];
    let (url, body) = (format!("{url}{path}"), body.to_string());
    let body = if method == Method::GET { "" } else { &body };
    let send = async || signed(&root(), "lambda", (method.clone(), &url), &headers, body).await;
    let response = with_retries(path, send).await;
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Sends the prepared upload.
async fn send(upload: &Value, content: Vec<u8>) -> u16 {
    let mut request = reqwest::Client::new().put(upload["url"].as_str().unwrap()).body(content);
    for (name, value) in upload["headers"].as_object().unwrap() {
        if name != "content-length" {
            request = request.header(name, value.as_str().unwrap());
        }
    }
    request.send().await.unwrap().status().as_u16()
}
