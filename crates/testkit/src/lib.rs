//! Test support that tests and forecasts share. [`memory`] implements the ports without AWS. [`intercepted_store`]
//! decorates a state store. [`simulation`] runs all roles on the in-memory ports under seeded fault injection.

pub mod intercepted_store;
pub mod memory;
pub mod simulation;
