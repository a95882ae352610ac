//! What the hot functions cost, counted: allocations, the bytes of them, and instructions. Pinned, so
//! that a regression fails `cargo test`; timings are the benches' matter, and never fail.
//!
//! The cases are those of the benches. What they cost is in two tables beside this file; what costs more
//! than 5 % more fails, and so does what costs less, until the table says so:
//!
//! ```console
//! $ STEWARD_RENEW=1 cargo test --workspace --test counted
//! ```
//!
//! Allocations are counted by an allocator that this binary alone has. Instructions are counted by
//! valgrind, which runs this binary anew; without valgrind they are not counted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

#[path = "../../crates/core/benches/core/case.rs"]
mod case;
#[path = "../../crates/aws/benches/codec/cases.rs"]
mod codec;
#[path = "../../crates/core/benches/core/cases.rs"]
mod core;
#[path = "../../crates/core/benches/core/fixtures.rs"]
mod fixtures;
mod memory;
mod ports;
mod table;
mod valgrind;

use std::io::Write as _;

use case::Case;
use table::Table;

/// How often allocations are counted, for their mean: what is read from a map of random order costs now
/// more, now less.
const RUNS: u64 = 16;

/// Says something also if the test passes, unlike what is printed.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// Every case, each time in the same order.
fn cases() -> Vec<Case> {
    core::cases().into_iter().chain(codec::cases()).collect()
}

#[test]
fn allocations_match_their_baseline() {
    let counted = cases().into_iter().map(|case| {
        let (mut allocations, mut bytes) = (0, 0);
        for _ in 0..RUNS {
            let info = allocation_counter::measure(case.warm());
            allocations += info.count_total;
            bytes += info.bytes_total;
        }
        (case.name, vec![allocations / RUNS, bytes / RUNS])
    });
    Table::new("allocations.txt", &["allocations", "bytes"]).hold(counted.collect());
}

#[test]
fn instructions_match_their_baseline() {
    let counted = match valgrind::instructions("run_every_case_once_under_valgrind") {
        Ok(counted) => counted,
        Err(why) => {
            say(&format!("instructions not counted: {why}"));
            return;
        }
    };
    let names: Vec<_> = cases().into_iter().map(|case| case.name).collect();
    assert_eq!(counted.len(), names.len(), "valgrind has counted each case once");
    let counted = names.into_iter().zip(counted).map(|(name, count)| (name, vec![count]));
    let file = format!("instructions-{}.txt", std::env::consts::ARCH);
    Table::new(&file, &["instructions"]).of_one_compiler().hold(counted.collect());
}

#[test]
#[ignore = "valgrind runs it"]
fn run_every_case_once_under_valgrind() {
    valgrind::count(cases);
}
