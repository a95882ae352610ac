//! The values of items that the shortcuts know: read straight from JSON, where dynoxide's own come by way of a
//! tree. Sets, binaries and whatever else there is are unreadable here, and so dynoxide's.

use std::collections::BTreeMap;

use dynoxide::AttributeValue;
use serde::{Deserialize, Serialize};

/// Digits of a number that need no rounding and no other form.
const DIGITS_MAX: usize = 30;

/// An item's attributes by name.
pub(in crate::embedded) type Item = BTreeMap<String, Attribute>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::embedded) enum Attribute {
    S(String),
    N(String),
    #[serde(rename = "BOOL")]
    Bool(bool),
    #[serde(rename = "NULL")]
    Null(bool),
    L(Vec<Attribute>),
    M(Item),
}

impl Attribute {
    /// Whether there is nothing in it that needs a closer look, to this depth.
    pub(super) fn is_plain(&self, depth: usize) -> bool {
        match self {
            Self::S(_) | Self::Bool(_) => true,
            Self::Null(is_null) => *is_null,
            Self::N(number) => {
                let digits = number.strip_prefix('-').unwrap_or(number);
                (1..=DIGITS_MAX).contains(&digits.len())
                    && digits.bytes().all(|byte| byte.is_ascii_digit())
                    && !digits.starts_with('0')
                    || number == "0"
            }
            Self::L(values) => depth > 0 && values.iter().all(|value| value.is_plain(depth - 1)),
            Self::M(values) => {
                depth > 0
                    && values
                        .iter()
                        .all(|(name, value)| !name.is_empty() && value.is_plain(depth - 1))
            }
        }
    }

    /// The same as dynoxide has it, of those that a key may be.
    pub(in crate::embedded) fn as_key(&self) -> Option<AttributeValue> {
        match self {
            Self::S(text) => Some(AttributeValue::S(text.clone())),
            Self::N(number) => Some(AttributeValue::N(number.clone())),
            Self::Bool(_) | Self::Null(_) | Self::L(_) | Self::M(_) => None,
        }
    }

    /// Its size by DynamoDB's rule.
    fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => AttributeValue::N(number.clone()).size(),
            Self::Bool(_) | Self::Null(_) => 1,
            Self::L(values) => 3 + values.len() + values.iter().map(Self::size).sum::<usize>(),
            Self::M(values) => 3 + values.len() + size(values),
        }
    }
}

/// An item's size by DynamoDB's rule.
pub(in crate::embedded) fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value.size()).sum()
}
