//! The attribution of a task's cost to functions and steps, and the prices of alternative services.

use serde_json::{Value, json};

use super::{assert_usage, option, order, run, step, steps, workflow};
use crate::cost::{AlternativePrice, ForecastReport, ForecastSettings, prices::TaskUsage};

/// The usage in the ledger of the function or step `name`.
fn on<'r>(report: &'r ForecastReport, name: &str) -> &'r TaskUsage {
    let mut entries = report.ledger.functions.iter().chain(&report.ledger.steps);
    &entries.find(|entry| entry.of == name).unwrap().usage
}

fn alternative<'r>(report: &'r ForecastReport, service: &str) -> &'r AlternativePrice {
    report.elsewhere.iter().find(|other| other.service.ends_with(service)).unwrap()
}

fn counts(report: &ForecastReport, service: &str) -> Vec<f64> {
    alternative(report, service).counts.values().copied().collect()
}

fn dollars(report: &ForecastReport, service: &str) -> f64 {
    alternative(report, service).dollars_per_million.unwrap()
}

#[track_caller]
fn assert_close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-6, "{one} and {other}");
}

#[test]
fn usage_is_attributed_to_functions() {
    let report = run(order());
    assert_usage(on(&report, "submission"), 2.0, 0.0, 0.3, 0.1);
    assert_usage(on(&report, "scheduler"), 6.0, 4.0, 1.1, 0.4);
    assert_usage(on(&report, "agents"), 0.0, 0.0, 0.9, 0.3);
    assert_eq!(report.ledger.functions.len(), 3, "{:?}", report.ledger.functions);
}

/// A step pays for its request, its reply, and what the reply causes. The reply of the last step causes nothing.
#[test]
fn usage_is_attributed_to_steps_and_the_rest_to_the_task() {
    let report = run(order());
    assert_usage(on(&report, "the task"), 5.0, 1.0, 0.5, 0.2);
    assert_usage(on(&report, "reserve"), 1.0, 1.0, 0.6, 0.2);
    assert_usage(on(&report, "charge"), 1.0, 1.0, 0.6, 0.2);
    assert_usage(on(&report, "ship"), 1.0, 1.0, 0.6, 0.2);
}

#[test]
fn the_entries_of_the_ledger_sum_up_to_the_total() {
    let settings =
        ForecastSettings { fail: option("charge=20%"), silent: option("ship=10%"), ..order() };
    let report = run(settings);
    for entries in [&report.ledger.functions, &report.ledger.steps] {
        let mut sum = TaskUsage::default();
        entries.iter().for_each(|entry| sum += entry.usage);
        let TaskUsage { write_units, read_units, sqs_requests, invocations, .. } = report.usage;
        assert_usage(&sum, write_units, read_units, sqs_requests, invocations);
        assert_close(sum.gb_seconds, report.usage.gb_seconds);
        assert_close(sum.events, report.usage.events);
        let dollars: f64 = entries.iter().map(|entry| entry.dollars_per_million.total).sum();
        assert_close(dollars, report.dollars_per_million.total);
    }
    // A queue does not delay a wake by an hour.
    let waits = run(steps(json!({ "pause": { "wait": "1h" } })));
    assert!(on(&waits, "supervisor").write_units > 0.0);
}

#[test]
fn lifecycle_events_are_counted() {
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let rest = json!({
        "lifecycle_events": ["submitted", "step_completed", "processed"],
        "steps": { "one": call, "two": call },
    });
    let report = run(ForecastSettings { runs: 20, ..ForecastSettings::new(workflow("w", rest)) });
    assert_close(report.usage.events, 4.0);
    assert_close(on(&report, "the task").events, 2.0);
    assert_close(on(&report, "one").events, 1.0);
    assert_close(on(&report, "two").events, 1.0);
    assert_close(report.dollars_per_million.eventbridge, 4.0);
    assert_close(run(order()).usage.events, 0.0);
}

/// The submission of a child task is attributed to its step, the work of the child task to the child.
#[test]
fn a_child_task_has_its_own_entries() {
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let child = workflow("child", json!({ "steps": { "work": call } }));
    let whole = steps(json!({ "part": { "workflow": { "name": "child" } } }));
    let report = run(ForecastSettings { with: vec![child], ..whole });
    let names: Vec<_> = report.ledger.steps.iter().map(|entry| entry.of.as_str()).collect();
    assert_eq!(names, ["the task", "part", "the task of child", "child.work"]);
    assert_usage(on(&report, "child.work"), 1.0, 1.0, 0.6, 0.2);
    assert!(on(&report, "part").write_units >= 2.0, "{:?}", on(&report, "part"));
}

#[test]
fn larger_documents_cost_by_the_kilobyte() {
    let call = |body: Value| json!({ "agent": "a", "request": { "path": "/", "body": body } });
    let settings = steps(json!({ "one": call(json!("${ input }")) }));
    let of = |bytes: usize| {
        let input = Some(json!({ "text": "x".repeat(bytes) }));
        run(ForecastSettings { runs: 10, input, ..settings.clone() }).usage
    };
    // A separate submission is written in a transaction, which costs double, also for the task. A read unit covers 4 KB.
    let (small, large) = (of(100), of(9_000));
    assert_close(large.write_units - small.write_units, 1.0 + 2.0 * 9.0);
    assert_close(large.read_units - small.read_units, 3.0);
}

#[test]
fn standard_counts_attempts_and_choices() {
    let report = run(order());
    assert_eq!(counts(&report, "Standard"), [3.0]);
    assert_close(dollars(&report, "Standard"), 75.0);
    let call = json!({ "agent": "a", "request": { "path": "/" } });
    let maybe = json!({ "agent": "a", "when": "${ input.ok }", "request": { "path": "/" } });
    let settings = steps(json!({ "one": call, "two": maybe, "rest": { "wait": "5s" } }));
    let with =
        |ok: bool| run(ForecastSettings { input: Some(json!({ "ok": ok })), ..settings.clone() });
    assert_eq!(
        (counts(&with(true), "Standard"), counts(&with(false), "Standard")),
        (vec![4.0], vec![3.0])
    );
    let failing = run(ForecastSettings { fail: option("charge=100%"), ..order() });
    // Two attempts at steps, one at an undo.
    assert_eq!(counts(&failing, "Standard"), [3.0]);
}

#[test]
fn a_distributed_map_counts_a_transition_and_an_express_execution_for_each_item() {
    let each = json!({
        "agent": "a", "for_each": { "items": "${ input.list }", "at_once": 10 }, "request": { "path": "/" },
    });
    let input = Some(json!({ "list": (0..20).collect::<Vec<_>>() }));
    let settings =
        steps(json!({ "one": { "agent": "a", "request": { "path": "/" } }, "each": each }));
    let report = run(ForecastSettings { input, ..settings });
    assert_eq!(counts(&report, "Standard"), [22.0], "the step, the map and its items");
    assert_eq!(counts(&report, "distributed map"), [22.0, 20.0, 2.0]);
    let express = 20.0 + 2.0 * 0.0625 / 3_600.0 * 60_000.0;
    assert_close(dollars(&report, "distributed map"), 22.0 * 25.0 + express);
    assert!(run(order()).elsewhere.iter().all(|other| !other.service.contains("map")));
}

#[test]
fn durable_functions_count_operations_and_bytes() {
    let report = run(order());
    let [operations, bytes] = counts(&report, "durable functions")[..] else { panic!() };
    // The start and three steps; the bytes of the input and the outputs.
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
fn express_supports_neither_long_waits_nor_callbacks() {
    let rest = run(steps(json!({ "rest": { "wait": "6m" } })));
    let ask = json!({ "path": "/", "body": "${ callback.token }" });
    let asks = json!({ "agent": "a", "request": ask, "callback": { "within": "1m" } });
    let with_callback = run(steps(json!({ "asks": asks })));
    assert_eq!(alternative(&rest, "Express").cannot, Some("5-minute limit"));
    assert_eq!(alternative(&rest, "Express").dollars_per_million, None);
    assert_eq!(alternative(&with_callback, "Express").cannot, Some("no callbacks"));
    // The start, the step, and its callback.
    assert_close(counts(&with_callback, "durable functions")[0], 3.0);
    assert_eq!(step(&with_callback, "asks").started, 50);
}
