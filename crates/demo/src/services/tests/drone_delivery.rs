//! The services of a drone delivery, over HTTP: `PUT` and `DELETE` under the caller's own ids.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{FaultKind, FaultPlan, Service, World, healthy, json_of};

const NAMED: [(Service, &str); 4] = [
    (Service::Package, "packages"),
    (Service::Transport, "bookings"),
    (Service::DroneScheduler, "dronedeliveries"),
    (Service::Delivery, "deliveries"),
];

async fn world(plan: FaultPlan) -> World {
    World::of(&Service::DRONE_DELIVERY, plan).await
}

/// What every one of the services that keep things takes.
fn wish() -> Value {
    json!({
        "package": "p-1",
        "pickup": { "lat": 52.01, "lon": 4.36 },
        "dropoff": { "lat": 51.92, "lon": 4.48 },
    })
}

impl World {
    async fn send(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<Value>,
    ) -> reqwest::Result<Response> {
        let url = format!("{}/{path}", self.services.base_url(service));
        let request = self.client.request(method, url);
        request.body(body.map(|body| body.to_string()).unwrap_or_default()).send().await
    }

    async fn put(&self, service: Service, path: &str, body: Value) -> Response {
        self.send(Method::PUT, service, path, Some(body)).await.unwrap()
    }

    async fn schedule(&self, id: &str) -> Response {
        self.put(Service::DroneScheduler, &format!("dronedeliveries/{id}"), wish()).await
    }

    async fn cancel(&self, id: &str) -> StatusCode {
        let path = format!("dronedeliveries/{id}");
        let answer = self.send(Method::DELETE, Service::DroneScheduler, &path, None);
        answer.await.unwrap().status()
    }

    /// Drones for the package: ever scheduled, and scheduled now.
    fn drones(&self) -> (usize, usize) {
        let (ledger, drones) = (self.ledger(), Service::DroneScheduler);
        (ledger.effects(drones, "p-1"), ledger.standing(drones, "p-1"))
    }
}

async fn type_of(response: Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    json_of(response).await["type"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn repeated_put_gets_the_same_answer_and_makes_nothing_new() {
    let world = world(healthy()).await;
    for (service, things) in NAMED {
        let path = format!("{things}/p-1");
        let first = world.put(service, &path, wish()).await;
        assert_eq!(first.status(), StatusCode::CREATED, "{service}");
        let repeat = world.put(service, &path, wish()).await;
        assert_eq!(repeat.status(), StatusCode::OK, "{service}");
        assert_eq!(repeat.headers()["idempotent-replay"], "true");
        assert_eq!(json_of(repeat).await, json_of(first).await);

        assert_eq!(world.ledger().effects(service, "p-1"), 1, "{service}");
        assert_eq!(world.ledger().page(service, "p-1").unwrap().deduplicated, 1);
    }
}

#[tokio::test]
async fn racing_puts_make_one_drone() {
    let world = world(FaultPlan { latency_ms: 5, ..healthy() }).await;
    let calls = futures_util::future::join_all((0..20).map(|_| world.schedule("d-1"))).await;
    let created = calls.iter().filter(|call| call.status() == StatusCode::CREATED);
    assert_eq!(created.count(), 1);
    assert_eq!(world.drones(), (1, 1));
}

#[tokio::test]
async fn other_content_under_an_id_is_a_conflict_and_changes_nothing() {
    let world = world(healthy()).await;
    world.schedule("d-1").await;
    let mut other = wish();
    other["package"] = json!("p-2");
    let other = world.put(Service::DroneScheduler, "dronedeliveries/d-1", other).await;
    assert_eq!(other.status(), StatusCode::CONFLICT);
    assert_eq!(type_of(other).await, "urn:problem-type:id-taken");
    assert_eq!(world.drones(), (1, 1));
    assert_eq!(world.ledger().effects(Service::DroneScheduler, "p-2"), 0);
    let page = world.ledger().page(Service::DroneScheduler, "p-2").cloned().unwrap();
    assert_eq!(page.keys_reused, 1);
}

#[tokio::test]
async fn two_ids_are_two_drones_for_one_package() {
    let world = world(healthy()).await;
    world.schedule("d-1").await;
    world.schedule("d-2").await;
    assert_eq!(world.drones(), (2, 2));
    assert_eq!(world.cancel("d-1").await, StatusCode::NO_CONTENT);
    assert_eq!(world.drones(), (2, 1));
}

#[tokio::test]
async fn cancelling_does_no_harm_where_nothing_is_and_is_harmless_twice() {
    let world = world(healthy()).await;
    for (service, things) in NAMED {
        let path = format!("{things}/p-1");
        let gone = async || {
            let answer = world.send(Method::DELETE, service, &path, None).await.unwrap();
            assert_eq!(answer.status(), StatusCode::NO_CONTENT, "{service}");
            assert_eq!(answer.text().await.unwrap(), "");
        };
        gone().await;
        world.put(service, &path, wish()).await;
        assert_eq!(world.ledger().standing(service, "p-1"), 1, "{service}");
        gone().await;
        gone().await;
        assert_eq!(world.ledger().standing(service, "p-1"), 0, "{service}");
        assert_eq!(world.ledger().effects(service, "p-1"), 1, "{service}");
    }
    let drones = world.ledger().page(Service::DroneScheduler, "p-1").cloned().unwrap();
    let by = drones.effects.first().unwrap().undone_by.clone();
    assert_eq!(by.as_deref(), Some("DELETE /dronedeliveries/p-1"));
}

#[tokio::test]
async fn put_that_comes_again_after_the_cancellation_makes_no_second_drone() {
    let world = world(healthy()).await;
    world.schedule("d-1").await;
    world.cancel("d-1").await;
    for _ in 0..2 {
        let late = world.schedule("d-1").await;
        assert_eq!(late.status(), StatusCode::GONE);
        assert_eq!(type_of(late).await, "urn:problem-type:taken-back");
    }
    assert_eq!(world.drones(), (1, 0));
    assert_eq!(world.cancel("d-1").await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn first_drone_after_a_cancellation_of_none_is_the_callers_mistake_and_is_in_the_book() {
    let world = world(healthy()).await;
    world.cancel("p-1").await;
    assert_eq!(world.schedule("p-1").await.status(), StatusCode::CREATED);
    assert_eq!(world.drones(), (1, 1));
}

#[tokio::test]
async fn suspended_account_is_refused_and_others_are_not() {
    let world = world(healthy()).await;
    let ask = async |id: &str| {
        let path = format!("accounts/{id}");
        world.send(Method::GET, Service::Account, &path, None).await.unwrap()
    };
    let active = json_of(ask("a-1").await).await;
    assert_eq!(active, json!({ "account": "a-1", "status": "active" }));
    let suspended = ask("suspended-1").await;
    assert_eq!(suspended.status(), StatusCode::FORBIDDEN);
    assert_eq!(type_of(suspended).await, "urn:problem-type:account-suspended");
    let ledger = world.ledger();
    assert!(ledger.has_refused(Service::Account, "suspended-1"));
    assert!(!ledger.has_refused(Service::Account, "a-1"));
}

#[tokio::test]
async fn third_party_is_needed_where_no_drone_flies() {
    let world = world(healthy()).await;
    let assess = async |wish: Value| {
        let answer = world.send(Method::POST, Service::Transport, "assessments", Some(wish));
        json_of(answer.await.unwrap()).await
    };
    assert_eq!(assess(wish()).await, json!({ "third_party": false, "distance_km": 13.0 }));
    let mut far = wish();
    far["dropoff"] = json!({ "lat": 44.41, "lon": 8.93 });
    assert_eq!(assess(far.clone()).await, json!({ "third_party": true, "distance_km": 910.0 }));

    let refused = world.put(Service::DroneScheduler, "dronedeliveries/d-1", far.clone()).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(type_of(refused).await, "urn:problem-type:too-far");
    assert_eq!(world.drones(), (0, 0));
    assert!(world.ledger().has_refused(Service::DroneScheduler, "p-1"));
    let booked = world.put(Service::Transport, "bookings/d-1", far).await;
    assert_eq!(booked.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn lost_answer_has_scheduled_a_drone_and_the_repeat_hears_of_it() {
    let world = world(FaultPlan { answer_lost: 1.0, ..healthy() }).await;
    let path = "dronedeliveries/d-1";
    let lost = world.send(Method::PUT, Service::DroneScheduler, path, Some(wish())).await;
    assert!(lost.unwrap_err().is_request());
    assert_eq!(world.drones(), (1, 1));
    let repeat = world.schedule("d-1").await;
    assert_eq!(repeat.status(), StatusCode::OK);
    assert_eq!(json_of(repeat).await["dronedelivery"], "d-1");
    assert_eq!(world.drones(), (1, 1));

    let lost = world.send(Method::DELETE, Service::DroneScheduler, path, None).await;
    assert!(lost.unwrap_err().is_request());
    assert_eq!(world.drones(), (1, 0));
    assert_eq!(world.cancel("d-1").await, StatusCode::NO_CONTENT);
    assert_eq!(world.ledger().faults_total(FaultKind::AnswerLost), 2);
}

#[tokio::test]
async fn refusal_of_each_is_permanent_and_makes_nothing() {
    let world = world(FaultPlan { refuse: 1.0, ..healthy() }).await;
    for (service, things) in NAMED {
        for _ in 0..2 {
            let refused = world.put(service, &format!("{things}/p-1"), wish()).await;
            assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{service}");
        }
        assert_eq!(world.ledger().effects(service, "p-1"), 0, "{service}");
    }
    assert_eq!(world.cancel("d-1").await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn service_that_is_down_says_so_and_does_nothing() {
    let world = world(healthy()).await;
    world.services.set_down(Service::DroneScheduler, true);
    assert_eq!(world.schedule("d-1").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    world.services.set_down(Service::DroneScheduler, false);
    assert_eq!(world.drones(), (0, 0));
    assert_eq!(world.schedule("d-1").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn malformed_wish_is_a_problem_and_leaves_no_trace() {
    let world = world(healthy()).await;
    let nowhere = json!({ "package": "p-1", "pickup": { "lat": 91, "lon": 0 }, "dropoff": {} });
    for (body, problem) in [
        (json!([]), "body-not-an-object"),
        (json!({}), "package-missing"),
        (json!({ "package": "" }), "package-length"),
        (json!({ "package": "p-1" }), "no-route"),
        (nowhere, "no-route"),
    ] {
        let put = world.put(Service::DroneScheduler, "dronedeliveries/d-1", body.clone()).await;
        assert_eq!(put.status(), StatusCode::BAD_REQUEST);
        assert_eq!(type_of(put).await, format!("urn:problem-type:{problem}"));
        let asked = world.send(Method::POST, Service::Transport, "assessments", Some(body)).await;
        assert_eq!(type_of(asked.unwrap()).await, format!("urn:problem-type:{problem}"));
    }
    assert_eq!(world.ledger().calls_total(), 0);
}
