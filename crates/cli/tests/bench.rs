//! `steward bench`: each kind of case runs to its end and prints its measurements. The tests do not check how fast it
//! was.

#![cfg(test)]

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::{Value, json};

/// Runs one case in a separate process, as the command does.
fn measure(case: &Value) -> BTreeMap<String, f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    let output = command.args(["bench", "--case", &case.to_string()]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sagas_run_with_state_on_file_and_other_tasks_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let figures = measure(&json!({ "saga": {
        "tasks": 5, "steps": 2, "in_flight": 2, "service_ms": 1, "stored": 20,
        "on_file": true, "data": folder.path(),
    } }));
    assert!(figures["tasks/s"] > 0.0 && figures["p99 ms"] >= figures["p50 ms"], "{figures:?}");
    // Concurrent writes of two tasks may share a request.
    assert!(figures["requests/step, DynamoDB"] >= 0.5, "{figures:?}");
    assert!(figures["requests/step, SQS"] > 0.0, "{figures:?}");
    for who in ["scheduler", "submission", "agent", "DynamoDB", "SQS", "event source"] {
        assert!(figures[&format!("CPU µs/step, {who}")] > 0.0, "{who}: {figures:?}");
    }
}

#[test]
fn ingestion_records_all_submissions() {
    let ingest = json!({ "rate": 20, "seconds": 2, "spike_seconds": 1, "data": null });
    let figures = measure(&json!({ "ingest": ingest }));
    assert!(figures["accept p99 ms"] >= figures["accept p50 ms"], "{figures:?}");
}

#[test]
fn a_step_is_called_again_after_its_agent_was_killed_and_after_a_call_without_an_answer() {
    let recovery = json!({
        "runs": 2, "complete_within_s": 2, "run_every_s": 3, "sweep_every_s": 1, "clock_skew_s": 0,
    });
    let figures = measure(&json!({ "recovery": recovery }));
    let silent = figures["called again after a call without an answer, s, p50"];
    assert!(silent >= 1.0, "{silent} s: before the deadline of its attempt");
    let killed = figures["called again after the end of its agent, s, longest"];
    assert!(killed > 0.0, "{figures:?}");
}

#[test]
fn console_pages_are_requested() {
    let folder = tempfile::tempdir().unwrap();
    let console = json!({ "stored": 120, "requests": 2, "data": folder.path() });
    let figures = measure(&json!({ "console": console }));
    assert!(figures["task, p99 ms"] >= figures["task, p50 ms"], "{figures:?}");
}

/// The case for a function that only runs this script.
fn function(folder: &Path, script: &str) -> Value {
    let bootstrap = folder.join("bootstrap");
    std::fs::write(&bootstrap, format!("#!/bin/bash\n{script}\n")).unwrap();
    std::fs::set_permissions(&bootstrap, PermissionsExt::from_mode(0o755)).unwrap();
    json!({ "cold_start": { "function": folder, "starts": 3 } })
}

#[test]
fn a_function_has_started_when_it_requests_its_first_event() {
    let folder = tempfile::tempdir().unwrap();
    let request_event = r#"exec 3<>"/dev/tcp/${AWS_LAMBDA_RUNTIME_API/:/\/}"
        printf 'GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: lambda\r\n\r\n' >&3
        read -r -u 3"#;
    let figures = measure(&function(folder.path(), request_event));
    assert!(figures["start ms, p50"] > 0.0 && figures["size MB"] > 0.0, "{figures:?}");
}

#[test]
fn a_function_that_exits_at_startup_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let case = function(folder.path(), "exit 3").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    let output = command.args(["bench", "--case", &case]).output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("bootstrap exited: exit status: 3"), "{stderr}");
}

#[test]
fn cold_starts_without_built_functions_are_an_error_that_names_the_build_script() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    let output = command.current_dir(&folder).args(["bench", "cold-start"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("infra/build builds them"));
}
