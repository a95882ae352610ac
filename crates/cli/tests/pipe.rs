//! Standard output that is closed early, or cannot be written.

use std::{
    fs::File,
    process::{Command, Stdio},
};

fn steward() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.args(["workflow", "schema"]).stderr(Stdio::piped());
    command
}

#[test]
fn a_closed_pipe_ends_the_command_with_success_and_no_message() {
    let mut child = steward().stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_failed_write_to_standard_output_is_an_error() {
    // Every write to this device fails as on a full disk.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = steward().stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: standard output: "), "{error}");
}
