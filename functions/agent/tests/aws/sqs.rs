//! The agent kind `sqs`, on the embedded SQS behind the verification of signatures, and with a server for what that cannot
//! show: FIFO queues and errors.

use aws_sdk_sqs::types::Message;
use axum::body::Body;
use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_core::limits;
use steward_emulator::embedded::EmbeddedAws;

use crate::server::{
    CallForOutput, SignedServer, aws_service, failed, outcome_of, request, respond, respond_with,
    retried,
};

const ORDERS: &str = "arn:aws:sqs:eu-west-1:123456789012:orders";

/// The embedded SQS with the queue `orders`.
async fn embedded() -> (EmbeddedAws, SignedServer) {
    let aws = EmbeddedAws::in_memory().unwrap();
    let router = aws.router();
    let server = SignedServer::start(move |_| router).await;
    let queues = aws_sdk_sqs::Client::new(&aws.sdk_config());
    queues.create_queue().queue_name("orders").send().await.unwrap();
    (aws, server)
}

async fn messages(aws: &EmbeddedAws) -> Vec<Message> {
    let queues = aws_sdk_sqs::Client::new(&aws.sdk_config());
    let url = queues.get_queue_url().queue_name("orders").send().await.unwrap();
    let receive = queues.receive_message().set_queue_url(url.queue_url);
    let receive = receive.max_number_of_messages(10).message_attribute_names("All");
    receive.send().await.unwrap().messages.unwrap_or_default()
}

#[tokio::test]
async fn the_body_is_the_message_and_the_key_an_attribute() {
    let (aws, server) = embedded().await;
    let service = aws_service("sqs", ORDERS, &server.url);
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let order = json!({ "order": 1, "to": "Zoë \u{1F600}" });
    let sent = request("/orders", json!({ "body": order }));
    let output = service.output(&sent, Some(traceparent)).await.unwrap();
    let received = messages(&aws).await;
    assert_eq!(received.len(), 1);
    assert_eq!(output, json!({ "message_id": received[0].message_id }));
    assert_eq!(received[0].body.as_deref(), Some(order.to_string().as_str()));
    let attributes = received[0].message_attributes.as_ref().unwrap();
    assert_eq!(attributes["idempotency-key"].string_value(), Some("order-1/charge/do"));
    assert_eq!(attributes["traceparent"].string_value(), Some(traceparent));
    assert_eq!(server.request().scope.as_deref(), Ok("sqs/eu-west-1"));
}

#[tokio::test]
async fn a_string_is_sent_as_it_is_and_a_repeated_call_has_the_same_key() {
    let (aws, server) = embedded().await;
    let service = aws_service("sqs", ORDERS, &server.url);
    let text = request("/", json!({ "body": "<order id=\"1\"/>" }));
    let (one, other) = tokio::join!(service.output(&text, None), service.output(&text, None));
    assert!(one.is_ok() && other.is_ok());
    let received = messages(&aws).await;
    assert_eq!(received.len(), 2);
    for message in received {
        assert_eq!(message.body.as_deref(), Some("<order id=\"1\"/>"));
        let attributes = message.message_attributes.unwrap();
        assert_eq!(attributes["idempotency-key"].string_value(), Some("order-1/charge/do"));
    }
}

#[tokio::test]
async fn the_largest_request_is_sent() {
    let (aws, server) = embedded().await;
    let largest = "x".repeat(limits::DOCUMENT_BYTES_MAX);
    let request = request("/", json!({ "body": largest }));
    aws_service("sqs", ORDERS, &server.url).output(&request, None).await.unwrap();
    assert_eq!(messages(&aws).await[0].body.as_ref().unwrap().len(), largest.len());
}

#[tokio::test]
async fn a_missing_queue_and_invalid_characters_fail_and_did_not_run() {
    let (aws, server) = embedded().await;
    let missing = "arn:aws:sqs:eu-west-1:123456789012:mails";
    let service = aws_service("sqs", &format!("{ORDERS},{missing}"), &server.url);
    for (path, body) in [("/mails", json!(1)), ("/orders", json!("\u{0}"))] {
        let outcome = service.output(&request(path, json!({ "body": body })), None).await;
        let Err(CallFault::Permanent { reason, may_have_run: false, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.starts_with("HTTP 400 Bad Request: "), "{reason}");
    }
    assert!(messages(&aws).await.is_empty());
}

#[tokio::test]
async fn an_empty_message_and_an_unknown_queue_are_not_sent() {
    let server = SignedServer::answering(|| respond(200, Body::empty())).await;
    let service = aws_service("sqs", ORDERS, &server.url);
    let no_body = failed("the request has no body; SQS accepts no empty message", false);
    assert_eq!(service.output(&request("/", json!({})), None).await, no_body);
    assert_eq!(service.output(&request("/", json!({ "body": "" })), None).await, no_body);
    let other_queue =
        "the request's path is not the name of a target of this agent, one of `/orders`";
    let outcome = service.output(&request("/other", json!({ "body": 1 })), None).await;
    assert_eq!(outcome, failed(other_queue, false));
    let get = service.output(&request("/", json!({ "method": "GET", "body": 1 })), None).await;
    assert_eq!(get, failed("this agent accepts only requests with method POST", false));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_fifo_queue_gets_a_group_for_each_task_and_an_id_against_duplicates() {
    let fifo = format!("{ORDERS}.fifo");
    let body = json!({ "MessageId": "m", "SequenceNumber": "18870266387197200000" }).to_string();
    let server = SignedServer::answering(move || respond(200, body.clone())).await;
    let service = aws_service("sqs", &fifo, &server.url);
    let key = "x".repeat(200);
    let first = request("/orders.fifo", json!({ "body": 1 }));
    let long_key = request("/", json!({ "body": 1, "idempotency_key": key, "task_id": "order-2" }));
    let output = service.output(&first, None).await;
    assert_eq!(output, Ok(json!({ "message_id": "m", "sequence_number": "18870266387197200000" })));
    service.output(&first, None).await.unwrap();
    service.output(&long_key, None).await.unwrap();
    let sent: Vec<Value> = server
        .requests()
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect();
    let of = |nth: usize, key: &str| sent[nth][key].as_str().unwrap().to_owned();
    assert_eq!(of(0, "QueueUrl"), format!("{}/123456789012/orders.fifo", server.url));
    assert_eq!(
        (of(0, "MessageGroupId"), of(2, "MessageGroupId")),
        ("order-1".into(), "order-2".into())
    );
    let id = "MessageDeduplicationId";
    assert_eq!(of(0, id), of(1, id));
    assert_ne!(of(0, id), of(2, id));
    assert_eq!(of(2, id).len(), 64);
}

#[tokio::test]
async fn errors_have_the_documented_outcomes() {
    let error = |name: &str| json!({ "__type": name, "message": "card 4111" }).to_string();
    let md5 = format!("{:x}", md5::compute("1"));
    for (status, body, expected) in [
        (
            200,
            json!({ "MessageId": "m", "MD5OfMessageBody": md5 }).to_string(),
            Ok(json!({ "message_id": "m" })),
        ),
        (
            200,
            json!({ "MessageId": "m", "MD5OfMessageBody": "0" }).to_string(),
            failed("SQS received another message: its digest differs", true),
        ),
        (200, "{}".to_owned(), failed("SQS accepted the message without an id", true)),
        (
            200,
            "no".to_owned(),
            failed("SQS accepted the message with an unreadable response", true),
        ),
        (
            400,
            error("com.amazonaws.sqs#QueueDoesNotExist"),
            failed("HTTP 400 Bad Request: QueueDoesNotExist", false),
        ),
        (
            403,
            error("com.amazonaws.sqs#AccessDeniedException"),
            failed("HTTP 403 Forbidden: AccessDeniedException", false),
        ),
        (
            400,
            error("com.amazonaws.sqs#RequestThrottled"),
            retried("HTTP 400 Bad Request: RequestThrottled", true, false),
        ),
        (
            400,
            error("com.amazonaws.sqs#KmsThrottled"),
            retried("HTTP 400 Bad Request: KmsThrottled", true, false),
        ),
        (503, String::new(), retried("HTTP 503 Service Unavailable", false, true)),
        (
            500,
            error("InternalFailure"),
            retried("HTTP 500 Internal Server Error: InternalFailure", false, true),
        ),
    ] {
        let request = request("/", json!({ "body": 1 }));
        let outcome = outcome_of(("sqs", ORDERS), &request, move || respond(status, body.clone()));
        assert_eq!(outcome.await, expected);
    }
    let request = request("/", json!({ "body": 1 }));
    let busy =
        outcome_of(("sqs", ORDERS), &request, || respond_with(503, ("retry-after", "0"), ""));
    assert_eq!(busy.await, retried("HTTP 503 Service Unavailable", true, true));
}
