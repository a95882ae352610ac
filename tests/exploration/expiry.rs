//! Expiry of documents and child tasks. An expired one is not found any more. It is deleted some time later, and until
//! then its expiry can still be extended.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use steward_core::model::{
    document::{Document, DocumentKey},
    names::Part,
    retention::DocumentRetention,
    task::Task,
    time::{Timing, later},
};

use super::{model_state::ModelState, progress::has_stopped};

/// How long a task is kept after its end.
pub(super) const RETENTION: Duration = Timing::RETENTION;

/// The expiry that a retention gives.
pub(super) fn expires_at(retention: DocumentRetention) -> Timestamp {
    retention.expires_at(RETENTION)
}

/// Whole days from `now` until `at`, or 0.
pub(super) fn days_until(now: Timestamp, at: Timestamp) -> i64 {
    (at.duration_since(now).as_hours() / 24).max(0)
}

/// An expired item that can be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpiredItem {
    Document(DocumentKey),
    Child(Part),
    All,
}

impl ModelState {
    /// A document in the item of the task, or a separate one, which may have expired.
    pub(super) fn document(&self, key: &DocumentKey) -> Option<serde_json::Value> {
        let inline = self.task.as_ref().and_then(|task| task.documents.body(key));
        inline.or_else(|| self.documents.get(key).cloned())
    }

    /// Reads a separate document, if it exists and has not expired.
    pub(super) fn read(&self, key: &DocumentKey) -> Option<&serde_json::Value> {
        let has_expired = self.expires.get(key).is_some_and(|at| *at <= self.now);
        self.documents.get(key).filter(|_| !has_expired)
    }

    /// Whether a document existed and is not found any more.
    pub(super) fn lacks(&self, key: &DocumentKey) -> bool {
        self.expires.contains_key(key) && self.read(key).is_none()
    }

    /// Saves `after`. If necessary, first extends the expiry of its documents and child tasks.
    pub(super) fn extend_expiries(&mut self, before: Option<&Task>, after: &Task) {
        let until = expires_at(after.document_retention());
        if before.is_none_or(|before| after.retention_start > before.retention_start) {
            let expires = Arc::make_mut(&mut self.expires);
            let there = expires.iter_mut().filter(|(key, _)| self.documents.contains_key(key));
            there.for_each(|(_, at)| *at = until.max(*at));
            let there = self.children.values_mut().filter(|child| child.is_recorded());
            there.for_each(|child| child.expires_at = child.expires_at.max(Some(until)));
        }
        let missing: Vec<_> =
            self.documents.keys().filter(|key| !self.expires.contains_key(key)).cloned().collect();
        Arc::make_mut(&mut self.expires).extend(missing.into_iter().map(|key| (key, until)));
    }

    /// Writes a document, unless it exists.
    pub(super) fn write(&mut self, document: &Document) {
        if !self.documents.contains_key(&document.key) {
            Arc::make_mut(&mut self.expires).remove(&document.key);
            let all = Arc::make_mut(&mut self.documents);
            all.insert(document.key.clone(), document.body.clone());
        }
    }

    /// The expired items that are not deleted yet.
    pub(super) fn expired(&self) -> Vec<ExpiredItem> {
        let has_gone = |at: &Timestamp| *at <= self.now;
        let documents = self
            .expires
            .iter()
            .filter(|(key, at)| has_gone(at) && self.documents.contains_key(key));
        let documents = documents.map(|(key, _)| ExpiredItem::Document(key.clone()));
        let children = self.children.iter().filter(|(_, child)| {
            child.is_recorded()
                && child.has_stopped()
                && child.expires_at.as_ref().is_some_and(has_gone)
        });
        let mut all: Vec<_> =
            documents.chain(children.map(|(part, _)| ExpiredItem::Child(part.clone()))).collect();
        if all.len() > 1 {
            all.push(ExpiredItem::All);
        }
        all
    }

    /// Deletes an expired item.
    pub(super) fn delete(&mut self, expired: &ExpiredItem) {
        match expired {
            ExpiredItem::Document(key) => {
                Arc::make_mut(&mut self.documents).remove(key);
            }
            ExpiredItem::Child(part) => {
                let child = self.children.entry(part.clone()).or_default();
                child.state = child.expired_state();
            }
            ExpiredItem::All => {
                for one in self.expired().iter().filter(|one| **one != ExpiredItem::All) {
                    self.delete(one);
                }
            }
        }
    }

    /// Hashes which expired items are not deleted yet, and the remaining time of the others if it matters.
    pub(super) fn hash_expiry(&self, to: &mut impl Hasher) {
        for (key, at) in &*self.expires {
            if self.lacks(key) {
                (key, self.documents.contains_key(key)).hash(to);
            } else if self.budget.long_pauses > 0 {
                days_until(self.now, *at).hash(to);
            }
        }
    }

    /// Documents and child tasks that would expire while the task needs them, even if the supervisor sweeps it when it is
    /// due.
    pub(super) fn expires_too_early(&self) -> Vec<String> {
        let Some(task) = &self.task else { return Vec::new() };
        let needed = match (has_stopped(task), task.ended_at) {
            // What has started goes on.
            (true, Some(_)) => later(task.kept_from(), RETENTION),
            (_, _) => later(task.due.unwrap_or(self.now).max(self.now), RETENTION),
        };
        let early = |at: &Timestamp| *at < needed;
        let there = |key: &&DocumentKey| self.documents.contains_key(key);
        let documents = self.expires.iter().filter(|(key, at)| there(key) && early(at));
        let children = self.children.iter().filter(|(_, child)| {
            child.is_recorded() && child.expires_at.as_ref().is_some_and(early)
        });
        let documents = documents.map(|(key, _)| format!("{key} expires too early"));
        let children = children.map(|(part, _)| format!("the child of {part} expires too early"));
        documents.chain(children).collect()
    }
}
