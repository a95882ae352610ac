//! Records what the agent does with its queues: which messages it receives and deletes, and which SQS accepts from it.
//! Refuses its first reply in the cases that lose a reply.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, case_of_task},
    evidence::{ObservedEvent, Recorder},
};

/// More than any request or response of SQS has.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The record of the agent's requests to SQS.
#[derive(Debug, Clone)]
pub(crate) struct SqsLog {
    recorder: Recorder,
    /// The bodies of received messages by receipt handle.
    received: Arc<Mutex<HashMap<String, String>>>,
    /// The cases of which a reply was refused.
    refused: Arc<Mutex<BTreeSet<Case>>>,
    polled: Arc<AtomicBool>,
}

impl SqsLog {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, received: Arc::default(), refused: Arc::default(), polled: Arc::default() }
    }

    /// Whether this is the first attempt to send a reply that the kit refuses.
    fn refuses(&self, bodies: &[String]) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = bodies.iter().filter_map(|body| case_of(body)).find(|case| case.loses_reply());
        lost.is_some_and(|case| refused.insert(case))
    }

    fn remember(&self, response: &[u8]) {
        let response: Value = serde_json::from_slice(response).unwrap_or_default();
        let messages = response.get("Messages").and_then(Value::as_array);
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        for message in messages.into_iter().flatten() {
            let field = |name| message.get(name).and_then(Value::as_str).unwrap_or_default();
            received.insert(field("ReceiptHandle").to_owned(), field("Body").to_owned());
            self.recorder.record(ObservedEvent::Delivered { body: field("Body").to_owned() });
        }
    }

    fn record_poll(&self) {
        if !self.polled.swap(true, Ordering::Relaxed) {
            self.recorder.record(ObservedEvent::Polled);
        }
    }

    fn record_deletions(&self, request: &Value) {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in texts(request, "ReceiptHandle") {
            if let Some(body) = received.get(&handle) {
                self.recorder.record(ObservedEvent::Deleted { body: body.clone() });
            }
        }
    }
}

/// The case of a reply.
fn case_of(body: &str) -> Option<Case> {
    let reply: Value = serde_json::from_str(body).ok()?;
    case_of_task(reply.get("task_id")?.as_str()?)
}

/// The values of a field in a request, or in the entries of its batch.
fn texts(request: &Value, name: &str) -> Vec<String> {
    let entries = request.get("Entries").and_then(Value::as_array).into_iter().flatten();
    let values = std::iter::once(request).chain(entries).filter_map(|entry| entry.get(name));
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Passes a request of the agent on, and records it.
pub(crate) async fn observe(State(log): State<SqsLog>, request: Request, next: Next) -> Response {
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok());
    let operation = target.and_then(|target| target.strip_prefix("AmazonSQS."));
    let Some(operation) = operation.map(str::to_owned) else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let content: Value = serde_json::from_slice(&body).unwrap_or_default();
    let sent = match operation.as_str() {
        "SendMessage" | "SendMessageBatch" => texts(&content, "MessageBody"),
        _ => Vec::new(),
    };
    if log.refuses(&sent) {
        return refusal();
    }
    if operation == "ReceiveMessage" {
        log.record_poll();
    }
    if operation.starts_with("DeleteMessage") {
        log.record_deletions(&content);
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    if !response.status().is_success() {
        return response;
    }
    for body in sent {
        log.recorder.record(ObservedEvent::Sent { body });
    }
    if operation != "ReceiveMessage" {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_else(|_| Bytes::new());
    log.remember(&body);
    Response::from_parts(parts, Body::from(body))
}

/// A response that no SDK retries.
fn refusal() -> Response {
    let body = json!({
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "message": "the conformance kit refuses this message once",
    });
    let content_type = [(CONTENT_TYPE, "application/x-amz-json-1.0")];
    (StatusCode::FORBIDDEN, content_type, body.to_string()).into_response()
}
