//! Publishing a definition, and ending its publication.
//!
//! Beside the versions the table has an item for each trigger, with the names of the workflows that
//! have had it in some version. It is written first and never forgets: it only says where to look, and
//! the newest published version says whether an event is still wanted. So there is no moment at which
//! a published trigger is not found, wherever a publisher dies.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    operation::{put_item::PutItemError, update_item::UpdateItemError},
    types::AttributeValue,
};
use steward_core::{
    definition::workflow::{Trigger, Workflow},
    limits,
    model::names::WorkflowName,
};
use steward_runtime::ports::PortError;

use super::{DynamoDefinitions, UNPUBLISHED, is_published, read};
use crate::errors::{corrupt, failed};

/// What the key of a trigger begins with. No workflow's name does.
const TRIGGER: &str = "#trigger/";

/// Bytes of a partition key, by DynamoDB's limit.
const KEY_BYTES_MAX: usize = 2048;

/// Why a definition was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It cannot run.
    #[error("{0}")]
    Invalid(String),
    /// The version exists with other content. Versions never change.
    #[error(
        "workflow `{0}` version {1} is published already, with other content: give it a new version"
    )]
    Taken(WorkflowName, u32),
    /// An event would submit two tasks with one id.
    #[error(
        "trigger.task_id: workflow `{with}` has the same trigger and the same ids, and of two tasks \
         with one id only one is recorded; give these ids of their own, as `{workflow}-${{ event.id }}`"
    )]
    SameTaskIds {
        /// The one to be published.
        workflow: WorkflowName,
        /// The one that is.
        with: WorkflowName,
    },
    /// The table could not be written.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// A definition as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The definition.
    pub workflow: Workflow,
    /// Whether new tasks may run it.
    pub is_published: bool,
}

/// The definition as it is stored, if it can run.
///
/// # Errors
/// Its first problem; or its size.
pub fn definition_text(workflow: &Workflow) -> Result<String, PublishError> {
    if let Some(problem) = workflow.problems().first() {
        return Err(PublishError::Invalid(problem.to_string()));
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

/// Whether `workflow` may be published beside those that are triggered by the same events.
///
/// # Errors
/// Another one's tasks would have the same ids.
pub fn check_ids<'a>(
    workflow: &Workflow,
    beside: impl IntoIterator<Item = &'a Workflow>,
) -> Result<(), PublishError> {
    let collides = |other: &&Workflow| {
        let both = workflow.trigger.as_ref().zip(other.trigger.as_ref());
        other.name != workflow.name && both.is_some_and(|(own, other)| own.collides_with(other))
    };
    match beside.into_iter().find(collides) {
        Some(other) => {
            let (workflow, with) = (workflow.name.clone(), other.name.clone());
            Err(PublishError::SameTaskIds { workflow, with })
        }
        None => Ok(()),
    }
}

impl DynamoDefinitions {
    /// Publishes a definition. The same again is harmless, and publishes it again if its publication
    /// was ended.
    ///
    /// # Errors
    /// The definition's problems; or the version is taken by another; or another workflow's trigger
    /// submits tasks with the same ids; or the table failed.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        let definition = definition_text(workflow)?;
        if let Some(trigger) = &workflow.trigger {
            let beside = self.read_triggered(&trigger.source, &trigger.detail_type).await?;
            check_ids(workflow, beside.iter().map(|plan| &***plan))?;
            self.register(&workflow.name, trigger).await?;
        }
        let (name, version) = (&workflow.name, workflow.version);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(key(name.as_str(), version)))
            .item("definition", AttributeValue::S(definition))
            .condition_expression("attribute_not_exists(#name)")
            .expression_attribute_names("#name", "name");
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(_)) => {
                    self.publish_again(workflow).await
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
            Some(_) | None => Err(PublishError::Taken(name.clone(), version)),
        }
    }

    /// Ends the publication of a version: no new task takes it. It stays readable for the tasks that
    /// have. Says whether there is such a version; again is harmless.
    ///
    /// # Errors
    /// The table failed.
    pub async fn unpublish(&self, name: &WorkflowName, version: u32) -> Result<bool, PortError> {
        self.mark(name, version, "SET #mark = :true").await
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
            .set_key(Some(key(name.as_str(), version)))
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
                    Err(failed(format!("mark workflow {name} version {version}"))(error))
                }
            },
        }
    }

    /// Adds a workflow to those that have had a trigger.
    async fn register(&self, name: &WorkflowName, trigger: &Trigger) -> Result<(), PortError> {
        let names = AttributeValue::Ss(vec![name.to_string()]);
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key(&trigger_key(&trigger.source, &trigger.detail_type), 0)))
            .update_expression("ADD workflows :names")
            .expression_attribute_values(":names", names);
        let sent = request.send().await;
        sent.map_err(failed(format!("register the trigger of workflow {name}")))?;
        Ok(())
    }

    /// The workflows that have had a trigger in some version.
    pub(super) async fn registered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<WorkflowName>, PortError> {
        let operation = || "read the workflows of a trigger".to_owned();
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key(&trigger_key(source, detail_type), 0)))
            .consistent_read(true);
        let answer = request.send().await.map_err(failed(operation()))?;
        let names = answer.item.unwrap_or_default().remove("workflows");
        let names = names.and_then(|names| names.as_ss().cloned().ok()).unwrap_or_default();
        let names: Result<Vec<WorkflowName>, _> =
            names.into_iter().map(TryInto::try_into).collect();
        let mut names = names.map_err(|error: steward_core::model::names::InvalidName| {
            corrupt(operation())(error.into())
        })?;
        names.sort();
        Ok(names)
    }

    /// All versions of a workflow, for people; oldest first.
    ///
    /// # Errors
    /// The table failed.
    pub async fn versions(&self, name: &WorkflowName) -> Result<Vec<Stored>, PortError> {
        let operation = || format!("read the versions of workflow {name}");
        let mut items = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#name = :name")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":name", AttributeValue::S(name.to_string()))
            .consistent_read(true)
            .into_paginator()
            .items()
            .send();
        let mut versions = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            versions.push(stored(&item).map_err(corrupt(operation()))?);
        }
        Ok(versions)
    }

    /// All versions of all workflows, for people; by name, oldest first. Reads the whole table.
    ///
    /// # Errors
    /// The table failed.
    pub async fn all(&self) -> Result<Vec<Stored>, PortError> {
        let operation = || "read all workflows".to_owned();
        let scan = self.client.scan().table_name(&self.table).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            if item.contains_key("definition") {
                all.push(stored(&item).map_err(corrupt(operation()))?);
            }
        }
        all.sort_by(|a, b| {
            let key = |stored: &Stored| (stored.workflow.name.clone(), stored.workflow.version);
            key(a).cmp(&key(b))
        });
        Ok(all)
    }
}

pub(super) fn stored(
    item: &HashMap<String, AttributeValue>,
) -> Result<Stored, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Stored { workflow: read(item)?, is_published: is_published(item) })
}

pub(super) fn key(name: &str, version: u32) -> HashMap<String, AttributeValue> {
    HashMap::from([
        ("name".to_owned(), AttributeValue::S(name.to_owned())),
        ("version".to_owned(), AttributeValue::N(version.to_string())),
    ])
}

/// The key of a trigger. Two may share one, if they are long or have a `/` in them: each workflow
/// that is found there is asked for its trigger.
fn trigger_key(source: &str, detail_type: &str) -> String {
    let mut key = format!("{TRIGGER}{source}/{detail_type}");
    while key.len() > KEY_BYTES_MAX {
        key.pop();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triggers_key_is_no_workflows_name_and_fits() {
        assert_eq!(trigger_key("shop", "Order Placed"), "#trigger/shop/Order Placed");
        assert!(trigger_key("shop", "Order Placed").parse::<WorkflowName>().is_err());
        let long = "\u{1f69a}".repeat(limits::EVENT_TEXT_CHARS_MAX);
        assert_eq!(trigger_key(&long, &long).len(), 2_046);
    }
}
