//! The services as an agent meets them: over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use super::{FaultKind, FaultPlan, Ledger, MockServices, Service};

mod awkward;
mod drone_delivery;

const CHARGE: &str = "order-1/charge/do";
const REFUND: &str = "order-1/charge/undo";

/// The services and one client of theirs.
struct World {
    services: MockServices,
    client: Client,
}

impl World {
    async fn new(plan: FaultPlan) -> Self {
        Self::of(&Service::ORDER, plan).await
    }

    async fn of(services: &[Service], plan: FaultPlan) -> Self {
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.build().unwrap();
        Self { services: MockServices::start(services, plan).await.unwrap(), client }
    }

    async fn post(
        &self,
        service: Service,
        path: &str,
        key: &str,
        body: Value,
    ) -> reqwest::Result<Response> {
        let url = format!("{}/{path}", self.services.base_url(service));
        let request = self.client.post(url).header("idempotency-key", key);
        request.body(body.to_string()).send().await
    }

    async fn charge(&self, key: &str) -> reqwest::Result<Response> {
        self.post(Service::Payment, "charges", key, json!({ "order": "order-1", "amount": 4200 }))
            .await
    }

    /// Charges, and gives up 100 ms after the call has arrived.
    async fn charge_impatiently(&self, key: &str) {
        let patience = async {
            self.until_called().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        tokio::select! {
            answer = self.charge(key) => panic!("{answer:?}"),
            () = patience => {}
        }
    }

    async fn until_called(&self) {
        while self.ledger().calls_total() == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn until_charged(&self) {
        while self.charges() == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn refund(&self, key: &str) -> reqwest::Result<Response> {
        self.post(Service::Payment, "refunds", key, json!({ "order": "order-1" })).await
    }

    fn ledger(&self) -> Ledger {
        self.services.ledger()
    }

    fn charges(&self) -> usize {
        self.ledger().effects(Service::Payment, "order-1")
    }
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

fn healthy() -> FaultPlan {
    FaultPlan::none(1)
}

#[tokio::test]
async fn repeat_gets_the_same_answer_and_counts_one_effect() {
    let world = World::new(healthy()).await;

    let first = world.charge(CHARGE).await.unwrap();
    assert_eq!(first.status(), StatusCode::CREATED);
    let first = json_of(first).await;
    assert_eq!(first["amount"], 4200);

    let repeat = world.charge(CHARGE).await.unwrap();
    assert_eq!(repeat.status(), StatusCode::OK);
    assert_eq!(repeat.headers()["idempotent-replay"], "true");
    assert_eq!(json_of(repeat).await, first);

    assert_eq!(world.charges(), 1);
    assert_eq!(world.ledger().calls_total(), 2);
    assert_eq!(world.ledger().deduplicated_total(), 1);
    assert_eq!(world.ledger().pages(Service::Payment).collect::<Vec<_>>(), ["order-1"]);
    assert_eq!(world.ledger().pages(Service::Shipping).count(), 0);
}

#[tokio::test]
async fn same_seed_writes_the_same_books_in_whatever_order_the_calls_come() {
    let plan = FaultPlan { flaky: 0.4, answer_lost: 0.2, refuse: 0.2, ..FaultPlan::none(7) };
    let books_of = async |orders: Vec<u32>| {
        let world = World::new(plan.clone()).await;
        for order in orders.into_iter().cycle().take(40 * 5) {
            let (order, key) = (format!("order-{order}"), format!("order-{order}/charge/do"));
            // Whether it succeeds is in the books.
            let _ = world.post(Service::Payment, "charges", &key, json!({ "order": order })).await;
        }
        world.ledger().without_times()
    };
    let forwards = books_of((0..40).collect()).await;
    let backwards = books_of((0..40).rev().collect()).await;
    assert_eq!(forwards, backwards);
    assert!(forwards.faults_total(FaultKind::Flaky) > 0);
    assert!(forwards.faults_total(FaultKind::AnswerLost) > 0);
    assert!(forwards.faults_total(FaultKind::Refuse) > 0);
}

#[tokio::test]
async fn two_keys_for_one_order_are_two_effects() {
    let world = World::new(healthy()).await;
    world.charge(CHARGE).await.unwrap();
    world.charge("order-1/charge-again/do").await.unwrap();
    assert_eq!(world.charges(), 2);
}

#[tokio::test]
async fn racing_repeats_take_effect_once() {
    let world = World::new(FaultPlan { latency_ms: 5, ..healthy() }).await;
    let calls = (0..20).map(|_| world.charge(CHARGE));
    let created = futures_util::future::join_all(calls).await.into_iter();
    let created = created.filter(|call| call.as_ref().unwrap().status() == StatusCode::CREATED);
    assert_eq!(created.count(), 1);
    assert_eq!(world.charges(), 1);
    assert_eq!(world.ledger().deduplicated_total(), 19);
}

#[tokio::test]
async fn key_used_for_something_else_is_refused_and_counted() {
    let world = World::new(healthy()).await;
    world.charge(CHARGE).await.unwrap();
    assert_eq!(world.refund(CHARGE).await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
    let ledger = world.ledger();
    assert_eq!(ledger.standing(Service::Payment, "order-1"), 1);
    assert_eq!(ledger.page(Service::Payment, "order-1").unwrap().keys_reused, 1);
}

#[tokio::test]
async fn undo_undoes_what_stands_and_succeeds_where_nothing_does() {
    let world = World::new(healthy()).await;
    let nothing = json_of(world.refund("order-1/early/undo").await.unwrap()).await;
    assert_eq!(nothing["undone"], json!([]));

    let charge = json_of(world.charge(CHARGE).await.unwrap()).await;
    assert_eq!(world.ledger().standing(Service::Payment, "order-1"), 1);
    let refund = json_of(world.refund(REFUND).await.unwrap()).await;
    assert_eq!(refund["undone"], json!([charge["charge"]]));
    assert_eq!(json_of(world.refund(REFUND).await.unwrap()).await, refund);

    assert_eq!(world.ledger().standing(Service::Payment, "order-1"), 0);
    assert_eq!(world.charges(), 1);
}

#[tokio::test]
async fn lost_answer_takes_effect_once_and_the_repeat_has_it() {
    let world = World::new(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let lost = world.charge(CHARGE).await.unwrap_err();
    assert!(lost.is_request(), "{lost:?}");
    assert_eq!(world.charges(), 1);

    let repeat = world.charge(CHARGE).await.unwrap();
    assert_eq!(repeat.status(), StatusCode::OK);
    let undisturbed = World::new(healthy()).await;
    let answer = json_of(undisturbed.charge(CHARGE).await.unwrap()).await;
    assert_eq!(json_of(repeat).await, answer);

    assert_eq!(world.charges(), 1);
    assert_eq!(world.ledger().faults_total(FaultKind::AnswerLost), 1);
}

#[tokio::test]
async fn lost_answer_leaves_not_a_byte_on_the_wire() {
    let world = World::new(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let address = world.services.address;
    let request = "POST /payment/charges HTTP/1.1\r\nhost: x\r\nidempotency-key: a/b/do\r\n\
                   content-length: 13\r\n\r\n{\"order\":\"a\"}";
    let answer = tokio::task::spawn_blocking(move || {
        let mut wire = TcpStream::connect(address).unwrap();
        wire.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A reset is as good as an end of the stream.
        let _ = wire.read_to_end(&mut answer);
        answer
    });
    assert_eq!(answer.await.unwrap(), b"");
    assert_eq!(world.ledger().effects(Service::Payment, "a"), 1);
}

#[tokio::test]
async fn refusal_is_permanent_and_never_takes_effect() {
    let world = World::new(FaultPlan { refuse: 1.0, ..healthy() }).await;
    for (service, path, status) in [
        (Service::Inventory, "reservations", StatusCode::CONFLICT),
        (Service::Payment, "charges", StatusCode::PAYMENT_REQUIRED),
        (Service::Shipping, "shipments", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        for _ in 0..3 {
            let body = json!({ "order": "order-1" });
            let refused = world.post(service, path, "order-1/step/do", body).await.unwrap();
            assert_eq!(refused.status(), status);
            assert_eq!(refused.headers()["content-type"], "application/problem+json");
        }
        assert_eq!(world.ledger().effects(service, "order-1"), 0);
    }
    assert_eq!(world.ledger().faults_total(FaultKind::Refuse), 9);
    assert_eq!(world.refund(REFUND).await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn hung_call_has_no_effect_and_the_second_succeeds() {
    let world = World::new(FaultPlan { hang: 1.0, ..healthy() }).await;
    world.charge_impatiently(CHARGE).await;
    assert_eq!(world.charges(), 0);
    assert_eq!(world.charge(CHARGE).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(world.charges(), 1);
    assert_eq!(world.ledger().faults_total(FaultKind::Hang), 1);
}

#[tokio::test]
async fn flaky_service_recovers_after_one_to_three_calls() {
    let world = World::new(FaultPlan { flaky: 1.0, ..healthy() }).await;
    let mut seen = Vec::new();
    for n in 0..40 {
        let key = format!("order-1/charge-{n}/do");
        let mut failures = 0;
        loop {
            let response = world.charge(&key).await.unwrap();
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
    assert_eq!(world.charges(), 40);
    assert_eq!(world.ledger().faults_total(FaultKind::Flaky), seen.len() as u64);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [(429, true), (500, false), (503, false), (503, true)]);
}

#[tokio::test]
async fn a_slow_call_takes_its_time_and_has_its_effect_though_the_client_gives_up() {
    let world = World::new(FaultPlan { slow: 1.0, slow_max_ms: 800, ..healthy() }).await;
    world.charge_impatiently(CHARGE).await;
    assert_eq!(world.charges(), 0);
    world.until_charged().await;
    assert_eq!(world.ledger().standing(Service::Payment, "order-1"), 1);

    let world = World::new(FaultPlan { slow: 1.0, slow_max_ms: 40, ..healthy() }).await;
    let asked = Instant::now();
    assert_eq!(world.charge(CHARGE).await.unwrap().status(), StatusCode::CREATED);
    assert!(asked.elapsed() >= Duration::from_millis(10));
    assert_eq!(world.ledger().faults_total(FaultKind::Slow), 1);
}

#[tokio::test]
async fn malformed_call_is_a_problem_and_leaves_no_trace() {
    let world = World::new(healthy()).await;
    let url = format!("{}/charges", world.services.base_url(Service::Payment));
    let keyless = world.client.post(url).body(r#"{"order":"order-1"}"#).send().await.unwrap();
    assert_eq!(keyless.status(), StatusCode::BAD_REQUEST);
    assert_eq!(keyless.headers()["content-type"], "application/problem+json");
    assert_eq!(json_of(keyless).await["type"], "urn:problem-type:idempotency-key-missing");

    for body in [json!([]), json!({}), json!({ "order": "" }), json!({ "order": 7 })] {
        let orderless = world.post(Service::Payment, "charges", CHARGE, body).await.unwrap();
        assert_eq!(orderless.status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!(world.ledger().calls_total(), 0);
}

#[tokio::test]
async fn ledger_can_be_read_by_a_person() {
    let world = World::new(healthy()).await;
    let charge = json_of(world.charge(CHARGE).await.unwrap()).await;
    let url = format!("{}/ledger", world.services.base_url(Service::Payment));
    let ledger = json_of(world.client.get(url).send().await.unwrap()).await;
    let effect = json!({ "id": charge["charge"], "done_by": CHARGE, "undone_by": null });
    assert_eq!(ledger["order-1"]["effects"], json!([effect]));
    assert_eq!(ledger["order-1"]["calls"], 1);
}

#[tokio::test]
async fn shutdown_cuts_off_calls_that_hang() {
    let world = World::new(FaultPlan { hang: 1.0, ..healthy() }).await;
    let url = format!("{}/charges", world.services.base_url(Service::Payment));
    let call = world.client.post(url.clone()).header("idempotency-key", CHARGE);
    let call = tokio::spawn(call.body(r#"{"order":"order-1"}"#).send());
    world.until_called().await;
    world.services.shutdown().await.unwrap();
    assert!(call.await.unwrap().unwrap_err().is_request());
    let late = world.client.post(url).send().await;
    assert!(late.unwrap_err().is_connect());
}

#[tokio::test]
async fn dropping_the_handle_stops_the_services() {
    let world = World::new(healthy()).await;
    world.charge(CHARGE).await.unwrap();
    let address = world.services.address;
    drop(world);
    while TcpStream::connect(address).is_ok() {
        tokio::task::yield_now().await;
    }
}
