//! Commands for authors that need no deployment: `steward workflow import` and `test`, with their files and exit codes.

#![cfg(test)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

fn steward(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steward")).args(arguments).current_dir(dir).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A machine with one state, which calls the function `${Function}` of the deployment.
fn machine(more: &Value) -> Value {
    let mut call =
        json!({ "Type": "Task", "Resource": "${Function}", "TimeoutSeconds": 30, "End": true });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "StartAt": "Call", "States": { "Call": call } })
}

const FUNCTION: &str = "Function=arn:aws:lambda:eu-west-1:123456789012:function:charge";

/// Writes the machine, and imports it with these further arguments.
fn import(dir: &Path, machine: &Value, more: &[&str]) -> Output {
    fs::write(dir.join("pay.asl.json"), machine.to_string()).unwrap();
    steward(dir, &[&["workflow", "import", "pay.asl.json"], more].concat())
}

#[test]
fn the_exit_code_of_an_import_says_what_is_left_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let plain = machine(&json!({}));
    let complete = import(dir.path(), &plain, &["--set", FUNCTION, "--json"]);
    assert_eq!(complete.status.code(), Some(0), "{}", errors(&complete));
    let report: Value = serde_json::from_slice(&complete.stdout).unwrap();
    assert_eq!(report["status"], "complete");
    assert_eq!(report["definitions"][0]["name"], "pay");

    // An error by name that leads to a message.
    let mut notifies = machine(&json!({
        "Catch": [{ "ErrorEquals": ["Gone"], "ResultPath": null, "Next": "Notify" }],
    }));
    notifies["States"]["Notify"] = plain["States"]["Call"].clone();
    let open = import(dir.path(), &notifies, &["--set", FUNCTION]);
    assert_eq!(open.status.code(), Some(3), "{}", errors(&open));
    // A message that contains the error.
    let mut reads = notifies.clone();
    reads["States"]["Call"]["Catch"] = json!([{ "ErrorEquals": ["States.ALL"], "Next": "Notify" }]);
    let impossible = import(dir.path(), &reads, &["--set", FUNCTION]);
    assert_eq!(impossible.status.code(), Some(4), "{}", errors(&impossible));
    let no_machine = import(dir.path(), &json!([]), &[]);
    assert_eq!(no_machine.status.code(), Some(1), "{}", errors(&no_machine));
}

#[test]
fn an_import_replaces_a_file_only_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let machine = machine(&json!({}));
    let out = ["--set", FUNCTION, "--name", "charge", "--out", "charge.yaml"];
    assert!(import(dir.path(), &machine, &out).status.success());
    let path = dir.path().join("charge.yaml");
    assert!(fs::read_to_string(&path).unwrap().contains("name: charge"));
    fs::write(&path, "mine").unwrap();
    let refused = import(dir.path(), &machine, &out);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("charge.yaml exists; use --force"), "{}", errors(&refused));
    let folder = import(dir.path(), &machine, &["--set", FUNCTION, "--out", "."]);
    assert!(errors(&folder).contains("--out names a file"), "{}", errors(&folder));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert!(import(dir.path(), &machine, &[&out[..], &["--force"]].concat()).status.success());
    assert!(fs::read_to_string(&path).unwrap().contains("name: charge"));
}

/// Several states with a `Map` become a child task, which has a file of its own.
#[test]
fn no_file_is_written_if_one_of_them_exists() {
    let dir = tempfile::tempdir().unwrap();
    let call = |next: Value| {
        let mut state = json!({ "Type": "Task", "TimeoutSeconds": 30, "ResultPath": null });
        state["Resource"] = json!("arn:aws:lambda:eu-west-1:123456789012:function:charge");
        state.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
        state
    };
    let states =
        json!({ "Pack": call(json!({ "Next": "Ship" })), "Ship": call(json!({ "End": true })) });
    let processor = json!({ "StartAt": "Pack", "States": states });
    let map =
        json!({ "Type": "Map", "ItemsPath": "$.items", "ItemProcessor": processor, "End": true });
    let machine = json!({ "StartAt": "Each", "States": { "Each": map } });
    let imported = import(dir.path(), &machine, &["--json"]);
    let report: Value = serde_json::from_slice(&imported.stdout).unwrap();
    let child = report["definitions"][1]["name"].as_str().unwrap().to_owned();
    fs::write(dir.path().join(format!("{child}.yaml")), "mine").unwrap();
    let refused = import(dir.path(), &machine, &["--out", "pay.yaml"]);
    assert!(errors(&refused).contains("exists; use --force"), "{}", errors(&refused));
    assert!(!dir.path().join("pay.yaml").exists());
}

#[test]
fn a_test_file_that_cannot_be_read_is_an_error_in_the_junit_report() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("order.test.yaml"), "cases: 1\n").unwrap();
    let tested = ["workflow", "test", "order.test.yaml", "--junit", "report.xml"];
    let output = steward(dir.path(), &tested);
    assert_eq!(output.status.code(), Some(1));
    let report = fs::read_to_string(dir.path().join("report.xml")).unwrap();
    assert!(report.contains("errors=\"1\"") && report.contains("order.test.yaml"), "{report}");
}
