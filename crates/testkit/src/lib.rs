//! Tests of all roles together. [`simulation`] runs them on the [in-memory ports](steward_memory_ports) under seeded
//! fault injection.

pub mod simulation;
