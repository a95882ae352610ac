//! The definitions of workflows on DynamoDB, with a cache in memory.

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
use cache::DefinitionCache;
pub use listing::VersionSummary;
pub use publication::{PublishError, Stored, check_task_ids, validated_json};
use single_flight::SingleFlight;

mod cache;
mod listing;
mod publication;
mod single_flight;

/// The attribute that marks an unpublished version: new tasks do not use it.
const UNPUBLISHED: &str = "unpublished";

/// The number of concurrent reads for one event.
const READS_AT_ONCE: usize = 16;

/// The table of definitions.
#[derive(Debug, Clone)]
pub struct DynamoDefinitions {
    client: Client,
    table: String,
    cache: Arc<Mutex<DefinitionCache>>,
    single_flight: SingleFlight,
}

impl DynamoDefinitions {
    /// The definitions in this table.
    #[must_use]
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table, cache: Arc::default(), single_flight: SingleFlight::default() }
    }

    fn cache(&self) -> MutexGuard<'_, DefinitionCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
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
        let output = request.send().await.map_err(failed(operation()))?;
        output.item.as_ref().map(publication::stored).transpose().map_err(corrupt(operation()))
    }

    /// The newest published version. It is almost always the newest of all versions, so each request reads only one.
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

    /// Reads the definition for a new task from the table, and caches it.
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
        self.cache().insert_published(&plan, version, now);
        Ok(Some(plan))
    }

    /// The definition for a new task, if `wanted` returns true for it. A cached definition that is not wanted is read
    /// again, because a newer version may have been published.
    async fn published_if(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
        wanted: impl Fn(&Workflow) -> bool,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let is_wanted = |workflow: &Arc<Plan>| wanted(workflow);
        let cached = || self.cache().published(name, version, Instant::now()).filter(is_wanted);
        let permit = match cached() {
            Some(cached) => return Ok(Some(cached)),
            None => self.single_flight.permit(name, version).await,
        };
        match permit.waited.then(cached).flatten() {
            Some(cached) => Ok(Some(cached)),
            None => Ok(self.read_published(name, version).await?.filter(is_wanted)),
        }
    }

    /// Reads the workflows whose newest published version has this trigger, bypassing the cache.
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
        let cached = || self.cache().version(name, version);
        let permit = match cached() {
            Some(cached) => return Ok(Some(cached)),
            None => self.single_flight.permit(name, Some(version)).await,
        };
        if let Some(cached) = permit.waited.then(cached).flatten() {
            return Ok(Some(cached));
        }
        let Some(stored) = self.read_version(name, version).await? else { return Ok(None) };
        let plan = compiled(stored.workflow)?;
        self.cache().insert(&plan);
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
