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

/// Checks that every reference in a value names a payload of the task. The key `$payload` is reserved for references. Some agents send
/// a text as it is, so a text with this key is checked as the JSON that a receiver may read in it.
///
/// # Errors
/// A reference is malformed, or its payload does not belong to the task or one of its child tasks. The message contains no
/// values.
pub(crate) fn check_payloads(value: &Value, task: &Task) -> Result<(), String> {
    let (value, mentions) = match value.as_str() {
        Some(text) => {
            let mentions = unescaped_json(text).matches(PAYLOAD_MARKER).count();
            let parsed = if mentions > 0 { serde_json::from_str(text) } else { Ok(Value::Null) };
            let not_json = |_| "a text with `$payload` is not JSON".to_owned();
            (Cow::Owned(parsed.map_err(not_json)?), Some(mentions))
        }
        None => (Cow::Borrowed(value), None),
    };
    if !has_reference(&value) {
        return Ok(());
    }
    let Some(place) = task.payload_place() else {
        return Err("an older release recorded the task, which has no payloads".to_owned());
    };
    let found = find_references(&value).map_err(|(_, error)| error.to_string())?;
    if mentions.is_some_and(|mentions| mentions != found.len()) {
        return Err("a text has `$payload` more often than references to payloads".to_owned());
    }
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
    match unescaped_url(path).contains(PAYLOAD_MARKER) {
        true => Err("a reference to a payload cannot be in a path".to_owned()),
        false => Ok(()),
    }
}
