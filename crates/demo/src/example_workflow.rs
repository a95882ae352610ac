//! The example workflows of the repository, each with its [`Scenario`].

use crate::scenario::Scenario;

mod drone_delivery;
mod order;
mod purchase;

/// The example workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleWorkflow {
    /// Reserve the items, charge the customer, ship the parcel.
    Order,
    /// Check the account, register the package, send a drone or a third-party carrier.
    DroneDelivery,
    /// Commit the budget, get an approval, order, book and wait for the goods.
    Purchase,
}

impl ExampleWorkflow {
    /// All example workflows.
    pub const ALL: [Self; 3] = [Self::Order, Self::DroneDelivery, Self::Purchase];

    /// The example workflow with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workflow| workflow.scenario().name() == name)
    }

    /// The scenario of the workflow.
    #[must_use]
    pub fn scenario(self) -> &'static dyn Scenario {
        match self {
            Self::Order => &order::Orders,
            Self::DroneDelivery => &drone_delivery::DroneDeliveries,
            Self::Purchase => &purchase::Purchases,
        }
    }
}
