//! What the demo and the end-to-end tests run against: [`services`] are mock remote services with injected faults,
//! [`scenario`] describes the example workflows, and [`audit`] compares the state store with the services' ledgers.

pub mod audit;
pub mod scenario;
pub mod services;
