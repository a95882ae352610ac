//! Mock remote services for `steward demo`: three for orders, five for drone deliveries, four for purchases.
//!
//! The services inject faults at seeded rates ([`FaultPlan`]). Each service keeps a ledger of the side effects that
//! it carried out ([`ServiceLedgers`]). The demo's audit trusts only these ledgers: a step counts as done once only
//! if the service's ledger has its side effect exactly once.
//!
//! ```text
//! agent ── POST /payment/charges ────────► mock service: fault for this key? ──► ledger
//!          Idempotency-Key: order-1/pay/do  │                          one side effect per key
//!    ◄── 201, replayed 200, 402, 5xx, … ────┘                                      │
//! person ─ GET /payment/ledger ◄──── orders, side effects, faults ─────────────────┘
//! ```
//!
//! | service for orders | do | undo | refuses with |
//! | --- | --- | --- | --- |
//! | inventory | `POST /inventory/reservations` | `POST /inventory/releases` | 409 out of stock |
//! | payment | `POST /payment/charges` | `POST /payment/refunds` | 402 card declined |
//! | shipping | `POST /shipping/shipments` | `POST /shipping/cancellations` | 422 undeliverable |
//!
//! Every POST requires an `Idempotency-Key` header and a JSON object with an `order`. An undo names the order, not
//! the result of the do: if an attempt got no response, its caller does not know the result. The undo reverts all
//! active side effects for that order, and succeeds if there are none.
//!
//! | service for drone deliveries | do | undo | refuses with |
//! | --- | --- | --- | --- |
//! | account | `GET /account/accounts/{id}` | | 403 suspended |
//! | package | `PUT /package/packages/{id}` | `DELETE` | 422 too heavy |
//! | transport | `POST /transport/assessments` | | 422 no carrier |
//! | | `PUT /transport/bookings/{id}` | `DELETE` | 422 no carrier |
//! | dronescheduler | `PUT /dronescheduler/dronedeliveries/{id}` | `DELETE` | 422 too far, no-fly zone |
//! | delivery | `PUT /delivery/deliveries/{id}` | `DELETE` | 422 no dropoff |
//!
//! These services accept client-generated ids, and need no header. The first `PUT` of an id returns 201. A repeated
//! `PUT` with the same content returns 200 and the same body; one with other content returns 409. A `DELETE` always
//! returns 204, and a later `PUT` of the same id returns 410. Bookings, drones and deliveries name their `package`,
//! and the ledger has one record per package. An assessment returns whether the route from `pickup` to `dropoff`,
//! each with `lat` and `lon`, is too long for a drone. It has no side effect.
//!
//! | service for purchases | called by | do | undo | refuses |
//! | --- | --- | --- | --- | --- |
//! | finance | Lambda's `Invoke` API | function `commit-budget` | function `release-budget` | `BudgetExceeded` |
//! | mail | queue `approval-requests` | a mail to the manager | | the manager rejects in the console |
//! | supplier | HTTP, with `Idempotency-Key` | `POST /supplier/orders` | `POST /supplier/cancellations` | 422, or later at `confirm_at` |
//! | accounting | queue `bookings` | a message with `book` | a message with `void` | |
//!
//! With [`MockServices::connect`] they also act on their own, because real ones do: mail and accounting read their
//! queues, a simulated manager approves or rejects in the console, and the supplier puts the event `Goods Delivered`
//! on the bus. The supplier answers at `confirm_at` also without it. Purchases of more than 1,000,000 cents exceed the
//! budget, the manager rejects those of cost centres that begin with `frozen`, the supplier refuses articles that begin
//! with `discontinued`, and parcels of articles that begin with `lost` do not arrive: the manager undoes these purchases.
//!
//! With [`FaultPlan::chaos`] the services also show the difficult behaviour of real services. A call takes effect
//! even if its caller disconnects. Some calls take seconds, and some take longer than the step's deadline, but none
//! takes more than ten seconds. While a call is in progress, a repeated call gets 409 (payment, shipping) or 423
//! (inventory, whose 409 means out of stock, and the drone services), and an undo finds nothing to undo. A success may
//! be a redirect, sent before or after the side effect, an empty 200, a 200 that is not JSON, or JSON after a byte order mark. Some
//! keys get a 500 for ever, with or without a side effect. The payment service may be too busy, and says so in the body of a 200.
//!
//! A repeated request gets the same response as the first one, because each service remembers its responses. Header
//! and error responses follow the IETF's `draft-ietf-httpapi-idempotency-key-header`, and error bodies RFC 9457.

mod by_client_id;
mod by_idempotency_key;
mod connection;
mod demo_service;
mod fault;
mod invoke_api;
mod ledger;
mod manager;
mod mock_service;
mod queue_consumer;
mod read_only;
mod request_fields;
mod responses;
mod retry;
mod route;
mod supplier;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::future::IntoFuture;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub use self::connection::StewardConnection;
pub use self::demo_service::DemoService;
pub use self::fault::{Fault, FaultKind, FaultPlan, Sending};
pub use self::ledger::{CallRecord, ServiceLedgers, SideEffect, SubjectRecord};
use self::mock_service::MockService;
use self::queue_consumer::{OnEffect, consume};
use self::supplier::SupplierOffice;

/// How often the queues are looked at until they are empty.
const POLL_EVERY: Duration = Duration::from_millis(50);

const BODY_BYTES_MAX: usize = 64 * 1024;

/// The running services. Dropping this stops them; [`shutdown`](Self::shutdown) also waits until they have stopped.
#[derive(Debug)]
pub struct MockServices {
    address: SocketAddr,
    services: Vec<Arc<MockService>>,
    http: reqwest::Client,
    /// Set by [`connect`](Self::connect).
    steward: Arc<OnceLock<StewardConnection>>,
    /// Dropping the sender is the signal to stop. No value is ever sent.
    stop: watch::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl MockServices {
    /// Starts the services on one free port of 127.0.0.1, on the current tokio runtime.
    ///
    /// # Errors
    /// The port could not be bound.
    pub async fn start(services: &[DemoService], plan: FaultPlan) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), services, plan).await
    }

    /// Starts the services at `address`, on the current tokio runtime.
    ///
    /// # Errors
    /// The address could not be bound.
    pub async fn start_at(
        address: SocketAddr,
        services: &[DemoService],
        plan: FaultPlan,
    ) -> io::Result<Self> {
        Self::start_beside(Router::new(), address, services, plan).await
    }

    /// Starts the services at `address` with `others`: routes of the caller at the same address.
    ///
    /// # Errors
    /// The address could not be bound.
    pub async fn start_beside(
        others: Router,
        address: SocketAddr,
        services: &[DemoService],
        plan: FaultPlan,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, mut stopped) = watch::channel(());
        let new = |&service| Arc::new(MockService::new(service, plan.clone(), stopped.clone()));
        let services: Vec<_> = services.iter().map(new).collect();
        let http = connection::http_client().map_err(io::Error::other)?;
        let steward = Arc::default();
        let office = SupplierOffice { http: http.clone(), steward: Arc::clone(&steward) };
        let router = services.iter().fold(others, |router, service| {
            let routes = routes(Arc::clone(service), office.clone());
            router.nest(&format!("/{}", service.service()), routes)
        });
        let server = axum::serve(listener, router).with_graceful_shutdown(async move {
            // Returns an error when the sender is dropped, which is the signal to stop.
            let _ = stopped.changed().await;
        });
        let server = tokio::spawn(server.into_future());
        Ok(Self { address, services, http, steward, stop, server })
    }

    /// The URL of a service, without a trailing slash: `http://127.0.0.1:PORT/payment`.
    #[must_use]
    pub fn base_url(&self, service: DemoService) -> String {
        format!("http://{}/{service}", self.address)
    }

    /// Lets the services act on their own from now on: they read their queues, decide on purchases and publish events.
    /// A second connection has no effect.
    pub fn connect(&self, connection: StewardConnection) {
        if self.steward.set(connection.clone()).is_err() {
            return;
        }
        for mock in &self.services {
            let Some(queue) = mock.service().queue() else { continue };
            let on_effect = self.on_effect(mock, &connection);
            tokio::spawn(consume(Arc::clone(mock), queue, connection.clone(), on_effect));
        }
    }

    /// A mail starts a decision of the manager. Bookings start nothing.
    fn on_effect(&self, mock: &Arc<MockService>, steward: &StewardConnection) -> OnEffect {
        let (mock, http, steward) = (Arc::clone(mock), self.http.clone(), steward.clone());
        Arc::new(move |body| {
            if mock.service() == DemoService::Mail && steward.has_manager {
                let own = Arc::clone(&mock);
                let decision = manager::decide(own, http.clone(), steward.clone(), body);
                let mock = Arc::clone(&mock);
                tokio::spawn(async move {
                    tokio::select! {
                        () = decision => {}
                        () = mock.stopped() => {}
                    }
                });
            }
        })
    }

    /// Waits until the services have read all messages of their queues, at most `timeout`. Returns what is left, as text.
    pub async fn messages_left(&self, timeout: Duration) -> Vec<String> {
        let Some(steward) = self.steward.get() else { return Vec::new() };
        let deadline = Instant::now() + timeout;
        loop {
            let mut left = Vec::new();
            for mock in &self.services {
                match steward.messages(mock.service()).await {
                    Ok(0) => {}
                    Ok(count) => {
                        left.push(format!("{}: {count} messages are left", mock.service()))
                    }
                    Err(error) => left.push(format!("{}: {error:#}", mock.service())),
                }
            }
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Takes a service down or up again. While it is down, it answers every call with 503.
    pub fn set_down(&self, service: DemoService, is_down: bool) {
        for mock in self.services.iter().filter(|mock| mock.service() == service) {
            mock.set_down(is_down);
        }
    }

    /// Makes all services healthy: from now on they inject no faults.
    pub fn heal(&self) {
        self.services.iter().for_each(|mock| mock.heal());
    }

    /// Forgets all about these subjects, so that a long run needs no more memory than a short one. A later call for one
    /// of them counts as its first.
    pub fn forget(&self, subjects: &HashSet<String>) {
        self.services.iter().for_each(|mock| mock.forget(subjects));
    }

    /// A snapshot of the services' ledgers.
    #[must_use]
    pub fn ledgers(&self) -> ServiceLedgers {
        let ledgers = self.services.iter().map(|mock| (mock.service(), mock.ledger()));
        ServiceLedgers::new(ledgers)
    }

    /// Stops the services: disconnects hanging calls, and answers all others first.
    ///
    /// # Errors
    /// The server had failed.
    pub async fn shutdown(self) -> io::Result<()> {
        let Self { stop, server, services: _, address: _, http: _, steward: _ } = self;
        drop(stop);
        server.await.map_err(io::Error::other)?
    }
}

/// The routes of one service, relative to its base URL.
fn routes(mock: Arc<MockService>, office: SupplierOffice) -> Router {
    let routes = match mock.service() {
        DemoService::Inventory => by_idempotency_key::routes("reservation", "release"),
        DemoService::Payment => by_idempotency_key::routes("charge", "refund"),
        DemoService::Shipping => by_idempotency_key::routes("shipment", "cancellation"),
        DemoService::Account => read_only::accounts(),
        DemoService::Package => by_client_id::routes("packages", "package"),
        DemoService::Transport => {
            read_only::assessments().merge(by_client_id::routes("bookings", "booking"))
        }
        DemoService::DroneScheduler => by_client_id::routes("dronedeliveries", "dronedelivery"),
        DemoService::Delivery => by_client_id::routes("deliveries", "delivery"),
        DemoService::Finance => invoke_api::routes(),
        DemoService::Supplier => supplier::routes(office),
        // They read queues, and serve only their ledgers.
        DemoService::Mail | DemoService::Accounting => Router::new(),
    };
    let ledger = get(async |State(mock): State<Arc<MockService>>| Json(mock.ledger()));
    routes.route("/ledger", ledger).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(mock)
}
