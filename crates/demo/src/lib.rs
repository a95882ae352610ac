//! What the example workflows run against: [`services`] are remote services that misbehave on purpose, [`scenario`]
//! lists the workflows that ship, and [`audit`] compares the state store with the services' own ledgers.

pub mod audit;
pub mod scenario;
pub mod services;
