//! Templates: JSON whose texts may contain `${ expression }`.
//!
//! Expressions are in CEL (<https://cel.dev>). They can read:
//!
//! | name | value |
//! | --- | --- |
//! | `input` | the input of the task |
//! | `steps.<name>.output` | the output of an earlier step |
//! | `task` | `task.id`, `task.workflow` and `task.submitted_at` |
//! | `item`, `item_index` | the current item of `for_each`, and its place from 0 |
//! | `callback` | `callback.token` of a step with a callback |
//! | `event` | the event, in a trigger |
//! | `response` | the response of the remote service, in the `output` of a step |
//! | `vars`, `env` | the [named values](super::named_values) of the definition |
//!
//! A text that consists of one expression has the type of the expression's value. In a longer text the value becomes text.
//! `$${` is an escaped `${`.
//!
//! A template is parsed when it is deserialised. It keeps its errors with their paths, so that the check of a definition
//! can report all of them. The rendering of an invalid template fails. Rendering uses no clock, no randomness and no I/O.
//! Errors contain keys and types, but no values, so that payloads do not reach the logs.

mod node;
mod parser;
mod path;
mod renderer;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use self::{node::Node, parser::Parser, renderer::Renderer};
use crate::{
    expression::{
        named_values::NamedValues,
        parse::{ENV, VARS},
        scope::{EvaluationError, FIELDS, InvalidTemplate, KnownFields, RequiredValues, Scope},
        uses::{PathKey, ValueKind, ValueUse},
    },
    limits,
};

/// JSON with expressions. It is parsed once and rendered for each request.
#[derive(Debug, Clone)]
pub struct Template {
    source: Value,
    root: Result<Node, Vec<(String, InvalidTemplate)>>,
    reads: RequiredValues,
    reads_by_path: Vec<(String, RequiredValues)>,
}

impl Template {
    /// Parses a template. Its errors are in [`problems`](Self::problems).
    #[must_use]
    pub fn parse(source: Value) -> Self {
        Self::parse_in(source, None)
    }

    /// The same for a template of a definition with named values.
    #[must_use]
    pub fn parse_with(source: Value, named: &NamedValues) -> Self {
        Self::parse_in(source, Some(named))
    }

    /// Parses the template again if it reads a named value, or could not be parsed without them.
    pub fn resolve(&mut self, named: &NamedValues) {
        let reads = |root: &&str| self.reads.names.contains(root);
        if self.root.is_err() || [VARS, ENV].iter().any(reads) {
            *self = Self::parse_with(std::mem::take(&mut self.source), named);
        }
    }

    fn parse_in(source: Value, named: Option<&NamedValues>) -> Self {
        let mut parser = Parser { named, ..Parser::default() };
        let root = match limits::nests_too_deep(&source) {
            true => {
                parser.errors.push((String::new(), InvalidTemplate::TooDeep));
                None
            }
            false => parser.node(&source, ""),
        };
        let Parser { reads_by_path, errors, .. } = parser;
        let root = root.filter(|_| errors.is_empty()).ok_or(errors);
        let mut reads = RequiredValues::default();
        for (_, of_text) in &reads_by_path {
            reads.add(of_text);
        }
        Self { source, root, reads, reads_by_path }
    }

    /// All errors of the template. Each has its path in the template, such as `.body.amount`. The path of the root is
    /// empty.
    #[must_use]
    pub fn problems(&self) -> &[(String, InvalidTemplate)] {
        self.root.as_ref().err().map_or(&[], Vec::as_slice)
    }

    /// Whether it is a text that consists of one expression.
    #[must_use]
    pub fn is_expression(&self) -> bool {
        matches!(self.root, Ok(Node::Expression(_)))
    }

    /// The expression as written, if it is a text that consists of one.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match &self.root {
            Ok(Node::Expression(expression)) => Some(expression.source()),
            Ok(Node::Literal(_) | Node::Text(_) | Node::Array(_) | Node::Object(_)) | Err(_) => {
                None
            }
        }
    }

    /// The value, if it is a text without expressions, a number, a boolean or null.
    #[must_use]
    pub fn as_literal(&self) -> Option<&Value> {
        match &self.root {
            Ok(Node::Literal(value)) => Some(value),
            Ok(Node::Expression(_) | Node::Text(_) | Node::Array(_) | Node::Object(_)) | Err(_) => {
                None
            }
        }
    }

    /// Why it cannot be the path of a request, as far as that is known before it is rendered.
    #[must_use]
    pub(crate) fn path_problem(&self) -> Option<String> {
        self.root.as_ref().ok().and_then(path::problem)
    }

    /// The values that must be loaded before the template is rendered.
    #[must_use]
    pub fn required_values(&self) -> &RequiredValues {
        &self.reads
    }

    /// Whether it reads whether a step failed.
    #[must_use]
    pub fn reads_failures(&self) -> bool {
        !self.reads.failed.is_empty()
    }

    /// The values that each text of the template reads. Each text has its path in the template, such as `.body.amount`.
    /// The path of the root is empty.
    pub(crate) fn required_values_by_location(&self) -> &[(String, RequiredValues)] {
        &self.reads_by_path
    }

    /// The paths and kinds of the values that its expressions read. If it is one expression, its result must have this
    /// kind.
    #[must_use]
    pub fn value_uses(&self, kind: ValueKind) -> Vec<ValueUse> {
        self.root.as_ref().map_or_else(|_| Vec::new(), |root| root.uses(kind))
    }

    /// The fields that it reads of a name, and that are not among the [fields](FIELDS) of that name. Each follows the path of its
    /// text, and the name with its fields.
    pub(crate) fn unknown_fields(&self) -> Vec<(String, KnownFields, String)> {
        let mut unknown = Vec::new();
        let mut visit = |path: &str, used: ValueUse| {
            if let [PathKey::Field(root), PathKey::Field(field), ..] = used.path.as_slice()
                && let Some(of) = FIELDS.into_iter().find(|(name, _)| name == root)
                && !of.1.contains(&field.as_str())
            {
                unknown.push((path.to_owned(), of, field.clone()));
            }
        };
        if let Ok(root) = &self.root {
            root.visit_uses("", &mut visit);
        }
        unknown
    }

    /// The template as it was written.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Replaces each expression by its value in `scope`.
    ///
    /// # Errors
    /// The error of the first expression that cannot be evaluated, or the first error of an invalid template.
    pub fn render(&self, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        Renderer::new(scope).node(self.root()?)
    }

    fn root(&self) -> Result<&Node, EvaluationError> {
        self.root.as_ref().map_err(|errors| {
            let reason = errors.first().map_or_else(String::new, |(_, error)| error.to_string());
            EvaluationError { expression: String::new(), reason, is_absent: false }
        })
    }

    /// Renders the path of a request. A value inside a longer text is percent-encoded. So it is always one segment of the
    /// path or one value of the query, and no input can change the structure of the path.
    ///
    /// # Errors
    /// The reason why the result is not a valid path, for people.
    pub fn render_path(&self, scope: Scope<'_>) -> Result<String, String> {
        let root = self.root().map_err(|error| error.to_string())?;
        path::render(root, scope)
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::parse)
    }
}

impl schemars::JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Any JSON. Texts may contain CEL expressions in `${ }`",
        })
    }
}
