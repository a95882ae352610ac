//! The check of the largest definition files, as `steward workflow check` does it: one with as many mistakes as fit, and one that is
//! accepted.

use std::{fmt::Write as _, path::Path};

use serde_json::{Map, Value, json};
use steward_core::limits;
use steward_definition_file::{DefinitionError, locate, parse};

use crate::case::Case;

/// The limit for instructions: 2 s in a build that is not optimised. Its command takes 1.8 s of processor time for the 12.3 billion of
/// `connected_steps`.
pub(crate) const INSTRUCTIONS_MAX: u64 = 14_000_000_000;

/// The cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |(name, text): (&str, String)| {
        Case::new(name, move || text.clone(), |text| check(&text).is_ok())
    };
    files().map(case).into()
}

/// The names of the cases, and their files.
pub(crate) fn files() -> [(&'static str, String); 2] {
    [("check/unknown_keys", unknown_keys()), ("check/connected_steps", connected_steps())]
}

/// What the command does with the text of a file. Returns the number of warnings.
pub(crate) fn check(text: &str) -> Result<usize, DefinitionError> {
    let workflow = parse(Path::new("large.yaml"), text)?;
    let findings = workflow.lint().into_iter().map(|finding| finding.problem);
    Ok(locate(text, findings.collect()).len())
}

/// 20,000 keys that do not exist.
fn unknown_keys() -> String {
    let step = "  a:\n    agent: a\n    request: { path: /x }\n";
    let mut text = format!("name: large\nversion: 1\nsteps:\n{step}");
    for n in 0..20_000 {
        writeln!(text, "k{n}: 1").unwrap();
    }
    assert!(text.len() <= limits::DEFINITION_BYTES_MAX);
    text
}

/// A hundred steps, each after all before it, with expressions and a schema, in a file of the largest size.
fn connected_steps() -> String {
    let properties = |bytes| {
        let property = |n: usize| (format!("p{n}"), json!({ "type": "string", "maxLength": n }));
        (0..bytes / 44).map(property).collect::<Map<_, Value>>()
    };
    let step = |n: usize| {
        let after: Vec<_> = (0..n).map(|before| format!("s{before}")).collect();
        let value = |m: usize| match n.checked_sub(1 + m % 10) {
            Some(before) => format!("${{ steps.s{before}.output.v{m} }}"),
            None => format!("${{ input.p{m} + '-{n}' }}"),
        };
        let body: Map<_, _> = (0..40).map(|m| (format!("b{m}"), value(m).into())).collect();
        let request = json!({ "path": "/do", "body": body });
        json!({ "agent": "a", "after": after, "request": request, "undo": { "request": { "path": "/undo" } } })
    };
    let steps: Map<_, _> = (0..100).map(|n| (format!("s{n}"), step(n))).collect();
    let text = |bytes| {
        json!({
            "name": "large", "version": 1, "complete_within": "1h", "overdue": "undo",
            "input": { "type": "object", "properties": properties(bytes) }, "steps": steps,
        })
        .to_string()
    };
    let text = text(limits::DEFINITION_BYTES_MAX - text(0).len());
    let sizes = limits::DEFINITION_BYTES_MAX * 9 / 10..=limits::DEFINITION_BYTES_MAX;
    assert!(sizes.contains(&text.len()), "{} bytes", text.len());
    text
}
