//! Renders parsed templates.

use serde_json::Value;

use super::node::{Node, TextSegment};
use crate::expression::{
    compiled::{Expression, RenderBudget},
    scope::{EvaluationError, Scope},
};

/// Replaces the expressions of a template by their values.
pub(super) struct Renderer<'a> {
    scope: Scope<'a>,
    /// All expressions of one template share this budget.
    budget: RenderBudget,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(scope: Scope<'a>) -> Self {
        Self { scope, budget: RenderBudget::default() }
    }

    /// Renders a node.
    ///
    /// # Errors
    /// The error of the first expression that cannot be evaluated.
    pub(super) fn node(&mut self, node: &Node) -> Result<Value, EvaluationError> {
        Ok(match node {
            Node::Literal(value) => value.clone(),
            Node::Expression(expression) => self.value(expression)?,
            Node::Text(segments) => Value::String(self.text(segments)?),
            Node::Array(items) => {
                Value::Array(items.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?)
            }
            Node::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.node(value)?)))
                    .collect::<Result<_, _>>()?,
            ),
        })
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    /// It cannot be evaluated.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<Value, EvaluationError> {
        expression.evaluate(self.scope, &mut self.budget)
    }

    fn text(&mut self, segments: &[TextSegment]) -> Result<String, EvaluationError> {
        let mut text = String::new();
        for segment in segments {
            match segment {
                TextSegment::Literal(literal) => text.push_str(literal),
                TextSegment::Expression(expression) => {
                    text.push_str(&plain(self.value(expression)?))
                }
            }
        }
        Ok(text)
    }
}

/// The text of a value in a longer text.
pub(super) fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
