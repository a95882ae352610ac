//! The cache of definitions in the memory of a function instance.
//!
//! A version never changes, so it stays in the cache. The published version for new tasks changes when a version is
//! published or unpublished, so it is cached for a limited time.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use steward_core::{definition::plan::Plan, model::names::WorkflowName};

/// How long the cache answers which version a new task runs.
const PUBLISHED_TTL: Duration = Duration::from_secs(10);

/// The maximum number of cached definitions. A full cache is cleared.
const ENTRIES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct DefinitionCache {
    versions: HashMap<(WorkflowName, u32), Arc<Plan>>,
    /// The version that a new task runs if it requests this version, or none; and the time of that read.
    published: HashMap<(WorkflowName, Option<u32>), (Instant, u32)>,
}

impl DefinitionCache {
    pub(super) fn version(&self, name: &WorkflowName, version: u32) -> Option<Arc<Plan>> {
        self.versions.get(&(name.clone(), version)).cloned()
    }

    pub(super) fn published(
        &self,
        name: &WorkflowName,
        requested: Option<u32>,
        now: Instant,
    ) -> Option<Arc<Plan>> {
        let (at, version) = self.published.get(&(name.clone(), requested))?;
        let is_fresh = now.saturating_duration_since(*at) < PUBLISHED_TTL;
        is_fresh.then(|| self.version(name, *version)).flatten()
    }

    pub(super) fn insert(&mut self, plan: &Arc<Plan>) {
        if self.versions.len() >= ENTRIES_MAX {
            *self = Self::default();
        }
        self.versions.insert((plan.name.clone(), plan.version), plan.clone());
    }

    /// Caches the definition for new tasks that request this version, or none. `at` is the time of the read.
    pub(super) fn insert_published(
        &mut self,
        plan: &Arc<Plan>,
        requested: Option<u32>,
        at: Instant,
    ) {
        self.insert(plan);
        self.published.insert((plan.name.clone(), requested), (at, plan.version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(version: u32) -> Arc<Plan> {
        let steps = json!({ "a": { "wait": "1s" } });
        let plan = json!({ "name": "order", "version": version, "steps": steps });
        Arc::new(serde_json::from_value(plan).unwrap())
    }

    #[test]
    fn a_version_does_not_expire_but_the_published_version_expires_after_ten_seconds() {
        let name = order(1).name.clone();
        let (mut cache, start) = (DefinitionCache::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        cache.insert_published(&order(1), None, start);
        cache.insert_published(&order(2), Some(2), after(5));
        for (requested, seconds, expected) in [
            (None, 9, Some(1)),
            (None, 10, None),
            (Some(1), 0, None),
            (Some(2), 14, Some(2)),
            (Some(2), 15, None),
        ] {
            let found = cache.published(&name, requested, after(seconds));
            assert_eq!(found.map(|plan| plan.version), expected, "{requested:?} {seconds}");
        }
        assert_eq!(cache.version(&name, 2), Some(order(2)));
        assert_eq!(cache.version(&name, 3), None);
    }

    #[test]
    fn the_cache_does_not_exceed_its_maximum_size() {
        let mut cache = DefinitionCache::default();
        for version in 1..=1_000 {
            cache.insert_published(&order(version), Some(version), Instant::now());
            assert!(cache.versions.len() <= ENTRIES_MAX && cache.published.len() <= ENTRIES_MAX);
        }
    }
}
