//! Tests of the pure core: the stories and the exhaustive exploration of small workflows. They belong to the package
//! `steward-core`, so that they build without the AWS SDK: `cargo test -p steward-core`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "clippy.toml allows these in test functions, but not in their helpers; only reports use \
              the clock"
)]

mod arrows;
mod exploration;
mod stories;
