//! Reads documents, shared records and single attributes from items.

use std::collections::HashMap;

use jiff::Timestamp;
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, StoredDocumentKey},
};
use steward_runtime::ports::{SharedRecord, SharedRecordKey, SharedRecordKind};

use crate::items::{ANSWERED_AT, CALLED_AT, ItemAttributes, QUEUED_AT, Unreadable, text};

/// The key of a shared record. Shared records are in the table of documents, under keys that no task can have.
pub(super) fn shared_id(key: &SharedRecordKey) -> ItemAttributes {
    HashMap::from([
        ("task_id".to_owned(), text(&key.partition())),
        ("document".to_owned(), text(&key.name)),
    ])
}

pub(super) fn read_document(item: &ItemAttributes) -> Result<Document, Unreadable> {
    let (StoredDocumentKey { key, .. }, times) = read_times(item)?;
    let (at, body) = (as_time(item, "at")?, serde_json::from_str(as_text(item, "body")?)?);
    Ok(Document { key, at, body, times })
}

pub(super) fn read_key(item: &ItemAttributes) -> Result<StoredDocumentKey, Unreadable> {
    Ok(as_text(item, "document")?.parse()?)
}

pub(super) fn read_times(
    item: &ItemAttributes,
) -> Result<(StoredDocumentKey, AttemptTimes), Unreadable> {
    let time = |name| item.contains_key(name).then(|| as_time(item, name)).transpose();
    let times = AttemptTimes {
        queued_at: time(QUEUED_AT)?,
        called_at: time(CALLED_AT)?,
        answered_at: time(ANSWERED_AT)?,
    };
    Ok((read_key(item)?, times))
}

pub(super) fn read_shared(
    kind: SharedRecordKind,
    item: &ItemAttributes,
) -> Result<SharedRecord, Unreadable> {
    let revision = item.get("revision").and_then(|value| value.as_n().ok());
    Ok(SharedRecord {
        key: SharedRecordKey { kind, name: as_text(item, "document")?.to_owned() },
        revision: revision.ok_or("no number `revision`")?.parse()?,
        body: serde_json::from_str(as_text(item, "body")?)?,
        expires_at: as_number(item, "expires_at").map(Timestamp::from_second).transpose()?,
    })
}

pub(super) fn as_text<'a>(item: &'a ItemAttributes, name: &str) -> Result<&'a str, Unreadable> {
    let value = item.get(name).and_then(|value| value.as_s().ok());
    value.map(String::as_str).ok_or_else(|| format!("no text `{name}`").into())
}

fn as_number(item: &ItemAttributes, name: &str) -> Option<i64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub(super) fn as_time(item: &ItemAttributes, name: &str) -> Result<Timestamp, Unreadable> {
    let millis = as_number(item, name).ok_or_else(|| format!("no number `{name}`"))?;
    Ok(Timestamp::from_millisecond(millis)?)
}
