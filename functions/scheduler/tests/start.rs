//! A function that is not configured does not start, and says why.

use std::process::Command;

#[test]
fn a_missing_variable_stops_the_function_and_is_named() {
    let run = Command::new(env!("CARGO_BIN_EXE_scheduler")).env_clear().output().unwrap();
    assert!(!run.status.success());
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(said.contains("Environment variable STEWARD_TASKS_TABLE is missing"), "{said}");
}
