//! The documents that a decision has read, and those that it still needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::document::DocumentKey;

/// The documents at hand, by key, and those that are known to be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Documents {
    found: BTreeMap<DocumentKey, Value>,
    missing: BTreeSet<DocumentKey>,
}

impl Documents {
    /// None at hand.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that there is no such document, although the task refers to it. What needs it fails, with
    /// its key in the reason: it never reads as null.
    pub fn note_missing(&mut self, key: DocumentKey) {
        self.missing.insert(key);
    }

    /// Whether it is known that there is no such document.
    pub(crate) fn lacks(&self, key: &DocumentKey) -> bool {
        self.missing.contains(key)
    }
}

impl std::ops::Deref for Documents {
    type Target = BTreeMap<DocumentKey, Value>;

    fn deref(&self) -> &Self::Target {
        &self.found
    }
}

impl std::ops::DerefMut for Documents {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.found
    }
}

impl FromIterator<(DocumentKey, Value)> for Documents {
    fn from_iter<T: IntoIterator<Item = (DocumentKey, Value)>>(documents: T) -> Self {
        Self { found: documents.into_iter().collect(), missing: BTreeSet::new() }
    }
}

impl<const N: usize> From<[(DocumentKey, Value); N]> for Documents {
    fn from(documents: [(DocumentKey, Value); N]) -> Self {
        documents.into_iter().collect()
    }
}

/// The documents that a decision wants and that are not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(pub BTreeSet<DocumentKey>);
