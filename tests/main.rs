//! Tests that cross crates. Each module says what it proves.

mod contract;
mod stories;
