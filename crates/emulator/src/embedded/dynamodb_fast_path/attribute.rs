//! The attribute values that the fast path supports. They are read directly from JSON; dynoxide's own type is read
//! through an intermediate tree. Sets, binaries and all other types cannot be read here, so dynoxide processes
//! them.

use std::collections::BTreeMap;

use dynoxide::AttributeValue;
use serde::{Deserialize, Serialize};

/// The most digits of a number that DynamoDB stores without rounding.
const DIGITS_MAX: usize = 30;

/// An item's attributes by name.
pub(in crate::embedded) type PlainItem = BTreeMap<String, PlainAttribute>;

/// An attribute value without sets and binaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::embedded) enum PlainAttribute {
    S(String),
    N(String),
    #[serde(rename = "BOOL")]
    Bool(bool),
    #[serde(rename = "NULL")]
    Null(bool),
    L(Vec<PlainAttribute>),
    M(PlainItem),
}

impl PlainAttribute {
    /// Whether the value needs no validation by dynoxide, up to this nesting depth.
    pub(super) fn is_supported(&self, depth: usize) -> bool {
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
            Self::L(values) => {
                depth > 0 && values.iter().all(|value| value.is_supported(depth - 1))
            }
            Self::M(values) => {
                depth > 0
                    && values
                        .iter()
                        .all(|(name, value)| !name.is_empty() && value.is_supported(depth - 1))
            }
        }
    }

    /// The value in dynoxide's type, if a key may have it.
    pub(in crate::embedded) fn as_key(&self) -> Option<AttributeValue> {
        match self {
            Self::S(text) => Some(AttributeValue::S(text.clone())),
            Self::N(number) => Some(AttributeValue::N(number.clone())),
            Self::Bool(_) | Self::Null(_) | Self::L(_) | Self::M(_) => None,
        }
    }

    /// Its size in bytes by DynamoDB's rule.
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

/// An item's size in bytes by DynamoDB's rule.
pub(in crate::embedded) fn size(item: &PlainItem) -> usize {
    item.iter().map(|(name, value)| name.len() + value.size()).sum()
}
