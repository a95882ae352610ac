//! The audit against books that say what should not be.

use crate::services::{Fault, FaultPlan, MockServices, Service};
use reqwest::Method;
use serde_json::{Value, json};
use steward_core::{model::time::Timing, submission};

use super::*;
use crate::scenario::Shipped;

fn task(shipped: Shipped, state: ProcessState) -> Task {
    let scenario = shipped.scenario();
    let text = json!({ "task_id": scenario.task_id(1), "workflow": scenario.name() });
    let timing = Timing {
        pickup_within: std::time::Duration::ZERO,
        clock_skew: std::time::Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let submission = submission::parse(&text.to_string()).unwrap();
    let workflow = scenario.workflow().unwrap();
    let (task, _) = submission::accept(&submission, &workflow, None, now, timing);
    Task { process_state: state, ended_at: Some(jiff::Timestamp::now()), ..task }
}

/// What is found if task 1 has ended like this.
fn findings(shipped: Shipped, state: ProcessState, ledger: &Ledger) -> Vec<String> {
    let mut audit = Audit::of(shipped.scenario());
    audit.check(1, Some(&task(shipped, state)), ledger, &BTreeSet::new());
    assert_eq!(audit.passed(), audit.findings.is_empty());
    audit.findings
}

/// Services, well behaved unless said, and the calls that someone else makes of them.
struct World {
    services: MockServices,
    client: reqwest::Client,
}

impl World {
    async fn of(shipped: Shipped) -> Self {
        Self::with(shipped, FaultPlan::none(1)).await
    }

    async fn with(shipped: Shipped, plan: FaultPlan) -> Self {
        let services = MockServices::start(shipped.scenario().services(), plan).await.unwrap();
        Self { services, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn call(&self, method: Method, service: Service, path: &str, key: &str, body: Value) {
        let url = format!("{}/{path}", self.services.base_url(service));
        let call = self.client.request(method, url).header("idempotency-key", key);
        let answer = call.body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    async fn put(&self, service: Service, path: &str) {
        let place = json!({ "lat": 52.01, "lon": 4.36 });
        let body = json!({ "package": "delivery-000001", "pickup": place, "dropoff": place });
        self.call(Method::PUT, service, path, "none", body).await;
    }

    async fn delete(&self, service: Service, path: &str) {
        self.call(Method::DELETE, service, path, "none", Value::Null).await;
    }

    /// Everything that a near delivery has in the end.
    async fn deliver(&self) {
        self.put(Service::Package, "packages/delivery-000001").await;
        self.put(Service::DroneScheduler, "dronedeliveries/delivery-000001").await;
        self.put(Service::Delivery, "deliveries/delivery-000001").await;
    }

    fn drone_findings(&self, state: ProcessState) -> Vec<String> {
        findings(Shipped::DroneDelivery, state, &self.services.ledger())
    }
}

#[test]
fn whatever_should_not_be_is_found() {
    let (nothing, order) = (Ledger::default(), Shipped::Order);
    let mut audit = Audit::of(order.scenario());
    audit.check(1, None, &nothing, &BTreeSet::new());
    assert_eq!(audit.findings, ["order-000001: submitted, and not recorded"]);
    assert_eq!(findings(order, ProcessState::Pending, &nothing), ["order-000001: still Pending"]);
    assert_eq!(
        findings(order, ProcessState::Error, &nothing),
        ["order-000001: Error, and no alert"]
    );
    assert_eq!(
        findings(order, ProcessState::Processed, &nothing),
        Service::ORDER.map(|service| format!(
            "order-000001: Processed, with 0 effects in {service}, 0 of them standing"
        ))
    );
}

#[tokio::test]
async fn a_second_charge_is_found() {
    let world = World::of(Shipped::Order).await;
    for key in ["order-000001/charge/do", "order-000001/charge/again"] {
        let body = json!({ "order": "order-000001" });
        world.call(Method::POST, Service::Payment, "charges", key, body).await;
    }
    let ledger = world.services.ledger();
    let twice =
        |state| format!("order-000001: {state}, with 2 effects in payment, 2 of them standing");
    let found = findings(Shipped::Order, ProcessState::Processed, &ledger);
    assert!(found.contains(&twice("Processed")), "{found:?}");
    assert_eq!(findings(Shipped::Order, ProcessState::Undone, &ledger), [twice("Undone")]);
    let mut audit = Audit::of(Shipped::Order.scenario());
    audit.check_foreign(1, &ledger);
    assert_eq!(audit.findings, ["order-000001: known to payment, never submitted"]);
}

#[tokio::test]
async fn a_delivery_with_one_drone_is_as_it_should_be() {
    let world = World::of(Shipped::DroneDelivery).await;
    world.deliver().await;
    assert!(world.drone_findings(ProcessState::Processed).is_empty());
}

#[tokio::test]
async fn a_second_drone_for_one_package_is_found_under_whatever_id() {
    let world = World::of(Shipped::DroneDelivery).await;
    world.deliver().await;
    world.put(Service::DroneScheduler, "dronedeliveries/again").await;
    assert_eq!(
        world.drone_findings(ProcessState::Processed),
        ["delivery-000001: Processed, with 2 effects in dronescheduler, 2 of them standing"]
    );
}

#[tokio::test]
async fn a_third_party_beside_the_drone_is_found() {
    let world = World::of(Shipped::DroneDelivery).await;
    world.deliver().await;
    world.put(Service::Transport, "bookings/delivery-000001").await;
    assert_eq!(
        world.drone_findings(ProcessState::Processed),
        ["delivery-000001: Processed, with 1 effects in transport, 1 of them standing"]
    );
}

#[tokio::test]
async fn a_drone_or_anything_else_left_for_an_undone_delivery_is_found() {
    let world = World::of(Shipped::DroneDelivery).await;
    world.deliver().await;
    let left = |service| {
        format!("delivery-000001: Undone, with 1 effects in {service}, 1 of them standing")
    };
    assert_eq!(
        world.drone_findings(ProcessState::Undone),
        ["package", "dronescheduler", "delivery"].map(left)
    );
    world.delete(Service::Delivery, "deliveries/delivery-000001").await;
    world.delete(Service::Package, "packages/delivery-000001").await;
    assert_eq!(world.drone_findings(ProcessState::Undone), [left("dronescheduler")]);
    world.delete(Service::DroneScheduler, "dronedeliveries/delivery-000001").await;
    assert!(world.drone_findings(ProcessState::Undone).is_empty());
}

#[tokio::test]
async fn whatever_was_begun_for_a_suspended_account_is_found() {
    let (account, package) = ("GET /accounts/account-000001", "PUT /packages/delivery-000001");
    let mut plans = (0..).map(|seed| FaultPlan { refuse: 0.5, ..FaultPlan::none(seed) });
    let suspends = |plan: &FaultPlan| {
        (plan.fault(account), plan.fault(package)) == (Fault::Refuse, Fault::Healthy)
    };
    let world = World::with(Shipped::DroneDelivery, plans.find(suspends).unwrap()).await;
    let url = format!("{}/accounts/account-000001", world.services.base_url(Service::Account));
    assert_eq!(world.client.get(url).send().await.unwrap().status(), 403);
    assert!(world.drone_findings(ProcessState::Undone).is_empty());
    let suspended = "delivery-000001: Processed, and its account is suspended".to_owned();
    assert!(world.drone_findings(ProcessState::Processed).contains(&suspended));

    world.put(Service::Package, "packages/delivery-000001").await;
    world.delete(Service::Package, "packages/delivery-000001").await;
    assert_eq!(
        world.drone_findings(ProcessState::Undone),
        ["delivery-000001: its account is suspended, with 1 effects in package"]
    );
}

/// Task 1 of the orders, ended at this time.
fn order_ended(state: ProcessState, ended_at: Option<jiff::Timestamp>) -> Task {
    Task { ended_at, ..task(Shipped::Order, state) }
}

fn findings_of(task: &Task, ledger: &Ledger) -> Vec<String> {
    let mut audit = Audit::of(Shipped::Order.scenario());
    audit.check(1, Some(task), ledger, &BTreeSet::new());
    audit.findings
}

/// Services that answer with a redirect at once, and take effect later.
async fn late_charge() -> World {
    let charge = "order-000001/charge/do";
    let late = |plan: &FaultPlan| {
        matches!(plan.fault(charge), Fault::Redirect { commit_after_ms: 2_000.., .. })
    };
    let mut plans = (0..).map(|seed| FaultPlan { redirect: 1.0, ..FaultPlan::none(seed) });
    let world = World::with(Shipped::Order, plans.find(late).unwrap()).await;
    let url = format!("{}/charges", world.services.base_url(Service::Payment));
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let call = client.build().unwrap().post(url).header("idempotency-key", charge);
    let answer = call.body(json!({ "order": "order-000001" }).to_string()).send().await.unwrap();
    assert!(answer.status().is_redirection());
    world
}

#[tokio::test]
async fn a_call_that_is_in_progress_when_undone_is_reported_is_found_though_nothing_is_left_yet() {
    let world = late_charge().await;
    let ledger = world.services.ledger();
    assert_eq!(ledger.standing(Service::Payment, "order-000001"), 0);
    let task = order_ended(ProcessState::Undone, Some(jiff::Timestamp::now()));
    let found = findings_of(&task, &ledger);
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert!(finding.contains("with a call in progress in payment: order-000001/charge/do"));
    assert!(finding.ends_with("until now"), "{finding}");
}

#[tokio::test]
async fn a_call_that_took_effect_after_the_end_is_found_though_it_was_undone_since() {
    let world = late_charge().await;
    let ended_at = jiff::Timestamp::now();
    while world.services.ledger().standing(Service::Payment, "order-000001") == 0 {
        tokio::task::yield_now().await;
    }
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let url = format!("{}/refunds", world.services.base_url(Service::Payment));
    let call = client.build().unwrap().post(url).header("idempotency-key", "by-hand");
    call.body(json!({ "order": "order-000001" }).to_string()).send().await.unwrap();
    while world.services.ledger().standing(Service::Payment, "order-000001") == 1 {
        tokio::task::yield_now().await;
    }
    let ledger = world.services.ledger();
    let found = findings_of(&order_ended(ProcessState::Undone, Some(ended_at)), &ledger);
    assert!(found.iter().any(|finding| finding.contains("charge/do, from")), "{found:?}");
    let later = order_ended(ProcessState::Undone, Some(jiff::Timestamp::now()));
    assert!(findings_of(&later, &ledger).is_empty());
}

#[test]
fn an_end_without_a_time_is_found() {
    let task = order_ended(ProcessState::Undone, None);
    assert_eq!(
        findings_of(&task, &Ledger::default()),
        ["order-000001: Undone, and without the time of its end"]
    );
}

#[tokio::test]
async fn an_effect_of_a_processed_order_that_was_undone_is_found() {
    let world = World::of(Shipped::Order).await;
    for (service, path, key) in [
        (Service::Inventory, "reservations", "order-000001/reserve/do"),
        (Service::Payment, "charges", "order-000001/charge/do"),
        (Service::Shipping, "shipments", "order-000001/ship/do"),
    ] {
        world.call(Method::POST, service, path, key, json!({ "order": "order-000001" })).await;
    }
    let now = || Some(jiff::Timestamp::now());
    let processed = order_ended(ProcessState::Processed, now());
    assert!(findings_of(&processed, &world.services.ledger()).is_empty());
    let body = json!({ "order": "order-000001" });
    world.call(Method::POST, Service::Payment, "refunds", "order-000001/charge/undo", body).await;
    assert_eq!(
        findings_of(&order_ended(ProcessState::Processed, now()), &world.services.ledger()),
        ["order-000001: Processed, with 1 effects in payment, 0 of them standing"]
    );
}

#[test]
fn an_alerted_error_is_as_it_should_be() {
    let mut audit = Audit::of(Shipped::Order.scenario());
    let task = task(Shipped::Order, ProcessState::Error);
    let alerted = BTreeSet::from([task.task_id.to_string()]);
    audit.check(1, Some(&task), &Ledger::default(), &alerted);
    assert_eq!(audit.findings, [] as [String; 0]);
}
