//! Tests of the mock services over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use super::{DemoService, FaultKind, FaultPlan, MockServices, ServiceLedgers};

mod ambiguous_responses;
mod drone_delivery;
mod purchase;

const CHARGE: &str = "order-1/charge/do";
const REFUND: &str = "order-1/charge/undo";

/// Running services and a client.
struct ServiceHarness {
    services: MockServices,
    client: Client,
}

impl ServiceHarness {
    async fn start(plan: FaultPlan) -> Self {
        Self::with_services(&DemoService::ORDER, plan).await
    }

    async fn with_services(services: &[DemoService], plan: FaultPlan) -> Self {
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.build().unwrap();
        Self { services: MockServices::start(services, plan).await.unwrap(), client }
    }

    async fn post(
        &self,
        service: DemoService,
        path: &str,
        key: &str,
        body: Value,
    ) -> reqwest::Result<Response> {
        let url = format!("{}/{path}", self.services.base_url(service));
        let request = self.client.post(url).header("idempotency-key", key);
        request.body(body.to_string()).send().await
    }

    async fn charge(&self, key: &str) -> reqwest::Result<Response> {
        self.post(
            DemoService::Payment,
            "charges",
            key,
            json!({ "order": "order-1", "amount": 4200 }),
        )
        .await
    }

    /// Charges, and disconnects 100 ms after the call has arrived.
    async fn charge_and_disconnect(&self, key: &str) {
        let timeout = async {
            self.until_called().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        tokio::select! {
            response = self.charge(key) => panic!("{response:?}"),
            () = timeout => {}
        }
    }

    async fn until_called(&self) {
        while self.ledgers().calls_total() == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn until_charged(&self) {
        while self.charges() == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn refund(&self, key: &str) -> reqwest::Result<Response> {
        self.post(DemoService::Payment, "refunds", key, json!({ "order": "order-1" })).await
    }

    fn ledgers(&self) -> ServiceLedgers {
        self.services.ledgers()
    }

    fn charges(&self) -> usize {
        self.ledgers().effects(DemoService::Payment, "order-1")
    }
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

fn healthy() -> FaultPlan {
    FaultPlan::none(1)
}

#[tokio::test]
async fn a_repeated_call_gets_the_same_response_and_has_no_second_effect() {
    let harness = ServiceHarness::start(healthy()).await;

    let first = harness.charge(CHARGE).await.unwrap();
    assert_eq!(first.status(), StatusCode::CREATED);
    let first = json_of(first).await;
    assert_eq!(first["amount"], 4200);

    let repeat = harness.charge(CHARGE).await.unwrap();
    assert_eq!(repeat.status(), StatusCode::OK);
    assert_eq!(repeat.headers()["idempotent-replay"], "true");
    assert_eq!(json_of(repeat).await, first);

    assert_eq!(harness.charges(), 1);
    assert_eq!(harness.ledgers().calls_total(), 2);
    assert_eq!(harness.ledgers().deduplicated_total(), 1);
    assert_eq!(harness.ledgers().subjects(DemoService::Payment).collect::<Vec<_>>(), ["order-1"]);
    assert_eq!(harness.ledgers().subjects(DemoService::Shipping).count(), 0);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ledgers_in_any_order_of_calls() {
    let plan = FaultPlan { flaky: 0.4, answer_lost: 0.2, refuse: 0.2, ..FaultPlan::none(7) };
    let ledgers_of = async |orders: Vec<u32>| {
        let harness = ServiceHarness::start(plan.clone()).await;
        for order in orders.into_iter().cycle().take(40 * 5) {
            let (order, key) = (format!("order-{order}"), format!("order-{order}/charge/do"));
            // The ledgers show whether it succeeds.
            let _ = harness
                .post(DemoService::Payment, "charges", &key, json!({ "order": order }))
                .await;
        }
        harness.ledgers().without_times()
    };
    let forwards = ledgers_of((0..40).collect()).await;
    let backwards = ledgers_of((0..40).rev().collect()).await;
    assert_eq!(forwards, backwards);
    assert!(forwards.faults_total(FaultKind::Flaky) > 0);
    assert!(forwards.faults_total(FaultKind::AnswerLost) > 0);
    assert!(forwards.faults_total(FaultKind::Refuse) > 0);
}

#[tokio::test]
async fn two_keys_for_one_order_have_two_effects() {
    let harness = ServiceHarness::start(healthy()).await;
    harness.charge(CHARGE).await.unwrap();
    harness.charge("order-1/charge-again/do").await.unwrap();
    assert_eq!(harness.charges(), 2);
}

#[tokio::test]
async fn racing_repeated_calls_take_effect_once() {
    let harness = ServiceHarness::start(FaultPlan { latency_ms: 5, ..healthy() }).await;
    let calls = (0..20).map(|_| harness.charge(CHARGE));
    let created = futures_util::future::join_all(calls).await.into_iter();
    let created = created.filter(|call| call.as_ref().unwrap().status() == StatusCode::CREATED);
    assert_eq!(created.count(), 1);
    assert_eq!(harness.charges(), 1);
    assert_eq!(harness.ledgers().deduplicated_total(), 19);
}

#[tokio::test]
async fn a_key_used_for_another_request_is_refused_and_counted() {
    let harness = ServiceHarness::start(healthy()).await;
    harness.charge(CHARGE).await.unwrap();
    assert_eq!(harness.refund(CHARGE).await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
    let ledger = harness.ledgers();
    assert_eq!(ledger.active_effects(DemoService::Payment, "order-1"), 1);
    assert_eq!(ledger.record(DemoService::Payment, "order-1").unwrap().keys_reused, 1);
}

#[tokio::test]
async fn an_undo_undoes_active_effects_and_succeeds_without_any() {
    let harness = ServiceHarness::start(healthy()).await;
    let empty = json_of(harness.refund("order-1/early/undo").await.unwrap()).await;
    assert_eq!(empty["undone"], json!([]));

    let charge = json_of(harness.charge(CHARGE).await.unwrap()).await;
    assert_eq!(harness.ledgers().active_effects(DemoService::Payment, "order-1"), 1);
    let refund = json_of(harness.refund(REFUND).await.unwrap()).await;
    assert_eq!(refund["undone"], json!([charge["charge"]]));
    assert_eq!(json_of(harness.refund(REFUND).await.unwrap()).await, refund);

    assert_eq!(harness.ledgers().active_effects(DemoService::Payment, "order-1"), 0);
    assert_eq!(harness.charges(), 1);
}

#[tokio::test]
async fn a_call_with_a_lost_response_takes_effect_once_and_a_repeated_call_gets_its_response() {
    let harness = ServiceHarness::start(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let lost = harness.charge(CHARGE).await.unwrap_err();
    assert!(lost.is_request(), "{lost:?}");
    assert_eq!(harness.charges(), 1);

    let repeat = harness.charge(CHARGE).await.unwrap();
    assert_eq!(repeat.status(), StatusCode::OK);
    let without_faults = ServiceHarness::start(healthy()).await;
    let response = json_of(without_faults.charge(CHARGE).await.unwrap()).await;
    assert_eq!(json_of(repeat).await, response);

    assert_eq!(harness.charges(), 1);
    assert_eq!(harness.ledgers().faults_total(FaultKind::AnswerLost), 1);
}

#[tokio::test]
async fn a_lost_response_sends_no_bytes() {
    let harness = ServiceHarness::start(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let address = harness.services.address;
    let request = "POST /payment/charges HTTP/1.1\r\nhost: x\r\nidempotency-key: a/b/do\r\n\
                   content-length: 13\r\n\r\n{\"order\":\"a\"}";
    let response = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        // A connection reset ends the response like an end of the stream.
        let _ = connection.read_to_end(&mut response);
        response
    });
    assert_eq!(response.await.unwrap(), b"");
    assert_eq!(harness.ledgers().effects(DemoService::Payment, "a"), 1);
}

#[tokio::test]
async fn a_refusal_is_permanent_and_has_no_effect() {
    let harness = ServiceHarness::start(FaultPlan { refuse: 1.0, ..healthy() }).await;
    for (service, path, status) in [
        (DemoService::Inventory, "reservations", StatusCode::CONFLICT),
        (DemoService::Payment, "charges", StatusCode::PAYMENT_REQUIRED),
        (DemoService::Shipping, "shipments", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        for _ in 0..3 {
            let body = json!({ "order": "order-1" });
            let refused = harness.post(service, path, "order-1/step/do", body).await.unwrap();
            assert_eq!(refused.status(), status);
            assert_eq!(refused.headers()["content-type"], "application/problem+json");
        }
        assert_eq!(harness.ledgers().effects(service, "order-1"), 0);
    }
    assert_eq!(harness.ledgers().faults_total(FaultKind::Refuse), 9);
    assert_eq!(harness.refund(REFUND).await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_hanging_call_has_no_effect_and_the_next_call_succeeds() {
    let harness = ServiceHarness::start(FaultPlan { hang: 1.0, ..healthy() }).await;
    harness.charge_and_disconnect(CHARGE).await;
    assert_eq!(harness.charges(), 0);
    assert_eq!(harness.charge(CHARGE).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(harness.charges(), 1);
    assert_eq!(harness.ledgers().faults_total(FaultKind::Hang), 1);
}

#[tokio::test]
async fn a_flaky_service_recovers_after_one_to_three_calls() {
    let harness = ServiceHarness::start(FaultPlan { flaky: 1.0, ..healthy() }).await;
    let mut seen = Vec::new();
    for n in 0..40 {
        let key = format!("order-1/charge-{n}/do");
        let mut failures = 0;
        loop {
            let response = harness.charge(&key).await.unwrap();
            if response.status() == StatusCode::CREATED {
                break;
            }
            let retry_after = response.headers().get("retry-after");
            assert!(retry_after.is_none_or(|seconds| seconds == "1"));
            seen.push((response.status().as_u16(), retry_after.is_some()));
            failures += 1;
        }
        assert!((1..=3).contains(&failures));
    }
    assert_eq!(harness.charges(), 40);
    assert_eq!(harness.ledgers().faults_total(FaultKind::Flaky), seen.len() as u64);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [(429, true), (500, false), (503, false), (503, true)]);
}

#[tokio::test]
async fn a_slow_call_takes_effect_although_the_client_disconnects() {
    let harness =
        ServiceHarness::start(FaultPlan { slow: 1.0, slow_max_ms: 800, ..healthy() }).await;
    harness.charge_and_disconnect(CHARGE).await;
    assert_eq!(harness.charges(), 0);
    harness.until_charged().await;
    assert_eq!(harness.ledgers().active_effects(DemoService::Payment, "order-1"), 1);

    let harness =
        ServiceHarness::start(FaultPlan { slow: 1.0, slow_max_ms: 40, ..healthy() }).await;
    let started = Instant::now();
    assert_eq!(harness.charge(CHARGE).await.unwrap().status(), StatusCode::CREATED);
    assert!(started.elapsed() >= Duration::from_millis(10));
    assert_eq!(harness.ledgers().faults_total(FaultKind::Slow), 1);
}

#[tokio::test]
async fn a_malformed_call_is_a_bad_request_and_is_not_counted() {
    let harness = ServiceHarness::start(healthy()).await;
    let url = format!("{}/charges", harness.services.base_url(DemoService::Payment));
    let keyless = harness.client.post(url).body(r#"{"order":"order-1"}"#).send().await.unwrap();
    assert_eq!(keyless.status(), StatusCode::BAD_REQUEST);
    assert_eq!(keyless.headers()["content-type"], "application/problem+json");
    assert_eq!(json_of(keyless).await["type"], "urn:problem-type:idempotency-key-missing");

    for body in [json!([]), json!({}), json!({ "order": "" }), json!({ "order": 7 })] {
        let orderless = harness.post(DemoService::Payment, "charges", CHARGE, body).await.unwrap();
        assert_eq!(orderless.status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!(harness.ledgers().calls_total(), 0);
}

#[tokio::test]
async fn the_ledger_is_served_as_json() {
    let harness = ServiceHarness::start(healthy()).await;
    let charge = json_of(harness.charge(CHARGE).await.unwrap()).await;
    let url = format!("{}/ledger", harness.services.base_url(DemoService::Payment));
    let ledger = json_of(harness.client.get(url).send().await.unwrap()).await;
    let effect = json!({ "id": charge["charge"], "done_by": CHARGE, "undone_by": null });
    assert_eq!(ledger["order-1"]["effects"], json!([effect]));
    assert_eq!(ledger["order-1"]["calls"], 1);
}

#[tokio::test]
async fn shutdown_disconnects_hanging_calls() {
    let harness = ServiceHarness::start(FaultPlan { hang: 1.0, ..healthy() }).await;
    let url = format!("{}/charges", harness.services.base_url(DemoService::Payment));
    let call = harness.client.post(url.clone()).header("idempotency-key", CHARGE);
    let call = tokio::spawn(call.body(r#"{"order":"order-1"}"#).send());
    harness.until_called().await;
    harness.services.shutdown().await.unwrap();
    assert!(call.await.unwrap().unwrap_err().is_request());
    let late = harness.client.post(url).send().await;
    assert!(late.unwrap_err().is_connect());
}

#[tokio::test]
async fn dropping_the_handle_stops_the_services() {
    let harness = ServiceHarness::start(healthy()).await;
    harness.charge(CHARGE).await.unwrap();
    let address = harness.services.address;
    drop(harness);
    while TcpStream::connect(address).is_ok() {
        tokio::task::yield_now().await;
    }
}
