//! The items in the table of workflows: their keys and attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use steward_core::definition::workflow::Workflow;

use crate::items::{ItemAttributes, Unreadable};

/// The attribute that marks an unpublished version: new tasks do not use it.
pub(super) const UNPUBLISHED: &str = "unpublished";

/// The prefix of the key of a trigger. No workflow name starts with it.
const TRIGGER_KEY_PREFIX: &str = "#trigger/";

/// The prefix of the key of an event that steps wait for.
const AWAITED_KEY_PREFIX: &str = "#awaited/";

/// Between the name and the version in the item of an event that steps wait for. No workflow name contains it.
pub(super) const VERSION_SEPARATOR: char = ':';

/// DynamoDB's limit for a partition key, in bytes.
const PARTITION_KEY_BYTES_MAX: usize = 2048;

/// A stored definition.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDefinition {
    /// The definition.
    pub workflow: Workflow,
    /// Whether new tasks may use it.
    pub is_published: bool,
}

/// Whether new tasks may use the definition in `item`.
pub(super) fn is_published(item: &ItemAttributes) -> bool {
    !item.contains_key(UNPUBLISHED)
}

/// Parses the definition in `item`.
pub(super) fn parse_definition(item: &ItemAttributes) -> Result<Workflow, Unreadable> {
    let definition = item.get("definition").and_then(|value| value.as_s().ok());
    Ok(serde_json::from_str(
        definition.ok_or("attribute `definition` is missing or not a string")?,
    )?)
}

/// Parses the definition in `item`, with the mark whether it is published.
pub(super) fn parse_stored_definition(
    item: &ItemAttributes,
) -> Result<StoredDefinition, Unreadable> {
    Ok(StoredDefinition { workflow: parse_definition(item)?, is_published: is_published(item) })
}

/// The key of a definition. For a trigger: its name, and version 0.
pub(super) fn item_key(name: &str, version: u32) -> ItemAttributes {
    HashMap::from([
        ("name".to_owned(), AttributeValue::S(name.to_owned())),
        ("version".to_owned(), AttributeValue::N(version.to_string())),
    ])
}

/// The attribute `name` in the key of a trigger. Two triggers may have the same name if they are long or contain a `/`.
/// This is harmless, because the reader compares the trigger of each workflow that it finds there.
pub(super) fn trigger_item_name(source: &str, detail_type: &str) -> String {
    event_item_name(TRIGGER_KEY_PREFIX, source, detail_type)
}

/// The same for an event that steps wait for.
pub(super) fn awaited_item_name(source: &str, detail_type: &str) -> String {
    event_item_name(AWAITED_KEY_PREFIX, source, detail_type)
}

fn event_item_name(prefix: &str, source: &str, detail_type: &str) -> String {
    let mut key = format!("{prefix}{source}/{detail_type}");
    while key.len() > PARTITION_KEY_BYTES_MAX {
        key.pop();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::{limits, model::names::WorkflowName};

    #[test]
    fn item_name_of_a_trigger_is_no_workflow_name() {
        assert_eq!(trigger_item_name("shop", "Order Placed"), "#trigger/shop/Order Placed");
        assert!(trigger_item_name("shop", "Order Placed").parse::<WorkflowName>().is_err());
    }

    #[test]
    fn item_name_of_a_long_trigger_is_cut_to_the_limit() {
        // The next character has four bytes and does not fit.
        let long = "\u{1f69a}".repeat(limits::EVENT_TEXT_CHARS_MAX);
        assert_eq!(trigger_item_name(&long, &long).len(), 2_046);
    }
}
