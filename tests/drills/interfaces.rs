//! The descriptions of what users write and call: the schemas of definitions and of workflow tests, and the HTTP interfaces.
//! Each release keeps a copy in `tests/golden/RELEASE/interfaces/`. What a release accepted, a later one must accept.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::shape::Shape;

/// The descriptions, in `docs/`.
const FILES: [&str; 4] = [
    "workflow.schema.json",
    "workflow-test.schema.json",
    "contract/openapi.json",
    "contract/callbacks-openapi.json",
];

/// Texts for people.
const PROSE: [&str; 4] = ["description", "title", "summary", "$comment"];

/// What the descriptions in `docs/` no longer have of those in the folder `frozen`, and what they require now.
pub(crate) fn differences(frozen: &Path) -> Vec<String> {
    let of_file = |file: &&str| {
        let old = std::fs::read_to_string(frozen.join(name(file))).unwrap();
        let new = std::fs::read_to_string(current(file)).unwrap();
        difference(name(file), &old, &new)
    };
    FILES.iter().flat_map(of_file).collect()
}

/// Copies the descriptions into the folder `frozen`.
pub(crate) fn freeze(frozen: &Path) {
    std::fs::create_dir_all(frozen).unwrap();
    for file in FILES {
        std::fs::copy(current(file), frozen.join(name(file))).unwrap();
    }
}

fn current(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file)
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or_default()
}

/// `- line` for what is gone, `+ line` for what is required now.
fn difference(name: &str, old: &str, new: &str) -> Vec<String> {
    let lines = |text: &str| {
        let mut lines = Shape::new();
        add(&mut lines, name, &serde_json::from_str(text).unwrap());
        lines
    };
    let (old, new) = (lines(old), lines(new));
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    let required = new.difference(&old).filter(|line| line.contains(".required"));
    gone.chain(required.map(|line| format!("+ {line}"))).collect()
}

/// Adds the lines of a value at a place. The alternatives of a list share their place.
fn add(lines: &mut Shape, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(key, value)| !(value.is_string() && PROSE.contains(&key.as_str())));
            fields.for_each(|(key, value)| add(lines, &format!("{place}.{key}"), value));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| add(lines, &format!("{place}[]"), item));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.insert(format!("{place} = {value}"));
        }
    }
}

#[test]
fn a_key_that_is_gone_and_one_that_is_required_are_found() {
    let old = r#"{ "title": "A", "properties": { "name": { "type": "string", "maxLength": 9 } }, "required": ["name"] }"#;
    let more = old.replace(r#""properties": {"#, r#""properties": { "to": { "type": "string" },"#);
    let more = more.replace("\"A\"", "\"B\"");
    assert_eq!(difference("x", old, &more), [""; 0]);
    assert_eq!(difference("x", &more, old), [r#"- x.properties.to.type = "string""#]);
    assert_eq!(
        difference("x", old, &old.replace(r#"["name"]"#, r#"["name", "to"]"#)),
        [r#"+ x.required[] = "to""#]
    );
    assert_eq!(difference("x", old, &old.replace('9', "8")), ["- x.properties.name.maxLength = 9"]);
}
