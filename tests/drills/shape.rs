//! The shape of stored items and messages: which fields they have, of which types, and which words occur in them. Two
//! releases with the same shapes read each other's data as far as the format decides it.
//!
//! A shape is a set of lines, such as `tasks.steps.*.s = "c"` or `tasks.revision = number`. Names that users choose are `*`,
//! and payloads are not looked into.

use std::collections::BTreeSet;

use serde_json::Value;

/// The lines of a shape.
pub(crate) type Shape = BTreeSet<String>;

/// The longest text that is taken for a word of the format, such as a state.
const WORD_CHARS_MAX: usize = 24;

/// Fields whose keys are names of steps, documents, agents or workflows.
const NAMED: [&str; 6] = ["steps", "d", "agents", "workflows", "undo_steps", "levels"];

/// Fields that contain payload.
const PAYLOADS: [&str; 5] = ["input", "output", "body", "answer", "detail"];

/// Texts that users, services or the test choose.
const FREE: [&str; 12] = [
    "task_id", "subject", "step", "workflow", "agent", "by", "why", "document", "name", "tenant",
    "order", "found_by",
];

/// The parts of a document's key that are words of the format.
const DOCUMENT_WORDS: [&str; 10] = [
    "submission",
    "input",
    "items",
    "step",
    "undo",
    "result",
    "output",
    "failure",
    "deferral",
    "claim",
];

/// Adds the lines of an item of a table.
pub(crate) fn add_item(shape: &mut Shape, table: &str, item: &Value) {
    let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
    match table {
        "steward-documents" if text("task_id").starts_with('#') => {
            let kind = text("task_id").split('/').next().unwrap_or_default().to_owned();
            add(shape, &format!("documents {kind}"), item);
        }
        "steward-documents" => {
            let name = text("document");
            let kind = document_kind(name.split_once('/').map_or("", |(_, key)| key));
            add_document(shape, &format!("documents {kind}"), &kind, "body", item);
        }
        "steward-workflows" if text("name").starts_with('#') => {
            add(shape, "workflows #trigger", item);
        }
        "steward-workflows" => shape.extend(item.as_object().into_iter().flat_map(|item| {
            item.iter().map(|(key, value)| format!("workflows.{key} = {}", type_of(value)))
        })),
        _ => {
            let mut item = item.clone();
            let documents = item.as_object_mut().and_then(|item| item.remove("d"));
            for (key, document) in documents.iter().flat_map(Value::as_object).flatten() {
                let kind = document_kind(key);
                add_document(shape, &format!("tasks.d {kind}"), &kind, "b", document);
            }
            add(shape, "tasks", &item);
        }
    }
}

/// Adds the lines of a message in a queue.
pub(crate) fn add_message(shape: &mut Shape, queue: &str, message: &Value) {
    if message.get("detail-type").is_some() {
        return;
    }
    let kind = message["type"].as_str().unwrap_or_default();
    add(shape, format!("message {queue} {kind}").trim_end(), message);
}

/// Adds the lines of a value at a place.
pub(crate) fn add(shape: &mut Shape, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            let last = place.rsplit(['.', ' ']).next().unwrap_or_default();
            for (key, value) in fields {
                let is_word = key.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
                let key = if is_word && !NAMED.contains(&last) { key } else { "*" };
                let place = format!("{place}.{key}");
                match PAYLOADS.contains(&key) && !place.starts_with("documents ") {
                    true => drop(shape.insert(format!("{place} = payload"))),
                    false => add(shape, &place, value),
                }
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| add(shape, &format!("{place}[]"), item));
        }
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(json @ (Value::Object(_) | Value::Array(_))) => {
                add(shape, &format!("{place} json"), &json);
            }
            Ok(_) | Err(_) => {
                let field = place.rsplit(['.', ' ']).next().unwrap_or_default();
                let kind = if FREE.contains(&field) { "text".to_owned() } else { word(text) };
                shape.insert(format!("{place} = {kind}"));
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            shape.insert(format!("{place} = {}", type_of(value)));
        }
    }
}

/// What an older release cannot read of the newer shape, or misses in it: `- line` and `+ line`.
pub(crate) fn difference(old: &Shape, new: &Shape) -> Vec<String> {
    let gone = old.difference(new).map(|line| format!("- {line}"));
    gone.chain(new.difference(old).map(|line| format!("+ {line}"))).collect()
}

/// Adds the lines of a document, whose body is JSON in the field `body`.
fn add_document(shape: &mut Shape, place: &str, kind: &str, body: &str, document: &Value) {
    let is_payload = ["output", "result", "items", "input"].iter().any(|end| kind.ends_with(end))
        || kind.starts_with("items")
        || kind.starts_with("input")
        || kind.ends_with("output/*");
    let mut document = document.clone();
    if is_payload && let Some(document) = document.as_object_mut() {
        document.remove(body);
        shape.insert(format!("{place}.{body} = payload"));
    }
    add(shape, place, &document);
}

/// The key of a document without the names of steps and the numbers of attempts.
fn document_kind(key: &str) -> String {
    let part = |part| if DOCUMENT_WORDS.contains(&part) { part } else { "*" };
    key.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

/// The text itself if it may be a word of the format.
fn word(text: &str) -> String {
    let is_word = (1..=WORD_CHARS_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    if is_word { format!("\"{text}\"") } else { "text".to_owned() }
}
