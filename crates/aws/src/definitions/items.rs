//! The items in the table of workflows: their keys and attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use steward_core::definition::workflow::Workflow;

use crate::items::{ItemAttributes, Unreadable};

/// The attribute that marks an unpublished version: new tasks do not use it.
pub(super) const UNPUBLISHED: &str = "unpublished";

/// The prefix of the key of a trigger. No workflow name starts with it.
const TRIGGER: &str = "#trigger/";

/// The maximum size of a partition key in bytes, by DynamoDB's limit.
const KEY_BYTES_MAX: usize = 2048;

/// A stored definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The definition.
    pub workflow: Workflow,
    /// Whether new tasks may use it.
    pub is_published: bool,
}

pub(super) fn is_published(item: &ItemAttributes) -> bool {
    !item.contains_key(UNPUBLISHED)
}

pub(super) fn read(item: &ItemAttributes) -> Result<Workflow, Unreadable> {
    let definition = item.get("definition").and_then(|value| value.as_s().ok());
    Ok(serde_json::from_str(definition.ok_or("no text `definition`")?)?)
}

pub(super) fn stored(item: &ItemAttributes) -> Result<Stored, Unreadable> {
    Ok(Stored { workflow: read(item)?, is_published: is_published(item) })
}

pub(super) fn key(name: &str, version: u32) -> ItemAttributes {
    HashMap::from([
        ("name".to_owned(), AttributeValue::S(name.to_owned())),
        ("version".to_owned(), AttributeValue::N(version.to_string())),
    ])
}

/// The key of a trigger. Two triggers may share a key if they are long or contain a `/`. This is harmless, because the
/// trigger of each workflow that is found there is compared.
pub(super) fn trigger_key(source: &str, detail_type: &str) -> String {
    let mut key = format!("{TRIGGER}{source}/{detail_type}");
    while key.len() > KEY_BYTES_MAX {
        key.pop();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::{limits, model::names::WorkflowName};

    #[test]
    fn the_key_of_a_trigger_is_not_a_workflow_name_and_does_not_exceed_the_limit() {
        assert_eq!(trigger_key("shop", "Order Placed"), "#trigger/shop/Order Placed");
        assert!(trigger_key("shop", "Order Placed").parse::<WorkflowName>().is_err());
        let long = "\u{1f69a}".repeat(limits::EVENT_TEXT_CHARS_MAX);
        assert_eq!(trigger_key(&long, &long).len(), 2_046);
    }
}
