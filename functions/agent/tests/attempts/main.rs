//! Attempts of one or several instances of an agent, on ports in memory and a clock that tokio moves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod alerts;
mod breaker;
mod once;
mod retry;
mod world;
