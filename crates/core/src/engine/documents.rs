//! The separate documents that a decision has read, and those that it still needs. It reads the documents in the task's
//! item from there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::document::{Document, DocumentKey};

/// The loaded documents by key, and the keys of documents that do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LoadedDocuments {
    found: BTreeMap<DocumentKey, Value>,
    missing: BTreeSet<DocumentKey>,
}

impl LoadedDocuments {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a document does not exist, although the task refers to it. A step that needs it fails with the
    /// key in its reason. A missing document never reads as null.
    pub fn mark_absent(&mut self, key: DocumentKey) {
        self.missing.insert(key);
    }

    /// Whether the document is known not to exist.
    pub(crate) fn is_absent(&self, key: &DocumentKey) -> bool {
        self.missing.contains(key)
    }
}

impl std::ops::Deref for LoadedDocuments {
    type Target = BTreeMap<DocumentKey, Value>;

    fn deref(&self) -> &Self::Target {
        &self.found
    }
}

impl std::ops::DerefMut for LoadedDocuments {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.found
    }
}

impl FromIterator<(DocumentKey, Value)> for LoadedDocuments {
    fn from_iter<T: IntoIterator<Item = (DocumentKey, Value)>>(documents: T) -> Self {
        Self { found: documents.into_iter().collect(), missing: BTreeSet::new() }
    }
}

impl FromIterator<Document> for LoadedDocuments {
    fn from_iter<T: IntoIterator<Item = Document>>(documents: T) -> Self {
        documents.into_iter().map(|document| (document.key, document.body)).collect()
    }
}

impl<const N: usize> From<[(DocumentKey, Value); N]> for LoadedDocuments {
    fn from(documents: [(DocumentKey, Value); N]) -> Self {
        documents.into_iter().collect()
    }
}

/// The keys of the documents that a decision needs and that are not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededDocuments(pub BTreeSet<DocumentKey>);
