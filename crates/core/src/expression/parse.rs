//! The syntax of one expression: its tree, within limits of its length and nesting, and the names that it may begin with.

use std::sync::{Arc, LazyLock};

use cel::{Env, IdedExpr};

use crate::{
    expression::{functions, numbers, scope::InvalidTemplate},
    limits,
};

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    numbers::declare(&mut environment);
    functions::declare(&mut environment);
    Arc::new(environment)
});

/// The functions and types of expressions.
pub(super) fn environment() -> Arc<Env> {
    ENVIRONMENT.clone()
}

/// `vars` in expressions.
pub(super) const VARS: &str = "vars";
/// `env` in expressions.
pub(super) const ENV: &str = "env";

/// The names that an expression can begin with, except `steps`.
pub(super) const ROOTS: [&str; 11] = [
    "input",
    "task",
    "step",
    "item",
    "item_index",
    "request",
    "callback",
    "event",
    "response",
    VARS,
    ENV,
];

/// Whether this is the name of a value that expressions read.
pub(super) fn is_root(name: &str) -> bool {
    name == "steps" || ROOTS.contains(&name)
}

/// Runs `work` with enough stack. The parser and the interpreter recurse for each bracket and each operator. In a debug
/// build their stack frames have tens of kilobytes, which may exceed the stack of a thread.
pub(super) fn with_large_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(limits::EXPRESSION_STACK_BYTES, limits::EXPRESSION_STACK_BYTES, work)
}

/// Parses an expression into its tree, as it is written.
///
/// # Errors
/// The expression is too long, nests too deep, or is not valid CEL.
pub(super) fn parse_tree(source: &str) -> Result<IdedExpr, InvalidTemplate> {
    let length = source.chars().count();
    if length > limits::EXPRESSION_CHARS_MAX {
        return Err(InvalidTemplate::TooLong(length));
    }
    let depth = nesting(source);
    if depth > limits::EXPRESSION_DEPTH_MAX {
        return Err(InvalidTemplate::TooNested(depth));
    }
    parse_literal(source)
}

/// The same without limits, for a text that Steward has written.
///
/// # Errors
/// It is not valid CEL.
pub(super) fn parse_literal(source: &str) -> Result<IdedExpr, InvalidTemplate> {
    let parsed = with_large_stack(|| ENVIRONMENT.compile(source));
    let parsed = parsed.map_err(|errors| InvalidTemplate::Syntax {
        expression: source.to_owned(),
        reason: errors.errors.first().map_or_else(String::new, |error| syntax_error(&error.msg)),
    })?;
    Ok(parsed.expression().clone())
}

/// How deep the brackets outside of string literals nest.
fn nesting(source: &str) -> usize {
    let (mut depth, mut deepest, mut quote, mut escaped) = (0_usize, 0, None, false);
    for c in source.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Removes the list of all expected tokens from the parser's message.
fn syntax_error(message: &str) -> String {
    message.split(" expecting {").next().unwrap_or_default().to_owned()
}
