//! Attempts of one or several instances of an agent, with in-memory ports and tokio's paused clock.

#![cfg(test)]

mod breaker;
mod breaker_alerts;
mod clock;
mod exclusive;
mod harness;
mod late;
mod once;
mod rate;
mod retry;
