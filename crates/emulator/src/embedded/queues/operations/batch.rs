//! What all batches have in common: one to ten entries with ids, each done or refused by itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::BATCH;
use super::super::refusal::Refusal;
use super::Answered;

/// Checks the ids of a batch's entries.
pub(super) fn check<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Result<(), Refusal> {
    const ID_BYTES_MAX: usize = 80;
    match ids.len() {
        0 => return Err(Refusal::empty_batch()),
        entries if entries > BATCH => return Err(Refusal::too_many_entries(entries)),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for id in ids {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=ID_BYTES_MAX).contains(&id.len()) || !id.bytes().all(is_plain) {
            return Err(Refusal::entry_id());
        }
        if !seen.insert(id) {
            return Err(Refusal::entry_ids_not_distinct(id));
        }
    }
    Ok(())
}

/// The answer to a batch: what became of each entry, by its id.
pub(super) fn answer(
    entries: impl IntoIterator<Item = (String, Result<Value, Refusal>)>,
) -> Answered {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, outcome) in entries {
        match outcome {
            Ok(mut entry) => {
                if let Some(fields) = entry.as_object_mut() {
                    fields.insert("Id".to_owned(), id.into());
                }
                successful.push(entry);
            }
            Err(refusal) => failed.push(json!({
                "Id": id,
                "SenderFault": refusal.is_sender_fault(),
                "Code": refusal.code,
                "Message": refusal.message,
            })),
        }
    }
    let mut answer = json!({ "Successful": successful });
    // As SQS does, nothing is said of none.
    if !failed.is_empty()
        && let Some(fields) = answer.as_object_mut()
    {
        fields.insert("Failed".to_owned(), failed.into());
    }
    Ok(answer)
}
