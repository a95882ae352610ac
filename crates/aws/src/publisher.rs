//! Publishes and unpublishes definitions: writes the table of workflows, and the EventBridge rules of triggers and of the
//! events that steps wait for.
//!
//! The table of workflows is authoritative, and the rules are derived from it. Publication is idempotent: if it fails between
//! the two writes, the caller repeats it. An event bus has a limited number of rules, so the first rule of each kind
//! is created, disabled, before the table is written. If the bus has no room for it, the workflow is not published.

use steward_core::{
    definition::workflow::Workflow,
    model::names::{TaskId, WorkflowName},
};
use steward_runtime::ports::{Definitions, PortError};

use crate::{
    definitions::{DynamoDefinitions, PublishError, StoredDefinition, validated_json},
    rules::{EventRules, RuleKind, WorkflowRule},
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
        "cannot unpublish workflow `{name}` version {version}: {count} of its tasks {} neither Processed nor Undone: {}{}; `steward workflow rollback` replaces a version at once",
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
    /// The rules of triggers and of awaited events.
    pub rules: EventRules,
}

impl Publisher {
    /// Publishes a definition, and creates or removes its rules. The operation is idempotent.
    ///
    /// # Errors
    /// The definition cannot be published, or the bus has no room for its rules, or AWS failed. After a failure of AWS, the
    /// caller may repeat the call.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        validated_json(workflow)?;
        let versions = self.definitions.definitions_of(&workflow.name).await?;
        let reserved = self.reserve(&versions, workflow).await?;
        let published = Box::pin(self.definitions.publish(workflow)).await;
        if published.is_ok() || !reserved.is_empty() {
            self.sync_rules(&workflow.name, &reserved).await?;
        }
        published
    }

    /// Creates the rules that a workflow needs, and has not had yet. Returns their kinds.
    async fn reserve(
        &self,
        versions: &[StoredDefinition],
        workflow: &Workflow,
    ) -> Result<Vec<RuleKind>, PublishError> {
        let mut with_it = versions.to_vec();
        with_it.push(StoredDefinition { workflow: workflow.clone(), is_published: true });
        let mut reserved = Vec::new();
        for kind in RULE_KINDS {
            let Some(rule) = rule_of(kind, &with_it) else { continue };
            if let Some(problem) = rule.problem() {
                return Err(PublishError::Invalid(problem));
            }
            if rule_of(kind, versions).is_none() {
                self.rules.reserve(&rule).await?;
                reserved.push(kind);
            }
        }
        Ok(reserved)
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
        Ok(self.sync_rules(name, &[]).await?)
    }

    /// Updates the rules of all workflows to their published versions.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn sync_all_rules(&self) -> Result<(), PortError> {
        let mut names: Vec<_> = self.definitions.all().await?;
        names.dedup_by(|a, b| a.workflow.name == b.workflow.name);
        for stored in names {
            self.sync_rules(&stored.workflow.name, &[]).await?;
        }
        Ok(())
    }

    /// Updates the rules of a workflow to its published versions. Sends no request to EventBridge for a kind of rule that the
    /// workflow never had and that was not reserved.
    async fn sync_rules(
        &self,
        name: &WorkflowName,
        reserved: &[RuleKind],
    ) -> Result<(), PortError> {
        let versions = self.definitions.definitions_of(name).await?;
        for kind in RULE_KINDS {
            match rule_of(kind, &versions) {
                Some(rule) => self.rules.put(&rule).await?,
                None if reserved.contains(&kind) || versions.iter().any(|v| has_rule(kind, v)) => {
                    self.rules.remove(name, kind).await?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

const RULE_KINDS: [RuleKind; 2] = [RuleKind::Trigger, RuleKind::Waits];

/// The rule of this kind that the versions of a workflow need. The newest published version decides on its trigger. Tasks of
/// all published versions may wait for events.
fn rule_of(kind: RuleKind, versions: &[StoredDefinition]) -> Option<WorkflowRule> {
    let published = versions.iter().filter(|stored| stored.is_published);
    let newest = &published.clone().max_by_key(|stored| stored.workflow.version)?.workflow;
    match kind {
        RuleKind::Trigger => Some(WorkflowRule::of_trigger(&newest.name, newest.trigger.as_ref()?)),
        RuleKind::Waits => {
            let events = published.flat_map(|stored| stored.workflow.awaited_patterns());
            WorkflowRule::of_waits(&newest.name, events)
        }
    }
}

/// Whether a version, published or not, needs a rule of this kind.
fn has_rule(kind: RuleKind, stored: &StoredDefinition) -> bool {
    match kind {
        RuleKind::Trigger => stored.workflow.trigger.is_some(),
        RuleKind::Waits => stored.workflow.awaited_events().next().is_some(),
    }
}
