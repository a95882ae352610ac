//! A put with its condition, as far as the fast path supports it.

use std::{borrow::Cow, collections::BTreeSet};

use dynoxide::DynoxideError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::attribute::{PlainAttribute, PlainItem};
use crate::embedded::table_layout::TableLayout;

/// A nesting depth of an item's values that is within DynamoDB's limit.
const DEPTH_MAX: usize = 20;

/// A put of a whole item, or an update of some attributes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct PlainPut {
    pub(super) table_name: String,
    pub(super) item: PlainItem,
    pub(super) condition_expression: Option<String>,
    pub(super) expression_attribute_values: Option<PlainItem>,
    pub(super) return_values_on_condition_check_failure: Option<String>,
    /// If present, this is an update: it sets the attributes in `item`, removes these attributes, and keeps all
    /// others.
    #[serde(skip)]
    pub(super) removed: Option<Vec<String>>,
}

/// The conditions that the fast path supports.
pub(super) enum PutCondition<'a> {
    Always,
    /// `attribute_not_exists(<part of the key>)`: the item does not exist.
    NotExists,
    /// `<name> = :value AND <name> = :value`, for numbers.
    Equal(Vec<(&'a str, &'a PlainAttribute)>),
}

impl PlainPut {
    /// The item after the put.
    pub(super) fn applied_to(&self, mut item: PlainItem) -> Cow<'_, PlainItem> {
        let Some(removed) = &self.removed else { return Cow::Borrowed(&self.item) };
        item.extend(self.item.clone());
        removed.iter().for_each(|name| drop(item.remove(name)));
        Cow::Owned(item)
    }

    /// Whether the put changes an attribute of the existing item.
    pub(super) fn changes(&self, existing: &PlainItem, name: &String) -> bool {
        let is_kept = || self.removed.as_ref().is_some_and(|removed| !removed.contains(name));
        match self.item.get(name) {
            Some(value) => existing.get(name) != Some(value),
            None => existing.contains_key(name) && !is_kept(),
        }
    }

    /// Whether its values need no validation by dynoxide.
    pub(super) fn is_supported(&self) -> bool {
        let returns = self.return_values_on_condition_check_failure.as_deref();
        let values = self.expression_attribute_values.iter().flatten();
        matches!(returns, None | Some("NONE" | "ALL_OLD"))
            && self
                .item
                .iter()
                .chain(values)
                .all(|(name, value)| !name.is_empty() && value.is_supported(DEPTH_MAX))
    }

    /// Its condition; `None` if the fast path does not support it.
    pub(super) fn condition<'a>(&'a self, layout: &TableLayout) -> Option<PutCondition<'a>> {
        let values = self.expression_attribute_values.as_ref();
        let Some(text) = self.condition_expression.as_deref() else {
            return values.is_none().then_some(PutCondition::Always);
        };
        if let Some(name) = text.strip_prefix("attribute_not_exists(") {
            let name = name.strip_suffix(')')?;
            let is_key = layout.key_names().any(|key| key == name);
            return (is_key && values.is_none()).then_some(PutCondition::NotExists);
        }
        let values = values?;
        let one = |text: &'a str| {
            let (name, value) = text.split_once(" = ")?;
            let value = values.get(value).filter(|value| matches!(value, PlainAttribute::N(_)))?;
            // These names are not reserved words of DynamoDB. Other names are not supported.
            matches!(name, "revision" | "submitted_at").then_some((name, value))
        };
        let all: Vec<_> = text.split(" AND ").map(one).collect::<Option<_>>()?;
        let names: BTreeSet<_> = all.iter().map(|(name, _)| *name).collect();
        // An update identifies its item by `task_id` alone.
        let is_full_key = self.removed.is_none() || layout.key_names().eq(["task_id"]);
        let is_supported = is_full_key && names.len() == all.len() && values.len() == all.len();
        is_supported.then_some(PutCondition::Equal(all))
    }

    /// The response to a statement whose condition is false.
    pub(super) fn failed_statement(&self) -> Value {
        let (code, message) = match self.removed {
            Some(_) => ("ConditionalCheckFailed", "The conditional request failed"),
            None => ("DuplicateItem", "Duplicate primary key exists in table"),
        };
        json!({ "Error": { "Code": code, "Message": message }, "TableName": self.table_name })
    }

    /// The error of a put whose condition is false. For a transaction, dynoxide produces the response.
    pub(super) fn condition_failed(&self, old: Option<&str>, puts: usize) -> Option<DynoxideError> {
        if puts > 1 {
            return None;
        }
        let wants = self.return_values_on_condition_check_failure.as_deref() == Some("ALL_OLD");
        let old = match old.filter(|_| wants) {
            Some(old) => Some(serde_json::from_str(old).ok()?),
            None => None,
        };
        let message = "The conditional request failed".to_owned();
        Some(DynoxideError::ConditionalCheckFailedException(message, old))
    }
}
