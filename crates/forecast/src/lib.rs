//! Forecasts for a workflow before it is deployed. [`cost`] runs it many times on in-memory ports and counts what AWS
//! would bill. [`capacity`] computes the rate of submissions that a deployment can sustain.

pub mod capacity;
pub mod cost;
