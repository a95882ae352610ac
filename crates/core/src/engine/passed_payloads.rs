//! The references to payloads in what a task sends to others: a request, or its output.
//!
//! A service, a caller, an operator or a template may have produced a reference to the payload of another task. Who receives
//! it may have the right to read the bucket, so a task passes on only references to its own payloads.

use std::borrow::Cow;

use serde_json::Value;

use crate::model::{
    escapes::{unescaped_json, unescaped_url},
    payload::{PAYLOAD_MARKER, find_references, has_reference},
    task::Task,
};

/// How often a text may be escaped for JSON and its references still count.
const ESCAPED_MAX: usize = 4;

/// Checks that every reference in a value names a payload of the task. The key `$payload` is reserved for references. Some agents send
/// a text as it is, and a receiver may read JSON in it, so a text must not have this key.
///
/// # Errors
/// A reference is malformed, or its payload does not belong to the task or one of its child tasks. The message contains no
/// values.
pub(crate) fn check_payloads(value: &Value, task: &Task) -> Result<(), String> {
    if value.as_str().is_some_and(has_marker) {
        return Err("a text cannot have `$payload`; pass the reference on as JSON".to_owned());
    }
    if !has_reference(value) {
        return Ok(());
    }
    let place = task.payload_place();
    let found = find_references(value).map_err(|(_, error)| error.to_string())?;
    match found.iter().all(|found| place.contains(&found.reference.key)) {
        true => Ok(()),
        false => Err("the payload does not belong to this task or its child tasks".to_owned()),
    }
}

/// Checks that there is no reference in the path of a request, which would only reveal it.
///
/// # Errors
/// The path contains the key of references.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    // The usual path has no escapes.
    match path.contains(['%', '$', '\\']) && has_marker(&unescaped_url(path)) {
        true => Err("a reference to a payload cannot be in a path".to_owned()),
        false => Ok(()),
    }
}

/// Whether a text has the key of references, also escaped.
fn has_marker(text: &str) -> bool {
    let mut text = Cow::Borrowed(text);
    for _ in 0..ESCAPED_MAX {
        if text.contains(PAYLOAD_MARKER) || !text.contains('\\') {
            break;
        }
        text = Cow::Owned(unescaped_json(&text).into_owned());
    }
    text.contains(PAYLOAD_MARKER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_references_is_found_in_escaped_texts() {
        for text in [
            r#"{"$payload":{}}"#,
            r#"{"doc":{"\u0024payload":{}},"doc":0}"#,
            r#""{\"$payload\":{}}""#,
            r#""{\"\\u0024p\\u0061yload\":{}}""#,
            "[NaN,{\"$payload\":{}}]",
        ] {
            assert!(has_marker(text), "{text}");
        }
        assert!(!has_marker(r#"{"payload":"\u0024 payload"}"#));
        assert!(check_path("/x/%7B%22%5Cu0024payload%22%3A1%7D").is_err());
        assert!(check_path("/x/%24payloads").is_err() && check_path("/payload/%24").is_ok());
    }
}
