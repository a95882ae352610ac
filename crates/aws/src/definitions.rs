//! The published definitions on DynamoDB, kept in memory once read: a version never changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use steward_core::definition::plan::Plan;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::{definition::workflow::Workflow, model::names::WorkflowName};
use steward_runtime::ports::{Definitions, PortError};

use crate::errors::{corrupt, failed};
use kept::Kept;
pub use listing::Listed;
pub use publication::{PublishError, Stored, check_ids, definition_text};
use reading::Reading;

mod kept;
mod listing;
mod publication;
mod reading;

/// The mark of a version that new tasks no longer take.
const UNPUBLISHED: &str = "unpublished";

/// Reads under way at once for one event.
const READS_AT_ONCE: usize = 16;

/// The definitions' table.
#[derive(Debug, Clone)]
pub struct DynamoDefinitions {
    client: Client,
    table: String,
    kept: Arc<Mutex<Kept>>,
    reading: Reading,
}

impl DynamoDefinitions {
    /// Definitions in this table.
    #[must_use]
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table, kept: Arc::default(), reading: Reading::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_version(
        &self,
        name: &WorkflowName,
        version: u32,
    ) -> Result<Option<Stored>, PortError> {
        let operation = || format!("read workflow {name} version {version}");
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(publication::key(name.as_str(), version)))
            .consistent_read(true);
        let answer = request.send().await.map_err(failed(operation()))?;
        answer.item.as_ref().map(publication::stored).transpose().map_err(corrupt(operation()))
    }

    /// The newest version that is published: almost always the newest there is, so they are read one
    /// by one.
    async fn read_newest(&self, name: &WorkflowName) -> Result<Option<Workflow>, PortError> {
        let operation = || format!("read the newest version of workflow {name}");
        let mut items = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#name = :name")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":name", AttributeValue::S(name.to_string()))
            .scan_index_forward(false)
            .consistent_read(true)
            .limit(1)
            .into_paginator()
            .items()
            .send();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            if is_published(&item) {
                return read(&item).map(Some).map_err(corrupt(operation()));
            }
        }
        Ok(None)
    }

    /// What a new task runs, read now.
    async fn read_published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let now = Instant::now();
        let read = match version {
            Some(version) => {
                let stored = self.read_version(name, version).await?;
                stored.filter(|stored| stored.is_published).map(|stored| stored.workflow)
            }
            None => self.read_newest(name).await?,
        };
        let Some(plan) = read.map(compiled).transpose()? else { return Ok(None) };
        self.kept().keep_published(&plan, version, now);
        Ok(Some(plan))
    }

    /// What a new task runs, if it is `wanted`: as it is kept, or as another reads it just now. What is not
    /// wanted is read anew before it is believed: it may be the version before the one that is.
    async fn published_if(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
        wanted: impl Fn(&Workflow) -> bool,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let is_wanted = |workflow: &Arc<Plan>| wanted(workflow);
        let kept = || self.kept().published(name, version, Instant::now()).filter(is_wanted);
        let turn = match kept() {
            Some(kept) => return Ok(Some(kept)),
            None => self.reading.turn(name, version).await,
        };
        match turn.waited.then(kept).flatten() {
            Some(kept) => Ok(Some(kept)),
            None => Ok(self.read_published(name, version).await?.filter(is_wanted)),
        }
    }

    /// The workflows that have this trigger now.
    async fn read_triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        let names = stream::iter(self.registered(source, detail_type).await?);
        let newest = names.map(|name| async move { self.read_published(&name, None).await });
        let newest: Vec<_> = newest.buffered(READS_AT_ONCE).try_collect().await?;
        let wanted = |newest: &Arc<Plan>| has_trigger(newest, source, detail_type);
        Ok(newest.into_iter().flatten().filter(wanted).collect())
    }
}

impl Definitions for DynamoDefinitions {
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let Some(version) = version else { return self.published(name, None).await };
        let kept = || self.kept().version(name, version);
        let turn = match kept() {
            Some(kept) => return Ok(Some(kept)),
            None => self.reading.turn(name, Some(version)).await,
        };
        if let Some(kept) = turn.waited.then(kept).flatten() {
            return Ok(Some(kept));
        }
        let Some(stored) = self.read_version(name, version).await? else { return Ok(None) };
        let plan = compiled(stored.workflow)?;
        self.kept().keep(&plan);
        Ok(Some(plan))
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        self.published_if(name, version, |_| true).await
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        let wanted = |newest: &Workflow| has_trigger(newest, source, detail_type);
        let newest = |name| async move { self.published_if(&name, None, wanted).await };
        let names = stream::iter(self.registered(source, detail_type).await?);
        let newest: Vec<_> = names.map(newest).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(newest.into_iter().flatten().collect())
    }
}

fn has_trigger(workflow: &Workflow, source: &str, detail_type: &str) -> bool {
    workflow.trigger.as_ref().is_some_and(|trigger| trigger.matches(source, detail_type))
}

fn is_published(item: &HashMap<String, AttributeValue>) -> bool {
    !item.contains_key(UNPUBLISHED)
}

/// A definition as the engine runs it. One that an older release published, and that cannot run, is corrupt.
fn compiled(workflow: Workflow) -> Result<Arc<Plan>, PortError> {
    let operation = format!("read workflow {} version {}", workflow.name, workflow.version);
    Plan::new(workflow).map(Arc::new).map_err(|problem| corrupt(operation)(problem.into()))
}

fn read(
    item: &HashMap<String, AttributeValue>,
) -> Result<Workflow, Box<dyn std::error::Error + Send + Sync>> {
    let definition = item.get("definition").and_then(|value| value.as_s().ok());
    Ok(serde_json::from_str(definition.ok_or("no text `definition`")?)?)
}
