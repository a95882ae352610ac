//! What the demo and the end-to-end tests run against: [`services`] are mock remote services with injected faults,
//! [`example_workflow`] has the example workflows, each with its [`scenario`], and [`audit`] compares the state store with the services' ledgers.

pub mod audit;
pub mod example_workflow;
pub mod scenario;
pub mod services;
