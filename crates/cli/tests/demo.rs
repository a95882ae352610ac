//! `steward demo --json`: one object on standard output, with what machines read of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::process::Command;

use serde_json::Value;

/// Runs the demo of a shipped workflow, and gives back how often each process state came out.
fn demo(workflow: &str, tasks: u64, more: &[&str]) -> serde_json::Map<String, Value> {
    let run = Command::new(env!("CARGO_BIN_EXE_steward"))
        .args(["demo", "--workflow", workflow, "--seed", "7", "--json"])
        .args(["--tasks", &tasks.to_string()])
        .args(more)
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(run.status.success(), "{said:#}");
    assert_eq!(said["audit"]["passed"], true);
    assert_eq!(said["tasks"]["submitted"], tasks);
    let by_state = said["tasks"]["by_state"].as_object().unwrap();
    assert_eq!(by_state.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), tasks);
    let ended = ["Processed", "Undone", "Error"];
    assert!(by_state.keys().all(|state| ended.contains(&state.as_str())), "{said:#}");
    for figure in ["/throughput_per_s", "/latency_ms/p50", "/latency_ms/p99"] {
        assert!(said.pointer(figure).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0));
    }
    by_state.clone()
}

#[test]
fn the_demo_passes_its_own_audit_and_says_so_in_json() {
    demo("order", 60, &[]);
}

#[test]
fn drone_deliveries_pass_their_audit_and_some_are_undone() {
    let by_state = demo("drone-delivery", 60, &[]);
    assert!(by_state.contains_key("Processed") && by_state.contains_key("Undone"), "{by_state:?}");
}

#[test]
fn drone_deliveries_pass_their_audit_in_chaos_too() {
    demo("drone-delivery", 60, &["--chaos"]);
}
