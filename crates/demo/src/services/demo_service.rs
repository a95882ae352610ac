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
}

impl DemoService {
    /// The services of an order, in the order of its steps.
    pub const ORDER: [Self; 3] = [Self::Inventory, Self::Payment, Self::Shipping];

    /// The services of a drone delivery, in the order of its steps.
    pub const DRONE_DELIVERY: [Self; 5] =
        [Self::Account, Self::Package, Self::Transport, Self::DroneScheduler, Self::Delivery];

    /// All services.
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
        }
    }
}

impl fmt::Display for DemoService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
