//! The payloads of a task as people see them: where the references are, and what they say.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use steward_core::model::{
    document::DocumentKey,
    payload::{FoundReference, PayloadReference, valid_references},
    task::Task,
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
    /// The payloads of a task in one of its documents, whose values are masked already: a masked reference is not among them,
    /// and none to a payload of another task, which the mask of that task may hide.
    #[must_use]
    pub fn of(task: &Task, key: &DocumentKey, masked: &Value) -> Vec<Self> {
        let place = task.payload_place();
        let found = valid_references(masked).into_iter();
        let own = found.filter(|found| place.contains(&found.reference.key));
        let shown = own.map(|found| {
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
