//! What time does to what a task refers to: documents expire, and the tasks of steps do. Once expired they are not
//! found any more; each of them is deleted at some time after that, until which it can still be kept for longer.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use steward_core::model::{
    document::{Document, DocumentKey, Kept},
    names::Part,
    task::Task,
    time::{Timing, later},
};

use super::{states::is_final, world::World};

/// How long a task is kept once it has ended.
pub(super) const RETENTION: Duration = Timing::RETENTION;

/// When what is kept so long may go.
pub(super) fn expires_at(kept: Kept) -> Timestamp {
    kept.expires_at(RETENTION)
}

/// Whole days, none of what is past.
pub(super) fn days_until(now: Timestamp, at: Timestamp) -> i64 {
    (at.duration_since(now).as_hours() / 24).max(0)
}

/// Something that has expired and can be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expired {
    Document(DocumentKey),
    Child(Part),
    All,
}

impl World {
    /// What a reader finds of a document.
    pub(super) fn read(&self, key: &DocumentKey) -> Option<&serde_json::Value> {
        let has_expired = self.expires.get(key).is_some_and(|at| *at <= self.now);
        self.documents.get(key).filter(|_| !has_expired)
    }

    /// Whether a document was once there and is not found any more.
    pub(super) fn lacks(&self, key: &DocumentKey) -> bool {
        self.expires.contains_key(key) && self.read(key).is_none()
    }

    /// A save of `after`, before which what it refers to is kept for longer, if that is necessary.
    pub(super) fn keep(&mut self, before: Option<&Task>, after: &Task) {
        let until = expires_at(after.kept());
        if before.is_none_or(|before| after.kept_from > before.kept_from) {
            let expires = Arc::make_mut(&mut self.expires);
            let there = expires.iter_mut().filter(|(key, _)| self.documents.contains_key(key));
            there.for_each(|(_, at)| *at = until.max(*at));
            let there = self.children.values_mut().filter(|child| child.is_recorded());
            there.for_each(|child| child.kept = child.kept.max(Some(until)));
        }
        let missing: Vec<_> =
            self.documents.keys().filter(|key| !self.expires.contains_key(key)).cloned().collect();
        Arc::make_mut(&mut self.expires).extend(missing.into_iter().map(|key| (key, until)));
    }

    /// Written once: what is there stays.
    pub(super) fn write(&mut self, document: &Document) {
        if !self.documents.contains_key(&document.key) {
            Arc::make_mut(&mut self.expires).remove(&document.key);
            let all = Arc::make_mut(&mut self.documents);
            all.insert(document.key.clone(), document.body.clone());
        }
    }

    /// What has expired and is still there.
    pub(super) fn expired(&self) -> Vec<Expired> {
        let has_gone = |at: &Timestamp| *at <= self.now;
        let documents = self
            .expires
            .iter()
            .filter(|(key, at)| has_gone(at) && self.documents.contains_key(key));
        let documents = documents.map(|(key, _)| Expired::Document(key.clone()));
        let children = self.children.iter().filter(|(_, child)| {
            child.is_recorded() && child.is_final() && child.kept.as_ref().is_some_and(has_gone)
        });
        let mut all: Vec<_> =
            documents.chain(children.map(|(part, _)| Expired::Child(part.clone()))).collect();
        if all.len() > 1 {
            all.push(Expired::All);
        }
        all
    }

    /// Deletes it.
    pub(super) fn delete(&mut self, expired: &Expired) {
        match expired {
            Expired::Document(key) => {
                Arc::make_mut(&mut self.documents).remove(key);
            }
            Expired::Child(part) => {
                let child = self.children.entry(part.clone()).or_default();
                child.stands = child.gone();
            }
            Expired::All => {
                for one in self.expired().iter().filter(|one| **one != Expired::All) {
                    self.delete(one);
                }
            }
        }
    }

    /// Of what has expired, what is there; and how long the rest is kept, where that can matter.
    pub(super) fn hash_expiry(&self, to: &mut impl Hasher) {
        for (key, at) in &*self.expires {
            if self.lacks(key) {
                (key, self.documents.contains_key(key)).hash(to);
            } else if self.budget.jumps > 0 {
                days_until(self.now, *at).hash(to);
            }
        }
    }

    /// What would be gone before the task needs it no more, if the supervisor looks at it when it is due.
    pub(super) fn expires_too_early(&self) -> Vec<String> {
        let Some(task) = &self.task else { return Vec::new() };
        let needed = match (is_final(task), task.ended_at) {
            (true, Some(ended_at)) => later(ended_at, RETENTION),
            (_, _) => later(task.due.unwrap_or(self.now).max(self.now), RETENTION),
        };
        let early = |at: &Timestamp| *at < needed;
        let there = |key: &&DocumentKey| self.documents.contains_key(key);
        let documents = self.expires.iter().filter(|(key, at)| there(key) && early(at));
        let children = self
            .children
            .iter()
            .filter(|(_, child)| child.is_recorded() && child.kept.as_ref().is_some_and(early));
        let documents = documents.map(|(key, _)| format!("{key} expires too early"));
        let children = children.map(|(part, _)| format!("the task of {part} expires too early"));
        documents.chain(children).collect()
    }
}
