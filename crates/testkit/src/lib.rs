//! Test support that tests and forecasts share. [`memory`] implements the ports without AWS. [`simulation`] runs all
//! roles on these in-memory ports under seeded fault injection.

pub mod memory;
pub mod simulation;
