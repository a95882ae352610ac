//! The payloads of a task as people see them: where the references are, and what they say.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use steward_core::model::{
    document::DocumentKey,
    payload::{FoundReference, PayloadReference, valid_references},
};

/// A payload to which a document of a task refers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownPayload {
    /// The key of the document.
    pub document: String,
    /// Where the reference is in the document: a JSON pointer.
    pub pointer: String,
    /// The reference.
    #[serde(flatten)]
    pub reference: PayloadReference,
}

impl ShownPayload {
    /// The payloads of a document whose values are masked already: a masked reference is not among them.
    #[must_use]
    pub fn of(key: &DocumentKey, masked: &Value) -> Vec<Self> {
        let shown = valid_references(masked).into_iter().map(|found| {
            let FoundReference { pointer, reference } = found;
            Self { document: key.to_string(), pointer, reference }
        });
        shown.collect()
    }
}

/// `step/report/1/output: payload of 3.0 MiB, text/csv`, and the key.
impl fmt::Display for ShownPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { document, pointer, reference } = self;
        write!(f, "{document}{pointer}: {reference}, {}", reference.key)
    }
}
