//! The shape of stored items and messages: which fields they have, of which types, and which words occur in them. Two
//! releases with the same shapes read each other's data as far as the format decides it.
//!
//! A shape is a set of lines, such as `tasks.steps.*.s = "c"` or `tasks.revision = number`. Names that users choose are `*`.
//! It is made from [samples](super::samples), which contain no payload.

use std::collections::BTreeSet;

use serde_json::Value;

/// The lines of a shape.
pub(crate) type Shape = BTreeSet<String>;

/// The longest text that is taken for a word of the format, such as a state.
const WORD_CHARS_MAX: usize = 24;

/// Fields whose keys are names of steps, documents, agents or workflows.
const NAMED: [&str; 6] = ["steps", "d", "agents", "workflows", "undo_steps", "levels"];

/// Texts that users, services or the test choose.
const FREE: [&str; 12] = [
    "task_id", "subject", "step", "workflow", "agent", "by", "why", "document", "name", "tenant",
    "order", "found_by",
];

/// Whether the keys of an object at this place are names that users choose.
pub(super) fn has_names(place: &str) -> bool {
    NAMED.contains(&last(place))
}

fn last(place: &str) -> &str {
    place.rsplit(['.', ' ']).next().unwrap_or_default()
}

/// Adds the lines of a value at a place.
pub(crate) fn add(shape: &mut Shape, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_word = key.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
                let key = if is_word && !has_names(place) { key } else { "*" };
                add(shape, &format!("{place}.{key}"), value);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| add(shape, &format!("{place}[]"), item));
        }
        Value::String(text) => {
            let kind = if FREE.contains(&last(place)) { "text".to_owned() } else { word(text) };
            shape.insert(format!("{place} = {kind}"));
        }
        Value::Null => drop(shape.insert(format!("{place} = null"))),
        Value::Bool(_) => drop(shape.insert(format!("{place} = bool"))),
        Value::Number(_) => drop(shape.insert(format!("{place} = number"))),
    }
}

/// What an older release cannot read of the newer shape, or misses in it: `- line` and `+ line`.
pub(crate) fn difference(old: &Shape, new: &Shape) -> Vec<String> {
    let gone = old.difference(new).map(|line| format!("- {line}"));
    gone.chain(new.difference(old).map(|line| format!("+ {line}"))).collect()
}

/// The text itself if it may be a word of the format.
fn word(text: &str) -> String {
    let is_word = (1..=WORD_CHARS_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    if is_word { format!("\"{text}\"") } else { "text".to_owned() }
}
