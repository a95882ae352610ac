//! Lists workflows and versions without their definitions. All definitions of a large deployment may exceed the memory
//! of a function.

use steward_core::model::names::WorkflowName;
use steward_runtime::ports::PortError;

use super::{
    definition_item::{UNPUBLISHED, is_published},
    dynamo_definitions::DynamoDefinitions,
};
use crate::{
    errors::{corrupt, failed},
    items::{ItemAttributes, Unreadable},
};

/// The attributes without the definition.
const PROJECTION: &str = "#name, #version, #mark";

/// One version of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionSummary {
    /// The workflow.
    pub name: WorkflowName,
    /// The version.
    pub version: u32,
    /// Whether new tasks may use it.
    pub is_published: bool,
}

impl DynamoDefinitions {
    /// All versions of all workflows, ordered by name and version. Scans the whole table.
    ///
    /// # Errors
    /// DynamoDB failed, or an item is unreadable.
    pub async fn list(&self) -> Result<Vec<VersionSummary>, PortError> {
        let mut items = self
            .client
            .scan()
            .table_name(&self.table)
            .projection_expression(PROJECTION)
            // The item of a trigger has no definition.
            .filter_expression("attribute_exists(#definition)")
            .expression_attribute_names("#definition", "definition")
            .expression_attribute_names("#name", "name")
            .expression_attribute_names("#version", "version")
            .expression_attribute_names("#mark", UNPUBLISHED)
            .consistent_read(true)
            .into_paginator()
            .items()
            .send();
        let mut all = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed("list workflows"))?;
            all.push(read_summary(&item).map_err(corrupt("list workflows"))?);
        }
        all.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        Ok(all)
    }

    /// The versions of a workflow, oldest first.
    ///
    /// # Errors
    /// DynamoDB failed, or an item is unreadable.
    pub async fn list_versions(
        &self,
        name: &WorkflowName,
    ) -> Result<Vec<VersionSummary>, PortError> {
        let operation = || format!("list the versions of workflow {name}");
        let query = self
            .query_versions(name)
            .projection_expression(PROJECTION)
            .expression_attribute_names("#version", "version")
            .expression_attribute_names("#mark", UNPUBLISHED);
        let mut items = query.into_paginator().items().send();
        let mut versions = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            versions.push(read_summary(&item).map_err(corrupt(operation()))?);
        }
        Ok(versions)
    }
}

fn read_summary(item: &ItemAttributes) -> Result<VersionSummary, Unreadable> {
    let name = item.get("name").and_then(|value| value.as_s().ok()).ok_or("no text `name`")?;
    let version = item.get("version").and_then(|value| value.as_n().ok());
    Ok(VersionSummary {
        name: name.parse()?,
        version: version.ok_or("no number `version`")?.parse()?,
        is_published: is_published(item),
    })
}
