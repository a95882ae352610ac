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
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
};

/// The documents in the item of a task, by key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InlineDocuments(BTreeMap<DocumentKey, InlineDocument>);

/// A document in the item of a task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineDocument {
    #[serde(rename = "b", with = "json_text")]
    body: Value,
    #[serde(rename = "t", with = "jiff::fmt::serde::timestamp::millisecond::required")]
    at: Timestamp,
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    queued_ms_before: Option<i64>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    called_ms_before: Option<i64>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    answered_ms_before: Option<i64>,
}

/// A JSON value as text: DynamoDB's own numbers have fewer values than those of JSON.
mod json_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(body: &Value, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(body)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

impl InlineDocuments {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The body of a document.
    #[must_use]
    pub fn body(&self, key: &DocumentKey) -> Option<&Value> {
        Some(&self.0.get(key)?.body)
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

    /// Adds a document. The store keeps milliseconds of its times.
    pub(crate) fn insert(&mut self, document: Document) {
        let Document { key, at, body, times } = document;
        let AttemptTimes { queued_at, called_at, answered_at } = times;
        let ms_before = |time: Option<Timestamp>| {
            time.map(|time| at.as_millisecond().saturating_sub(time.as_millisecond()))
        };
        let document = InlineDocument {
            body,
            at,
            queued_ms_before: ms_before(queued_at),
            called_ms_before: ms_before(called_at),
            answered_ms_before: ms_before(answered_at),
        };
        self.0.insert(key, document);
    }
}

impl InlineDocument {
    fn document(&self, key: &DocumentKey) -> Document {
        let time = |ms_before: Option<i64>| {
            self.at.checked_sub(SignedDuration::from_millis(ms_before?)).ok()
        };
        let times = AttemptTimes {
            queued_at: time(self.queued_ms_before),
            called_at: time(self.called_ms_before),
            answered_at: time(self.answered_ms_before),
        };
        Document { key: key.clone(), at: self.at, body: self.body.clone(), times }
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
        let mut all = Self::default();
        documents.into_iter().for_each(|document| all.insert(document));
        all
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
