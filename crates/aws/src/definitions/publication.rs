//! Publishes and unpublishes definitions in the table of workflows.
//!
//! The table also has an item for each trigger, with the names of all workflows that have had the trigger in any version;
//! and an item for each event that steps wait for, with the versions of workflows that wait for it. A version
//! is removed when it is unpublished.
//! This item is only a lookup: the newest published version of each workflow decides whether an event submits a task. The
//! item is written before the version, and names are never removed from it. So a published trigger is always found, even
//! if a publisher crashes between the two writes.

use aws_sdk_dynamodb::{
    operation::{put_item::PutItemError, update_item::UpdateItemError},
    types::AttributeValue,
};
use steward_core::{definition::workflow::Workflow, limits, model::names::WorkflowName};
use steward_runtime::ports::PortError;

use super::{
    definition_item::{
        UNPUBLISHED, VERSION_SEPARATOR, awaited_item_name, item_key, trigger_item_name,
    },
    dynamo_definitions::DynamoDefinitions,
};
use crate::errors::{corrupt, failed};

/// A definition was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The definition is invalid or too large.
    #[error("{0}")]
    Invalid(String),
    /// The version exists with other content. Versions never change.
    #[error(
        "workflow `{0}` version {1} is published already, with other content: use a new version number"
    )]
    VersionTaken(WorkflowName, u32),
    /// One event would submit two tasks with the same id.
    #[error(
        "trigger.task_id: workflow `{with}` has the same trigger and the same task ids, so only one of \
         the two tasks would be recorded for each event; use distinct ids, such as \
         `{workflow}-${{ event.id }}`"
    )]
    SameTaskIds {
        /// The workflow that was to be published.
        workflow: WorkflowName,
        /// The workflow that is published already.
        with: WorkflowName,
    },
    /// DynamoDB failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Validates a definition, and returns it as the JSON text that is stored.
///
/// # Errors
/// The definition is invalid (the error contains its first problem), or too large.
pub fn validated_json(workflow: &Workflow) -> Result<String, PublishError> {
    if let Some(problem) = workflow.problems().first() {
        return Err(PublishError::Invalid(problem.to_string()));
    }
    if let Some(name) = workflow.unset_env().next() {
        let missing = format!("env.{name} has no value: give it one, with `--env {name}=VALUE`");
        return Err(PublishError::Invalid(missing));
    }
    let operation = || format!("publish workflow {} version {}", workflow.name, workflow.version);
    let definition =
        serde_json::to_string(workflow).map_err(|error| corrupt(operation())(error.into()))?;
    let (bytes, max) = (definition.len(), limits::DEFINITION_BYTES_MAX);
    if bytes > max {
        return Err(PublishError::Invalid(format!("{bytes} bytes; the limit is {max}")));
    }
    Ok(definition)
}

/// Checks the task ids of `workflow` against those of `others`: the workflows that are triggered by the same events.
///
/// # Errors
/// The tasks of another workflow would have the same ids.
pub fn check_task_ids<'a>(
    workflow: &Workflow,
    others: impl IntoIterator<Item = &'a Workflow>,
) -> Result<(), PublishError> {
    let collides = |other: &&Workflow| {
        let both = workflow.trigger.as_ref().zip(other.trigger.as_ref());
        other.name != workflow.name && both.is_some_and(|(own, other)| own.collides_with(other))
    };
    match others.into_iter().find(collides) {
        Some(other) => {
            let (workflow, with) = (workflow.name.clone(), other.name.clone());
            Err(PublishError::SameTaskIds { workflow, with })
        }
        None => Ok(()),
    }
}

impl DynamoDefinitions {
    /// Publishes a definition. The operation is idempotent. It also publishes a version again that was unpublished.
    ///
    /// # Errors
    /// The definition is invalid, or the version exists with other content, or another workflow's trigger submits tasks
    /// with the same ids, or DynamoDB failed.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        let definition = validated_json(workflow)?;
        if let Some(trigger) = &workflow.trigger {
            let others = self.read_triggered(&trigger.source, &trigger.detail_type).await?;
            check_task_ids(workflow, others.iter().map(|plan| &***plan))?;
            let item = trigger_item_name(&trigger.source, &trigger.detail_type);
            self.change_event_item(item, "ADD", workflow.name.to_string()).await?;
        }
        for event in workflow.awaited_patterns() {
            let item = awaited_item_name(event.source, event.detail_type);
            let version = version_text(&workflow.name, workflow.version);
            self.change_event_item(item, "ADD", version).await?;
        }
        let (name, version) = (&workflow.name, workflow.version);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item_key(name.as_str(), version)))
            .item("definition", AttributeValue::S(definition))
            .condition_expression("attribute_not_exists(#name)")
            .expression_attribute_names("#name", "name");
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(_)) => {
                    Box::pin(self.publish_again(workflow)).await
                }
                Some(_) | None => {
                    let operation = format!("publish workflow {name} version {version}");
                    Err(failed(operation)(error).into())
                }
            },
        }
    }

    async fn publish_again(&self, workflow: &Workflow) -> Result<(), PublishError> {
        let (name, version) = (&workflow.name, workflow.version);
        match self.read_version(name, version).await? {
            Some(stored) if stored.workflow == *workflow => {
                if !stored.is_published {
                    self.mark(name, version, "REMOVE #mark").await?;
                }
                Ok(())
            }
            Some(_) | None => Err(PublishError::VersionTaken(name.clone(), version)),
        }
    }

    /// Unpublishes a version: new tasks do not use it. It stays readable for its existing tasks. Returns whether there is
    /// such a version. The operation is idempotent.
    ///
    /// # Errors
    /// DynamoDB failed.
    pub async fn unpublish(&self, name: &WorkflowName, version: u32) -> Result<bool, PortError> {
        let Some(stored) = self.read_version(name, version).await? else { return Ok(false) };
        let is_marked = self.mark(name, version, "SET #mark = :true").await?;
        for event in stored.workflow.awaited_patterns() {
            let item = awaited_item_name(event.source, event.detail_type);
            self.change_event_item(item, "DELETE", version_text(name, version)).await?;
        }
        Ok(is_marked)
    }

    async fn mark(
        &self,
        name: &WorkflowName,
        version: u32,
        update: &str,
    ) -> Result<bool, PortError> {
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item_key(name.as_str(), version)))
            .update_expression(update)
            .condition_expression("attribute_exists(#definition)")
            .expression_attribute_names("#definition", "definition")
            .expression_attribute_names("#mark", UNPUBLISHED);
        if update.contains(":true") {
            request = request.expression_attribute_values(":true", AttributeValue::Bool(true));
        }
        match request.send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
                Some(_) | None => {
                    Err(failed(format!("update workflow {name} version {version}"))(error))
                }
            },
        }
    }

    /// Adds a workflow, or one version of it, to the item of an event (`ADD`), or removes it (`DELETE`).
    async fn change_event_item(
        &self,
        item: String,
        change: &str,
        workflow: String,
    ) -> Result<(), PortError> {
        let operation = format!("register the event of workflow {workflow}");
        let names = AttributeValue::Ss(vec![workflow]);
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item_key(&item, 0)))
            .update_expression(format!("{change} workflows :names"))
            .expression_attribute_values(":names", names);
        let sent = request.send().await;
        sent.map_err(failed(operation))?;
        Ok(())
    }
}

fn version_text(name: &WorkflowName, version: u32) -> String {
    format!("{name}{VERSION_SEPARATOR}{version}")
}
