//! What an expression may read, and what can be wrong with one.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Value, json};

use crate::{hint, limits, model::names::StepName};

/// The names that an expression can begin with.
pub(crate) const NAMES: [&str; 6] = ["input", "steps", "task", "item", "callback", "event"];

/// A template that cannot be what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A `${` has no `}`.
    #[error("`{0}`: `${{` is never closed")]
    Unclosed(String),
    /// The expression is not CEL.
    #[error("expression `{expression}`: {reason}")]
    Syntax {
        /// The expression as written.
        expression: String,
        /// What the parser says.
        reason: String,
    },
    /// The expression is over the limit.
    #[error("an expression of {0} characters; the limit is {max}", max = limits::EXPRESSION_CHARS_MAX)]
    TooLong(usize),
    /// The expression nests too deep.
    #[error("an expression with brackets in each other {0} deep; the limit is {max}", max = limits::EXPRESSION_DEPTH_MAX)]
    TooNested(usize),
    /// The pattern of `matches` is no good.
    #[error("expression `{expression}`: {reason}")]
    Pattern {
        /// The expression as written.
        expression: String,
        /// What is wrong with the pattern.
        reason: String,
    },
    /// The expression names something that does not exist.
    #[error("expression `{expression}`: unknown name `{name}`")]
    UnknownName {
        /// The expression as written.
        expression: String,
        /// The unknown name.
        name: String,
    },
    /// `steps` is used in another form than `steps.<name>.output`.
    #[error("expression `{0}`: of `steps`, there is only `steps.<name>.output`")]
    StepsForm(String),
    /// The template nests too deep.
    #[error("nested deeper than {max} levels", max = limits::JSON_DEPTH_MAX)]
    TooDeep,
}

impl InvalidTemplate {
    /// What would be right, where that can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unclosed(_) => Some("close it with `}`, or write `$${` for a plain `${`".to_owned()),
            Self::UnknownName { name, .. } => {
                Some(hint::similar(name, NAMES).map_or_else(
                    || "there are `input`, `steps`, `task`, and in their places `item`, `callback` and `event`".to_owned(),
                    |meant| format!("did you mean `{meant}`?"),
                ))
            }
            Self::StepsForm(_) => Some("write `steps.charge.output.id`, say".to_owned()),
            Self::Syntax { .. }
            | Self::TooLong(_)
            | Self::TooNested(_)
            | Self::Pattern { .. }
            | Self::TooDeep => None,
        }
    }
}

/// An expression that could not be evaluated over this task's values: a permanent failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expression `{expression}`: {reason}")]
pub struct EvaluationError {
    pub(crate) expression: String,
    pub(crate) reason: String,
}

/// The values that expressions can name. What is absent has no name there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// What was submitted.
    pub input: Option<&'a Value>,
    /// What the steps that completed returned.
    pub outputs: Option<&'a BTreeMap<StepName, Cow<'a, Value>>>,
    /// `task.id` and `task.workflow`.
    pub task: Option<(&'a str, &'a str)>,
    /// The item of `for_each`.
    pub item: Option<&'a Value>,
    /// `callback.token`.
    pub callback_token: Option<&'a str>,
    /// The event that triggers a task.
    pub event: Option<&'a Value>,
}

/// What a template reads: which documents must be at hand to render it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// The names at the root of its expressions, but `steps`.
    pub names: BTreeSet<&'static str>,
    /// The steps whose output it reads.
    pub steps: BTreeSet<StepName>,
}

impl<'a> Scope<'a> {
    pub(super) fn root(&self, name: &str) -> Option<Cow<'a, Value>> {
        match name {
            "input" => self.input.map(Cow::Borrowed),
            "item" => self.item.map(Cow::Borrowed),
            "event" => self.event.map(Cow::Borrowed),
            "callback" => self.callback_token.map(|token| Cow::Owned(json!({ "token": token }))),
            "task" => self
                .task
                .map(|(id, workflow)| Cow::Owned(json!({ "id": id, "workflow": workflow }))),
            _ => None,
        }
    }
}
