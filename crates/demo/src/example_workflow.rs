//! The example workflows of the repository, each with its [`Scenario`].

use crate::scenario::Scenario;

mod drone_delivery;
mod order;

/// The example workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleWorkflow {
    /// Reserve the items, charge the customer, ship the parcel.
    Order,
    /// Check the account, register the package, send a drone or a third-party carrier.
    DroneDelivery,
}

impl ExampleWorkflow {
    /// All example workflows.
    pub const ALL: [Self; 2] = [Self::Order, Self::DroneDelivery];

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
        }
    }
}
