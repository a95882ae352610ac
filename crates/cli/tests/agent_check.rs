//! `steward agent contract` and `steward agent check`.

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and means test functions, not their helpers"
)]

use std::process::{Command, Output};

fn steward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steward")).args(arguments).output().unwrap()
}

#[test]
fn the_published_documents_are_printed() {
    for (format, file) in [
        ("asyncapi", "asyncapi.json"),
        ("request", "request.schema.json"),
        ("reply", "reply.schema.json"),
    ] {
        let printed = steward(&["agent", "contract", "--format", format]);
        let path = format!("{}/../../docs/contract/{file}", env!("CARGO_MANIFEST_DIR"));
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed == std::fs::read_to_string(path).unwrap(), "docs/contract/{file} differs");
    }
}

#[test]
fn an_agent_that_ends_is_reported_with_its_output() {
    let checked = steward(&["agent", "check", "--command", "printf no-module >&2"]);
    let error = String::from_utf8(checked.stderr).unwrap();
    assert!(!checked.status.success());
    assert!(error.contains("the agent ended during the check"), "{error}");
    assert!(error.contains("no-module"), "{error}");
}

#[test]
fn wrong_options_are_refused() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (arguments, message) in [
        (vec!["agent", "check"], "--command"),
        (vec!["agent", "check", "--queue", "http://q"], "--replies"),
        (vec!["agent", "check", "--command", "x", "--service", "127.0.0.1:1"], "--service"),
        (vec!["agent", "check", "--command", "x", "--request", manifest], "Cargo.toml"),
    ] {
        let refused = steward(&arguments);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && error.contains(message), "{error}");
    }
}
