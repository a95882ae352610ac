//! The published definitions in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use steward_aws::definitions::{PublishError, check_task_ids, validated_json};
use steward_core::{
    definition::{plan::Plan, workflow::Workflow},
    model::names::WorkflowName,
};
use steward_runtime::ports::{Definitions, PortError};

use super::storage::{from_text, lock};

/// The published definitions in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryDefinitions {
    versions: Arc<Mutex<Versions>>,
}

type Versions = BTreeMap<(WorkflowName, u32), PublishedVersion>;

#[derive(Debug)]
struct PublishedVersion {
    plan: Arc<Plan>,
    is_published: bool,
}

impl MemoryDefinitions {
    /// Publishes a definition. Publishing the same definition again has no effect, or publishes it again if it was
    /// unpublished.
    ///
    /// # Errors
    /// The definition is invalid; or the version exists with another definition; or the trigger of another workflow
    /// submits tasks with the same ids.
    pub fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        let (name, version) = (&workflow.name, workflow.version);
        let operation = || format!("publish workflow {name} version {version}");
        let read: Plan = from_text(&validated_json(workflow)?, operation)?;
        let mut versions = lock(&self.versions);
        let beside: Vec<_> = newest(&versions).collect();
        check_task_ids(workflow, beside.iter().map(|plan| &***plan))?;
        let existing = versions
            .entry((name.clone(), version))
            .or_insert_with(|| PublishedVersion { plan: Arc::new(read), is_published: true });
        if **existing.plan != *workflow {
            return Err(PublishError::VersionTaken(name.clone(), version));
        }
        existing.is_published = true;
        Ok(())
    }

    /// Unpublishes a version: no new task uses it. Returns whether the version exists.
    #[must_use]
    pub fn unpublish(&self, name: &WorkflowName, version: u32) -> bool {
        let mut versions = lock(&self.versions);
        let existing = versions.get_mut(&(name.clone(), version));
        existing.is_some_and(|existing| {
            existing.is_published = false;
            true
        })
    }
}

/// The newest published version of each workflow, by name.
fn newest(versions: &Versions) -> impl Iterator<Item = Arc<Plan>> {
    let mut newest = BTreeMap::new();
    for ((name, _), version) in versions.iter().filter(|(_, version)| version.is_published) {
        newest.insert(name, version.plan.clone());
    }
    newest.into_values().collect::<Vec<_>>().into_iter()
}

impl Definitions for MemoryDefinitions {
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let Some(version) = version else { return self.published(name, None).await };
        let versions = lock(&self.versions);
        Ok(versions.get(&(name.clone(), version)).map(|existing| existing.plan.clone()))
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let versions = lock(&self.versions);
        let (first, last) = version.map_or((0, u32::MAX), |version| (version, version));
        let requested = versions.range((name.clone(), first)..=(name.clone(), last));
        let mut published =
            requested.map(|(_, version)| version).filter(|version| version.is_published);
        Ok(published.next_back().map(|version| version.plan.clone()))
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        let has_trigger = |plan: &Arc<Plan>| {
            plan.trigger.as_ref().is_some_and(|trigger| trigger.matches(source, detail_type))
        };
        Ok(newest(&lock(&self.versions)).filter(has_trigger).collect())
    }

    async fn awaiting(&self, source: &str, detail_type: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        let versions = lock(&self.versions);
        let published = versions.values().filter(|version| version.is_published);
        let all = published.map(|version| version.plan.clone());
        Ok(all.filter(|plan| plan.awaits(source, detail_type)).collect())
    }
}
