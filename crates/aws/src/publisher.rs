//! Publishes and unpublishes definitions: writes the table of workflows, and the EventBridge rule of a trigger.
//!
//! The table of workflows is authoritative, and the rule is derived from it. Publication is idempotent: if it fails between
//! the two writes, the caller repeats it. An event bus has a limited number of rules, so the first rule of a workflow is
//! created, disabled, before the table is written. If the bus has no room for the rule, the workflow is not published.

use steward_core::{
    definition::workflow::Workflow,
    model::names::{TaskId, WorkflowName},
};
use steward_runtime::ports::{Definitions, PortError};

use crate::{
    definitions::{DynamoDefinitions, PublishError, StoredDefinition, validated_json},
    rules::TriggerRules,
    store::DynamoStore,
};

/// The maximum number of tasks that an error message names.
const NAMED_MAX: usize = 5;

/// A version was not unpublished.
#[derive(Debug, thiserror::Error)]
pub enum UnpublishError {
    /// There is no such version.
    #[error("there is no workflow `{0}` version {1}")]
    Unknown(WorkflowName, u32),
    /// Some tasks of the version are neither Processed nor Undone.
    #[error(
        "cannot unpublish workflow `{name}` version {version}: {count} of its tasks {} neither Processed nor Undone: {}{}",
        if *count == 1 { "is" } else { "are" },
        task_ids(.first),
        if *count > .first.len() { ", …" } else { "" }
    )]
    InUse {
        /// The workflow.
        name: WorkflowName,
        /// The version.
        version: u32,
        /// The number of these tasks.
        count: usize,
        /// The first of them.
        first: Vec<TaskId>,
    },
    /// AWS failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

fn task_ids(ids: &[TaskId]) -> String {
    ids.iter().map(TaskId::as_str).collect::<Vec<_>>().join(", ")
}

/// Publishes and unpublishes definitions.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// The table of definitions.
    pub definitions: DynamoDefinitions,
    /// The state store, to find the tasks of a version.
    pub store: DynamoStore,
    /// The trigger rules.
    pub rules: TriggerRules,
}

impl Publisher {
    /// Publishes a definition, and creates or removes its rule. The operation is idempotent.
    ///
    /// # Errors
    /// The definition cannot be published, or the bus has no room for its rule, or AWS failed. After a failure of AWS, the
    /// caller may repeat the call.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        validated_json(workflow)?;
        let reserved = self.reserve(workflow).await?;
        let published = self.definitions.publish(workflow).await;
        if published.is_ok() || reserved {
            self.sync_rule(&workflow.name, reserved).await?;
        }
        published
    }

    /// Creates the rule of a workflow that needs a rule and has none yet. Returns whether it created one.
    async fn reserve(&self, workflow: &Workflow) -> Result<bool, PortError> {
        let Some(trigger) = &workflow.trigger else { return Ok(false) };
        let versions = self.definitions.definitions_of(&workflow.name).await?;
        let newest = versions.iter().rfind(|stored| stored.is_published);
        if newest.is_some_and(|stored| stored.workflow.trigger.is_some()) {
            return Ok(false);
        }
        self.rules.reserve(&workflow.name, trigger).await?;
        Ok(true)
    }

    /// Unpublishes a version: new tasks do not use it. Its finished tasks can still be undone.
    ///
    /// A task that is submitted concurrently may still use the version. It runs like any other task.
    ///
    /// # Errors
    /// There is no such version, or some of its tasks are neither Processed nor Undone, or AWS failed. After a failure of AWS, the caller may
    /// repeat the call.
    pub async fn unpublish(&self, name: &WorkflowName, version: u32) -> Result<(), UnpublishError> {
        let unknown = || UnpublishError::Unknown(name.clone(), version);
        self.definitions.workflow(name, Some(version)).await?.ok_or_else(unknown)?;
        let mut first = self.store.unresolved_tasks_of_version(name, version).await?;
        let count = first.len();
        if count > 0 {
            first.sort();
            first.truncate(NAMED_MAX);
            return Err(UnpublishError::InUse { name: name.clone(), version, count, first });
        }
        if !self.definitions.unpublish(name, version).await? {
            return Err(unknown());
        }
        Ok(self.sync_rule(name, false).await?)
    }

    /// Updates the rules of all workflows to the triggers of their newest published versions.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn sync_all_rules(&self) -> Result<(), PortError> {
        let mut names: Vec<_> = self.definitions.all().await?;
        names.dedup_by(|a, b| a.workflow.name == b.workflow.name);
        for stored in names {
            self.sync_rule(&stored.workflow.name, false).await?;
        }
        Ok(())
    }

    /// Updates the rule of a workflow to the trigger of its newest published version. Sends no request to EventBridge if
    /// the workflow never had a trigger and no rule was reserved.
    async fn sync_rule(&self, name: &WorkflowName, reserved: bool) -> Result<(), PortError> {
        let versions = self.definitions.definitions_of(name).await?;
        let newest = versions.iter().rfind(|stored| stored.is_published);
        let had = |stored: &StoredDefinition| stored.workflow.trigger.is_some();
        match newest.and_then(|stored| stored.workflow.trigger.as_ref()) {
            Some(trigger) => self.rules.put(name, trigger).await,
            None if reserved || versions.iter().any(had) => self.rules.remove(name).await,
            None => Ok(()),
        }
    }
}
