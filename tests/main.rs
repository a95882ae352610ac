//! Tests that cross crates. Each module says what it proves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod agents;
mod attacks;
mod aws_limits;
mod bad_input;
mod batching;
mod busy;
mod contract;
mod cost;
mod crash_points;
mod dead_letters;
mod deployed;
mod end_to_end;
mod event_source;
mod external;
mod faults;
mod golden;
mod history;
mod lifetimes;
mod missing_agents;
mod races;
mod reads;
mod refusals;
mod step_kinds;
mod supervision;
mod support;
mod template;
mod throttling;
mod triggers;
mod versions;
mod writes;
