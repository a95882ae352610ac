//! The pages, over an embedded AWS: what is stored, what is asked, what the page says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod access;
mod bulk;
mod dead_letters;
mod overview;
mod shop;
mod task;
mod tasks;
mod workflows;
mod world;
