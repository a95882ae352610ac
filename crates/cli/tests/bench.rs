//! `steward bench`: each kind of case runs to its end and says what it measured. How fast that was is not
//! asked here.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::{collections::BTreeMap, process::Command};

use serde_json::{Value, json};

/// Runs one case as the command does, in a process of its own.
fn measured(case: &Value) -> BTreeMap<String, f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    let output = command.args(["bench", "--case", &case.to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sagas_run_on_file_beside_tasks_that_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let figures = measured(&json!({ "saga": {
        "tasks": 5, "steps": 2, "in_flight": 2, "service_ms": 1, "stored": 20,
        "on_file": true, "data": folder.path(),
    } }));
    assert!(figures["tasks/s"] > 0.0 && figures["p99 ms"] >= figures["p50 ms"], "{figures:?}");
    // Two puts for each step, and the submission's transaction for two.
    assert!(figures["requests/step, DynamoDB"] >= 2.5, "{figures:?}");
    assert!(figures["requests/step, SQS"] > 0.0, "{figures:?}");
    for who in ["scheduler", "submission", "agent", "DynamoDB", "SQS", "event source"] {
        assert!(figures[&format!("CPU µs/step, {who}")] > 0.0, "{who}: {figures:?}");
    }
}

#[test]
fn submissions_are_all_recorded() {
    let ingest = json!({ "rate": 20, "seconds": 2, "spike_seconds": 1, "data": null });
    let figures = measured(&json!({ "ingest": ingest }));
    assert!(figures["accept p99 ms"] >= figures["accept p50 ms"], "{figures:?}");
}

#[test]
fn a_step_is_called_again_after_its_agent_died() {
    let recovery = json!({ "deaths": 1, "complete_within_s": 1, "supervise_every_ms": 100 });
    let figures = measured(&json!({ "recovery": recovery }));
    let again = figures["called again after ms, longest"];
    assert!(again >= 900.0, "{again} ms: before its attempt was over");
}

#[test]
fn the_consoles_pages_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let console = json!({ "stored": 120, "requests": 2, "data": folder.path() });
    let figures = measured(&json!({ "console": console }));
    assert!(figures["task, p99 ms"] >= figures["task, p50 ms"], "{figures:?}");
}
