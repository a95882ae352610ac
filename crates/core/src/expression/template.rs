//! Templates: JSON in which a text may hold `${ expression }`.
//!
//! Expressions are CEL (<https://cel.dev>), over `input` (what was submitted),
//! `steps.<name>.output` (what a step before this one returned), `task` (`task.id`, `task.workflow`),
//! and, where there is one, `item` (of `for_each`), `callback` (`callback.token`) and `event` (of a
//! trigger). A text that is one expression keeps the value's type; inside a longer text the value
//! becomes text. `$${` is a plain `${`.
//!
//! A template is parsed when it is read. What is wrong with it is kept, each with its place, so that
//! a check of the definition can say all of it; rendering it fails. It is rendered without a clock,
//! randomness or I/O. Errors name keys and types, never values: payloads do not reach a log.

use crate::expression::scope::EvaluationError;
use crate::expression::scope::InvalidTemplate;
use crate::expression::scope::Reads;
use crate::expression::scope::Scope;
use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    expression::{
        compiled,
        compiled::{Budget, Expression},
        uses::{Kind, Use},
    },
    limits,
};

/// JSON with expressions in it; parsed once, rendered for each request.
#[derive(Debug, Clone)]
pub struct Template {
    source: Value,
    root: Result<Node, Vec<(String, InvalidTemplate)>>,
    reads: Reads,
    places: Vec<(String, Reads)>,
}

impl Reads {
    /// Whether it reads `input`.
    #[must_use]
    pub fn input(&self) -> bool {
        self.names.contains("input")
    }
}

#[derive(Debug, Clone)]
enum Node {
    Literal(Value),
    Whole(Expression),
    Text(Vec<Part>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    fn uses(&self, kind: Kind) -> Vec<Use> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Whole(expression) => expression.uses(kind),
            Self::Text(parts) => parts.iter().flat_map(Part::uses).collect(),
            Self::Array(items) => items.iter().flat_map(|item| item.uses(Kind::Any)).collect(),
            Self::Object(fields) => {
                fields.iter().flat_map(|(_, value)| value.uses(Kind::Any)).collect()
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Value(Expression),
}

impl Part {
    fn uses(&self) -> Vec<Use> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Value(expression) => expression.uses(Kind::Any),
        }
    }
}

impl Template {
    /// Parses `source`; what is wrong with it is in [`problems`](Self::problems).
    #[must_use]
    pub fn parse(source: Value) -> Self {
        let mut parser = Parser::default();
        let root = match limits::too_deep(&source) {
            true => {
                parser.problems.push((String::new(), InvalidTemplate::TooDeep));
                None
            }
            false => parser.node(&source, ""),
        };
        let Parser { places, problems } = parser;
        let root = root.filter(|_| problems.is_empty()).ok_or(problems);
        let mut reads = Reads::default();
        for (_, here) in &places {
            reads.names.extend(&here.names);
            reads.steps.extend(here.steps.iter().cloned());
        }
        Self { source, root, reads, places }
    }

    /// Everything that is wrong with it: where in it, as `.body.amount` or nothing, and what.
    #[must_use]
    pub fn problems(&self) -> &[(String, InvalidTemplate)] {
        self.root.as_ref().err().map_or(&[], Vec::as_slice)
    }

    /// Whether it is one expression and nothing else.
    #[must_use]
    pub fn is_expression(&self) -> bool {
        matches!(self.root, Ok(Node::Whole(_)))
    }

    /// The text, if there is no expression in it.
    #[must_use]
    pub fn as_literal(&self) -> Option<&Value> {
        match &self.root {
            Ok(Node::Literal(value)) => Some(value),
            Ok(Node::Whole(_) | Node::Text(_) | Node::Array(_) | Node::Object(_)) | Err(_) => None,
        }
    }

    /// What is wrong with it as the path of a request, as far as that is known before it is rendered.
    #[must_use]
    pub(crate) fn path_problem(&self) -> Option<&'static str> {
        let Some(text) = self.source.as_str() else { return Some("must be a text") };
        if !text.starts_with('/') && !text.starts_with("${") {
            return Some("must start with `/`");
        }
        let plain = self.as_literal()?.as_str()?;
        has_dot_segment(plain).then_some("must not have a `.` or `..` segment")
    }

    /// What must be at hand to render this template.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The same for each of its texts: where in it, as `.body.amount` or nothing, and what.
    pub(crate) fn reads_by_place(&self) -> &[(String, Reads)] {
        &self.places
    }

    /// The values that its expressions read. If it is one expression, its value must be of this kind.
    #[must_use]
    pub fn uses(&self, kind: Kind) -> Vec<Use> {
        self.root.as_ref().map_or_else(|_| Vec::new(), |root| root.uses(kind))
    }

    /// The template as it was written.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Replaces each expression by its value in `scope`.
    ///
    /// # Errors
    /// The first expression that has no value there.
    pub fn render(&self, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        Renderer { scope, embed: str::to_owned, budget: Budget::default() }.node(self.root()?)
    }

    fn root(&self) -> Result<&Node, EvaluationError> {
        self.root.as_ref().map_err(|problems| {
            let reason = problems.first().map_or_else(String::new, |(_, error)| error.to_string());
            EvaluationError { expression: String::new(), reason }
        })
    }

    /// Renders the path of a request. A value inside a longer text is one segment or one value of
    /// the query: it is percent-encoded, so that no input reaches another path than the one written.
    ///
    /// # Errors
    /// Why there is no path, as a text for people.
    pub fn render_path(&self, scope: Scope<'_>) -> Result<String, String> {
        let encode = |value: &str| utf8_percent_encode(value, SEGMENT).to_string();
        let root = self.root().map_err(|error| error.to_string())?;
        let mut renderer = Renderer { scope, embed: encode, budget: Budget::default() };
        let rendered = renderer.node(root).map_err(|error| error.to_string())?;
        match rendered {
            Value::String(path) if !path.starts_with('/') => {
                Err("the request's path does not start with `/`".to_owned())
            }
            Value::String(path) if has_dot_segment(&path) => {
                Err("the request's path has a `.` or `..` segment".to_owned())
            }
            Value::String(path) => Ok(path),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err("the request's path is not a text".to_owned()),
        }
    }
}

/// What is left alone in a segment: RFC 3986's unreserved characters.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether an HTTP client would take a segment for "here" or "up", however it is written
/// (<https://url.spec.whatwg.org/#double-dot-path-segment>).
fn has_dot_segment(path: &str) -> bool {
    let before_query = path.split(['?', '#']).next().unwrap_or_default();
    before_query.split(['/', '\\']).any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    })
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
            "description": "Any JSON; texts may hold CEL expressions as `${ }`",
        })
    }
}

/// Collects what is read and what is wrong on the way.
#[derive(Default)]
struct Parser {
    places: Vec<(String, Reads)>,
    problems: Vec<(String, InvalidTemplate)>,
}

impl Parser {
    /// Nothing if something in it is wrong.
    fn node(&mut self, source: &Value, at: &str) -> Option<Node> {
        Some(match source {
            Value::String(text) => {
                let mut reads = Reads::default();
                let parsed = parse_text(text, &mut reads);
                if reads != Reads::default() {
                    self.places.push((at.to_owned(), reads));
                }
                match parsed {
                    Ok(node) => node,
                    Err(problem) => {
                        self.problems.push((at.to_owned(), problem));
                        return None;
                    }
                }
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let nodes: Vec<_> =
                    items.map(|(n, item)| self.node(item, &format!("{at}.{n}"))).collect();
                Node::Array(nodes.into_iter().collect::<Option<_>>()?)
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                let nodes: Vec<_> = fields
                    .map(|(key, value)| {
                        Some((key.clone(), self.node(value, &format!("{at}.{key}"))?))
                    })
                    .collect();
                Node::Object(nodes.into_iter().collect::<Option<_>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Node::Literal(source.clone()),
        })
    }
}

fn parse_text(text: &str, reads: &mut Reads) -> Result<Node, InvalidTemplate> {
    let mut parts = Vec::new();
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
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Value(compiled::parse(after.get(..end).unwrap_or("").trim(), reads)?));
        rest = after.get(end + 1..).unwrap_or("");
    }
    literal.push_str(rest);
    if parts.is_empty() {
        return Ok(Node::Literal(Value::String(literal)));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    if let [Part::Value(_)] = parts.as_slice()
        && let Some(Part::Value(expression)) = parts.pop()
    {
        return Ok(Node::Whole(expression));
    }
    Ok(Node::Text(parts))
}

/// Where the `}` is that closes an expression, skipping those in texts and in map literals.
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

struct Renderer<'a> {
    scope: Scope<'a>,
    /// How a value becomes part of a longer text.
    embed: fn(&str) -> String,
    budget: Budget,
}

impl Renderer<'_> {
    fn node(&mut self, node: &Node) -> Result<Value, EvaluationError> {
        Ok(match node {
            Node::Literal(value) => value.clone(),
            Node::Whole(expression) => expression.evaluate(self.scope, &mut self.budget)?,
            Node::Text(parts) => Value::String(self.text(parts)?),
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

    fn text(&mut self, parts: &[Part]) -> Result<String, EvaluationError> {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Value(expression) => {
                    let value = expression.evaluate(self.scope, &mut self.budget)?;
                    let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    text.push_str(&(self.embed)(&plain));
                }
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::{BTreeMap, BTreeSet};

    fn render(template: Value) -> Result<Value, String> {
        let charge = json!({ "id": "ch-1" });
        let outputs = BTreeMap::from([("charge".parse().unwrap(), Cow::Borrowed(&charge))]);
        let input =
            json!({ "amount": 20, "to": { "z": 1, "a": 2 }, "name": "Ada", "items": [1, 2] });
        let scope = Scope {
            input: Some(&input),
            outputs: Some(&outputs),
            task: Some(("order-1", "order")),
            ..Scope::default()
        };
        let template = Template::parse(template);
        if let Some((_, problem)) = template.problems().first() {
            return Err(problem.to_string());
        }
        template.render(scope).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_expression_keeps_its_type_and_an_embedded_one_becomes_text() {
        assert_eq!(render(json!("${ input.amount }")), Ok(json!(20)));
        assert_eq!(render(json!("${ input.amount * 2 }")), Ok(json!(40)));
        assert_eq!(
            render(json!("for ${ input.name }: ${ input.items }")),
            Ok(json!("for Ada: [1,2]"))
        );
        assert_eq!(
            render(json!("/charges/${ steps.charge.output.id }")),
            Ok(json!("/charges/ch-1"))
        );
        assert_eq!(
            render(json!({ "order": "${ task.id }", "rest": [true, null, "${input.to}"] })),
            Ok(json!({ "order": "order-1", "rest": [true, null, { "z": 1, "a": 2 }] }))
        );
        assert_eq!(render(json!("${ input.items.map(i, i + 1) }")), Ok(json!([2, 3])));
        assert_eq!(
            render(json!("${ {'a}': steps.charge.output.id} }")),
            Ok(json!({ "a}": "ch-1" }))
        );
        assert_eq!(render(json!("costs $${ and ${ 'x' }")), Ok(json!("costs ${ and x")));
    }

    #[test]
    fn a_value_in_a_path_stays_in_its_place() {
        let input = json!({ "id": "../../admin?all=1#x", "n": 7, "up": "..", "whole": "/a/b?c=d", "no": "x" });
        let scope = Scope { input: Some(&input), ..Scope::default() };
        let path = |text: &str| Template::parse(json!(text)).render_path(scope);
        assert_eq!(
            path("/orders/${ input.id }/items?n=${ input.n }"),
            Ok("/orders/..%2F..%2Fadmin%3Fall%3D1%23x/items?n=7".to_owned())
        );
        assert_eq!(path("${ input.whole }"), Ok("/a/b?c=d".to_owned()));
        let dots = "the request's path has a `.` or `..` segment";
        for climbing in ["/orders/${ input.up }/x", "/a/%2E%2e/b", "/a\\..\\b"] {
            assert_eq!(path(climbing), Err(dots.to_owned()));
        }
        assert_eq!(path("/a?back=.."), Ok("/a?back=..".to_owned()));
        assert_eq!(
            path("${ input.no }"),
            Err("the request's path does not start with `/`".to_owned())
        );
        assert_eq!(path("${ input.n }"), Err("the request's path is not a text".to_owned()));
    }

    #[test]
    fn rendering_is_deterministic() {
        let first = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
        for _ in 0..20 {
            let again = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
            assert_eq!(first, again);
        }
    }

    #[test]
    fn what_it_reads_is_known_before_it_runs() {
        let template =
            Template::parse(json!({ "a": "${ steps.charge.output.id }", "b": ["${ input.x }"] }));
        let steps = BTreeSet::from(["charge".parse().unwrap()]);
        assert_eq!(template.reads(), &Reads { names: BTreeSet::from(["input"]), steps });
        let plain = Template::parse(json!({ "a": "${ task.id }", "b": 1 }));
        assert!(!plain.reads().input() && plain.reads().steps.is_empty());
        let nested = Template::parse(json!("${ [1].map(i, steps.charge.output.n + i) }"));
        assert_eq!(nested.reads().steps.len(), 1);
    }

    #[test]
    fn a_broken_template_is_refused_with_the_reason() {
        for (template, reason) in [
            (json!("${ input.x"), "`${ input.x`: `${` is never closed"),
            (json!("${ inptu.x }"), "expression `inptu.x`: unknown name `inptu`"),
            (
                json!("${ steps.charge }"),
                "expression `steps.charge`: of `steps`, there is only `steps.<name>.output`",
            ),
            (
                json!("${ steps['charge'].output }"),
                "expression `steps['charge'].output`: of `steps`, there is only `steps.<name>.output`",
            ),
        ] {
            assert_eq!(render(template), Err(reason.to_owned()));
        }
        assert!(render(json!("${ 1 + }")).unwrap_err().starts_with("expression `1 +`: "));
        assert!(
            render(json!(format!("${{ {} }}", "1+".repeat(600))))
                .unwrap_err()
                .contains("the limit is")
        );
    }

    #[test]
    fn a_failing_expression_names_types_and_keys_but_no_values() {
        for (template, reason) in [
            (json!("${ input.missing }"), "expression `input.missing`: there is no `missing`"),
            (
                json!("${ steps.other.output.x }"),
                "expression `steps.other.output.x`: there is no `other`",
            ),
            (
                json!("${ input.name + 1 }"),
                "expression `input.name + 1`: `add` is not for string and int",
            ),
        ] {
            let error = render(template).unwrap_err();
            assert_eq!(error, reason);
            assert!(!error.contains("Ada"));
        }
    }
}
