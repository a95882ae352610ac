//! Reads definitions from the table of workflows, and caches them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use aws_sdk_dynamodb::{
    Client, operation::query::builders::QueryFluentBuilder, types::AttributeValue,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::{
    definition::{plan::Plan, workflow::Workflow},
    model::names::WorkflowName,
};
use steward_runtime::ports::{Definitions, PortError};

use super::{
    cache::DefinitionCache,
    definition_item::{
        StoredDefinition, VERSION_SEPARATOR, awaited_item_name, is_published, item_key,
        parse_definition, parse_stored_definition, trigger_item_name,
    },
    single_flight::SingleFlight,
};
use crate::errors::{corrupt, failed};

/// The number of concurrent reads for one event.
const READS_AT_ONCE: usize = 16;

/// The table of definitions.
#[derive(Debug, Clone)]
pub struct DynamoDefinitions {
    pub(super) client: Client,
    pub(super) table: String,
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

    /// One version, published or not.
    pub(super) async fn read_version(
        &self,
        name: &WorkflowName,
        version: u32,
    ) -> Result<Option<StoredDefinition>, PortError> {
        let operation = || format!("read workflow {name} version {version}");
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(item_key(name.as_str(), version)))
            .consistent_read(true);
        let output = request.send().await.map_err(failed(operation()))?;
        output.item.as_ref().map(parse_stored_definition).transpose().map_err(corrupt(operation()))
    }

    /// A query of all versions of a workflow, oldest first.
    pub(super) fn query_versions(&self, name: &WorkflowName) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#name = :name")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":name", AttributeValue::S(name.to_string()))
            .consistent_read(true)
    }

    /// The newest published version. It is almost always the newest of all versions, so each request reads only one.
    async fn read_newest(&self, name: &WorkflowName) -> Result<Option<Workflow>, PortError> {
        let operation =
            || format!("read the newest version of workflow {name} from table {}", self.table);
        let query = self.query_versions(name).scan_index_forward(false).limit(1);
        let mut items = query.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            if is_published(&item) {
                return parse_definition(&item).map(Some).map_err(corrupt(operation()));
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
        let is_wanted = |plan: &Arc<Plan>| wanted(plan);
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
    pub(super) async fn read_triggered(
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

    /// The set of texts in the item of an event.
    async fn event_item(&self, name: &str) -> Result<Vec<String>, PortError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(item_key(name, 0)))
            .consistent_read(true);
        let operation = "read the workflows of an event".to_owned();
        let output = request.send().await.map_err(failed(operation))?;
        let texts = output.item.unwrap_or_default().remove("workflows");
        Ok(texts.and_then(|texts| texts.as_ss().cloned().ok()).unwrap_or_default())
    }

    /// The names of the workflows that have had a trigger in any version.
    async fn registered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<WorkflowName>, PortError> {
        let operation = || "read the workflows of a trigger".to_owned();
        let names = self.event_item(&trigger_item_name(source, detail_type)).await?;
        let names: Result<Vec<WorkflowName>, _> =
            names.into_iter().map(TryInto::try_into).collect();
        let mut names = names.map_err(|error: steward_core::model::names::InvalidName| {
            corrupt(operation())(error.into())
        })?;
        names.sort();
        Ok(names)
    }

    /// All versions of a workflow with their definitions, oldest first.
    ///
    /// # Errors
    /// DynamoDB failed, or a definition is unreadable.
    pub async fn definitions_of(
        &self,
        name: &WorkflowName,
    ) -> Result<Vec<StoredDefinition>, PortError> {
        let operation = || format!("read the versions of workflow {name}");
        let mut items = self.query_versions(name).into_paginator().items().send();
        let mut versions = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            versions.push(parse_stored_definition(&item).map_err(corrupt(operation()))?);
        }
        Ok(versions)
    }

    /// All versions of all workflows with their definitions, ordered by name and version. Scans the whole table.
    ///
    /// # Errors
    /// DynamoDB failed, or a definition is unreadable.
    pub async fn all(&self) -> Result<Vec<StoredDefinition>, PortError> {
        let operation = || "read all workflows".to_owned();
        let scan = self.client.scan().table_name(&self.table).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            if item.contains_key("definition") {
                all.push(parse_stored_definition(&item).map_err(corrupt(operation()))?);
            }
        }
        all.sort_by(|a, b| {
            let key =
                |stored: &StoredDefinition| (stored.workflow.name.clone(), stored.workflow.version);
            key(a).cmp(&key(b))
        });
        Ok(all)
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

    async fn awaiting(&self, source: &str, detail_type: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        let texts = self.event_item(&awaited_item_name(source, detail_type)).await?;
        let mut versions: Vec<_> = texts.iter().filter_map(|text| parse_version(text)).collect();
        versions.sort();
        let read = |(name, version)| async move { self.workflow(&name, Some(version)).await };
        let read = stream::iter(versions).map(read).buffered(READS_AT_ONCE);
        let plans: Vec<_> = read.try_collect().await?;
        Ok(plans.into_iter().flatten().filter(|plan| plan.awaits(source, detail_type)).collect())
    }
}

/// Reads the name and the version from the set of the versions that wait for an event.
fn parse_version(text: &str) -> Option<(WorkflowName, u32)> {
    let (name, version) = text.split_once(VERSION_SEPARATOR)?;
    Some((name.parse().ok()?, version.parse().ok()?))
}

fn has_trigger(workflow: &Workflow, source: &str, detail_type: &str) -> bool {
    workflow.trigger.as_ref().is_some_and(|trigger| trigger.matches(source, detail_type))
}

/// A definition as the engine runs it. A stored one that cannot run is corrupt.
fn compiled(workflow: Workflow) -> Result<Arc<Plan>, PortError> {
    let operation = format!("read workflow {} version {}", workflow.name, workflow.version);
    Plan::new(workflow).map(Arc::new).map_err(|problem| corrupt(operation)(problem.into()))
}
