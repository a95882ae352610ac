//! `steward cost`: a million tasks of a workflow that ships, priced.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::process::Command;

use serde_json::Value;

fn cost(more: &[&str]) -> (bool, String, String) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let run = Command::new(env!("CARGO_BIN_EXE_steward"))
        .args(["cost", file, "--runs", "20"])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (run.status.success(), text(run.stdout), text(run.stderr))
}

/// The cells of the line whose first cell is `of`.
fn row<'o>(out: &'o str, of: &str) -> Vec<&'o str> {
    let cells = |line: &'o str| line.split(['│', '┆']).map(str::trim).collect::<Vec<_>>();
    out.lines().map(cells).find(|cells| cells.get(1) == Some(&of)).unwrap()
}

#[test]
fn an_order_is_priced_by_function_by_step_and_elsewhere() {
    let (done, out, _) = cost(&[]);
    assert!(done, "{out}");
    assert!(out.starts_with("order version 2: 20 tasks counted, 10 messages a batch\n"), "{out}");
    assert_eq!(row(&out, "submission")[2..6], ["5.00", "0.00", "0.30", "0.10"]);
    assert_eq!(row(&out, "the task")[2..6], ["8.00", "2.00", "0.50", "0.20"]);
    assert_eq!(row(&out, "reserve")[2..6], ["2.00", "2.00", "0.60", "0.20"]);
    assert_eq!(row(&out, "Step Functions Standard")[2..4], ["3.00 state transitions", "75.00"]);
}

#[test]
fn without_batches_it_costs_more_and_is_the_same_object_as_a_forecast() {
    let (done, out, _) = cost(&["--batch", "1", "--json"]);
    assert!(done, "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["usage"]["sqs_requests"], 23.0);
    assert_eq!(report["region"], "us-east-1");
    assert_eq!(report["elsewhere"][2]["counts"]["operations"], 4.0);
    assert_eq!(report["ledger"]["functions"][0]["of"], "submission");
}

#[test]
fn odds_are_for_the_forecast() {
    let (done, _, error) = cost(&["--fail", "charge=5%"]);
    assert!(!done && error.contains("unexpected argument '--fail'"), "{error}");
}
