//! Attempts of one or several instances of an agent, with in-memory ports and tokio's paused clock.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod breaker;
mod breaker_alerts;
mod clock;
mod exclusive;
mod harness;
mod late;
mod once;
mod rate;
mod retry;
