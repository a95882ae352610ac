//! What an instance keeps in memory of the definitions that it has read.
//!
//! A version never changes, so it is kept for good: running tasks read theirs from here. What a new
//! task runs does change, by a publication or the end of one, and is believed for a while only.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use steward_core::definition::plan::Plan;

use steward_core::model::names::WorkflowName;

/// How long it is believed what a new task runs.
const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// Definitions kept in memory; over it, all are forgotten and read again.
const KEPT_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Kept {
    versions: HashMap<(WorkflowName, u32), Arc<Plan>>,
    /// What a new task runs that names this version, or none; and when that was so.
    published: HashMap<(WorkflowName, Option<u32>), (Instant, u32)>,
}

impl Kept {
    pub(super) fn version(&self, name: &WorkflowName, version: u32) -> Option<Arc<Plan>> {
        self.versions.get(&(name.clone(), version)).cloned()
    }

    pub(super) fn published(
        &self,
        name: &WorkflowName,
        asked: Option<u32>,
        now: Instant,
    ) -> Option<Arc<Plan>> {
        let (at, version) = self.published.get(&(name.clone(), asked))?;
        let is_fresh = now.saturating_duration_since(*at) < BELIEVED_FOR;
        is_fresh.then(|| self.version(name, *version)).flatten()
    }

    pub(super) fn keep(&mut self, workflow: &Arc<Plan>) {
        if self.versions.len() >= KEPT_MAX {
            *self = Self::default();
        }
        self.versions.insert((workflow.name.clone(), workflow.version), workflow.clone());
    }

    /// Keeps what a new task runs that asks for this version, or for none; read at `at`.
    pub(super) fn keep_published(&mut self, workflow: &Arc<Plan>, asked: Option<u32>, at: Instant) {
        self.keep(workflow);
        self.published.insert((workflow.name.clone(), asked), (at, workflow.version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(version: u32) -> Arc<Plan> {
        let steps = json!({ "a": { "wait": "1s" } });
        let workflow = json!({ "name": "order", "version": version, "steps": steps });
        Arc::new(serde_json::from_value(workflow).unwrap())
    }

    #[test]
    fn a_version_is_kept_for_good_and_that_it_is_published_for_ten_seconds() {
        let (mut kept, name, start) = (Kept::default(), order(1).name.clone(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        kept.keep_published(&order(1), None, start);
        kept.keep_published(&order(2), Some(2), after(5));
        for (asked, seconds, expected) in [
            (None, 9, Some(1)),
            (None, 10, None),
            (Some(1), 0, None),
            (Some(2), 14, Some(2)),
            (Some(2), 15, None),
        ] {
            let found = kept.published(&name, asked, after(seconds));
            assert_eq!(found.map(|workflow| workflow.version), expected, "{asked:?} {seconds}");
        }
        assert_eq!(kept.version(&name, 2), Some(order(2)));
        assert_eq!(kept.version(&name, 3), None);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut kept = Kept::default();
        for version in 1..=1_000 {
            kept.keep_published(&order(version), Some(version), Instant::now());
            assert!(kept.versions.len() <= KEPT_MAX && kept.published.len() <= KEPT_MAX);
        }
    }
}
