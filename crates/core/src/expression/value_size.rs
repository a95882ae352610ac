//! The size of a value in steps, the unit of the [cost estimate](super::cost).

use serde_json::Value;

/// Bytes that are copied or compared in the time of one step.
pub(super) const STEP_BYTES: u64 = 32;

/// The steps to copy or compare `value`.
pub(super) fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text_size(text.len()),
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| text_size(key.len()).saturating_add(size(value)))
            .fold(1, u64::saturating_add),
    }
}

/// The steps to copy or compare a text of this many bytes.
pub(super) fn text_size(bytes: usize) -> u64 {
    1 + bytes as u64 / STEP_BYTES
}
