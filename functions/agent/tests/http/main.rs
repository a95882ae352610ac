//! The HTTP agent against real servers: what it sends, and how it interprets each response.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod redirects;
mod requests;
mod responses;
mod test_server;
