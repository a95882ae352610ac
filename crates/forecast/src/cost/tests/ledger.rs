//! On whose account a task's cost is, and what other services would charge for it.

use serde_json::{Value, json};

use super::{assert_usage, order, run, said, step, steps, workflow};
use crate::cost::{Elsewhere, Report, Settings, prices::Usage};

/// What of the ledger is on the account of `name`.
fn on<'r>(report: &'r Report, name: &str) -> &'r Usage {
    let mut entries = report.ledger.functions.iter().chain(&report.ledger.steps);
    &entries.find(|entry| entry.of == name).unwrap().usage
}

fn elsewhere<'r>(report: &'r Report, service: &str) -> &'r Elsewhere {
    report.elsewhere.iter().find(|other| other.service.ends_with(service)).unwrap()
}

fn counts(report: &Report, service: &str) -> Vec<f64> {
    elsewhere(report, service).counts.values().copied().collect()
}

fn dollars(report: &Report, service: &str) -> f64 {
    elsewhere(report, service).dollars_per_million.unwrap()
}

#[track_caller]
fn assert_close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-6, "{one} and {other}");
}

#[test]
fn each_function_has_its_part() {
    let report = run(order());
    assert_usage(on(&report, "submission"), 5.0, 0.0, 0.3, 0.1);
    assert_usage(on(&report, "scheduler"), 9.0, 8.0, 1.1, 0.4);
    assert_usage(on(&report, "agents"), 0.0, 0.0, 0.9, 0.3);
    assert_eq!(report.ledger.functions.len(), 3, "{:?}", report.ledger.functions);
}

/// A step pays for its request, its answer and what that sets off: the last sets nothing off.
#[test]
fn each_step_has_its_part_and_the_task_the_rest() {
    let report = run(order());
    assert_usage(on(&report, "the task"), 8.0, 2.0, 0.5, 0.2);
    assert_usage(on(&report, "reserve"), 2.0, 2.0, 0.6, 0.2);
    assert_usage(on(&report, "charge"), 2.0, 3.0, 0.6, 0.2);
    assert_usage(on(&report, "ship"), 2.0, 1.0, 0.6, 0.2);
}

#[test]
fn the_parts_are_the_whole() {
    let settings = Settings { fail: said("charge=20%"), silent: said("ship=10%"), ..order() };
    let report = run(Settings { runs: 200, ..settings });
    for entries in [&report.ledger.functions, &report.ledger.steps] {
        let mut sum = Usage::default();
        entries.iter().for_each(|entry| sum += entry.usage);
        let Usage { write_units, read_units, sqs_requests, invocations, .. } = report.usage;
        assert_usage(&sum, write_units, read_units, sqs_requests, invocations);
        assert_close(sum.gb_seconds, report.usage.gb_seconds);
        assert_close(sum.events, report.usage.events);
        let dollars: f64 = entries.iter().map(|entry| entry.dollars_per_million.total).sum();
        assert_close(dollars, report.dollars_per_million.total);
    }
    assert!(on(&report, "supervisor").write_units > 0.0);
}

#[test]
fn the_end_of_a_task_is_an_event_if_it_is_wanted() {
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let rest = json!({ "lifecycle_events": true, "steps": { "one": call } });
    let report = run(Settings { runs: 20, ..Settings::new(workflow("w", rest)) });
    assert_close(report.usage.events, 1.0);
    assert_close(on(&report, "the task").events, 1.0);
    assert_close(report.dollars_per_million.eventbridge, 1.0);
    assert_close(run(order()).usage.events, 0.0);
}

/// The task of a step is submitted on that step's account; what it does is on its own.
#[test]
fn the_task_of_a_step_has_an_account_of_its_own() {
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let child = workflow("child", json!({ "steps": { "work": call } }));
    let whole = steps(json!({ "part": { "workflow": { "name": "child" } } }));
    let report = run(Settings { with: vec![child], ..whole });
    let names: Vec<_> = report.ledger.steps.iter().map(|entry| entry.of.as_str()).collect();
    assert_eq!(names, ["the task", "part", "the task of child", "child.work"]);
    assert_usage(on(&report, "child.work"), 2.0, 1.0, 0.6, 0.2);
    assert!(on(&report, "part").write_units >= 6.0, "{:?}", on(&report, "part"));
}

#[test]
fn larger_documents_cost_by_the_kilobyte() {
    let call = |body: Value| json!({ "agent": "a", "request": { "path": "/", "body": body } });
    let settings = steps(json!({ "one": call(json!("${ input }")) }));
    let of = |bytes: usize| {
        let input = Some(json!({ "text": "x".repeat(bytes) }));
        run(Settings { runs: 10, input, ..settings.clone() }).usage
    };
    // The submission is written in a transaction, so twice; it is read in one piece of 4 KB.
    let (small, large) = (of(100), of(9_000));
    assert_close(large.write_units - small.write_units, 2.0 * 8.0);
    assert_close(large.read_units - small.read_units, 2.0);
}

#[test]
fn standard_counts_attempts_and_choices() {
    let report = run(order());
    assert_eq!(counts(&report, "Standard"), [3.0]);
    assert_close(dollars(&report, "Standard"), 75.0);
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let maybe = json!({ "agent": "a", "when": "${ input.ok }", "request": { "path": "/" } });
    let settings = steps(json!({ "one": call, "two": maybe, "rest": { "wait": "5s" } }));
    let with = |ok: bool| run(Settings { input: Some(json!({ "ok": ok })), ..settings.clone() });
    assert_eq!(
        (counts(&with(true), "Standard"), counts(&with(false), "Standard")),
        (vec![4.0], vec![3.0])
    );
    let failing = run(Settings { fail: said("charge=100%"), ..order() });
    // Two attempts at doing, one at undoing.
    assert_eq!(counts(&failing, "Standard"), [3.0]);
}

#[test]
fn durable_functions_count_operations_and_bytes() {
    let report = run(order());
    let [operations, bytes] = counts(&report, "durable functions")[..] else { panic!() };
    // The start, and three steps; what was submitted, and what they returned.
    assert_close(operations, 4.0);
    assert!((30.0..300.0).contains(&bytes), "{bytes}");
    let gb = bytes / (1024.0 * 1024.0 * 1024.0);
    assert_close(dollars(&report, "durable functions"), 32.0 + gb * 1_000_000.0 * 0.25);
}

#[test]
fn express_bills_whole_tenths_of_seconds_of_64_mb() {
    let report = run(order());
    let [executions, seconds] = counts(&report, "Express")[..] else { panic!() };
    assert_close(executions, 1.0);
    let p50 = report.outcomes[0].p50_ms as f64 / 1_000.0;
    assert!(seconds > p50 && seconds < p50 + 0.2, "{seconds} and {p50}");
    assert_close(dollars(&report, "Express"), 1.0 + seconds * 0.0625 / 3_600.0 * 60_000.0);
}

#[test]
fn express_cannot_wait_for_long_nor_for_somebody() {
    let rest = run(steps(json!({ "rest": { "wait": "6m" } })));
    let ask = json!({ "path": "/", "body": "${ callback.token }" });
    let asks = json!({ "agent": "a", "request": ask, "callback": { "within": "1m" } });
    let asked = run(steps(json!({ "asks": asks })));
    assert_eq!(elsewhere(&rest, "Express").cannot, Some("it ends after five minutes"));
    assert_eq!(elsewhere(&rest, "Express").dollars_per_million, None);
    assert_eq!(elsewhere(&asked, "Express").cannot, Some("it has no callbacks"));
    // The start, the step that asks, and the callback.
    assert_close(counts(&asked, "durable functions")[0], 3.0);
    assert_eq!(step(&asked, "asks").started, 50);
}
