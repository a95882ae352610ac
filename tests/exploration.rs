//! Exhaustive exploration (bounded model checking): every event in every state of small workflows, breadth first.
//!
//! A state consists of a task, its documents, the clock, the requests that were sent, and the effects that were lost.
//! In each state, every possible event occurs: a message arrives, again, late or never; an agent replies to any earlier
//! request; time passes; the supervisor sweeps; an operator sends a command; a process crashes between its save and its
//! effects. States with the same fingerprint are explored once. The engine asserts its invariants in each decision; those of
//! a task, and those in `invariants`, are checked in every state. None calls a function by which the engine decides. From every state the task must reach a final state if no more failures occur.
//!
//! Each transition must be a row of the table in `transition.rs`. The stories make those that no exploration reaches.
//!
//! A violated invariant is printed with a shortest path to it. `-- --nocapture` prints the states and transitions, and
//! the environment variable `EXPLORE=child,output` restricts the exploration to those workflows.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use search::{ExplorationReport, explore};
use workflows::{ExploredWorkflow, explored_workflows, workflows_of_every_size};

use crate::transition_rows::{TransitionRow, documented_rows};

mod children;
mod descriptions;
mod events;
mod expiry;
mod invariants;
mod model_state;
mod progress;
mod recording;
mod search;
mod shapes;
mod successors;
mod workflows;

/// The most states of each workflow in every test run.
const STATES_MAX: usize = 1_200;

/// The most shapes that the parts of a task may have in all explored states.
const SHAPES_MAX: usize = 200;

/// The most states of each workflow in the long test.
const STATES_MAX_DEEP: usize = 100_000;

/// Explores workflows, two at a time.
fn explore_all(workflows: Vec<ExploredWorkflow>, states_max: usize) -> Vec<ExplorationReport> {
    let named = std::env::var("EXPLORE").ok();
    let is_named = |workflow: &ExploredWorkflow| {
        named.as_ref().is_none_or(|named| named.split(',').any(|name| name == workflow.name))
    };
    let workflows = workflows.into_iter().filter(is_named);
    let waiting: Mutex<VecDeque<ExploredWorkflow>> = Mutex::new(workflows.collect());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(workflow) = next else { break };
                    let report = explore(&workflow, states_max);
                    report.iter().for_each(print_extent);
                    results.lock().unwrap().push((workflow, report));
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let violations: Vec<_> =
        results.iter().filter_map(|(_, result)| result.as_ref().err()).collect();
    assert!(
        violations.is_empty(),
        "{}",
        violations.iter().map(|s| s.as_str()).collect::<Vec<_>>().join("\n")
    );
    let check = |(workflow, report): (ExploredWorkflow, Result<ExplorationReport, String>)| {
        let report = report.unwrap();
        let endings: Vec<_> = report.endings.iter().copied().collect();
        let mut expected = workflow.endings;
        expected.sort();
        assert_eq!(endings, expected, "the endings of {}", workflow.name);
        report
    };
    results.into_iter().map(check).collect()
}

/// The rows of the transition table, with the numbers of their transitions in all workflows.
fn rows(reports: &[ExplorationReport]) -> BTreeMap<TransitionRow, u64> {
    let mut rows: BTreeMap<_, _> = documented_rows().into_iter().map(|row| (row, 0)).collect();
    for (row, times) in reports.iter().flat_map(|report| &report.rows) {
        *rows.entry(row.clone()).or_default() += times;
    }
    rows
}

/// Prints what was explored of a workflow, as soon as it is: the long test takes half an hour.
#[allow(clippy::print_stdout, reason = "the report is for `--nocapture`")]
fn print_extent(report: &ExplorationReport) {
    let ExplorationReport { name, states, events, depth, is_complete, took, .. } = report;
    let extent = if *is_complete { "all" } else { "cut off" };
    println!(
        "{name:32} {states:7} states ({extent}), {events:8} events, depth {depth:2}, {took:.1?}"
    );
}

#[allow(clippy::print_stdout, reason = "the report is for `--nocapture`")]
fn print(reports: &[ExplorationReport]) {
    for (row, times) in rows(reports) {
        println!("{times:8} | {row}");
    }
    let shapes: BTreeMap<_, _> = reports.iter().flat_map(|report| &report.shapes).collect();
    for (shape, example) in &shapes {
        println!("{shape} ({example})");
    }
    println!("{} shapes of a part", shapes.len());
    assert!(shapes.len() <= SHAPES_MAX, "a part has {} shapes", shapes.len());
}

#[test]
fn invariants_hold_in_every_state_of_small_workflows() {
    print(&explore_all(explored_workflows(), STATES_MAX));
}

#[test]
#[ignore = "takes half an hour: explores up to 100,000 states of each workflow"]
fn invariants_hold_in_every_state_of_small_workflows_deeper() {
    print(&explore_all(workflows_of_every_size(), STATES_MAX_DEEP));
}
