//! Tests that cross crates. Each module says what it proves.

mod bad_input;
mod contract;
mod cost;
mod faults;
mod races;
mod stories;
mod support;
