//! The small documents of a task, stored in the task's item as its attribute `d`. They cost no write and no read of
//! their own, and expire with the item.
//!
//! | field | meaning |
//! | --- | --- |
//! | `b` | body, as JSON text |
//! | `t` | when the document was created, in milliseconds since the epoch |
//! | `q`, `c`, `r` | the times of the attempt (queued, called, answered), in milliseconds before `t` |

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
    json_text::parsed,
};

/// The documents in the item of a task, by key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InlineDocuments(BTreeMap<DocumentKey, InlineDocument>);

/// A document in the item of a task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineDocument {
    /// JSON text: DynamoDB's own numbers have fewer values than those of JSON. It is parsed only if it is read.
    #[serde(rename = "b", deserialize_with = "valid_json")]
    body: String,
    #[serde(rename = "t", with = "jiff::fmt::serde::timestamp::millisecond::required")]
    at: Timestamp,
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    queued_ms_before: Option<i64>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    called_ms_before: Option<i64>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    answered_ms_before: Option<i64>,
}

fn valid_json<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    // `IgnoredAny` would accept texts that are not values, such as a lone surrogate.
    serde_json::from_str::<Value>(&text).map_err(D::Error::custom)?;
    Ok(text)
}

impl InlineDocuments {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a document is one of them.
    #[must_use]
    pub fn contains(&self, key: &DocumentKey) -> bool {
        self.0.contains_key(key)
    }

    /// The body of a document.
    #[must_use]
    pub fn body(&self, key: &DocumentKey) -> Option<Value> {
        Some(self.0.get(key)?.body())
    }

    /// One document.
    #[must_use]
    pub fn get(&self, key: &DocumentKey) -> Option<Document> {
        Some(self.0.get(key)?.document(key))
    }

    /// All documents, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = Document> {
        self.0.iter().map(|(key, document)| document.document(key))
    }

    /// The keys of all documents, in order.
    pub fn keys(&self) -> impl Iterator<Item = &DocumentKey> {
        self.0.keys()
    }

    pub(crate) fn insert(&mut self, key: DocumentKey, document: InlineDocument) {
        self.0.insert(key, document);
    }
}

impl From<&Document> for InlineDocument {
    /// Keeps milliseconds of the times, as the store does.
    fn from(document: &Document) -> Self {
        let Document { key: _, at, body, times } = document;
        let AttemptTimes { queued_at, called_at, answered_at } = *times;
        let ms_before = |time: Option<Timestamp>| {
            time.map(|time| at.as_millisecond().saturating_sub(time.as_millisecond()))
        };
        Self {
            body: body.to_string(),
            at: *at,
            queued_ms_before: ms_before(queued_at),
            called_ms_before: ms_before(called_at),
            answered_ms_before: ms_before(answered_at),
        }
    }
}

impl InlineDocument {
    /// The text was written from a value, or checked when it was read.
    fn body(&self) -> Value {
        parsed(&self.body)
    }

    fn document(&self, key: &DocumentKey) -> Document {
        let time = |ms_before: Option<i64>| {
            self.at.checked_sub(SignedDuration::from_millis(ms_before?)).ok()
        };
        let times = AttemptTimes {
            queued_at: time(self.queued_ms_before),
            called_at: time(self.called_ms_before),
            answered_at: time(self.answered_ms_before),
        };
        Document { key: key.clone(), at: self.at, body: self.body(), times }
    }
}

/// Prints only the keys, because bodies are payloads, which must not reach a log.
impl fmt::Debug for InlineDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(ToString::to_string)).finish()
    }
}

impl FromIterator<Document> for InlineDocuments {
    fn from_iter<T: IntoIterator<Item = Document>>(documents: T) -> Self {
        let entry = |document: Document| {
            let inline = InlineDocument::from(&document);
            (document.key, inline)
        };
        Self(documents.into_iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_reads_back_as_it_was_stored() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let document = Document {
            key: "step/charge/1/output".parse().unwrap(),
            at: at(1_700_000_009_000),
            body: json!({ "id": 1e300, "text": "ü" }),
            times: AttemptTimes {
                queued_at: Some(at(1_700_000_000_000)),
                called_at: Some(at(1_700_000_009_250)),
                answered_at: None,
            },
        };
        let documents = InlineDocuments::from_iter([document.clone()]);
        let stored = serde_json::to_value(&documents).unwrap();
        let text = r#"{"id":1e+300,"text":"ü"}"#;
        let expected = json!({ "b": text, "t": 1_700_000_009_000_i64, "q": 9_000, "c": -250 });
        assert_eq!(stored, json!({ "step/charge/1/output": expected }));
        let read: InlineDocuments = serde_json::from_value(stored).unwrap();
        assert_eq!(read, documents);
        assert_eq!(read.get(&document.key), Some(document));
    }

    #[test]
    fn debug_text_contains_no_body() {
        let body = json!({ "secret": "payload" });
        let document = Document::new(DocumentKey::Submission, Timestamp::UNIX_EPOCH, body);
        let text = format!("{:?}", InlineDocuments::from_iter([document]));
        assert_eq!(text, r#"{"submission"}"#);
    }
}
