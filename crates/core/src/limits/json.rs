//! The nesting of JSON, and the memory that a value takes.

use serde_json::Value;

/// How deep JSON may nest, in documents and in request templates.
pub const JSON_DEPTH_MAX: usize = 32;

/// Estimates the bytes of memory that a value takes.
#[must_use]
pub fn estimated_memory_bytes(value: &Value) -> usize {
    size_of::<Value>() + estimated_heap_bytes(value)
}

fn estimated_heap_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(estimated_memory_bytes).sum(),
        Value::Object(fields) => {
            let inside =
                fields.iter().map(|(name, value)| name.len() + estimated_heap_bytes(value));
            field_slots(fields.len()) * FIELD_SLOT_BYTES + inside.sum::<usize>()
        }
    }
}

/// Bytes of a slot in the hash table of an object: name, value and hash for seven of eight slots, and the slot itself.
const FIELD_SLOT_BYTES: usize = 100;

/// The slots of the hash table of an object. The number is a power of two of which at most seven eighths are used.
fn field_slots(fields: usize) -> usize {
    match fields {
        0 => 0,
        1..=3 => 4,
        _ => fields.saturating_mul(8).div_ceil(7).next_power_of_two(),
    }
}

/// Whether `value` nests deeper than [`JSON_DEPTH_MAX`].
#[must_use]
pub fn nests_too_deep(value: &Value) -> bool {
    fn deeper_than(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(items) => {
                levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1))
            }
            Value::Object(fields) => {
                levels == 0 || fields.values().any(|field| deeper_than(field, levels - 1))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    deeper_than(value, JSON_DEPTH_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The measured bytes are those that a counting allocator saw while a list of many such values was cloned.
    #[test]
    fn the_estimated_memory_is_close_to_the_measured_memory() {
        let six = json!({ "id": "p-1234", "a": 1, "b": 2, "c": "xx", "d": null, "e": true });
        let sixty = Value::from_iter((0..60).map(|n| (format!("k{n:03}"), n)));
        for (value, measured) in [
            (json!(1), 72),
            (json!({}), 72),
            (json!([1]), 144),
            (json!({ "a": 1 }), 437),
            (json!({ "id": "p-1234" }), 444),
            (six, 903),
            (sixty, 13_128),
            (json!("x".repeat(100)), 172),
        ] {
            let estimated = estimated_memory_bytes(&value);
            assert!(estimated.abs_diff(measured) * 10 <= measured, "{estimated} for {value}");
        }
    }

    #[test]
    fn depth_counts_nested_containers() {
        let nested = |levels| (0..levels).fold(json!(1), |value, _| json!([value]));
        assert!(!nests_too_deep(&nested(JSON_DEPTH_MAX)));
        assert!(nests_too_deep(&nested(JSON_DEPTH_MAX + 1)));
    }
}
