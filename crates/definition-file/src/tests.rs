//! Tests of invalid definition files, with the full text of each error.

use std::path::PathBuf;

use super::*;

mod check_cost;
mod files;
mod keys;
mod language;
mod properties;

const DEFINITION: &str = "\
name: order
version: 1
steps:
  reserve:
    agent: inventory
    complete_within: 10s
    request:
      path: /reservations
  charge:
    agent: payment
    after: [reserve]
    recovery: { attempts: 5 }
    request:
      path: /charges
      body:
        order: ${ task.id }
        amount: ${ input.amount }
";

/// The errors in [`DEFINITION`] after `from` is replaced by `to`.
fn errors_after_edit(from: &str, to: &str) -> String {
    assert!(DEFINITION.contains(from), "{from}");
    errors_in(&DEFINITION.replacen(from, to, 1))
}

/// The errors in `text`, one per line, without the file name; empty if `text` is valid.
fn errors_in(text: &str) -> String {
    match parse(Path::new("x.yaml"), text) {
        Ok(_) => String::new(),
        Err(error) => error.to_string().replace("x.yaml:", ""),
    }
}

/// `lines` without the leading line break, which only makes the literal readable.
fn text(lines: &'static str) -> &'static str {
    lines.strip_prefix('\n').unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
