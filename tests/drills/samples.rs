//! Samples of what is stored, sent, published and measured. Each is a line, such as `tasks.steps.* = {"a":1,"s":"c"}`: a place,
//! and a value there. An object in a list, a named object, and JSON in a text are samples of their own. Payloads are left out.
//!
//! Of all samples of a run, [`Samples::lines`] keeps as many as the shape needs. The samples are sorted first, and so are the
//! keys of each object, so the order in which functions write does not matter.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::shape::{self, Shape};

/// Fields that contain payload.
const PAYLOADS: [&str; 5] = ["input", "output", "body", "answer", "detail"];

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

/// The fields of a write that are the same for every item.
const WRITE_FIELDS: [&str; 4] =
    ["ConditionExpression", "UpdateExpression", "ReturnValuesOnConditionCheckFailure", "Statement"];

/// Samples of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(BTreeSet<(String, String)>);

impl Samples {
    /// Reads the lines of a file of samples.
    pub(super) fn read(text: &str) -> Self {
        let sample = |line: &str| {
            let (place, value) = line.split_once(" = ").unwrap();
            (place.to_owned(), value.to_owned())
        };
        Self(text.lines().map(sample).collect())
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Adds an item of a table.
    pub(super) fn add_item(&mut self, table: &str, item: &Value) {
        let text = |field: &str| item[field].as_str().unwrap_or_default();
        match table {
            "steward-documents" if text("task_id").starts_with('#') => {
                let kind = text("task_id").split('/').next().unwrap_or_default();
                self.add(&format!("documents {kind}"), item);
            }
            "steward-documents" => {
                let key = text("document").split_once('/').map_or("", |(_, key)| key);
                self.add_document("documents", key, "body", item);
            }
            "steward-workflows" if text("name").starts_with('#') => {
                self.add("workflows #trigger", item);
            }
            "steward-workflows" => self.add("workflows", &without_payload(item, "definition")),
            _ => {
                let mut item = item.clone();
                let documents = item.as_object_mut().and_then(|item| item.remove("d"));
                for (key, document) in documents.iter().flat_map(Value::as_object).flatten() {
                    self.add_document("tasks.d", key, "b", document);
                }
                self.add("tasks", &item);
            }
        }
    }

    /// Adds a document, whose content is in the field `body`.
    fn add_document(&mut self, table: &str, key: &str, body: &str, document: &Value) {
        let part = |part| if DOCUMENT_WORDS.contains(&part) { part } else { "*" };
        let kind = key.split('/').map(part).collect::<Vec<_>>().join("/");
        let is_payload =
            ["output", "result", "items", "input"].iter().any(|end| kind.ends_with(end))
                || kind.starts_with("items")
                || kind.starts_with("input")
                || kind.ends_with("output/*");
        let place = format!("{table} {kind}");
        match is_payload {
            true => self.add(&place, &without_payload(document, body)),
            false => self.add(&place, document),
        }
    }

    /// Adds a message in a queue. An event that a client of the events queue published is none of Steward's messages.
    pub(super) fn add_message(&mut self, queue: &str, message: &Value) {
        if message.get("detail-type").is_none() {
            let kind = message["type"].as_str().unwrap_or_default();
            self.add(format!("message {queue} {kind}").trim_end(), message);
        }
    }

    /// Adds a request that writes into a table, without what it writes: its condition.
    pub(super) fn add_write(&mut self, operation: &str, request: &Value) {
        match request {
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(key, _)| WRITE_FIELDS.contains(&key.as_str()));
                let kept: Map<_, _> =
                    kept.map(|(key, value)| (key.clone(), value.clone())).collect();
                let table = fields.get("TableName").and_then(Value::as_str).unwrap_or_default();
                if !kept.is_empty() {
                    self.add(format!("write {operation} {table}").trim_end(), &Value::Object(kept));
                }
                fields.values().for_each(|value| self.add_write(operation, value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_write(operation, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Adds a value at a place.
    pub(super) fn add(&mut self, place: &str, value: &Value) {
        let own = self.without_parts(place, value);
        self.0.insert((place.to_owned(), own.to_string()));
    }

    /// Adds the parts of a value that are samples of their own. Returns the value without them.
    fn without_parts(&mut self, place: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut own = Map::new();
                for (key, value) in fields {
                    let inner = format!("{place}.{key}");
                    if value.is_object() && shape::has_names(place) {
                        self.add(&format!("{place}.*"), value);
                    } else if PAYLOADS.contains(&key.as_str()) && !inner.starts_with("documents ") {
                        own.insert(key.clone(), json!("payload"));
                    } else {
                        own.insert(key.clone(), self.without_parts(&inner, value));
                    }
                }
                own.sort_keys();
                Value::Object(own)
            }
            Value::Array(items) => {
                let (objects, others): (Vec<_>, Vec<_>) =
                    items.iter().partition(|item| item.is_object());
                objects.into_iter().for_each(|item| self.add(&format!("{place}[]"), item));
                let inner = format!("{place}[]");
                others.into_iter().map(|item| self.without_parts(&inner, item)).collect()
            }
            Value::String(text) => match serde_json::from_str(text) {
                Ok(json @ (Value::Object(_) | Value::Array(_))) => {
                    self.add(&format!("{place} json"), &json);
                    json!("json")
                }
                Ok(_) | Err(_) => value.clone(),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// The samples at a place.
    pub(super) fn at(&self, place: &str) -> Vec<Value> {
        let values = self.0.iter().filter(|(found, _)| found == place);
        values.map(|(_, value)| serde_json::from_str(value).unwrap()).collect()
    }

    /// The shape of all samples.
    pub(super) fn shape(&self) -> Shape {
        self.0.iter().flat_map(shape_of).collect()
    }

    /// A few of the samples that have the same shape together: the lines of a file of samples. The conditions of writes are all
    /// kept.
    pub(super) fn lines(&self) -> BTreeSet<String> {
        let mut shape = Shape::new();
        let mut is_needed = |sample: &&(String, String)| {
            let before = shape.len();
            shape.extend(shape_of(sample));
            shape.len() > before || sample.0.starts_with("write ")
        };
        let needed = self.0.iter().filter(|sample| is_needed(sample));
        needed.map(|(place, value)| format!("{place} = {value}")).collect()
    }
}

fn shape_of((place, value): &(String, String)) -> Shape {
    let mut shape = Shape::new();
    shape::add(&mut shape, place, &serde_json::from_str(value).unwrap());
    shape
}

fn without_payload(item: &Value, field: &str) -> Value {
    let mut item = item.clone();
    item[field] = json!("payload");
    item
}
