//! The path of a request: checks it before it is rendered, and renders it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{
    node::{Node, TextSegment},
    renderer::{Renderer, plain},
};
use crate::{
    expression::{
        compiled::Expression,
        scope::{EvaluationError, Scope},
    },
    model::request_path::{check, is_dot_segment},
};

/// The characters that are encoded in a segment: all except the unreserved characters of RFC 3986.
const ENCODED_IN_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

// As short as these are, what people see of an error has the cure too.
const EMPTY_SEGMENT: &str =
    "empty path segment; require a value (`minLength: 1`) or skip the step with `when`";
const DOT_SEGMENT: &str =
    "`.` or `..` as a path segment; send such a value in the query or in the body";

const BARE_PERCENT: &str = "must not have a `%` without two hex digits after it; write `%25`";

/// What stands for a value in a check of the path: it changes nothing, and is no hex digit.
const PLACEHOLDER: &str = "x";

/// Why a template cannot be the path of a request, as far as that is known before it is rendered.
pub(super) fn problem(template: &Node) -> Option<String> {
    let path = match template {
        Node::Literal(Value::String(path)) => path.clone(),
        Node::Text(segments) => segments.iter().map(with_placeholder).collect(),
        Node::Expression(_) => return None,
        Node::Literal(_) | Node::Array(_) | Node::Object(_) => {
            return Some("must be a text".to_owned());
        }
    };
    if let Err(problem) = check(&path) {
        return Some(problem.to_string());
    }
    has_bare_percent(&path).then(|| BARE_PERCENT.to_owned())
}

/// The text of a segment, or the placeholder of a value.
fn with_placeholder(segment: &TextSegment) -> &str {
    match segment {
        TextSegment::Literal(text) => text,
        TextSegment::Expression(_) => PLACEHOLDER,
    }
}

/// Whether a `%` does not begin an escape. In front of an expression, the first characters of the value would complete it.
fn has_bare_percent(path: &str) -> bool {
    let is_escape = |rest: &str| matches!(rest.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    path.split('%').skip(1).any(|rest| !is_escape(rest))
}

/// Renders the path of a request.
///
/// # Errors
/// The reason why the result is not a valid path, for people.
pub(super) fn render(template: &Node, scope: Scope<'_>) -> Result<String, String> {
    let mut renderer = Renderer::new(scope);
    let path = match template {
        Node::Text(segments) => render_segments(segments, &mut renderer).map(Value::String),
        Node::Literal(_) | Node::Expression(_) | Node::Array(_) | Node::Object(_) => {
            renderer.node(template)
        }
    };
    let Value::String(path) = path.map_err(|error| error.to_string())? else {
        return Err("the request's path is not a text".to_owned());
    };
    check(&path).map_err(|problem| format!("the request's path {problem}"))?;
    Ok(path)
}

fn render_segments(
    segments: &[TextSegment],
    renderer: &mut Renderer<'_>,
) -> Result<String, EvaluationError> {
    let mut path = PathWriter::default();
    for segment in segments {
        match segment {
            TextSegment::Literal(text) => path.write(text)?,
            TextSegment::Expression(expression) => {
                path.insert(expression, renderer.value(expression)?)?;
            }
        }
    }
    path.end_segment()?;
    Ok(path.text)
}

/// A path with values, as far as it is rendered.
#[derive(Default)]
struct PathWriter<'a> {
    text: String,
    /// Where the current segment of the path starts.
    segment_start: usize,
    /// The last expression in the current segment of the path.
    expression: Option<&'a Expression>,
    in_query: bool,
}

impl<'a> PathWriter<'a> {
    /// Writes what the author has written.
    fn write(&mut self, literal: &str) -> Result<(), EvaluationError> {
        for c in literal.chars() {
            let ends_segment = !self.in_query && matches!(c, '/' | '?');
            if ends_segment {
                self.end_segment()?;
                self.in_query = c == '?';
            }
            self.text.push(c);
            if ends_segment {
                self.segment_start = self.text.len();
            }
        }
        Ok(())
    }

    /// Writes a value, percent-encoded.
    fn insert(&mut self, expression: &'a Expression, value: Value) -> Result<(), EvaluationError> {
        if !self.in_query {
            if value.is_null() {
                return Err(expression.error(EMPTY_SEGMENT.to_owned()));
            }
            self.expression = Some(expression);
        }
        self.text.extend(utf8_percent_encode(&plain(value), ENCODED_IN_SEGMENT));
        Ok(())
    }

    /// Checks that the values in the current segment name a resource in it.
    fn end_segment(&mut self) -> Result<(), EvaluationError> {
        let Some(expression) = self.expression.take() else { return Ok(()) };
        let reason = match self.text.get(self.segment_start..).unwrap_or_default() {
            "" => EMPTY_SEGMENT,
            segment if is_dot_segment(segment) => DOT_SEGMENT,
            _ => return Ok(()),
        };
        Err(expression.error(reason.to_owned()))
    }
}
