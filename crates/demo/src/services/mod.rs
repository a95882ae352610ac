//! The remote services that `steward demo` runs against: three of an order, five of a drone delivery.
//!
//! They misbehave on purpose, at seeded rates ([`FaultPlan`]), and each keeps its own books
//! ([`Ledger`]). The demo's audit believes these books and nothing else: what Steward says it did
//! counts only if the service says that it was done to it, once.
//!
//! ```text
//! agent ── POST /payment/charges ─────────► desk: a fault for this key? ──► book
//!          Idempotency-Key: order-1/pay/do   │                             │ effect, once a key
//!    ◄── 201, replayed 200, 402, 5xx, … ─────┘                             ▼
//! person ─ GET /payment/ledger ──────────────────────────► orders, effects, faults
//! ```
//!
//! | of an order | do | undo | refuses with |
//! | --- | --- | --- | --- |
//! | inventory | `POST /inventory/reservations` | `POST /inventory/releases` | 409 out of stock |
//! | payment | `POST /payment/charges` | `POST /payment/refunds` | 402 card declined |
//! | shipping | `POST /shipping/shipments` | `POST /shipping/cancellations` | 422 undeliverable |
//!
//! Every POST wants an `Idempotency-Key` header and a JSON object with an `order`. An undo goes by
//! the order and not by what a do returned, because whoever undoes a silent attempt never saw an
//! answer. It undoes what stands of that order, and having found nothing it has succeeded too.
//!
//! | of a drone delivery | do | undo | refuses with |
//! | --- | --- | --- | --- |
//! | account | `GET /account/accounts/{id}` | | 403 suspended |
//! | package | `PUT /package/packages/{id}` | `DELETE` | 422 too heavy |
//! | transport | `POST /transport/assessments` | | 422 no carrier |
//! | | `PUT /transport/bookings/{id}` | `DELETE` | 422 no carrier |
//! | dronescheduler | `PUT /dronescheduler/dronedeliveries/{id}` | `DELETE` | 422 too far, no-fly zone |
//! | delivery | `PUT /delivery/deliveries/{id}` | `DELETE` | 422 no dropoff |
//!
//! These go by ids that the caller chooses, and no header is wanted. The first `PUT` of an id is
//! answered with 201, the same again with 200 and the same answer, anything else with 409. A
//! `DELETE` is always answered with 204, and then the same `PUT` again with 410. Bookings, drones and
//! deliveries name their `package`, and the book has a page for each package. An assessment says
//! whether the way from `pickup` to `dropoff`, each a `lat` and a `lon`, is too far for a drone, and
//! changes nothing.
//!
//! In chaos they are as awkward as real services ([`FaultPlan::chaos`]). A call takes effect even if its
//! caller hangs up; some take seconds, and some outlive the time of the step, but none takes more than ten
//! seconds. While a call is in progress, the same again is answered with 409 (payment, shipping) or 423 (inventory,
//! whose 409 means out of stock, and the services of a drone delivery), and an undo finds nothing to undo. A
//! success may be a redirect, sent before the effect or after it, an empty 200, or a 200 that is not JSON.
//!
//! A service cannot answer one HTTP request twice. The nearest thing is a request that arrives
//! twice, and the memory of what took effect covers it: the repeat gets the first answer, word for
//! word. Header and error answers follow the IETF's `draft-ietf-httpapi-idempotency-key-header`, the
//! errors' bodies RFC 9457.

mod answer;
mod asked;
mod desk;
mod fault;
mod keyed;
mod ledger;
mod named;
mod route;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::desk::Desk;
pub use self::fault::{Fault, FaultKind, FaultPlan};
pub use self::ledger::{Call, Effect, Ledger, Page};

const BODY_BYTES_MAX: usize = 64 * 1024;

/// One of the remote services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Reserves goods, releases them.
    Inventory,
    /// Charges cards, refunds them.
    Payment,
    /// Books shipments, cancels them.
    Shipping,
    /// Says whether a customer's account is good.
    Account,
    /// Keeps packages.
    Package,
    /// Says where drones do not reach, and books somebody else for that.
    Transport,
    /// Schedules drones, cancels them.
    DroneScheduler,
    /// Keeps deliveries.
    Delivery,
}

impl Service {
    /// Those of an order, in the order in which it meets them.
    pub const ORDER: [Self; 3] = [Self::Inventory, Self::Payment, Self::Shipping];

    /// Those of a drone delivery, in the order in which it meets them.
    pub const DRONE_DELIVERY: [Self; 5] =
        [Self::Account, Self::Package, Self::Transport, Self::DroneScheduler, Self::Delivery];

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Inventory,
        Self::Payment,
        Self::Shipping,
        Self::Account,
        Self::Package,
        Self::Transport,
        Self::DroneScheduler,
        Self::Delivery,
    ];

    /// The name in URLs and in JSON, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Payment => "payment",
            Self::Shipping => "shipping",
            Self::Account => "account",
            Self::Package => "package",
            Self::Transport => "transport",
            Self::DroneScheduler => "dronescheduler",
            Self::Delivery => "delivery",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The running services. Dropping it stops them; [`shutdown`](Self::shutdown) also waits for that.
#[derive(Debug)]
pub struct MockServices {
    address: SocketAddr,
    desks: Vec<Arc<Desk>>,
    /// Nothing is ever sent: its being dropped is the signal to stop.
    stop: watch::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl MockServices {
    /// Starts the services on one free port of 127.0.0.1, on the current tokio runtime.
    ///
    /// # Errors
    /// The port could not be bound.
    pub async fn start(services: &[Service], plan: FaultPlan) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), services, plan).await
    }

    /// Starts the services at `address`, on the current tokio runtime.
    ///
    /// # Errors
    /// The address could not be bound.
    pub async fn start_at(
        address: SocketAddr,
        services: &[Service],
        plan: FaultPlan,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, mut stopped) = watch::channel(());
        let desk = |&service| Arc::new(Desk::new(service, plan.clone(), stopped.clone()));
        let desks: Vec<_> = services.iter().map(desk).collect();
        let router = desks.iter().fold(Router::new(), |router, desk| {
            router.nest(&format!("/{}", desk.service()), routes(Arc::clone(desk)))
        });
        let server = axum::serve(listener, router).with_graceful_shutdown(async move {
            // An error is the sender's end, which is the only signal there is.
            let _ = stopped.changed().await;
        });
        let server = tokio::spawn(server.into_future());
        Ok(Self { address, desks, stop, server })
    }

    /// Where the service is, without a slash at the end: `http://127.0.0.1:PORT/payment`.
    #[must_use]
    pub fn base_url(&self, service: Service) -> String {
        format!("http://{}/{service}", self.address)
    }

    /// Takes a service down, or up again: while it is down it answers every call with 503.
    pub fn set_down(&self, service: Service, is_down: bool) {
        for desk in self.desks.iter().filter(|desk| desk.service() == service) {
            desk.set_down(is_down);
        }
    }

    /// Has every service behave from now on, whatever the plan says.
    pub fn heal(&self) {
        self.desks.iter().for_each(|desk| desk.heal());
    }

    /// What the services' own books say at this moment.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let books = self.desks.iter();
        Ledger::new(books.map(|desk| (desk.service(), desk.ledger())))
    }

    /// Stops the services: calls that hang are cut off, all others are answered first.
    ///
    /// # Errors
    /// The server had failed.
    pub async fn shutdown(self) -> io::Result<()> {
        let Self { stop, server, desks: _, address: _ } = self;
        drop(stop);
        server.await.map_err(io::Error::other)?
    }
}

/// One service's routes, to be nested under its name.
fn routes(desk: Arc<Desk>) -> Router {
    let routes = match desk.service() {
        Service::Inventory => keyed::routes("reservation", "release"),
        Service::Payment => keyed::routes("charge", "refund"),
        Service::Shipping => keyed::routes("shipment", "cancellation"),
        Service::Account => asked::accounts(),
        Service::Package => named::routes("packages", "package"),
        Service::Transport => asked::assessments().merge(named::routes("bookings", "booking")),
        Service::DroneScheduler => named::routes("dronedeliveries", "dronedelivery"),
        Service::Delivery => named::routes("deliveries", "delivery"),
    };
    let ledger = get(async |State(desk): State<Arc<Desk>>| Json(desk.ledger()));
    routes.route("/ledger", ledger).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(desk)
}
