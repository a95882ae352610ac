//! `steward demo --json`: the audit passes, and standard output is one JSON object with the expected fields.

#![cfg(test)]

use std::process::Command;

use serde_json::Value;

/// In a pipe, the demo has one line for each thing that it waits for.
fn assert_phases(stderr: &str) {
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let phases = [
        "submitting ",
        "waiting until the last ",
        "waiting until the services have read their queues",
        "auditing ",
    ];
    let count = |phase: &str| lines.iter().filter(|line| line.starts_with(phase)).count();
    assert_eq!(phases.map(count), [1; 4], "{stderr}");
}

/// Runs the demo of an example workflow, and returns the number of tasks by state.
fn demo(workflow: &str, tasks: u64, more: &[&str]) -> serde_json::Map<String, Value> {
    let run = Command::new(env!("CARGO_BIN_EXE_steward"))
        .args(["demo", "--workflow", workflow, "--seed", "7", "--json"])
        .args(["--tasks", &tasks.to_string()])
        .args(more)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(run.status.success(), "{report:#}");
    assert_phases(&String::from_utf8(run.stderr).unwrap());
    assert_eq!(report["audit"]["passed"], true);
    assert_eq!(report["tasks"]["submitted"], tasks);
    let by_state = report["tasks"]["by_state"].as_object().unwrap();
    assert_eq!(by_state.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), tasks);
    let ended = ["Processed", "Undone", "Error"];
    assert!(by_state.keys().all(|state| ended.contains(&state.as_str())), "{report:#}");
    for figure in ["/throughput_per_s", "/latency_ms/p50", "/latency_ms/p99"] {
        assert!(report.pointer(figure).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0));
    }
    by_state.clone()
}

#[test]
fn the_demo_of_orders_passes_its_audit() {
    demo("order", 60, &[]);
}

#[test]
fn the_demo_of_drone_deliveries_passes_its_audit_and_some_are_undone() {
    let by_state = demo("drone-delivery", 60, &[]);
    assert!(by_state.contains_key("Processed") && by_state.contains_key("Undone"), "{by_state:?}");
}

#[test]
fn the_demo_of_purchases_passes_its_audit_and_some_are_undone() {
    let by_state = demo("purchase", 40, &[]);
    assert!(by_state.contains_key("Processed") && by_state.contains_key("Undone"), "{by_state:?}");
}

#[test]
fn the_demo_of_purchases_passes_its_audit_with_chaos() {
    demo("purchase", 40, &["--chaos"]);
}

#[test]
fn the_demo_of_drone_deliveries_passes_its_audit_with_chaos() {
    demo("drone-delivery", 60, &["--chaos"]);
}
