//! Parses templates.

use serde_json::Value;

use super::node::{Node, TextSegment};
use crate::{
    expression::{
        compiled,
        named_values::NamedValues,
        scope::{InvalidTemplate, RequiredValues},
    },
    limits,
};

/// Parses the texts of a template. Collects what they read and which errors they have, each with the path of the text in
/// the template, such as `.body.amount`.
#[derive(Default)]
pub(super) struct Parser<'n> {
    /// The named values of the definition, if it was read.
    pub(super) named: Option<&'n NamedValues>,
    pub(super) reads_by_path: Vec<(String, RequiredValues)>,
    pub(super) errors: Vec<(String, InvalidTemplate)>,
}

impl Parser<'_> {
    /// Parses `source`, which has this path in the template. Returns `None` if it has errors, or if more errors are known than
    /// a check reports.
    pub(super) fn node(&mut self, source: &Value, path: &str) -> Option<Node> {
        if self.errors.len() > limits::PROBLEMS_MAX {
            return None;
        }
        Some(match source {
            Value::String(text) => {
                let mut reads = RequiredValues::default();
                let parsed = parse_text(text, self.named, &mut reads);
                if reads != RequiredValues::default() {
                    self.reads_by_path.push((path.to_owned(), reads));
                }
                match parsed {
                    Ok(node) => node,
                    Err(error) => {
                        self.errors.push((path.to_owned(), error));
                        return None;
                    }
                }
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let nodes: Vec<_> =
                    items.map(|(n, item)| self.node(item, &format!("{path}.{n}"))).collect();
                Node::Array(nodes.into_iter().collect::<Option<_>>()?)
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                let nodes: Vec<_> = fields
                    .map(|(key, value)| {
                        Some((key.clone(), self.node(value, &format!("{path}.{key}"))?))
                    })
                    .collect();
                Node::Object(nodes.into_iter().collect::<Option<_>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Node::Literal(source.clone()),
        })
    }
}

/// Parses a text, and adds the values that its expressions read to `reads`.
fn parse_text(
    text: &str,
    named: Option<&NamedValues>,
    reads: &mut RequiredValues,
) -> Result<Node, InvalidTemplate> {
    let mut segments = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (rest.get(..at).unwrap_or(""), rest.get(at + 2..).unwrap_or(""));
        if let Some(before) = before.strip_suffix('$') {
            literal.push_str(before);
            literal.push_str("${");
            rest = after;
            continue;
        }
        literal.push_str(before);
        let end =
            end_of_expression(after).ok_or_else(|| InvalidTemplate::Unclosed(text.to_owned()))?;
        if !literal.is_empty() {
            segments.push(TextSegment::Literal(std::mem::take(&mut literal)));
        }
        let expression = compiled::parse(after.get(..end).unwrap_or("").trim(), named, reads)?;
        segments.push(TextSegment::Expression(expression));
        rest = after.get(end + 1..).unwrap_or("");
    }
    literal.push_str(rest);
    if segments.is_empty() {
        return Ok(Node::Literal(Value::String(literal)));
    }
    if !literal.is_empty() {
        segments.push(TextSegment::Literal(literal));
    }
    if let [TextSegment::Expression(_)] = segments.as_slice()
        && let Some(TextSegment::Expression(expression)) = segments.pop()
    {
        return Ok(Node::Expression(expression));
    }
    Ok(Node::Text(segments))
}

/// The position of the `}` that closes an expression. Skips string literals and map literals in the expression.
fn end_of_expression(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return Some(at),
            (None, '}') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}
