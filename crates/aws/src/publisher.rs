//! Publication of definitions as a whole: the table, and the rule that brings a trigger's events.
//!
//! The table of workflows is authoritative, and the rule is derived from it. Publication is idempotent: if it fails between
//! the two writes, the caller repeats it. An event bus has a limited number of rules, so a workflow's first rule is created
//! before the table is written, in state disabled: a workflow for which there is no rule left is not published.

use steward_core::{
    definition::workflow::Workflow,
    model::names::{TaskId, WorkflowName},
};
use steward_runtime::ports::{Definitions, PortError};

use crate::{
    definitions::{DynamoDefinitions, PublishError, Stored, definition_text},
    rules::TriggerRules,
    store::DynamoStore,
};

/// Tasks that are named when a version cannot be unpublished.
const NAMED_MAX: usize = 5;

/// Why the publication of a version was not ended.
#[derive(Debug, thiserror::Error)]
pub enum UnpublishError {
    /// There is no such version.
    #[error("there is no workflow `{0}` version {1}")]
    Unknown(WorkflowName, u32),
    /// Tasks of it are not at rest.
    #[error(
        "workflow `{name}` version {version}: tasks that are not at rest: {count}: {}{}",
        named(.first),
        if *count > .first.len() { ", …" } else { "" }
    )]
    InUse {
        /// The workflow.
        name: WorkflowName,
        /// The version.
        version: u32,
        /// How many tasks.
        count: usize,
        /// Some of them.
        first: Vec<TaskId>,
    },
    /// AWS failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

fn named(ids: &[TaskId]) -> String {
    ids.iter().map(TaskId::as_str).collect::<Vec<_>>().join(", ")
}

/// Publishes definitions, and ends their publication.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// The published definitions.
    pub definitions: DynamoDefinitions,
    /// The state store, which knows what is running.
    pub store: DynamoStore,
    /// The rules of triggers.
    pub rules: TriggerRules,
}

impl Publisher {
    /// Publishes a definition, and makes or removes its rule. Again is harmless.
    ///
    /// # Errors
    /// The definition cannot be published, also because its bus has no room for its rule; or AWS failed, and the same
    /// again completes it.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        definition_text(workflow)?;
        let reserved = self.reserve(workflow).await?;
        let published = self.definitions.publish(workflow).await;
        if published.is_ok() || reserved {
            self.follow(&workflow.name, reserved).await?;
        }
        published
    }

    /// Makes the rule of a workflow that has none yet and needs one; whether it did.
    async fn reserve(&self, workflow: &Workflow) -> Result<bool, PortError> {
        let Some(trigger) = &workflow.trigger else { return Ok(false) };
        let versions = self.definitions.versions(&workflow.name).await?;
        let newest = versions.iter().rfind(|stored| stored.is_published);
        if newest.is_some_and(|stored| stored.workflow.trigger.is_some()) {
            return Ok(false);
        }
        self.rules.reserve(&workflow.name, trigger).await?;
        Ok(true)
    }

    /// Ends the publication of a version: no new task takes it. Tasks that have may still be undone.
    ///
    /// A task that is submitted at the same moment may still take it; it goes on as any other.
    ///
    /// # Errors
    /// There is no such version; or tasks of it are not at rest; or AWS failed, and the same again
    /// completes it.
    pub async fn unpublish(&self, name: &WorkflowName, version: u32) -> Result<(), UnpublishError> {
        let unknown = || UnpublishError::Unknown(name.clone(), version);
        self.definitions.workflow(name, Some(version)).await?.ok_or_else(unknown)?;
        let mut first = self.store.unfinished(name, version).await?;
        let count = first.len();
        if count > 0 {
            first.sort();
            first.truncate(NAMED_MAX);
            return Err(UnpublishError::InUse { name: name.clone(), version, count, first });
        }
        if !self.definitions.unpublish(name, version).await? {
            return Err(unknown());
        }
        Ok(self.follow(name, false).await?)
    }

    /// Makes every workflow's rule what its newest published version says.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn follow_all(&self) -> Result<(), PortError> {
        let mut names: Vec<_> = self.definitions.all().await?;
        names.dedup_by(|a, b| a.workflow.name == b.workflow.name);
        for stored in names {
            self.follow(&stored.workflow.name, false).await?;
        }
        Ok(())
    }

    /// Makes a workflow's rule what its newest published version says. One that never had a trigger, and for which none
    /// was reserved, has no rule, so nothing is asked of EventBridge.
    async fn follow(&self, name: &WorkflowName, reserved: bool) -> Result<(), PortError> {
        let versions = self.definitions.versions(name).await?;
        let newest = versions.iter().rfind(|stored| stored.is_published);
        let had = |stored: &Stored| stored.workflow.trigger.is_some();
        match newest.and_then(|stored| stored.workflow.trigger.as_ref()) {
            Some(trigger) => self.rules.put(name, trigger).await,
            None if reserved || versions.iter().any(had) => self.rules.remove(name).await,
            None => Ok(()),
        }
    }
}
