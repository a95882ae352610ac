//! The audit of ledgers and tasks that violate its requirements.

use reqwest::Method;
use serde_json::{Value, json};
use steward_core::{definition::plan::Plan, model::time::Timing, submission};

use super::*;
use crate::{
    example_workflow::ExampleWorkflow,
    services::{DemoService, Fault, FaultPlan, MockServices},
};

fn task(workflow: ExampleWorkflow, state: ProcessState) -> Task {
    let scenario = workflow.scenario();
    let text = json!({ "task_id": scenario.task_id(1), "workflow": scenario.name() });
    let timing = Timing {
        pickup_within: std::time::Duration::ZERO,
        clock_skew: std::time::Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let submission = submission::parse(&text.to_string()).unwrap();
    let definition = Plan::new(scenario.workflow().unwrap()).unwrap();
    let (task, _) = submission::accept(&submission, &definition, None, now, timing).unwrap();
    Task { process_state: state, ended_at: Some(jiff::Timestamp::now()), ..task }
}

/// The findings if task 1 has ended in this state.
fn findings(
    workflow: ExampleWorkflow,
    state: ProcessState,
    ledgers: &ServiceLedgers,
) -> Vec<String> {
    let mut audit = Audit::of(workflow.scenario());
    audit.check(1, Some(&task(workflow, state)), ledgers, &BTreeSet::new());
    assert_eq!(audit.passed(), audit.findings.is_empty());
    audit.findings
}

/// Running services, and a client that calls them directly.
struct AuditHarness {
    services: MockServices,
    client: reqwest::Client,
}

impl AuditHarness {
    async fn start(workflow: ExampleWorkflow) -> Self {
        Self::with_faults(workflow, FaultPlan::none(1)).await
    }

    async fn with_faults(workflow: ExampleWorkflow, plan: FaultPlan) -> Self {
        let services = MockServices::start(workflow.scenario().services(), plan).await.unwrap();
        Self { services, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn call(&self, method: Method, service: DemoService, path: &str, key: &str, body: Value) {
        let url = format!("{}/{path}", self.services.base_url(service));
        let call = self.client.request(method, url).header("idempotency-key", key);
        let response = call.body(body.to_string()).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
    }

    async fn put(&self, service: DemoService, path: &str) {
        let here = json!({ "lat": 52.01, "lon": 4.36 });
        let body = json!({ "package": "delivery-000001", "pickup": here, "dropoff": here });
        self.call(Method::PUT, service, path, "none", body).await;
    }

    async fn delete(&self, service: DemoService, path: &str) {
        self.call(Method::DELETE, service, path, "none", Value::Null).await;
    }

    /// Causes all side effects of a processed delivery within a drone's range.
    async fn deliver(&self) {
        self.put(DemoService::Package, "packages/delivery-000001").await;
        self.put(DemoService::DroneScheduler, "dronedeliveries/delivery-000001").await;
        self.put(DemoService::Delivery, "deliveries/delivery-000001").await;
    }

    fn drone_findings(&self, state: ProcessState) -> Vec<String> {
        findings(ExampleWorkflow::DroneDelivery, state, &self.services.ledgers())
    }
}

#[test]
fn missing_tasks_unended_tasks_missing_alerts_and_missing_effects_are_found() {
    let (empty, order) = (ServiceLedgers::default(), ExampleWorkflow::Order);
    let mut audit = Audit::of(order.scenario());
    audit.check(1, None, &empty, &BTreeSet::new());
    assert_eq!(audit.findings, ["order-000001: submitted, but not recorded"]);
    assert_eq!(findings(order, ProcessState::Pending, &empty), ["order-000001: still Pending"]);
    assert_eq!(
        findings(order, ProcessState::Error, &empty),
        ["order-000001: Error without an alert"]
    );
    assert_eq!(
        findings(order, ProcessState::Processed, &empty),
        DemoService::ORDER.map(|service| format!(
            "order-000001: Processed with 0 side effects in {service}, 0 of them active"
        ))
    );
}

#[tokio::test]
async fn a_second_charge_is_found() {
    let harness = AuditHarness::start(ExampleWorkflow::Order).await;
    for key in ["order-000001/charge/do", "order-000001/charge/again"] {
        let body = json!({ "order": "order-000001" });
        harness.call(Method::POST, DemoService::Payment, "charges", key, body).await;
    }
    let ledgers = harness.services.ledgers();
    let twice =
        |state| format!("order-000001: {state} with 2 side effects in payment, 2 of them active");
    let found = findings(ExampleWorkflow::Order, ProcessState::Processed, &ledgers);
    assert!(found.contains(&twice("Processed")), "{found:?}");
    assert_eq!(findings(ExampleWorkflow::Order, ProcessState::Undone, &ledgers), [twice("Undone")]);
    let mut audit = Audit::of(ExampleWorkflow::Order.scenario());
    audit.check_unknown_subjects(1, &ledgers);
    let finding = "order-000001: payment was called, but no task was submitted";
    assert_eq!(audit.findings, [finding]);
}

#[tokio::test]
async fn a_delivery_with_one_drone_passes() {
    let harness = AuditHarness::start(ExampleWorkflow::DroneDelivery).await;
    harness.deliver().await;
    assert!(harness.drone_findings(ProcessState::Processed).is_empty());
}

#[tokio::test]
async fn a_second_drone_for_one_package_is_found_even_with_another_id() {
    let harness = AuditHarness::start(ExampleWorkflow::DroneDelivery).await;
    harness.deliver().await;
    harness.put(DemoService::DroneScheduler, "dronedeliveries/again").await;
    assert_eq!(
        harness.drone_findings(ProcessState::Processed),
        ["delivery-000001: Processed with 2 side effects in dronescheduler, 2 of them active"]
    );
}

#[tokio::test]
async fn a_third_party_in_addition_to_the_drone_is_found() {
    let harness = AuditHarness::start(ExampleWorkflow::DroneDelivery).await;
    harness.deliver().await;
    harness.put(DemoService::Transport, "bookings/delivery-000001").await;
    assert_eq!(
        harness.drone_findings(ProcessState::Processed),
        ["delivery-000001: Processed with 1 side effects in transport, 1 of them active"]
    );
}

#[tokio::test]
async fn active_side_effects_of_an_undone_delivery_are_found() {
    let harness = AuditHarness::start(ExampleWorkflow::DroneDelivery).await;
    harness.deliver().await;
    let left = |service| {
        format!("delivery-000001: Undone with 1 side effects in {service}, 1 of them active")
    };
    assert_eq!(
        harness.drone_findings(ProcessState::Undone),
        ["package", "dronescheduler", "delivery"].map(left)
    );
    harness.delete(DemoService::Delivery, "deliveries/delivery-000001").await;
    harness.delete(DemoService::Package, "packages/delivery-000001").await;
    assert_eq!(harness.drone_findings(ProcessState::Undone), [left("dronescheduler")]);
    harness.delete(DemoService::DroneScheduler, "dronedeliveries/delivery-000001").await;
    assert!(harness.drone_findings(ProcessState::Undone).is_empty());
}

#[tokio::test]
async fn side_effects_for_a_suspended_account_are_found() {
    let (account, package) = ("GET /accounts/account-000001", "PUT /packages/delivery-000001");
    let mut plans = (0..).map(|seed| FaultPlan { refuse: 0.5, ..FaultPlan::none(seed) });
    let suspends = |plan: &FaultPlan| {
        (plan.fault(account), plan.fault(package)) == (Fault::Refuse, Fault::Healthy)
    };
    let harness =
        AuditHarness::with_faults(ExampleWorkflow::DroneDelivery, plans.find(suspends).unwrap())
            .await;
    let url =
        format!("{}/accounts/account-000001", harness.services.base_url(DemoService::Account));
    assert_eq!(harness.client.get(url).send().await.unwrap().status(), 403);
    assert!(harness.drone_findings(ProcessState::Undone).is_empty());
    let suspended = "delivery-000001: Processed, although its account is suspended".to_owned();
    assert!(harness.drone_findings(ProcessState::Processed).contains(&suspended));

    harness.put(DemoService::Package, "packages/delivery-000001").await;
    harness.delete(DemoService::Package, "packages/delivery-000001").await;
    assert_eq!(
        harness.drone_findings(ProcessState::Undone),
        ["delivery-000001: 1 side effects in package, although its account is suspended"]
    );
}

/// Order 1, in this state with this end time.
fn order_ended(state: ProcessState, ended_at: Option<jiff::Timestamp>) -> Task {
    Task { ended_at, ..task(ExampleWorkflow::Order, state) }
}

fn findings_of(task: &Task, ledgers: &ServiceLedgers) -> Vec<String> {
    let mut audit = Audit::of(ExampleWorkflow::Order.scenario());
    audit.check(1, Some(task), ledgers, &BTreeSet::new());
    audit.findings
}

/// Services with a charge in progress, which got a redirect at once and takes effect later.
async fn late_charge() -> AuditHarness {
    let charge = "order-000001/charge/do";
    let is_late = |plan: &FaultPlan| {
        matches!(plan.fault(charge), Fault::Redirect { commit_after_ms: 2_000.., .. })
    };
    let mut plans = (0..).map(|seed| FaultPlan { redirect: 1.0, ..FaultPlan::none(seed) });
    let harness =
        AuditHarness::with_faults(ExampleWorkflow::Order, plans.find(is_late).unwrap()).await;
    let url = format!("{}/charges", harness.services.base_url(DemoService::Payment));
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let call = client.build().unwrap().post(url).header("idempotency-key", charge);
    let response = call.body(json!({ "order": "order-000001" }).to_string()).send().await.unwrap();
    assert!(response.status().is_redirection());
    harness
}

#[tokio::test]
async fn a_call_in_progress_at_the_end_of_an_undone_task_is_found_before_it_takes_effect() {
    let harness = late_charge().await;
    let ledgers = harness.services.ledgers();
    assert_eq!(ledgers.active_effects(DemoService::Payment, "order-000001"), 0);
    let task = order_ended(ProcessState::Undone, Some(jiff::Timestamp::now()));
    let found = findings_of(&task, &ledgers);
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert!(finding.contains("with a call in progress in payment: order-000001/charge/do"));
    assert!(finding.ends_with("until now"), "{finding}");
}

#[tokio::test]
async fn a_call_that_took_effect_after_the_end_is_found_even_if_it_was_undone_later() {
    let harness = late_charge().await;
    let ended_at = jiff::Timestamp::now();
    while harness.services.ledgers().active_effects(DemoService::Payment, "order-000001") == 0 {
        tokio::task::yield_now().await;
    }
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let url = format!("{}/refunds", harness.services.base_url(DemoService::Payment));
    let call = client.build().unwrap().post(url).header("idempotency-key", "by-hand");
    call.body(json!({ "order": "order-000001" }).to_string()).send().await.unwrap();
    while harness.services.ledgers().active_effects(DemoService::Payment, "order-000001") == 1 {
        tokio::task::yield_now().await;
    }
    let ledgers = harness.services.ledgers();
    let found = findings_of(&order_ended(ProcessState::Undone, Some(ended_at)), &ledgers);
    assert!(found.iter().any(|finding| finding.contains("charge/do, from")), "{found:?}");
    let later = order_ended(ProcessState::Undone, Some(jiff::Timestamp::now()));
    assert!(findings_of(&later, &ledgers).is_empty());
}

#[test]
fn a_missing_end_time_is_found() {
    let task = order_ended(ProcessState::Undone, None);
    assert_eq!(
        findings_of(&task, &ServiceLedgers::default()),
        ["order-000001: Undone without an end time"]
    );
}

#[tokio::test]
async fn an_undone_side_effect_of_a_processed_order_is_found() {
    let harness = AuditHarness::start(ExampleWorkflow::Order).await;
    for (service, path, key) in [
        (DemoService::Inventory, "reservations", "order-000001/reserve/do"),
        (DemoService::Payment, "charges", "order-000001/charge/do"),
        (DemoService::Shipping, "shipments", "order-000001/ship/do"),
    ] {
        harness.call(Method::POST, service, path, key, json!({ "order": "order-000001" })).await;
    }
    let now = || Some(jiff::Timestamp::now());
    let processed = order_ended(ProcessState::Processed, now());
    assert!(findings_of(&processed, &harness.services.ledgers()).is_empty());
    let body = json!({ "order": "order-000001" });
    harness
        .call(Method::POST, DemoService::Payment, "refunds", "order-000001/charge/undo", body)
        .await;
    assert_eq!(
        findings_of(&order_ended(ProcessState::Processed, now()), &harness.services.ledgers()),
        ["order-000001: Processed with 1 side effects in payment, 0 of them active"]
    );
}

/// Services with the order and the supplier's effects of purchase 1; what is called by messages is left out.
async fn purchase_with_order() -> AuditHarness {
    let harness = AuditHarness::start(ExampleWorkflow::Purchase).await;
    let body = json!({ "reference": "purchase-000001" });
    let key = "purchase-000001/order/do";
    harness.call(Method::POST, DemoService::Supplier, "orders", key, body).await;
    harness
}

#[tokio::test]
async fn the_order_of_an_undone_purchase_is_found_unless_it_was_cancelled() {
    let harness = purchase_with_order().await;
    let found = |harness: &AuditHarness| {
        findings(ExampleWorkflow::Purchase, ProcessState::Undone, &harness.services.ledgers())
    };
    assert_eq!(
        found(&harness),
        ["purchase-000001: Undone with 1 side effects in supplier, 1 of them active"]
    );
    let (key, body) = ("purchase-000001/order/undo", json!({ "reference": "purchase-000001" }));
    harness.call(Method::POST, DemoService::Supplier, "cancellations", key, body).await;
    assert_eq!(found(&harness), [] as [String; 0]);
}

#[tokio::test]
async fn a_processed_purchase_without_commitment_mail_and_booking_is_found() {
    let harness = purchase_with_order().await;
    let missing = |service| {
        format!("purchase-000001: Processed with 0 side effects in {service}, 0 of them active")
    };
    let ledgers = harness.services.ledgers();
    assert_eq!(
        findings(ExampleWorkflow::Purchase, ProcessState::Processed, &ledgers),
        ["finance", "mail", "accounting"].map(missing)
    );
}

#[test]
fn a_purchase_that_cannot_succeed_must_not_be_processed() {
    let scenario = ExampleWorkflow::Purchase.scenario();
    let found =
        |number| scenario.findings(number, ProcessState::Processed, &ServiceLedgers::default());
    for (number, why) in [
        (3, "it exceeds the budget"),
        (8, "the manager rejected it"),
        (13, "the supplier refused it"),
        (18, "the parcel is lost"),
    ] {
        assert_eq!(found(number), [format!("Processed, although {why}")]);
        assert_eq!(found(number + 1), [] as [String; 0]);
    }
}

#[tokio::test]
async fn an_order_for_a_purchase_that_the_manager_rejected_is_found() {
    let harness = AuditHarness::start(ExampleWorkflow::Purchase).await;
    let (key, body) = ("purchase-000008/order/do", json!({ "reference": "purchase-000008" }));
    harness.call(Method::POST, DemoService::Supplier, "orders", key, body).await;
    let scenario = ExampleWorkflow::Purchase.scenario();
    assert_eq!(
        scenario.findings(8, ProcessState::Undone, &harness.services.ledgers()),
        ["1 side effects in supplier, although the manager rejected it"]
    );
}

#[test]
fn a_task_in_error_with_an_alert_passes() {
    let mut audit = Audit::of(ExampleWorkflow::Order.scenario());
    let task = task(ExampleWorkflow::Order, ProcessState::Error);
    let alerted = BTreeSet::from([task.task_id.to_string()]);
    audit.check(1, Some(&task), &ServiceLedgers::default(), &alerted);
    assert_eq!(audit.findings, [] as [String; 0]);
}
