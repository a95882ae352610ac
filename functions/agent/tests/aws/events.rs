//! The agent kind `events`, on the embedded EventBridge behind the verification of signatures, and with a server for errors.

use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_core::model::messages::StepRequest;
use steward_emulator::embedded::EmbeddedAws;

use crate::server::{
    CallForOutput, SignedServer, aws_service, failed, outcome_of, request, respond, retried,
};

const ORDERS: &str = "arn:aws:events:eu-west-1:123456789012:event-bus/orders";

fn event(more: Value) -> StepRequest {
    let mut event = json!({ "detail-type": "Order Paid", "detail": { "order": 1, "to": "Zoë" } });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request("/orders", json!({ "body": event }))
}

#[tokio::test]
async fn the_event_is_published_and_has_the_key_as_its_resource() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (router, mut published) = (aws.router(), aws.subscribe_events());
    let server = SignedServer::start(move |_| router).await;
    let service = aws_service("events", ORDERS, &server.url);
    let output = service.output(&event(json!({})), None).await.unwrap();
    let envelope = published.recv().await.unwrap();
    assert_eq!(output, json!({ "event_id": envelope["id"] }));
    assert_eq!(envelope["source"], "steward.agent.a");
    assert_eq!(envelope["detail-type"], "Order Paid");
    assert_eq!(envelope["detail"], json!({ "order": 1, "to": "Zoë" }));
    assert_eq!(envelope["resources"], json!(["order-1/charge/do"]));
    service.output(&event(json!({ "source": "shop" })), None).await.unwrap();
    assert_eq!(published.recv().await.unwrap()["source"], "shop");
    let first = &server.requests()[0];
    assert_eq!(first.scope.as_deref(), Ok("events/eu-west-1"));
    let sent: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(sent["Entries"][0]["EventBusName"], ORDERS);
}

#[tokio::test]
async fn a_body_that_is_not_an_event_is_not_sent() {
    let server = SignedServer::answering(|| respond(200, "")).await;
    let service = aws_service("events", ORDERS, &server.url);
    let bodies = [
        json!({ "detail": {} }),
        json!({ "detail-type": "x" }),
        json!({ "detail-type": "", "detail": {} }),
        json!({ "detail-type": "x", "detail": [] }),
        json!({ "detail-type": "x", "detail": {}, "source": 7 }),
        json!({ "detail-type": "x", "detail": {}, "time": "now" }),
        json!("text"),
    ];
    let requests = bodies.iter().map(|body| request("/", json!({ "body": body })));
    let long = json!({ "detail-type": "x".repeat(129), "detail": {} });
    let long = service.output(&request("/", json!({ "body": long })), None).await;
    assert!(matches!(long, Err(CallFault::Permanent { may_have_run: false, .. })), "{long:?}");
    for request in requests.chain([request("/", json!({}))]) {
        let outcome = service.output(&request, None).await;
        let Err(CallFault::Permanent { reason, may_have_run: false, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.starts_with("the body is not an event: `{ detail-type: TEXT"), "{reason}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn an_entry_that_failed_in_a_successful_request_has_the_outcome_of_its_error() {
    let reason = |code: &str| format!("EventBridge did not publish the event: {code}");
    for (code, is_retried, is_available, may_have_run) in [
        ("ThrottlingException", true, true, false),
        ("InternalFailure", true, false, true),
        ("InternalException", true, false, true),
        ("NotAuthorizedForSourceException", false, true, false),
        ("MalformedDetail", false, true, false),
        ("SomethingNew", false, true, true),
    ] {
        let entry = json!({ "ErrorCode": code, "ErrorMessage": "card 4111" });
        let body = json!({ "FailedEntryCount": 1, "Entries": [entry] }).to_string();
        let request = event(json!({}));
        let outcome = outcome_of(("events", ORDERS), &request, move || respond(200, body.clone()));
        let expected = match is_retried {
            true => retried(&reason(code), is_available, may_have_run),
            false => failed(&reason(code), may_have_run),
        };
        assert_eq!(outcome.await, expected, "{code}");
    }
}

#[tokio::test]
async fn errors_have_the_documented_outcomes() {
    let unreadable = "EventBridge accepted the request with an unreadable response";
    for (status, body, expected) in [
        (
            200,
            json!({ "FailedEntryCount": 0, "Entries": [{ "EventId": "e" }] }),
            Ok(json!({ "event_id": "e" })),
        ),
        (200, json!({ "FailedEntryCount": 0, "Entries": [] }), failed(unreadable, true)),
        (200, json!("no"), failed(unreadable, true)),
        (
            400,
            json!({ "__type": "ThrottlingException" }),
            retried("HTTP 400 Bad Request: ThrottlingException", true, false),
        ),
        (
            400,
            json!({ "__type": "AccessDeniedException" }),
            failed("HTTP 400 Bad Request: AccessDeniedException", false),
        ),
        (
            500,
            json!({ "__type": "InternalException" }),
            retried("HTTP 500 Internal Server Error: InternalException", false, true),
        ),
    ] {
        let request = event(json!({}));
        let outcome =
            outcome_of(("events", ORDERS), &request, move || respond(status, body.to_string()));
        assert_eq!(outcome.await, expected);
    }
}
