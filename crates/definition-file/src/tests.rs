//! What a definition file must not be, with the whole text of each error.

use super::*;

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

/// What is said of [`DEFINITION`] once `from` has become `to` in it.
fn told(from: &str, to: &str) -> String {
    assert!(DEFINITION.contains(from), "{from}");
    told_of(&DEFINITION.replacen(from, to, 1))
}

/// What is said of `text`, each line without the file's name.
fn told_of(text: &str) -> String {
    match parse(Path::new("x.yaml"), text) {
        Ok(_) => String::new(),
        Err(error) => error.to_string().replace("x.yaml:", ""),
    }
}

/// A text whose first line break is there for the eye only.
fn text(lines: &'static str) -> &'static str {
    lines.strip_prefix('\n').unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
