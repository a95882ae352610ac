//! Tests of the decision engine that need more than one story: what all stories cover together, and the exhaustive
//! exploration of small workflows. They belong to the package `steward-core`, so that they build without the AWS SDK:
//! `cargo test -p steward-core`. The stories are the test target `stories`.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "the clock is only for the report")]

mod exploration;
#[path = "stories/harness.rs"]
mod stories;
mod transition_coverage;
mod transition_rows;
