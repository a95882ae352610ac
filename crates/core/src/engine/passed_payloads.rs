//! The references to payloads in what a task sends to others: a request, or its output.
//!
//! A service, a caller, an operator or a template may have produced a reference to the payload of another task. Who receives
//! it may have the right to read the bucket, so a task passes on only references to its own payloads.

use std::borrow::Cow;

use serde_json::Value;

use crate::model::{
    payload::{find_references, has_reference},
    task::Task,
};

/// Checks that every reference in a value names a payload of the task. The key `$payload` is reserved for references. A value that
/// is a text of JSON is checked as that JSON, because some agents send a text as it is.
///
/// # Errors
/// A reference is malformed, or its payload does not belong to the task or one of its child tasks. The message contains no
/// values.
pub(crate) fn check_payloads(value: &Value, task: &Task) -> Result<(), String> {
    let text = value.as_str().filter(|text| text.trim_start().starts_with(['{', '[']));
    let value = match text {
        Some(text) => Cow::Owned(serde_json::from_str(text).unwrap_or_default()),
        None => Cow::Borrowed(value),
    };
    if !has_reference(&value) {
        return Ok(());
    }
    let Some(place) = task.payload_place() else {
        return Err("an older release recorded the task, which has no payloads".to_owned());
    };
    let found = find_references(&value).map_err(|(_, error)| error.to_string())?;
    match found.iter().all(|found| place.contains(&found.reference.key)) {
        true => Ok(()),
        false => Err("the payload does not belong to this task or its child tasks".to_owned()),
    }
}
