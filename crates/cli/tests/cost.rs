//! `steward cost` with an example workflow.

#![cfg(test)]

use std::process::Command;

use serde_json::Value;

fn cost(more: &[&str]) -> (bool, String, String) {
    steward("cost", "order", &[&["--runs", "20"], more].concat())
}

fn steward(command: &str, workflow: &str, more: &[&str]) -> (bool, String, String) {
    let file = format!("{}/../../workflows/{workflow}.yaml", env!("CARGO_MANIFEST_DIR"));
    let run = Command::new(env!("CARGO_BIN_EXE_steward"))
        .args([command, &file])
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

fn month(tasks: &str, more: &[&str]) -> Value {
    let (done, out, error) =
        steward("cost", "order", &[&["--json", "--per-month", tasks], more].concat());
    assert!(done, "{error}");
    serde_json::from_str::<Value>(&out).unwrap()["month"].clone()
}

#[test]
fn the_readme_has_the_figures_of_an_idle_month_and_of_the_break_even() {
    let idle = |agents| month("1", &["--agents", agents])["idle"]["dollars"].as_f64().unwrap();
    let month = month("1", &["--batch", "1"]);
    let tens_of_thousands = |other: usize| {
        let tasks = month["elsewhere"][other]["break_even"].as_f64().unwrap();
        format!("{}0,000", (tasks / 10_000.0).round())
    };
    let readme = include_str!("../../../README.md");
    for figure in [
        format!("[${:.2} to ${:.0} a month]", idle("1"), idle("8")),
        format!("[some {} orders a month on]", tens_of_thousands(0)),
        format!("durable functions from {}", tens_of_thousands(2)),
    ] {
        assert!(readme.contains(&figure), "{figure}");
    }
}

/// The break-even is where both months cost the same.
#[test]
fn a_month_includes_what_a_deployment_costs_without_tasks_and_has_a_break_even() {
    let few = month("900", &["--agents", "4"]);
    assert_eq!((&few["tasks"], &few["idle"]["agents"]), (&900.into(), &4.into()));
    let dollars = |month: &Value| {
        [&month["dollars"], &month["elsewhere"][0]["dollars"]].map(|price| price.as_f64().unwrap())
    };
    let [steward, step_functions] = dollars(&few);
    assert!(steward > 10.0 * step_functions, "{few}");
    let from = few["elsewhere"][0]["break_even"].as_u64().unwrap();
    let [steward, step_functions] = dollars(&month(&from.to_string(), &["--agents", "4"]));
    assert!((step_functions - steward).abs() < 1e-3, "{steward} {step_functions}");
    assert_eq!(few["elsewhere"][1]["break_even"], Value::Null, "Express costs less per task");
    assert_eq!(month("1", &[])["idle"]["agents"], 3, "those of the workflow");
}

#[test]
fn the_table_of_a_month_ends_with_its_sum() {
    let (done, out, _) = cost(&["--per-month", "1000000"]);
    assert!(done, "{out}");
    let number = |first| row(&out, first)[2].parse::<f64>().unwrap();
    let sum = number("without tasks, with 3 agents") + number("1000000 tasks");
    assert!((number("together") - sum).abs() < 0.011, "{out}");
    assert!(out.contains("tasks a month") && out.contains("never"), "{out}");
}

#[test]
fn tasks_that_pass_their_callback_url_to_a_service_are_processed() {
    for (command, more) in [("cost", ["--runs", "20"].as_slice()), ("scale", &["--rate", "10"])] {
        let (done, out, error) = steward(command, "purchase", more);
        assert!(done && !out.contains("Undone") && !out.contains("Error"), "{out}{error}");
    }
}

#[test]
fn a_price_of_tasks_that_all_fail_is_refused_with_the_reason() {
    for command in ["cost", "scale"] {
        // An attempt takes longer than its complete-by allows.
        let more = ["--runs", "20", "--slow", "charge=300s"];
        let (done, out, error) = steward(command, "order", &more);
        assert!(!done && out.is_empty(), "{out}");
        assert!(error.contains("no simulated task of workflow `order` was Processed"), "{error}");
        assert!(error.contains("charge"), "{error}");
    }
}
