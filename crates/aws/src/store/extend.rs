//! Extends the expiry of a task's documents, and of the entries of its labels.

use aws_sdk_dynamodb::{operation::update_item::UpdateItemError, types::AttributeValue};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use steward_core::model::task::Task;
use steward_runtime::ports::PortError;

use super::{dynamo_store::DynamoStore, item_fields::read_key};
use crate::{
    errors::{corrupt, failed},
    items::{ItemAttributes, expires_at, number},
};

/// The number of documents that are written concurrently.
const AT_ONCE: usize = 16;

/// A document whose expiry is at most this many seconds too early is not written: its retention has a margin of a day. So
/// the repetition of an extension of thousands of documents, which computes a slightly later expiry, writes nothing.
const TOLERANCE_S: i64 = 3_600;

impl DynamoStore {
    /// Makes the documents of a task expire not before its retention ends, or almost not. Costs one read of all documents, one
    /// write for each changed document, and one for each label.
    pub(super) async fn extend(&self, task: &Task) -> Result<(), PortError> {
        let (owner, until) =
            (task.document_owner(), self.items.expires_at(task.document_retention()));
        let operation = || format!("extend the expiry of the documents of {}", owner.task_id);
        let query = self.documents_of(&owner.task_id).consistent_read(true);
        let query = query.projection_expression("task_id, document, expires_at");
        let mut items = query.into_paginator().items().send();
        let mut early = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(failed(operation()))?;
            let key = read_key(&item).map_err(corrupt(operation()))?;
            let expires_earlier =
                expires_at(&item).is_some_and(|at| at + TOLERANCE_S < until.as_second());
            if key.incarnation == owner.incarnation && expires_earlier {
                early.push(item);
            }
        }
        early.extend(self.items.labels(task));
        let extended = early.into_iter().map(|item| self.extend_one(item, until, operation()));
        stream::iter(extended).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn extend_one(
        &self,
        mut item: ItemAttributes,
        until: Timestamp,
        operation: String,
    ) -> Result<(), PortError> {
        item.remove("expires_at");
        let until: AttributeValue = number(until.as_second());
        let request = self
            .client
            .update_item()
            .table_name(&self.documents)
            .set_key(Some(item))
            .update_expression("SET expires_at = :until")
            .condition_expression("attribute_exists(task_id) AND expires_at < :until")
            .expression_attribute_values(":until", until);
        match request.send().await {
            Ok(_) => Ok(()),
            // The document was deleted, or another instance extended its expiry first.
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(UpdateItemError::is_conditional_check_failed_exception) =>
            {
                Ok(())
            }
            Err(error) => Err(failed(operation)(error)),
        }
    }
}
