//! Lists the tasks that block the unpublishing of a workflow version.

use aws_sdk_dynamodb::types::AttributeValue;
use steward_core::model::{
    names::{TaskId, WorkflowName},
    task::ProcessState,
};
use steward_runtime::ports::PortError;

use super::{dynamo_store::DynamoStore, item_fields::as_text};
use crate::{
    errors::{corrupt, failed},
    items::text,
};

/// The states of a task that is neither Processed nor Undone. A task in Error counts too, because an operator may still
/// resume it.
const UNRESOLVED: [ProcessState; 4] =
    [ProcessState::Pending, ProcessState::Processing, ProcessState::Undoing, ProcessState::Error];

impl DynamoStore {
    /// The tasks of a workflow version that are neither Processed nor Undone, in no particular order. Scans the whole
    /// table, so the cost grows with the table.
    ///
    /// # Errors
    /// DynamoDB failed, or an item is unreadable.
    pub async fn unresolved_tasks_of_version(
        &self,
        workflow: &WorkflowName,
        version: u32,
    ) -> Result<Vec<TaskId>, PortError> {
        let operation = || format!("find tasks of workflow {workflow} version {version}");
        let mut scan = self
            .client
            .scan()
            .table_name(&self.tasks)
            .consistent_read(true)
            .projection_expression("task_id")
            .filter_expression(
                "workflow = :workflow AND v = :version AND process_state IN (:s0, :s1, :s2, :s3)",
            )
            .expression_attribute_values(":workflow", text(workflow.as_str()))
            .expression_attribute_values(":version", AttributeValue::N(version.to_string()));
        for (n, state) in UNRESOLVED.iter().enumerate() {
            scan = scan.expression_attribute_values(format!(":s{n}"), text(&state.to_string()));
        }
        let mut items = scan.into_paginator().items().send();
        let mut found = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            let id = as_text(&item, "task_id").and_then(|id| Ok(id.parse()?));
            found.push(id.map_err(corrupt(operation()))?);
        }
        Ok(found)
    }
}
