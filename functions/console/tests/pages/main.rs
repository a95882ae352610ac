//! The console's pages on embedded AWS: requests and the resulting pages.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod access;
mod agents;
mod bulk;
mod callbacks;
mod dead_letters;
mod overview;
mod shop;
mod task;
mod tasks;
mod test_console;
mod workflows;
