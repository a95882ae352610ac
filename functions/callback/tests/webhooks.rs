//! Signed webhooks, over HTTP and on embedded AWS: what is refused, and that one event reaches the event bus.

#![cfg(test)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderValue, Request, StatusCode},
};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;
use steward_aws::AwsPorts;
use steward_callback::webhooks::routes;
use steward_core::{
    definition::workflow::Workflow,
    limits,
    model::task::ProcessState,
    webhook::{WebhookSecrets, Webhooks},
};
use steward_emulator::{
    embedded::EmbeddedAws,
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};
use tokio::sync::broadcast::Receiver;
use tower::ServiceExt;

const SECRET: &str = "whsec_0123456789abcdef";
const OLD_SECRET: &str = "whsec_of_last_year_000";
const BODY: &str = r#"{"id":"evt_1","type":"paid","data":{"order":"o-1"}}"#;

/// The webhooks `payments` (timestamped) and `code` (body only).
fn webhooks() -> Webhooks {
    let webhooks = json!({
        "payments": {
            "header": "Stripe-Signature", "scheme": "timestamped", "source": "payments",
            "detail_type_from": "/type", "id_from": "/id",
        },
        "code": {
            "header": "X-Hub-Signature-256", "scheme": "body", "source": "code",
            "detail_type": "Pushed",
        },
    });
    webhooks.to_string().parse().unwrap()
}

/// A deployment that accepts these webhooks.
struct Fixture {
    api: Router,
    events: Receiver<Value>,
    _aws: EmbeddedAws,
}

impl Fixture {
    async fn open() -> Self {
        let aws = EmbeddedAws::builder().build().unwrap();
        let config = resources::create(&aws, &[]).await.unwrap();
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &config, "callback"));
        let secrets = json!({ "payments": [SECRET, OLD_SECRET], "code": [SECRET] });
        let secrets: WebhookSecrets = secrets.to_string().parse().unwrap();
        let events = aws.subscribe_events();
        Self { api: routes(ports, webhooks(), Arc::new(Arc::new(secrets))), events, _aws: aws }
    }

    async fn post(
        &self,
        name: &str,
        header: (&str, &str),
        body: impl Into<Body>,
    ) -> (StatusCode, Value) {
        let request = Request::post(format!("/webhooks/{name}")).header(header.0, header.1);
        let request = request.body(body.into()).unwrap();
        let response = self.api.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn post_payment(&self, signature: &str, body: &str) -> (StatusCode, Value) {
        self.post("payments", ("Stripe-Signature", signature), body.to_owned()).await
    }

    /// The problem of a request.
    async fn refusal(&self, signature: &str, body: &str) -> (u16, String) {
        let (status, problem) = self.post_payment(signature, body).await;
        assert!(!problem.to_string().contains("o-1"), "a value of the body: {problem}");
        (status.as_u16(), problem["type"].as_str().unwrap().to_owned())
    }

    /// The events on the bus so far, without those that have been taken.
    fn events(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

fn hex(secret: &str, signed: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(signed);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A signature that was created this many seconds ago.
fn signature(secret: &str, body: &str, seconds_ago: i64) -> String {
    let time = Timestamp::now().as_second() - seconds_ago;
    format!("t={time},v1={}", hex(secret, &format!("{time}.{body}")))
}

#[tokio::test]
async fn a_signed_webhook_becomes_one_event_with_its_body_as_detail() {
    let mut fixture = Fixture::open().await;
    let accepted = fixture.post_payment(&signature(SECRET, BODY, 0), BODY).await;
    assert_eq!(
        accepted,
        (StatusCode::ACCEPTED, json!({ "webhook": "payments", "duplicate": false }))
    );
    let events = fixture.events();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&event["source"], &event["detail-type"]), (&json!("payments"), &json!("paid")));
    assert_eq!(event["detail"], serde_json::from_str::<Value>(BODY).unwrap());
    // The service repeats it with another signature; an attacker replays it; the bodies differ, but not the id.
    let other = BODY.replace("paid", "paid_again");
    for (signature, body) in [
        (signature(SECRET, BODY, 1), BODY),
        (signature(SECRET, BODY, 0), BODY),
        (signature(SECRET, &other, 0), other.as_str()),
    ] {
        let repeated = fixture.post_payment(&signature, body).await;
        assert_eq!(repeated, (StatusCode::OK, json!({ "webhook": "payments", "duplicate": true })));
    }
    assert_eq!(fixture.events(), Vec::<Value>::new());
}

#[tokio::test]
async fn both_secrets_are_accepted_during_a_rotation() {
    let mut fixture = Fixture::open().await;
    for (secret, id) in [(SECRET, "evt_new"), (OLD_SECRET, "evt_old")] {
        let body = BODY.replace("evt_1", id);
        let (status, _) = fixture.post_payment(&signature(secret, &body, 0), &body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{id}");
    }
    assert_eq!(fixture.events().len(), 2);
}

#[tokio::test]
async fn a_webhook_that_is_not_genuine_is_refused_and_publishes_nothing() {
    let mut fixture = Fixture::open().await;
    let genuine = signature(SECRET, BODY, 0);
    let truncated = &BODY[..BODY.len() - 1];
    for (signature, body, status, name) in [
        (signature("whsec_of_someone_else", BODY, 0), BODY, 403, "wrong-webhook-signature"),
        (genuine.clone(), truncated, 403, "wrong-webhook-signature"),
        (genuine.clone(), "", 403, "wrong-webhook-signature"),
        (signature(SECRET, BODY, 301), BODY, 403, "webhook-too-old"),
        (signature(SECRET, BODY, -302), BODY, 403, "webhook-too-old"),
        (genuine.replace("v1=", "v0="), BODY, 400, "malformed-webhook-signature"),
        (String::new(), BODY, 400, "malformed-webhook-signature"),
    ] {
        let expected = (status, format!("urn:steward:{name}"));
        assert_eq!(fixture.refusal(&signature, body).await, expected, "{signature} {body}");
    }
    // The signature of another webhook, and a header of another scheme.
    let code = format!("sha256={}", hex(SECRET, BODY));
    for (name, header, signature, status) in [
        ("payments", "X-Hub-Signature-256", code.as_str(), 400),
        ("code", "X-Hub-Signature-256", genuine.as_str(), 400),
        ("unknown", "X-Hub-Signature-256", code.as_str(), 404),
        ("code", "X-Hub-Signature-256", code.as_str(), 202),
    ] {
        let (answer, _) = fixture.post(name, (header, signature), BODY).await;
        assert_eq!(answer.as_u16(), status, "{name} {header}");
    }
    // A second signature that is not even text.
    let second = HeaderValue::from_bytes(b"\xff").unwrap();
    let request = Request::post("/webhooks/payments").header("Stripe-Signature", &genuine);
    let request = request.header("Stripe-Signature", second).body(Body::from(BODY)).unwrap();
    let status = fixture.api.clone().oneshot(request).await.unwrap().status();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let events = fixture.events();
    assert!(events.iter().all(|event| event["source"] == "code"), "{events:?}");
}

#[tokio::test]
async fn a_signed_body_that_cannot_become_an_event_is_refused() {
    let mut fixture = Fixture::open().await;
    let deep = format!("{{\"id\":1,\"type\":\"a\",\"x\":{}1{}}}", "[".repeat(40), "]".repeat(40));
    for body in ["null", "order=o-1", r#"{"id":"evt_1"}"#, r#"{"type":"paid"}"#, &deep] {
        let refused = fixture.refusal(&signature(SECRET, body, 0), body).await;
        assert_eq!(refused, (400, "urn:steward:invalid-webhook".to_owned()), "{body}");
    }
    let large = "x".repeat(limits::DOCUMENT_BYTES_MAX + 1);
    let refused = fixture.refusal(&signature(SECRET, &large, 0), &large).await;
    assert_eq!(refused, (413, "urn:steward:webhook-too-large".to_owned()));
    let get = Request::get("/webhooks/payments").body(Body::empty()).unwrap();
    let status = fixture.api.clone().oneshot(get).await.unwrap().status();
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(fixture.events(), Vec::<Value>::new());
}

#[tokio::test]
async fn of_several_deliveries_at_the_same_time_one_publishes_the_event() {
    let mut fixture = Fixture::open().await;
    let signature = signature(SECRET, BODY, 0);
    let deliveries = (0..8).map(|_| fixture.post_payment(&signature, BODY));
    for (status, _) in futures_util::future::join_all(deliveries).await {
        // The others are told to come again later, or that it is done.
        assert!([200, 202, 503].contains(&status.as_u16()), "{status}");
    }
    assert_eq!(fixture.events().len(), 1);
}

/// A whole deployment on this machine: the webhook comes over HTTP, and the step that waits for it completes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_completes_the_step_that_waits_for_it() {
    let workflow: Workflow = serde_json::from_value(json!({
        "name": "line", "version": 1, "complete_within": "3d",
        "steps": { "paid": { "wait": {
            "event": {
                "source": "payments", "detail_type": "paid",
                "key": "${ event.detail.data.order }", "equals": "${ task.id }",
            },
            "within": "2d",
        } } },
    }))
    .unwrap();
    let secrets = json!({ "payments": [SECRET] }).to_string().parse().unwrap();
    let host = Host::start(HostOptions {
        workflows: vec![workflow],
        listen: Some(([127, 0, 0, 1], 0).into()),
        webhooks: Some((webhooks(), secrets)),
        ..HostOptions::default()
    })
    .await
    .unwrap();
    let submission = json!({ "task_id": "o-1", "workflow": "line", "input": {} });
    let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
    let send = host.sqs().send_message().queue_url(queue);
    send.message_body(submission.to_string()).send().await.unwrap();
    let url = format!("http://{}/webhooks/payments", host.address.unwrap());
    let response = reqwest::Client::new()
        .post(url)
        .header("Stripe-Signature", signature(SECRET, BODY, 0))
        .body(BODY)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 202);
    let id = "o-1".parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let task = host.ports.store().load(&id).await.unwrap();
        if let Some(task) = task.filter(|task| task.process_state.has_stopped()) {
            assert_eq!(task.process_state, ProcessState::Processed);
            break;
        }
        assert!(Instant::now() < deadline, "the task does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
