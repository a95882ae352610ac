//! The outputs of the simulated services.

use serde_json::{Value, json};

use super::virtual_time::Millis;

/// The output for an idempotency key. It contains a number below a hundred and a short list. One in four has a text of up
/// to 1.2 KB, so that some documents fit into the item of their task and others do not.
pub(super) fn output(key: &str, now: Millis) -> Value {
    let sum = key.bytes().fold(17_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let roll = (sum >> 3) % 100;
    let items: Vec<_> = (0..roll % 5).map(|n| roll + n).collect();
    let mut output = json!({ "for": key, "at": now, "roll": roll, "items": items });
    if let (0, Some(fields)) = ((sum >> 13) % 4, output.as_object_mut()) {
        let bytes = 12 * usize::try_from(roll).unwrap_or_default();
        fields.insert("note".to_owned(), "x".repeat(bytes).into());
    }
    output
}
