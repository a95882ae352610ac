//! The descriptions of what users write and call: the schemas of definitions and of workflow tests, and the HTTP interfaces.
//! Each release keeps a compact copy in `tests/golden/RELEASE/interfaces.txt`. What a release accepted, a later one must accept.

use std::{collections::BTreeSet, path::PathBuf};

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

/// The descriptions in `docs/`, without texts for people: a line for each definition and each path, as a release keeps them.
pub(crate) fn lines() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in FILES {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
        let description = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let name = file.rsplit('/').next().unwrap_or_default();
        add_lines(&mut lines, name, without_prose(&description));
    }
    lines
}

/// Adds a line for each object in the top level of a description, and one for the rest.
fn add_lines(lines: &mut BTreeSet<String>, name: &str, mut description: Value) {
    for (key, value) in description.as_object_mut().unwrap() {
        for (inner, value) in value.as_object_mut().map(std::mem::take).into_iter().flatten() {
            lines.insert(format!("{name}.{key}.{inner} = {value}"));
        }
    }
    lines.insert(format!("{name} = {description}"));
}

fn without_prose(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_kept = |(key, value): &(&String, &Value)| {
                !(value.is_string() && PROSE.contains(&key.as_str()))
            };
            let fields = fields.iter().filter(is_kept);
            fields.map(|(key, value)| (key.clone(), without_prose(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_prose).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// `- line` for what is gone, `+ line` for what is required now.
pub(crate) fn differences(old: &BTreeSet<String>, new: &BTreeSet<String>) -> Vec<String> {
    let shape = |lines: &BTreeSet<String>| {
        let mut shape = Shape::new();
        for line in lines {
            let (place, value) = line.split_once(" = ").unwrap();
            add(&mut shape, place, &serde_json::from_str(value).unwrap());
        }
        shape
    };
    let (old, new) = (shape(old), shape(new));
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    let required = new.difference(&old).filter(|line| line.contains(".required"));
    gone.chain(required.map(|line| format!("+ {line}"))).collect()
}

/// Adds the lines of a value at a place. The alternatives of a list share their place.
fn add(lines: &mut Shape, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
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
    let difference = |old: &str, new: &str| {
        let [old, new] = [old, new].map(|text| {
            let mut lines = BTreeSet::new();
            add_lines(&mut lines, "x", without_prose(&serde_json::from_str(text).unwrap()));
            lines
        });
        differences(&old, &new)
    };
    let old = r#"{ "title": "A", "properties": { "name": { "type": "string", "maxLength": 9 } }, "required": ["name"] }"#;
    let more = old.replace(r#""properties": {"#, r#""properties": { "to": { "type": "string" },"#);
    let more = more.replace("\"A\"", "\"B\"");
    assert_eq!(difference(old, &more), [""; 0]);
    assert_eq!(difference(&more, old), [r#"- x.properties.to.type = "string""#]);
    assert_eq!(
        difference(old, &old.replace(r#"["name"]"#, r#"["name", "to"]"#)),
        [r#"+ x.required[] = "to""#]
    );
    assert_eq!(difference(old, &old.replace('9', "8")), ["- x.properties.name.maxLength = 9"]);
}
