//! An upper bound for the result of a part of an expression, from the sizes of the values that it reads.

use std::{cell::OnceCell, rc::Rc};

use serde_json::Value;

use super::value_size::{STEP_BYTES, size, text_size};

/// An upper bound for the result of a node.
#[derive(Debug, Clone, Default)]
pub(super) enum SizeBound<'v> {
    /// The result is one of these input values.
    Input(Rc<InputValues<'v>>),
    /// The result is a new value of at most `size`, with at most `items` items, each of at most the size `item`.
    Computed { size: u64, items: u64, item: u64 },
    /// The result is a number, a boolean or null.
    #[default]
    Scalar,
    /// The result is a whole number of at most this.
    Whole(u64),
}

/// Values of the input, whose size is computed once.
#[derive(Debug)]
pub(super) struct InputValues<'v> {
    values: Vec<&'v Value>,
    size: OnceCell<u64>,
}

impl<'v> SizeBound<'v> {
    pub(super) fn input(values: Vec<&'v Value>) -> Self {
        Self::Input(Rc::new(InputValues { values, size: OnceCell::new() }))
    }

    /// The bound of a value of which only the size is known.
    pub(super) fn of_size(size: u64) -> Self {
        Self::Computed { size, items: size, item: size }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Input(input) => *input
                .size
                .get_or_init(|| input.values.iter().map(|value| size(value)).max().unwrap_or(1)),
            Self::Computed { size, .. } => *size,
            Self::Scalar | Self::Whole(_) => 1,
        }
    }

    /// Whether the result is a number, a boolean or null.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Input(input) => input
                .values
                .iter()
                .all(|value| !(value.is_string() || value.is_array() || value.is_object())),
            Self::Computed { .. } => false,
            Self::Scalar | Self::Whole(_) => true,
        }
    }

    /// The maximum number of items.
    pub(super) fn items(&self) -> u64 {
        match self {
            Self::Input(input) => {
                let counts = input.values.iter().map(|value| match value {
                    Value::Array(items) => items.len() as u64,
                    Value::Object(fields) => fields.len() as u64,
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
                });
                counts.max().unwrap_or(0)
            }
            Self::Computed { items, .. } => *items,
            Self::Scalar | Self::Whole(_) => 0,
        }
    }

    /// The most characters, items or entries.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Input(input) => {
                let counts = input.values.iter().map(|value| match value {
                    Value::String(text) => text.len() as u64,
                    Value::Array(_) | Value::Object(_) => self.items(),
                    Value::Null | Value::Bool(_) | Value::Number(_) => 0,
                });
                counts.max().unwrap_or(0)
            }
            Self::Computed { size, items, .. } => size.saturating_mul(STEP_BYTES).max(*items),
            Self::Scalar | Self::Whole(_) => 0,
        }
    }

    /// The most that it is, as a whole number.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Input(input) => {
                let numbers = input.values.iter().copied().map(whole_number);
                numbers.max().unwrap_or(0)
            }
            Self::Whole(most) => *most,
            Self::Computed { .. } | Self::Scalar => u64::MAX,
        }
    }

    /// The bound of a part of the result. `select` returns the candidates among the parts of one input value.
    pub(super) fn part(&self, select: impl Fn(&'v Value) -> Vec<&'v Value>) -> Self {
        match self {
            Self::Input(input) => {
                Self::input(input.values.iter().flat_map(|value| select(value)).collect())
            }
            Self::Computed { item, .. } => Self::of_size(*item),
            Self::Scalar | Self::Whole(_) => Self::Scalar,
        }
    }

    /// The maximum size of an item.
    pub(super) fn item_size(&self) -> u64 {
        match self {
            Self::Input(_) => self.item().size(),
            Self::Computed { item, .. } => *item,
            Self::Scalar | Self::Whole(_) => 1,
        }
    }

    /// The bound of the field `name`.
    pub(super) fn field(&self, name: &str) -> Self {
        self.part(|value| value.get(name).into_iter().collect())
    }

    /// The bound of any item of a list, or of any value of a map.
    pub(super) fn item(&self) -> Self {
        self.part(|value| match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        })
    }

    /// The bound of the iteration variable of a macro: an item of a list, or a key of a map.
    pub(super) fn iteration_variable(&self) -> Self {
        let Self::Input(input) = self else { return self.item() };
        let keys =
            input.values.iter().filter_map(|value| value.as_object()).flat_map(|map| map.keys());
        let longest_key = keys.map(|key| text_size(key.len())).max();
        match longest_key {
            None => self.item(),
            Some(longest) => Self::of_size(longest.max(self.item().size())),
        }
    }
}

/// A number that is not negative, rounded down. A whole one may be spelled as a decimal, such as `3.0`.
fn whole_number(value: &Value) -> u64 {
    let decimal = || value.as_f64().map_or(0, |number| number as u64);
    value.as_u64().unwrap_or_else(decimal)
}
