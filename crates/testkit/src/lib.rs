//! What tests and forecasts share: [`memory`] implements the ports without AWS, and [`simulation`] runs all roles
//! on it under fault injection, from a seed.

pub mod memory;
pub mod simulation;
