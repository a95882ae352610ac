//! The services of purchases: functions behind Lambda's API, queues, and an order that is confirmed later.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode as Status;
use axum::routing::post;
use axum::{Router, response::IntoResponse};
use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, mpsc};

use super::{
    super::{
        mock_service::Operation,
        queue_consumer::{OnEffect, QueueMessage},
    },
    DemoService, FaultKind, FaultPlan, ServiceHarness, healthy, json_of,
};

const COMMIT: &str = "arn:aws:lambda:us-east-1:000000000000:function:commit-budget";
const RELEASE: &str = "arn:aws:lambda:us-east-1:000000000000:function:release-budget:live";
const PURCHASE: &str = "purchase-1";

async fn purchases(plan: FaultPlan) -> ServiceHarness {
    ServiceHarness::with_services(&DemoService::PURCHASE, plan).await
}

impl ServiceHarness {
    /// Invokes a function of the finance service with this idempotency key, as the agent does.
    async fn invoke(&self, function: &str, key: &str, event: Value) -> Response {
        let url = self.services.base_url(DemoService::Finance);
        let url =
            format!("{url}/2015-03-31/functions/{}/invocations", function.replace(':', "%3A"));
        let context = json!({ "custom": { "idempotency_key": key } }).to_string();
        let call = self.client.post(url).header("authorization", "AWS4-HMAC-SHA256 Credential=x");
        let call = call.header("x-amz-client-context", STANDARD.encode(context));
        call.body(event.to_string()).send().await.unwrap()
    }

    async fn commit(&self, key: &str, amount: u64) -> Response {
        self.invoke(COMMIT, key, json!({ "purchase": PURCHASE, "amount": amount })).await
    }

    async fn order(&self, article: &str, confirm_at: &str) {
        let body = json!({ "reference": PURCHASE, "article": article, "confirm_at": confirm_at });
        let response = self.post(DemoService::Supplier, "orders", "purchase-1/order/do", body);
        assert_eq!(response.await.unwrap().status(), StatusCode::CREATED);
    }

    /// Lets accounting carry a message out. Returns how many side effects are active.
    fn account(&self, operation: Operation, key: &str) -> usize {
        let mock = self.services.services.iter();
        let mock = mock.clone().find(|mock| mock.service() == DemoService::Accounting).unwrap();
        let (key, subject) = (key.to_owned(), PURCHASE.to_owned());
        let message = QueueMessage { key, operation, subject, body: Map::new() };
        let ignore: OnEffect = Arc::new(|_| ());
        mock.carry_out_message(message, &ignore);
        self.ledgers().active_effects(DemoService::Accounting, PURCHASE)
    }
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_repeated_invocation_commits_the_budget_once_and_the_other_function_releases_it() {
    let harness = purchases(healthy()).await;
    let first = harness.commit("k/do", 500).await;
    assert_eq!((first.status(), header(&first, "x-amz-function-error")), (StatusCode::OK, None));
    let first = json_of(first).await;
    assert_eq!(json_of(harness.commit("k/do", 500).await).await, first);
    assert_eq!(harness.ledgers().effects(DemoService::Finance, PURCHASE), 1);

    let released = harness.invoke(RELEASE, "k/undo", json!({ "purchase": PURCHASE })).await;
    assert_eq!(json_of(released).await["undone"], json!([first["commitment"]]));
    assert_eq!(harness.ledgers().active_effects(DemoService::Finance, PURCHASE), 0);
}

#[tokio::test]
async fn a_function_that_ends_with_an_error_has_the_status_200_and_a_header() {
    let harness = purchases(healthy()).await;
    let refused = harness.commit("k/do", 1_000_001).await;
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(header(&refused, "x-amz-function-error"), Some("Unhandled"));
    assert_eq!(json_of(refused).await["errorType"], "BudgetExceeded");
    assert!(harness.ledgers().has_refused(DemoService::Finance, PURCHASE));
    assert_eq!(harness.ledgers().effects(DemoService::Finance, PURCHASE), 0);

    let harness = purchases(FaultPlan { refuse: 1.0, ..healthy() }).await;
    assert_eq!(json_of(harness.commit("k/do", 500).await).await["errorType"], "BudgetExceeded");
}

#[tokio::test]
async fn failures_are_errors_of_lambda_and_unknown_or_unsigned_invocations_are_refused() {
    let harness = purchases(FaultPlan { flaky: 1.0, ..healthy() }).await;
    let mut seen = Vec::new();
    for n in 0..40 {
        loop {
            let response = harness.commit(&format!("k-{n}/do"), 500).await;
            if response.status() == StatusCode::OK {
                break;
            }
            let name = header(&response, "x-amzn-errortype").unwrap().to_owned();
            seen.push((response.status().as_u16(), name));
        }
    }
    seen.sort_unstable();
    seen.dedup();
    let expected = [
        (409, "ResourceConflictException"),
        (429, "TooManyRequestsException"),
        (500, "ServiceException"),
    ];
    assert_eq!(seen, expected.map(|(status, name)| (status, name.to_owned())));

    let other = harness.invoke("commit", "k/do", json!({})).await;
    assert_eq!(header(&other, "x-amzn-errortype"), Some("ResourceNotFoundException"));
    let url = harness.services.base_url(DemoService::Finance);
    let url = format!("{url}/2015-03-31/functions/commit-budget/invocations");
    let unsigned = harness.client.post(url).body("{}").send().await.unwrap();
    assert_eq!(unsigned.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_void_that_comes_before_its_booking_prevents_it() {
    let harness = purchases(healthy()).await;
    assert_eq!(harness.account(Operation::Undo, "k/undo"), 0);
    assert_eq!(harness.account(Operation::Do, "k/do"), 0);
    assert_eq!(harness.ledgers().faults_total(FaultKind::OutOfOrder), 1);
    assert_eq!(harness.ledgers().effects(DemoService::Accounting, PURCHASE), 0);
}

#[tokio::test]
async fn a_booking_that_is_delivered_twice_is_booked_once_and_its_void_ends_it() {
    let harness = purchases(healthy()).await;
    assert_eq!(harness.account(Operation::Do, "k/do"), 1);
    assert_eq!(harness.account(Operation::Do, "k/do"), 1);
    assert_eq!(harness.account(Operation::Undo, "k/undo"), 0);
    assert_eq!(harness.account(Operation::Do, "k/do"), 0);
    assert_eq!(harness.ledgers().deduplicated_total(), 2);
    assert_eq!(harness.ledgers().effects(DemoService::Accounting, PURCHASE), 1);
    // Another key is another booking: an error of the caller, which the audit finds.
    let harness = purchases(healthy()).await;
    harness.account(Operation::Do, "k/do");
    assert_eq!(harness.account(Operation::Do, "other/do"), 2);
}

/// A server that receives the supplier's answers.
struct CallbackServer {
    url: String,
    received: mpsc::UnboundedReceiver<(String, Value)>,
}

type CallbackState =
    (Arc<Mutex<Vec<(Status, &'static str)>>>, mpsc::UnboundedSender<(String, Value)>);

impl CallbackServer {
    /// A server with these responses, the last of which it repeats.
    async fn start(responses: &[(Status, &'static str)]) -> Self {
        let answer = async |State((responses, sender)): State<CallbackState>,
                            Path(path): Path<String>,
                            body: String| {
            sender.send((path, serde_json::from_str(&body).unwrap())).unwrap();
            let mut responses = responses.lock().await;
            let (status, problem) =
                if responses.len() > 1 { responses.remove(0) } else { responses[0] };
            (status, json!({ "type": problem }).to_string()).into_response()
        };
        let (sender, received) = mpsc::unbounded_channel();
        let state = (Arc::new(Mutex::new(responses.to_vec())), sender);
        let routes = Router::new().route("/{*path}", post(answer)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/callbacks/token", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, received }
    }

    async fn next(&mut self) -> (String, Value) {
        self.received.recv().await.unwrap()
    }
}

#[tokio::test]
async fn an_order_is_confirmed_once_although_steward_is_not_ready_at_first() {
    let mut steward = CallbackServer::start(&[
        (Status::SERVICE_UNAVAILABLE, "about:blank"),
        (Status::CONFLICT, "urn:steward:callback-not-awaited-now"),
        (Status::ACCEPTED, ""),
    ])
    .await;
    let harness = purchases(healthy()).await;
    harness.order("laptop", &steward.url).await;
    for _ in 0..3 {
        let (path, answer) = steward.next().await;
        assert_eq!(path, "callbacks/token");
        assert!(answer["confirmation"].as_str().unwrap().starts_with("confirmation-"), "{answer}");
    }
    // A repeated order has no second confirmation.
    let body = json!({ "reference": PURCHASE, "article": "laptop", "confirm_at": steward.url });
    let repeat = harness.post(DemoService::Supplier, "orders", "purchase-1/order/do", body).await;
    assert_eq!(repeat.unwrap().status(), StatusCode::OK);
    assert!(steward.received.try_recv().is_err());
    assert_eq!(harness.ledgers().active_effects(DemoService::Supplier, PURCHASE), 1);
}

#[tokio::test]
async fn a_confirmation_may_be_sent_twice() {
    let mut steward = CallbackServer::start(&[
        (Status::ACCEPTED, ""),
        (Status::CONFLICT, "urn:steward:callback-already-answered"),
    ])
    .await;
    let harness = purchases(FaultPlan { repeat: 1.0, ..healthy() }).await;
    harness.order("laptop", &steward.url).await;
    assert_eq!(steward.next().await, steward.next().await);
    assert_eq!(harness.ledgers().faults_total(FaultKind::Repeated), 1);
}

#[tokio::test]
async fn an_order_that_the_supplier_refuses_is_failed_and_leaves_no_effect() {
    let refusing = FaultPlan { refuse: 1.0, ..healthy() };
    for (article, plan) in [("discontinued-laptop", healthy()), ("laptop", refusing)] {
        // The order itself must be accepted.
        let mut plans =
            (0..).map(|seed| FaultPlan { seed, refuse: plan.refuse / 2.0, ..plan.clone() });
        let refuses = |plan: &FaultPlan, key| plan.fault(key) == super::super::Fault::Refuse;
        let is_usable = |plan: &FaultPlan| {
            !refuses(plan, "purchase-1/order/do")
                && (article != "laptop" || refuses(plan, "confirm purchase-1"))
        };
        let mut steward = CallbackServer::start(&[(Status::ACCEPTED, "")]).await;
        let harness = purchases(plans.find(is_usable).unwrap()).await;
        harness.order(article, &steward.url).await;
        let (path, answer) = steward.next().await;
        assert_eq!(path, "callbacks/token/fail");
        assert_eq!(answer, json!({ "reason": "The article is no longer sold" }));
        let ledgers = harness.ledgers();
        assert!(ledgers.has_refused(DemoService::Supplier, PURCHASE));
        assert_eq!(ledgers.effects(DemoService::Supplier, PURCHASE), 1);
        assert_eq!(ledgers.active_effects(DemoService::Supplier, PURCHASE), 0);
    }
}
