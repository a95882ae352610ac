//! Exploration: every event in every state of small workflows, breadth first.
//!
//! A world is a task, its documents, the clock, what agents were asked, and what was lost. From each
//! world all that can happen next happens: a message arrives, once more, late or never; an agent answers
//! anything that it was ever asked; time passes; the supervisor sweeps; an operator commands; a process
//! dies between its save and its messages. Worlds that go on alike are one. Laws of our own hold in all of
//! them, and from each the task comes to an end if all goes well from there on.
//!
//! A broken law is printed with a shortest path to it. `-- --nocapture` prints what was walked, and
//! `EXPLORE=child,output` in the environment explores those workflows only.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use play::Arrow;
use search::{Report, explore};
use settings::{Setting, settings};

mod children;
mod expiry;
mod laws;
mod moves;
mod play;
mod said;
mod search;
mod settings;
mod states;
mod world;

/// How many worlds of each workflow every test run visits, and how many the longer one does.
const WORLDS_MAX: usize = 1_200;
const WORLDS_MAX_DEEP: usize = 100_000;

/// Explores all workflows, two at a time.
pub(crate) fn explore_all(worlds_max: usize) -> Vec<Report> {
    let named = std::env::var("EXPLORE").ok();
    let is_named = |setting: &Setting| {
        named.as_ref().is_none_or(|named| named.split(',').any(|name| name == setting.name))
    };
    let settings = settings().into_iter().filter(is_named);
    let waiting: Mutex<VecDeque<Setting>> = Mutex::new(settings.collect());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(setting) = next else { break };
                    let report = explore(&setting, worlds_max);
                    found.lock().unwrap().push((setting, report));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let broken: Vec<_> = found.iter().filter_map(|(_, found)| found.as_ref().err()).collect();
    assert!(
        broken.is_empty(),
        "{}",
        broken.iter().map(|s| s.as_str()).collect::<Vec<_>>().join("\n")
    );
    let check = |(setting, report): (Setting, Result<Report, String>)| {
        let report = report.unwrap();
        let endings: Vec<_> = report.endings.iter().copied().collect();
        let mut wanted = setting.endings;
        wanted.sort();
        assert_eq!(endings, wanted, "the endings of {}", setting.name);
        report
    };
    found.into_iter().map(check).collect()
}

/// The arrows walked in all workflows, and how often.
pub(crate) fn walked(reports: &[Report]) -> BTreeMap<Arrow, u64> {
    let mut walked = BTreeMap::new();
    for (arrow, times) in reports.iter().flat_map(|report| &report.walked) {
        *walked.entry(arrow.clone()).or_default() += times;
    }
    walked
}

#[allow(clippy::print_stdout, reason = "the report is for `--nocapture`")]
fn print(reports: &[Report]) {
    for report in reports {
        let Report { name, worlds, moves, depth, is_whole, took, .. } = report;
        let whole = if *is_whole { "all" } else { "cut off" };
        println!(
            "{name:20} {worlds:7} worlds ({whole}), {moves:8} moves, depth {depth:2}, {took:.1?}"
        );
    }
    println!();
    for ((state, event, outcome), times) in walked(reports) {
        println!("{state:10} | {event:22} | {outcome:26} | {times:8}");
    }
}

#[test]
fn every_world_of_small_workflows_keeps_the_laws() {
    print(&explore_all(WORLDS_MAX));
}

#[test]
#[ignore = "takes minutes: the same, as deep as is feasible"]
fn every_world_of_small_workflows_keeps_the_laws_deeper() {
    print(&explore_all(WORLDS_MAX_DEEP));
}
