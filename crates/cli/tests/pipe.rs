//! Whoever reads what a command says may stop before its end.

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
fn a_reader_who_has_heard_enough_ends_the_command_quietly() {
    let mut child = steward().stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn what_cannot_be_said_is_a_failure() {
    // Every write to it fails as on a full disk.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = steward().stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: standard output: "), "{said}");
}
