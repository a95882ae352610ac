//! `steward demo --json`: one object on standard output, with what machines read of it.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_demo_passes_its_own_audit_and_says_so_in_json() {
    let run = Command::new(env!("CARGO_BIN_EXE_steward"))
        .args(["demo", "--tasks", "60", "--seed", "7", "--json"])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(run.status.success(), "{said:#}");
    assert_eq!(said["audit"]["passed"], true);
    assert_eq!(said["tasks"]["submitted"], 60);
    let by_state = said["tasks"]["by_state"].as_object().unwrap();
    assert_eq!(by_state.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 60);
    let ended = ["Processed", "Undone", "Error"];
    assert!(by_state.keys().all(|state| ended.contains(&state.as_str())), "{said:#}");
    for figure in ["/throughput_per_s", "/latency_ms/p50", "/latency_ms/p99"] {
        assert!(said.pointer(figure).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0));
    }
}
