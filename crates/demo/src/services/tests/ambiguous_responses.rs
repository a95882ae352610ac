//! Difficult behaviour of real services: ambiguous responses, calls that take effect after their response or after the
//! client has disconnected, and conflicts while a call is in progress.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{
    super::Fault, CHARGE, DemoService, FaultKind, FaultPlan, REFUND, ServiceHarness, healthy,
    json_of,
};

/// This plan with the first seed that gives the key a matching fault.
fn plan_for(key: &str, plan: FaultPlan, matches: fn(Fault) -> bool) -> FaultPlan {
    let mut plans = (0..).map(|seed| FaultPlan { seed, ..plan.clone() });
    plans.find(|plan| matches(plan.fault(key))).unwrap()
}

/// Calls with this key get a redirect at once, and take effect later.
fn late_effect(key: &str) -> FaultPlan {
    let redirect = FaultPlan { redirect: 1.0, conflict_in_progress: true, ..healthy() };
    plan_for(key, redirect, |fault| {
        matches!(fault, Fault::Redirect { commit_after_ms: 2_000.., .. })
    })
}

#[tokio::test]
async fn a_repeated_call_gets_409_while_the_first_is_in_progress_and_then_its_response() {
    let plan = FaultPlan { long: 1.0, conflict_in_progress: true, ..healthy() };
    let harness = ServiceHarness::start(plan).await;
    harness.charge_and_disconnect(CHARGE).await;
    let busy = harness.charge(CHARGE).await.unwrap();
    assert_eq!(busy.status(), StatusCode::CONFLICT);
    assert_eq!(json_of(busy).await["type"], "urn:problem-type:in-progress");
    assert_eq!(harness.charges(), 0);

    harness.until_charged().await;
    let repeat = harness.charge(CHARGE).await.unwrap();
    assert_eq!(
        (repeat.status(), repeat.headers()["idempotent-replay"].to_str().unwrap()),
        (StatusCode::OK, "true")
    );
    assert_eq!(harness.charges(), 1);
    assert_eq!(harness.ledgers().faults_total(FaultKind::InProgress), 1);
    assert_eq!(
        harness.ledgers().record(DemoService::Payment, "order-1").unwrap().carried_out.len(),
        1
    );
}

#[tokio::test]
async fn the_inventory_and_services_with_client_ids_return_423_while_a_call_is_in_progress() {
    let plan = FaultPlan { long: 1.0, conflict_in_progress: true, ..healthy() };
    let harness =
        ServiceHarness::with_services(&[DemoService::Inventory, DemoService::Package], plan).await;
    let url = |service, path: &str| format!("{}/{path}", harness.services.base_url(service));
    for (method, url) in [
        (Method::POST, url(DemoService::Inventory, "reservations")),
        (Method::PUT, url(DemoService::Package, "packages/p-1")),
    ] {
        let call = || {
            let call =
                harness.client.request(method.clone(), &url).header("idempotency-key", CHARGE);
            call.body(json!({ "order": "order-1" }).to_string()).send()
        };
        let (first, second) = tokio::join!(call(), call());
        let mut statuses = [first, second].map(|response| response.unwrap().status());
        statuses.sort_unstable();
        assert_eq!(statuses, [StatusCode::CREATED, StatusCode::LOCKED], "{url}");
    }
}

#[tokio::test]
async fn an_undo_during_the_call_finds_nothing_and_the_call_takes_effect_later() {
    let harness = ServiceHarness::start(late_effect(CHARGE)).await;
    assert!(harness.charge(CHARGE).await.unwrap().status().is_redirection());
    // The undo gets a redirect too, which this test ignores.
    harness.refund(REFUND).await.unwrap();
    harness.until_charged().await;
    let record = harness.ledgers().record(DemoService::Payment, "order-1").cloned().unwrap();
    let key_of_done = record.effects.first().map(|effect| effect.done_by.as_str());
    assert_eq!(key_of_done, Some(CHARGE));
}

#[tokio::test]
async fn a_redirected_call_takes_effect_before_or_after_the_redirect() {
    let at_once = plan_for(CHARGE, FaultPlan { redirect: 1.0, ..healthy() }, |fault| {
        matches!(fault, Fault::Redirect { commit_after_ms: 0, .. })
    });
    let harness = ServiceHarness::start(at_once).await;
    let response = harness.charge(CHARGE).await.unwrap();
    assert!(matches!(response.status().as_u16(), 302 | 303));
    assert!(response.headers().contains_key("location"));
    assert_eq!(harness.charges(), 1);

    let harness = ServiceHarness::start(late_effect(CHARGE)).await;
    assert!(harness.charge(CHARGE).await.unwrap().status().is_redirection());
    assert_eq!(harness.charges(), 0);
    assert_eq!(harness.charge(CHARGE).await.unwrap().status(), StatusCode::CONFLICT);
    harness.until_charged().await;
    assert!(harness.charge(CHARGE).await.unwrap().status().is_redirection());
    assert_eq!(harness.charges(), 1);
}

#[tokio::test]
async fn a_success_that_is_empty_or_not_json_has_taken_effect() {
    for (plan, body) in [
        (FaultPlan { empty_answer: 1.0, ..healthy() }, ""),
        (FaultPlan { not_json: 1.0, ..healthy() }, "<p>Thank you!</p>"),
    ] {
        let harness = ServiceHarness::start(plan).await;
        for _ in 0..2 {
            let response = harness.charge(CHARGE).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.text().await.unwrap(), body);
        }
        assert_eq!(harness.charges(), 1);
    }
}

#[tokio::test]
async fn an_undo_that_finds_nothing_gets_404_if_planned_but_a_repeated_undo_does_not() {
    let harness = ServiceHarness::start(FaultPlan { undo_not_found: true, ..healthy() }).await;
    let not_found = harness.refund(REFUND).await.unwrap();
    assert_eq!(not_found.status(), StatusCode::NOT_FOUND);
    assert_eq!(json_of(not_found).await["type"], "urn:problem-type:nothing-to-undo");
    harness.charge(CHARGE).await.unwrap();
    assert_eq!(harness.refund(REFUND).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(harness.refund(REFUND).await.unwrap().status(), StatusCode::OK);

    let plan = FaultPlan { undo_not_found: true, ..healthy() };
    let harness = ServiceHarness::with_services(&[DemoService::Package], plan).await;
    let url = format!("{}/packages/p-1", harness.services.base_url(DemoService::Package));
    let delete = || async { harness.client.delete(&url).send().await.unwrap().status() };
    assert_eq!(delete().await, StatusCode::NOT_FOUND);
    harness.client.put(&url).body("{}").send().await.unwrap();
    assert_eq!(delete().await, StatusCode::NO_CONTENT);
    assert_eq!(delete().await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn an_outliving_call_fails_once_and_is_then_in_progress_for_seconds() {
    let plan = FaultPlan { outlive: 1.0, conflict_in_progress: true, ..healthy() };
    let harness = ServiceHarness::start(plan).await;
    assert_eq!(harness.charge(CHARGE).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    let (first, second) = tokio::join!(
        tokio::time::timeout(std::time::Duration::from_secs(1), harness.charge(CHARGE)),
        async {
            while harness
                .ledgers()
                .record(DemoService::Payment, "order-1")
                .is_none_or(|record| record.carried_out.is_empty())
            {
                tokio::task::yield_now().await;
            }
            harness.charge(CHARGE).await.unwrap().status()
        }
    );
    assert!(first.is_err(), "it got a response within a second");
    assert_eq!(second, StatusCode::CONFLICT);
    let record = harness.ledgers().record(DemoService::Payment, "order-1").cloned().unwrap();
    assert_eq!(record.carried_out.first().and_then(|call| call.ended_at), None);
}

#[tokio::test]
async fn an_error_that_is_stored_for_a_key_is_repeated_with_or_without_an_effect() {
    for takes_effect in [true, false] {
        let plan = FaultPlan { stored_error: 1.0, ..healthy() };
        let plan = match takes_effect {
            true => {
                plan_for(CHARGE, plan, |fault| fault == Fault::StoredError { takes_effect: true })
            }
            false => {
                plan_for(CHARGE, plan, |fault| fault == Fault::StoredError { takes_effect: false })
            }
        };
        let harness = ServiceHarness::start(plan).await;
        for _ in 0..3 {
            let response = harness.charge(CHARGE).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(harness.charges(), usize::from(takes_effect));
        assert_eq!(harness.ledgers().faults_total(FaultKind::StoredError), 3);
    }
}

#[tokio::test]
async fn the_payment_service_says_in_a_200_that_it_is_too_busy_and_then_charges() {
    let harness = ServiceHarness::start(FaultPlan { busy_body: 1.0, ..healthy() }).await;
    loop {
        let response = harness.charge(CHARGE).await.unwrap();
        if response.status() == StatusCode::CREATED {
            break;
        }
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(json_of(response).await, json!({ "error": "busy" }));
        assert_eq!(harness.charges(), 0);
    }
    assert_eq!(harness.charges(), 1);
    assert!((1..=3).contains(&harness.ledgers().faults_total(FaultKind::BusyBody)));
    // The definitions of the others do not judge a body.
    let body = json!({ "order": "order-1" });
    let reservation = harness.post(DemoService::Inventory, "reservations", CHARGE, body).await;
    assert_eq!(reservation.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_service_asks_for_a_pause_that_is_longer_than_an_attempt() {
    let harness = ServiceHarness::start(FaultPlan { long_pause: 1.0, ..healthy() }).await;
    let response = harness.charge(CHARGE).await.unwrap();
    assert_eq!((response.status(), harness.charges()), (StatusCode::TOO_MANY_REQUESTS, 0));
    let pause: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((12..=20).contains(&pause), "{pause}");
    assert_eq!(harness.charge(CHARGE).await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_success_may_begin_with_a_byte_order_mark() {
    let harness = ServiceHarness::start(FaultPlan { byte_order_mark: 1.0, ..healthy() }).await;
    for status in [StatusCode::CREATED, StatusCode::OK] {
        let response = harness.charge(CHARGE).await.unwrap();
        assert_eq!(response.status(), status);
        let body = response.bytes().await.unwrap();
        let json = body.strip_prefix(b"\xef\xbb\xbf").unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(json).unwrap()["amount"], 4200);
    }
    assert_eq!(harness.charges(), 1);
}
