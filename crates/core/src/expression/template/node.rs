//! The parsed form of a template.

use serde_json::Value;

use crate::expression::{
    compiled::Expression,
    uses::{ValueKind, ValueUse},
};

/// A part of a template.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// JSON without expressions.
    Literal(Value),
    /// A text that consists of one expression. It keeps the type of the expression's value.
    Expression(Expression),
    /// A text with expressions in it.
    Text(Vec<TextSegment>),
    /// A list.
    Array(Vec<Node>),
    /// An object.
    Object(Vec<(String, Node)>),
}

/// A part of a text.
#[derive(Debug, Clone)]
pub(super) enum TextSegment {
    /// Plain text.
    Literal(String),
    /// An expression whose value becomes text.
    Expression(Expression),
}

impl Node {
    /// Returns the values that its expressions read. If it is one expression, its result must have this kind.
    pub(super) fn uses(&self, kind: ValueKind) -> Vec<ValueUse> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Expression(expression) => expression.uses(kind),
            Self::Text(segments) => segments.iter().flat_map(TextSegment::uses).collect(),
            Self::Array(items) => items.iter().flat_map(|item| item.uses(ValueKind::Any)).collect(),
            Self::Object(fields) => {
                fields.iter().flat_map(|(_, value)| value.uses(ValueKind::Any)).collect()
            }
        }
    }

    /// Visits the values that the expressions of each text read, with the path of the text in the template.
    pub(super) fn visit_uses(&self, path: &str, visit: &mut impl FnMut(&str, ValueUse)) {
        match self {
            Self::Literal(_) => {}
            Self::Expression(_) | Self::Text(_) => {
                self.uses(ValueKind::Any).into_iter().for_each(|used| visit(path, used));
            }
            Self::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(n, item)| item.visit_uses(&format!("{path}.{n}"), visit));
            }
            Self::Object(fields) => {
                let fields = fields.iter();
                fields.for_each(|(key, value)| value.visit_uses(&format!("{path}.{key}"), visit));
            }
        }
    }
}

impl TextSegment {
    fn uses(&self) -> Vec<ValueUse> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Expression(expression) => expression.uses(ValueKind::Any),
        }
    }
}
