//! The integration tests of the package `steward-tests`, in one binary. Most cross crates; `coalesced_reads`,
//! `coalesced_writes`, `throttling`, `dynamodb_refusals` and `dead_letters` test only `steward-aws`. Each module states
//! what it tests. `support` contains helpers.
//!
//! Other tests in this folder are separate binaries:
//!
//! - `core.rs` (with `exploration`, `transition_coverage` and `transition_rows`) and `stories.rs` (with `stories/`)
//!   belong to the package `steward-core`, so that they build without the AWS SDK.
//! - `counted/` is a second test of this package.
//! - `browser/` tests the console in Chromium: `.ci/browser`.

#![cfg(test)]

mod agent_contract;
mod agents;
mod agents_for_aws;
mod awaited_events;
mod aws_limits;
mod bad_input;
mod batching;
mod callbacks_during_calls;
mod coalesced_reads;
mod coalesced_sends;
mod coalesced_writes;
mod commands;
mod contract;
mod contradicting_deliveries;
mod cost;
mod crash_points;
mod dead_letters;
mod deployed;
mod drills;
mod dynamodb_refusals;
mod end_to_end;
mod event_source;
mod external_endpoints;
mod faults;
mod history;
mod labels;
mod lifetimes;
mod missing_agents;
mod overload;
mod payloads;
mod providers;
mod races;
mod rate_limits;
mod regressions;
mod repeated_effects;
mod state_machines;
mod step_kinds;
mod supervision;
mod support;
mod sweeps;
mod template;
mod tenants;
mod throttling;
mod triggers;
mod versions;
mod wrong_clocks;
