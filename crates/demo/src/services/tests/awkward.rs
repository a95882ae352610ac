//! What real services do and a client would rather not see: answers that say little, calls that take
//! effect after their answer or after the client went away, and conflicts while a call is in progress.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::super::Fault;
use super::{CHARGE, FaultKind, FaultPlan, REFUND, Service, World, healthy, json_of};

/// A plan like this one, of the first seed that gives the fault to the key.
fn plan_for(key: &str, plan: FaultPlan, is_wanted: fn(Fault) -> bool) -> FaultPlan {
    let mut plans = (0..).map(|seed| FaultPlan { seed, ..plan.clone() });
    plans.find(|plan| is_wanted(plan.fault(key))).unwrap()
}

/// Calls are answered at once with a redirect, and take effect later.
fn late_effect(key: &str) -> FaultPlan {
    let redirect = FaultPlan { redirect: 1.0, conflict_in_progress: true, ..healthy() };
    plan_for(key, redirect, |fault| {
        matches!(fault, Fault::Redirect { commit_after_ms: 2_000.., .. })
    })
}

#[tokio::test]
async fn a_repeat_is_answered_409_while_the_first_call_is_in_progress_and_then_as_that_was() {
    let plan = FaultPlan { long: 1.0, conflict_in_progress: true, ..healthy() };
    let world = World::new(plan).await;
    world.charge_impatiently(CHARGE).await;
    let busy = world.charge(CHARGE).await.unwrap();
    assert_eq!(busy.status(), StatusCode::CONFLICT);
    assert_eq!(json_of(busy).await["type"], "urn:problem-type:in-progress");
    assert_eq!(world.charges(), 0);

    world.until_charged().await;
    let repeat = world.charge(CHARGE).await.unwrap();
    assert_eq!(
        (repeat.status(), repeat.headers()["idempotent-replay"].to_str().unwrap()),
        (StatusCode::OK, "true")
    );
    assert_eq!(world.charges(), 1);
    assert_eq!(world.ledger().faults_total(FaultKind::InProgress), 1);
    assert_eq!(world.ledger().page(Service::Payment, "order-1").unwrap().carried_out.len(), 1);
}

#[tokio::test]
async fn the_inventory_and_services_of_client_chosen_ids_say_423_while_a_call_is_in_progress() {
    let plan = FaultPlan { long: 1.0, conflict_in_progress: true, ..healthy() };
    let world = World::of(&[Service::Inventory, Service::Package], plan).await;
    let url = |service, path: &str| format!("{}/{path}", world.services.base_url(service));
    for (method, url) in [
        (Method::POST, url(Service::Inventory, "reservations")),
        (Method::PUT, url(Service::Package, "packages/p-1")),
    ] {
        let call = || {
            let call = world.client.request(method.clone(), &url).header("idempotency-key", CHARGE);
            call.body(json!({ "order": "order-1" }).to_string()).send()
        };
        let (first, second) = tokio::join!(call(), call());
        let mut statuses = [first, second].map(|answer| answer.unwrap().status());
        statuses.sort_unstable();
        assert_eq!(statuses, [StatusCode::CREATED, StatusCode::LOCKED], "{url}");
    }
}

#[tokio::test]
async fn an_undo_that_comes_while_the_call_is_in_progress_finds_nothing_and_the_call_takes_effect()
{
    let world = World::new(late_effect(CHARGE)).await;
    assert!(world.charge(CHARGE).await.unwrap().status().is_redirection());
    // The undo is answered with a redirect too, and what it says matters less than what it did.
    world.refund(REFUND).await.unwrap();
    world.until_charged().await;
    let page = world.ledger().page(Service::Payment, "order-1").cloned().unwrap();
    let key_of_done = page.effects.first().map(|effect| effect.done_by.as_str());
    assert_eq!(key_of_done, Some(CHARGE));
}

#[tokio::test]
async fn a_redirect_has_taken_effect_or_will() {
    let at_once = plan_for(CHARGE, FaultPlan { redirect: 1.0, ..healthy() }, |fault| {
        matches!(fault, Fault::Redirect { commit_after_ms: 0, .. })
    });
    let world = World::new(at_once).await;
    let answer = world.charge(CHARGE).await.unwrap();
    assert!(matches!(answer.status().as_u16(), 302 | 303));
    assert!(answer.headers().contains_key("location"));
    assert_eq!(world.charges(), 1);

    let world = World::new(late_effect(CHARGE)).await;
    assert!(world.charge(CHARGE).await.unwrap().status().is_redirection());
    assert_eq!(world.charges(), 0);
    assert_eq!(world.charge(CHARGE).await.unwrap().status(), StatusCode::CONFLICT);
    world.until_charged().await;
    assert!(world.charge(CHARGE).await.unwrap().status().is_redirection());
    assert_eq!(world.charges(), 1);
}

#[tokio::test]
async fn a_success_may_be_empty_or_not_json_and_has_taken_effect() {
    for (plan, body) in [
        (FaultPlan { empty_answer: 1.0, ..healthy() }, ""),
        (FaultPlan { not_json: 1.0, ..healthy() }, "<p>Thank you!</p>"),
    ] {
        let world = World::new(plan).await;
        for _ in 0..2 {
            let answer = world.charge(CHARGE).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.text().await.unwrap(), body);
        }
        assert_eq!(world.charges(), 1);
    }
}

#[tokio::test]
async fn an_undo_that_finds_nothing_is_404_if_the_plan_says_so_and_a_repeat_is_not() {
    let world = World::new(FaultPlan { undo_not_found: true, ..healthy() }).await;
    let nothing = world.refund(REFUND).await.unwrap();
    assert_eq!(nothing.status(), StatusCode::NOT_FOUND);
    assert_eq!(json_of(nothing).await["type"], "urn:problem-type:nothing-to-undo");
    world.charge(CHARGE).await.unwrap();
    assert_eq!(world.refund(REFUND).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(world.refund(REFUND).await.unwrap().status(), StatusCode::OK);

    let plan = FaultPlan { undo_not_found: true, ..healthy() };
    let world = World::of(&[Service::Package], plan).await;
    let url = format!("{}/packages/p-1", world.services.base_url(Service::Package));
    let delete = || async { world.client.delete(&url).send().await.unwrap().status() };
    assert_eq!(delete().await, StatusCode::NOT_FOUND);
    world.client.put(&url).body("{}").send().await.unwrap();
    assert_eq!(delete().await, StatusCode::NO_CONTENT);
    assert_eq!(delete().await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn the_call_that_outlives_its_caller_fails_once_and_is_in_progress_for_seconds() {
    let plan = FaultPlan { outlive: 1.0, conflict_in_progress: true, ..healthy() };
    let world = World::new(plan).await;
    assert_eq!(world.charge(CHARGE).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    let (first, second) = tokio::join!(
        tokio::time::timeout(std::time::Duration::from_secs(1), world.charge(CHARGE)),
        async {
            while world
                .ledger()
                .page(Service::Payment, "order-1")
                .is_none_or(|page| page.carried_out.is_empty())
            {
                tokio::task::yield_now().await;
            }
            world.charge(CHARGE).await.unwrap().status()
        }
    );
    assert!(first.is_err(), "it was answered within a second");
    assert_eq!(second, StatusCode::CONFLICT);
    let page = world.ledger().page(Service::Payment, "order-1").cloned().unwrap();
    assert_eq!(page.carried_out.first().and_then(|call| call.ended_at), None);
}
