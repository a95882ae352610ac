//! `steward cost` with an example workflow.

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

/// The cells of the row whose first cell is `first`.
fn row<'o>(out: &'o str, first: &str) -> Vec<&'o str> {
    let cells = |line: &'o str| line.split(['│', '┆']).map(str::trim).collect::<Vec<_>>();
    out.lines().map(cells).find(|cells| cells.get(1) == Some(&first)).unwrap()
}

#[test]
fn the_cost_of_an_order_is_shown_by_function_by_step_and_for_other_services() {
    let (done, out, _) = cost(&[]);
    assert!(done, "{out}");
    assert!(
        out.starts_with("order version 2: 20 simulated tasks, 10 messages per batch\n"),
        "{out}"
    );
    assert_eq!(row(&out, "submission")[2..6], ["2.00", "0.00", "0.30", "0.10"]);
    assert_eq!(row(&out, "the task")[2..6], ["5.00", "1.00", "0.50", "0.20"]);
    assert_eq!(row(&out, "reserve")[2..6], ["1.00", "1.00", "0.60", "0.20"]);
    assert_eq!(row(&out, "Step Functions Standard")[2..4], ["3.00 state transitions", "75.00"]);
}

#[test]
fn without_batches_there_are_more_requests_and_the_json_is_the_report_of_a_forecast() {
    let (done, out, _) = cost(&["--batch", "1", "--json"]);
    assert!(done, "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["usage"]["sqs_requests"], 23.0);
    assert_eq!(report["region"], "us-east-1");
    assert_eq!(report["elsewhere"][2]["counts"]["operations"], 4.0);
    assert_eq!(report["ledger"]["functions"][0]["of"], "submission");
}

#[test]
fn failure_rates_are_only_accepted_by_the_forecast() {
    let (done, _, error) = cost(&["--fail", "charge=5%"]);
    assert!(!done && error.contains("unexpected argument '--fail'"), "{error}");
}
