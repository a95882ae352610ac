//! The published definitions on DynamoDB, kept in memory once read: a version never changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::{Client, operation::put_item::PutItemError, types::AttributeValue};
use steward_core::{
    limits,
    names::WorkflowName,
    ports::{Definitions, PortError},
    workflow::Workflow,
};

use crate::errors::{corrupt, failed};

/// How long the answer to "which version is the newest" is believed.
const NEWEST_FOR: Duration = Duration::from_secs(10);

/// Definitions kept in memory; over it, all are forgotten and read again.
const KEPT_MAX: usize = 256;

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
    /// The table could not be written.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// The definitions' table.
#[derive(Debug, Clone)]
pub struct DynamoDefinitions {
    client: Client,
    table: String,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    versions: HashMap<(WorkflowName, u32), Arc<Workflow>>,
    newest: HashMap<WorkflowName, (Instant, u32)>,
}

impl Kept {
    fn get(&self, name: &WorkflowName, version: Option<u32>) -> Option<Arc<Workflow>> {
        let version = version.or_else(|| {
            let (at, version) = self.newest.get(name)?;
            (at.elapsed() < NEWEST_FOR).then_some(*version)
        })?;
        self.versions.get(&(name.clone(), version)).cloned()
    }

    fn keep(&mut self, workflow: &Arc<Workflow>, is_newest: bool) {
        if self.versions.len() >= KEPT_MAX {
            *self = Self::default();
        }
        let (name, version) = (workflow.name.clone(), workflow.version);
        if is_newest {
            self.newest.insert(name.clone(), (Instant::now(), version));
        }
        self.versions.insert((name, version), workflow.clone());
    }
}

impl DynamoDefinitions {
    /// Definitions in this table.
    #[must_use]
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table, kept: Arc::default() }
    }

    /// Publishes a definition. The same again is harmless.
    ///
    /// # Errors
    /// The definition's problems; or the version is taken by another; or the table failed.
    pub async fn publish(&self, workflow: &Workflow) -> Result<(), PublishError> {
        let (name, version) = (&workflow.name, workflow.version);
        let operation = || format!("publish workflow {name} version {version}");
        if let Some(problem) = workflow.problems().first() {
            return Err(PublishError::Invalid(problem.to_string()));
        }
        let definition =
            serde_json::to_string(workflow).map_err(|error| corrupt(operation())(error.into()))?;
        if definition.len() > limits::DEFINITION_BYTES_MAX {
            let (bytes, max) = (definition.len(), limits::DEFINITION_BYTES_MAX);
            return Err(PublishError::Invalid(format!("{bytes} bytes; the limit is {max}")));
        }
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("name", AttributeValue::S(name.to_string()))
            .item("version", AttributeValue::N(version.to_string()))
            .item("definition", AttributeValue::S(definition))
            .condition_expression("attribute_not_exists(#name)")
            .expression_attribute_names("#name", "name");
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(_)) => {
                    let published = self.read_version(name, version).await?;
                    match published.is_some_and(|published| published == *workflow) {
                        true => Ok(()),
                        false => Err(PublishError::Taken(name.clone(), version)),
                    }
                }
                Some(_) | None => Err(failed(operation())(error).into()),
            },
        }
    }

    async fn read_version(
        &self,
        name: &WorkflowName,
        version: u32,
    ) -> Result<Option<Workflow>, PortError> {
        let operation = || format!("read workflow {name} version {version}");
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key("name", AttributeValue::S(name.to_string()))
            .key("version", AttributeValue::N(version.to_string()))
            .consistent_read(true);
        let answer = request.send().await.map_err(failed(operation()))?;
        answer.item.as_ref().map(read).transpose().map_err(corrupt(operation()))
    }

    async fn read_newest(&self, name: &WorkflowName) -> Result<Option<Workflow>, PortError> {
        let operation = || format!("read the newest version of workflow {name}");
        let request = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#name = :name")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":name", AttributeValue::S(name.to_string()))
            .scan_index_forward(false)
            .consistent_read(true)
            .limit(1);
        let answer = request.send().await.map_err(failed(operation()))?;
        answer.items().first().map(read).transpose().map_err(corrupt(operation()))
    }
}

impl Definitions for DynamoDefinitions {
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Workflow>>, PortError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(name, version);
        if kept.is_some() {
            return Ok(kept);
        }
        let read = match version {
            Some(version) => self.read_version(name, version).await?,
            None => self.read_newest(name).await?,
        };
        Ok(read.map(|workflow| {
            let workflow = Arc::new(workflow);
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.keep(&workflow, version.is_none());
            workflow
        }))
    }
}

fn read(
    item: &HashMap<String, AttributeValue>,
) -> Result<Workflow, Box<dyn std::error::Error + Send + Sync>> {
    let definition = item.get("definition").and_then(|value| value.as_s().ok());
    Ok(serde_json::from_str(definition.ok_or("no text `definition`")?)?)
}
