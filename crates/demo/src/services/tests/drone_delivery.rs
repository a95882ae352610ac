//! The services of a drone delivery over HTTP: `PUT` and `DELETE` with client-generated ids.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{DemoService, FaultKind, FaultPlan, ServiceHarness, healthy, json_of};

/// The services with client-generated ids, each with the path of its resources.
const BY_CLIENT_ID: [(DemoService, &str); 4] = [
    (DemoService::Package, "packages"),
    (DemoService::Transport, "bookings"),
    (DemoService::DroneScheduler, "dronedeliveries"),
    (DemoService::Delivery, "deliveries"),
];

async fn start(plan: FaultPlan) -> ServiceHarness {
    ServiceHarness::with_services(&DemoService::DRONE_DELIVERY, plan).await
}

/// A body that all services with client-generated ids accept.
fn valid_body() -> Value {
    json!({
        "package": "p-1",
        "pickup": { "lat": 52.01, "lon": 4.36 },
        "dropoff": { "lat": 51.92, "lon": 4.48 },
    })
}

impl ServiceHarness {
    async fn send(
        &self,
        method: Method,
        service: DemoService,
        path: &str,
        body: Option<Value>,
    ) -> reqwest::Result<Response> {
        let url = format!("{}/{path}", self.services.base_url(service));
        let request = self.client.request(method, url);
        request.body(body.map(|body| body.to_string()).unwrap_or_default()).send().await
    }

    async fn put(&self, service: DemoService, path: &str, body: Value) -> Response {
        self.send(Method::PUT, service, path, Some(body)).await.unwrap()
    }

    async fn schedule(&self, id: &str) -> Response {
        self.put(DemoService::DroneScheduler, &format!("dronedeliveries/{id}"), valid_body()).await
    }

    async fn cancel(&self, id: &str) -> StatusCode {
        let path = format!("dronedeliveries/{id}");
        let response = self.send(Method::DELETE, DemoService::DroneScheduler, &path, None);
        response.await.unwrap().status()
    }

    /// The number of drones for the package: ever scheduled, and currently scheduled.
    fn drones(&self) -> (usize, usize) {
        let (ledgers, drones) = (self.ledgers(), DemoService::DroneScheduler);
        (ledgers.effects(drones, "p-1"), ledgers.active_effects(drones, "p-1"))
    }
}

async fn type_of(response: Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    json_of(response).await["type"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_repeated_put_gets_the_same_response_and_creates_nothing() {
    let harness = start(healthy()).await;
    for (service, resources) in BY_CLIENT_ID {
        let path = format!("{resources}/p-1");
        let first = harness.put(service, &path, valid_body()).await;
        assert_eq!(first.status(), StatusCode::CREATED, "{service}");
        let repeat = harness.put(service, &path, valid_body()).await;
        assert_eq!(repeat.status(), StatusCode::OK, "{service}");
        assert_eq!(repeat.headers()["idempotent-replay"], "true");
        assert_eq!(json_of(repeat).await, json_of(first).await);

        assert_eq!(harness.ledgers().effects(service, "p-1"), 1, "{service}");
        assert_eq!(harness.ledgers().record(service, "p-1").unwrap().deduplicated, 1);
    }
}

#[tokio::test]
async fn racing_puts_schedule_one_drone() {
    let harness = start(FaultPlan { latency_ms: 5, ..healthy() }).await;
    let calls = futures_util::future::join_all((0..20).map(|_| harness.schedule("d-1"))).await;
    let created = calls.iter().filter(|call| call.status() == StatusCode::CREATED);
    assert_eq!(created.count(), 1);
    assert_eq!(harness.drones(), (1, 1));
}

#[tokio::test]
async fn a_put_with_other_content_is_a_conflict_and_changes_nothing() {
    let harness = start(healthy()).await;
    harness.schedule("d-1").await;
    let mut other = valid_body();
    other["package"] = json!("p-2");
    let other = harness.put(DemoService::DroneScheduler, "dronedeliveries/d-1", other).await;
    assert_eq!(other.status(), StatusCode::CONFLICT);
    assert_eq!(type_of(other).await, "urn:problem-type:id-taken");
    assert_eq!(harness.drones(), (1, 1));
    assert_eq!(harness.ledgers().effects(DemoService::DroneScheduler, "p-2"), 0);
    let record = harness.ledgers().record(DemoService::DroneScheduler, "p-2").cloned().unwrap();
    assert_eq!(record.keys_reused, 1);
}

#[tokio::test]
async fn two_ids_are_two_drones_for_one_package() {
    let harness = start(healthy()).await;
    harness.schedule("d-1").await;
    harness.schedule("d-2").await;
    assert_eq!(harness.drones(), (2, 2));
    assert_eq!(harness.cancel("d-1").await, StatusCode::NO_CONTENT);
    assert_eq!(harness.drones(), (2, 1));
}

#[tokio::test]
async fn a_cancellation_succeeds_without_a_resource_and_when_repeated() {
    let harness = start(healthy()).await;
    for (service, resources) in BY_CLIENT_ID {
        let path = format!("{resources}/p-1");
        let delete = async || {
            let response = harness.send(Method::DELETE, service, &path, None).await.unwrap();
            assert_eq!(response.status(), StatusCode::NO_CONTENT, "{service}");
            assert_eq!(response.text().await.unwrap(), "");
        };
        delete().await;
        harness.put(service, &path, valid_body()).await;
        assert_eq!(harness.ledgers().active_effects(service, "p-1"), 1, "{service}");
        delete().await;
        delete().await;
        assert_eq!(harness.ledgers().active_effects(service, "p-1"), 0, "{service}");
        assert_eq!(harness.ledgers().effects(service, "p-1"), 1, "{service}");
    }
    let drones = harness.ledgers().record(DemoService::DroneScheduler, "p-1").cloned().unwrap();
    let undone_by = drones.effects.first().unwrap().undone_by.clone();
    assert_eq!(undone_by.as_deref(), Some("DELETE /dronedeliveries/p-1"));
}

#[tokio::test]
async fn a_repeated_put_after_the_cancellation_schedules_no_second_drone() {
    let harness = start(healthy()).await;
    harness.schedule("d-1").await;
    harness.cancel("d-1").await;
    for _ in 0..2 {
        let late = harness.schedule("d-1").await;
        assert_eq!(late.status(), StatusCode::GONE);
        assert_eq!(type_of(late).await, "urn:problem-type:taken-back");
    }
    assert_eq!(harness.drones(), (1, 0));
    assert_eq!(harness.cancel("d-1").await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_first_put_after_a_cancellation_schedules_a_drone_and_is_recorded() {
    let harness = start(healthy()).await;
    harness.cancel("p-1").await;
    assert_eq!(harness.schedule("p-1").await.status(), StatusCode::CREATED);
    assert_eq!(harness.drones(), (1, 1));
}

#[tokio::test]
async fn only_suspended_accounts_are_refused() {
    let harness = start(healthy()).await;
    let get_account = async |id: &str| {
        let path = format!("accounts/{id}");
        harness.send(Method::GET, DemoService::Account, &path, None).await.unwrap()
    };
    let active = json_of(get_account("a-1").await).await;
    assert_eq!(active, json!({ "account": "a-1", "status": "active" }));
    let suspended = get_account("suspended-1").await;
    assert_eq!(suspended.status(), StatusCode::FORBIDDEN);
    assert_eq!(type_of(suspended).await, "urn:problem-type:account-suspended");
    let ledgers = harness.ledgers();
    assert!(ledgers.has_refused(DemoService::Account, "suspended-1"));
    assert!(!ledgers.has_refused(DemoService::Account, "a-1"));
}

#[tokio::test]
async fn a_third_party_is_needed_out_of_a_drones_range() {
    let harness = start(healthy()).await;
    let assess = async |body: Value| {
        let response =
            harness.send(Method::POST, DemoService::Transport, "assessments", Some(body));
        json_of(response.await.unwrap()).await
    };
    assert_eq!(assess(valid_body()).await, json!({ "third_party": false, "distance_km": 13.0 }));
    let mut far = valid_body();
    far["dropoff"] = json!({ "lat": 44.41, "lon": 8.93 });
    assert_eq!(assess(far.clone()).await, json!({ "third_party": true, "distance_km": 910.0 }));

    let refused =
        harness.put(DemoService::DroneScheduler, "dronedeliveries/d-1", far.clone()).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(type_of(refused).await, "urn:problem-type:too-far");
    assert_eq!(harness.drones(), (0, 0));
    assert!(harness.ledgers().has_refused(DemoService::DroneScheduler, "p-1"));
    let booked = harness.put(DemoService::Transport, "bookings/d-1", far).await;
    assert_eq!(booked.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_put_with_a_lost_response_schedules_a_drone_and_a_repeated_put_returns_it() {
    let harness = start(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let path = "dronedeliveries/d-1";
    let lost =
        harness.send(Method::PUT, DemoService::DroneScheduler, path, Some(valid_body())).await;
    assert!(lost.unwrap_err().is_request());
    assert_eq!(harness.drones(), (1, 1));
    let repeat = harness.schedule("d-1").await;
    assert_eq!(repeat.status(), StatusCode::OK);
    assert_eq!(json_of(repeat).await["dronedelivery"], "d-1");
    assert_eq!(harness.drones(), (1, 1));

    let lost = harness.send(Method::DELETE, DemoService::DroneScheduler, path, None).await;
    assert!(lost.unwrap_err().is_request());
    assert_eq!(harness.drones(), (1, 0));
    assert_eq!(harness.cancel("d-1").await, StatusCode::NO_CONTENT);
    assert_eq!(harness.ledgers().faults_total(FaultKind::AnswerLost), 2);
}

#[tokio::test]
async fn refusals_are_permanent_and_create_nothing() {
    let harness = start(FaultPlan { refuse: 1.0, ..healthy() }).await;
    for (service, resources) in BY_CLIENT_ID {
        for _ in 0..2 {
            let refused = harness.put(service, &format!("{resources}/p-1"), valid_body()).await;
            assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{service}");
        }
        assert_eq!(harness.ledgers().effects(service, "p-1"), 0, "{service}");
    }
    assert_eq!(harness.cancel("d-1").await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_service_that_is_down_returns_503_and_does_nothing() {
    let harness = start(healthy()).await;
    harness.services.set_down(DemoService::DroneScheduler, true);
    assert_eq!(harness.schedule("d-1").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    harness.services.set_down(DemoService::DroneScheduler, false);
    assert_eq!(harness.drones(), (0, 0));
    assert_eq!(harness.schedule("d-1").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_malformed_request_is_a_bad_request_and_is_not_counted() {
    let harness = start(healthy()).await;
    let invalid_route =
        json!({ "package": "p-1", "pickup": { "lat": 91, "lon": 0 }, "dropoff": {} });
    for (body, problem) in [
        (json!([]), "body-not-an-object"),
        (json!({}), "package-missing"),
        (json!({ "package": "" }), "package-length"),
        (json!({ "package": "p-1" }), "no-route"),
        (invalid_route, "no-route"),
    ] {
        let put =
            harness.put(DemoService::DroneScheduler, "dronedeliveries/d-1", body.clone()).await;
        assert_eq!(put.status(), StatusCode::BAD_REQUEST);
        assert_eq!(type_of(put).await, format!("urn:problem-type:{problem}"));
        let assessed =
            harness.send(Method::POST, DemoService::Transport, "assessments", Some(body)).await;
        assert_eq!(type_of(assessed.unwrap()).await, format!("urn:problem-type:{problem}"));
    }
    assert_eq!(harness.ledgers().calls_total(), 0);
}
