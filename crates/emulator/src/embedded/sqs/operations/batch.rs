//! The common part of all batch operations: one to ten entries with ids, each of which succeeds or fails by itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::{error::SqsError, service::BATCH_MAX},
    parsing::SqsResult,
};

/// Validates the ids of a batch's entries.
pub(super) fn check<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Result<(), SqsError> {
    const ID_BYTES_MAX: usize = 80;
    match ids.len() {
        0 => return Err(SqsError::empty_batch()),
        entries if entries > BATCH_MAX => return Err(SqsError::too_many_entries(entries)),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for id in ids {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=ID_BYTES_MAX).contains(&id.len()) || !id.bytes().all(is_plain) {
            return Err(SqsError::entry_id());
        }
        if !seen.insert(id) {
            return Err(SqsError::entry_ids_not_distinct(id));
        }
    }
    Ok(())
}

/// The response to a batch: the outcome of each entry by its id.
pub(super) fn response(
    entries: impl IntoIterator<Item = (String, Result<Value, SqsError>)>,
) -> SqsResult {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, outcome) in entries {
        match outcome {
            Ok(mut entry) => {
                if let Some(fields) = entry.as_object_mut() {
                    fields.insert("Id".to_owned(), id.into());
                }
                successful.push(entry);
            }
            Err(error) => failed.push(json!({
                "Id": id,
                "SenderFault": error.is_sender_fault(),
                "Code": error.code,
                "Message": error.message,
            })),
        }
    }
    let mut response = json!({ "Successful": successful });
    // Like SQS, omit an empty list of failures.
    if !failed.is_empty()
        && let Some(fields) = response.as_object_mut()
    {
        fields.insert("Failed".to_owned(), failed.into());
    }
    Ok(response)
}
