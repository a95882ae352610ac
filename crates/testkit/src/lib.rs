//! Tests of all roles together. [`simulation`] runs them on the [in-memory ports](steward_test_world) under seeded
//! fault injection.

pub mod simulation;
