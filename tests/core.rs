//! Tests of the pure core: every story, every world of small workflows. They belong to the package
//! `steward-core`, so that they are built without the AWS SDK: `cargo test -p steward-core`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers; the clock \
              is for the report only"
)]

mod arrows;
mod exploration;
mod stories;
