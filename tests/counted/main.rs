//! The allocations, allocated bytes and instructions of the hot functions. They are compared with baselines, so that a
//! regression fails `cargo test`. Timings are measured by the benches, and never fail.
//!
//! The cases are those of the benches, and the baselines are tables in this directory. A figure that differs by more than
//! 5 % fails, whether it is higher or lower, until the table is renewed:
//!
//! ```console
//! $ STEWARD_RENEW=1 cargo test --workspace --test counted
//! ```
//!
//! Allocations are counted by an allocator that only this binary uses. Instructions are counted by valgrind, which runs
//! this binary again.
//!
//! Figures that cannot be compared pass: without valgrind, with another compiler than the baseline's, or on a processor
//! architecture without a baseline. The output then has a line that begins with `counted: NOT COMPARED:`.

#![cfg(test)]

#[path = "../../crates/core/benches/core/case.rs"]
mod case;
mod checks;
#[path = "../../crates/aws/benches/codec/cases.rs"]
mod codec;
#[path = "../../crates/core/benches/core/cases.rs"]
mod core;
#[path = "../../crates/core/benches/core/fixtures.rs"]
mod fixtures;
mod memory;
mod ports;
mod schemas;
mod table;
mod valgrind;

use case::Case;
use steward_core::engine::decision::Transition;
use table::BaselineTable;

/// The number of runs over which allocations are averaged: reads from maps with a random order vary between runs.
const RUNS: u64 = 16;

/// All cases, always in the same order.
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
    BaselineTable::new("allocations.txt", &["allocations", "bytes"]).check(counted.collect());
}

/// A decision looks at each run of items once. Otherwise the cost of an item would grow with the number of items.
#[test]
fn a_reply_to_one_of_ten_thousand_items_expands_no_other_item() {
    let allocations = |items| {
        let decision = fixtures::reply_to_one_of_the_items(items);
        let decide = || assert!(matches!(decision.decide(), Transition::Apply { .. }));
        decide();
        allocation_counter::measure(decide).count_total
    };
    let (few, many) = (allocations(100), allocations(10_000));
    assert!(many <= few + 5, "{few} allocations for 100 items, {many} for 10,000");
}

#[test]
fn instructions_match_their_baseline() {
    let file = format!("instructions-{}.txt", std::env::consts::ARCH);
    let baseline = BaselineTable::new(&file, &["instructions"]).for_one_compiler();
    let counted = match valgrind::instructions("run_every_case_once_under_valgrind") {
        Ok(counted) => counted,
        Err(reason) => return baseline.report_not_compared(&reason),
    };
    let names: Vec<_> = cases().into_iter().map(|case| case.name).collect();
    assert_eq!(counted.len(), names.len(), "valgrind counts each case once");
    let counted = names.into_iter().zip(counted).map(|(name, count)| (name, vec![count]));
    baseline.check(counted.collect());
}

#[test]
#[ignore = "run by valgrind"]
fn run_every_case_once_under_valgrind() {
    valgrind::count(cases, Case::warm);
}

/// Whatever the schema and the input are: the figures are far from what would hold up the other messages of a batch.
#[test]
fn no_validation_takes_much_memory() {
    schemas::assert_accepted();
    for case in schemas::cases() {
        let peak = allocation_counter::measure(case.prepare()).bytes_max;
        assert!(peak <= schemas::BYTES_MAX, "{}: {peak} bytes", case.name);
    }
}

/// Counts these cases by the ignored test that runs them under valgrind. Fails if one exceeds the limit. The counts include what is
/// initialised once, which is little.
fn assert_at_most(instructions_max: u64, cases: &[Case], test: &str) {
    let counted = match valgrind::instructions(test) {
        Ok(counted) => counted,
        Err(reason) => return table::report_not_compared(test, &reason),
    };
    assert_eq!(counted.len(), cases.len(), "valgrind counts each case once");
    let figures: Vec<_> = cases.iter().map(|case| &case.name).zip(counted).collect();
    let exceeded = figures.iter().filter(|(_, instructions)| *instructions > instructions_max);
    assert_eq!(exceeded.collect::<Vec<_>>(), [] as [&(&String, u64); 0]);
}

#[test]
fn the_worst_validations_do_not_take_long() {
    let run = "run_the_worst_schemas_once_under_valgrind";
    assert_at_most(schemas::INSTRUCTIONS_MAX, &schemas::worst_cases(), run);
}

#[test]
#[ignore = "run by valgrind"]
fn run_the_worst_schemas_once_under_valgrind() {
    valgrind::count(schemas::worst_cases, Case::prepare);
}

#[test]
#[ignore = "takes minutes; `.ci/prove --long` runs it"]
fn no_validation_takes_long() {
    let run = "run_every_schema_once_under_valgrind";
    assert_at_most(schemas::INSTRUCTIONS_MAX, &schemas::cases(), run);
}

#[test]
#[ignore = "run by valgrind"]
fn run_every_schema_once_under_valgrind() {
    valgrind::count(schemas::cases, Case::prepare);
}

#[test]
#[ignore = "takes minutes; `.ci/prove --long` runs it"]
fn no_validation_takes_long_for_a_definition_file() {
    let accepted = checks::files().map(|(name, text)| (name, checks::check(&text).is_ok()));
    assert_eq!(accepted, [("check/unknown_keys", false), ("check/connected_steps", true)]);
    let run = "run_every_check_once_under_valgrind";
    assert_at_most(checks::INSTRUCTIONS_MAX, &checks::cases(), run);
}

#[test]
#[ignore = "run by valgrind"]
fn run_every_check_once_under_valgrind() {
    valgrind::count(checks::cases, Case::prepare);
}
