//! Renders parsed templates.

use serde_json::Value;

use super::node::{Node, TextSegment};
use crate::expression::{
    compiled::RenderBudget,
    scope::{EvaluationError, Scope},
};

/// Replaces the expressions of a template by their values.
pub(super) struct Renderer<'a> {
    scope: Scope<'a>,
    /// Converts the text of a value before it becomes part of a longer text.
    encode: fn(&str) -> String,
    /// All expressions of one template share this budget.
    budget: RenderBudget,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(scope: Scope<'a>, encode: fn(&str) -> String) -> Self {
        Self { scope, encode, budget: RenderBudget::default() }
    }

    /// Renders a node.
    ///
    /// # Errors
    /// The error of the first expression that cannot be evaluated.
    pub(super) fn node(&mut self, node: &Node) -> Result<Value, EvaluationError> {
        Ok(match node {
            Node::Literal(value) => value.clone(),
            Node::Expression(expression) => expression.evaluate(self.scope, &mut self.budget)?,
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

    fn text(&mut self, segments: &[TextSegment]) -> Result<String, EvaluationError> {
        let mut text = String::new();
        for segment in segments {
            match segment {
                TextSegment::Literal(literal) => text.push_str(literal),
                TextSegment::Expression(expression) => {
                    let value = expression.evaluate(self.scope, &mut self.budget)?;
                    let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    text.push_str(&(self.encode)(&plain));
                }
            }
        }
        Ok(text)
    }
}
