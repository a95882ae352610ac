//! A function without configuration does not start, and its log names the missing variable.

use std::process::Command;

#[test]
fn a_missing_variable_is_named_and_the_function_does_not_start() {
    let run = Command::new(env!("CARGO_BIN_EXE_scheduler")).env_clear().output().unwrap();
    assert!(!run.status.success());
    let output = String::from_utf8(run.stdout).unwrap();
    assert!(output.contains("Environment variable STEWARD_TASKS_TABLE is missing"), "{output}");
}
