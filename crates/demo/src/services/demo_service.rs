//! The names of the mock remote services.

use std::fmt;

/// One of the mock remote services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DemoService {
    /// Reserves and releases goods.
    Inventory,
    /// Charges and refunds cards.
    Payment,
    /// Books and cancels shipments.
    Shipping,
    /// Returns whether a customer's account is active.
    Account,
    /// Registers and removes packages.
    Package,
    /// Returns whether a route is too long for a drone, and books and cancels third-party carriers.
    Transport,
    /// Schedules and cancels drones.
    DroneScheduler,
    /// Registers and removes deliveries.
    Delivery,
    /// Commits and releases budgets, by two Lambda functions.
    Finance,
    /// Reads requests for approval from a queue.
    Mail,
    /// Accepts, confirms and cancels orders of equipment.
    Supplier,
    /// Reads bookings from a queue.
    Accounting,
}

impl DemoService {
    /// The services of an order, in the order of its steps.
    pub const ORDER: [Self; 3] = [Self::Inventory, Self::Payment, Self::Shipping];

    /// The services of a drone delivery, in the order of its steps.
    pub const DRONE_DELIVERY: [Self; 5] =
        [Self::Account, Self::Package, Self::Transport, Self::DroneScheduler, Self::Delivery];

    /// The services of a purchase, in the order of its steps.
    pub const PURCHASE: [Self; 4] = [Self::Finance, Self::Mail, Self::Supplier, Self::Accounting];

    /// All services.
    pub const ALL: [Self; 12] = [
        Self::Inventory,
        Self::Payment,
        Self::Shipping,
        Self::Account,
        Self::Package,
        Self::Transport,
        Self::DroneScheduler,
        Self::Delivery,
        Self::Finance,
        Self::Mail,
        Self::Supplier,
        Self::Accounting,
    ];

    /// The lower-case name in URLs and in JSON.
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
            Self::Finance => "finance",
            Self::Mail => "mail",
            Self::Supplier => "supplier",
            Self::Accounting => "accounting",
        }
    }

    /// The queue that the service reads, if it is called by messages.
    #[must_use]
    pub const fn queue(self) -> Option<&'static str> {
        match self {
            Self::Mail => Some("approval-requests"),
            Self::Accounting => Some("bookings"),
            Self::Inventory
            | Self::Payment
            | Self::Shipping
            | Self::Account
            | Self::Package
            | Self::Transport
            | Self::DroneScheduler
            | Self::Delivery
            | Self::Finance
            | Self::Supplier => None,
        }
    }

    /// What the service's agent calls, as `steward local --agent` accepts it. `base_url` is the URL of the mock.
    #[must_use]
    pub fn agent_target(self, base_url: &str) -> String {
        match self.queue() {
            Some(queue) => format!("sqs:{queue}"),
            None if self == Self::Finance => format!("lambda:{}@{base_url}", FUNCTIONS.join(",")),
            None => base_url.to_owned(),
        }
    }
}

/// The functions of [`DemoService::Finance`]: the first one does, the second one undoes.
pub(super) const FUNCTIONS: [&str; 2] = ["commit-budget", "release-budget"];

impl fmt::Display for DemoService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
