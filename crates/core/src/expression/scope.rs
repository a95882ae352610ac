//! The values that expressions can read, and the errors of templates and expressions.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    iter,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{expression::functions, hint, limits, model::names::StepName};

/// The names that an expression can begin with.
pub(crate) const NAMES: [&str; 12] = [
    "input",
    "steps",
    "task",
    "step",
    "vars",
    "env",
    "item",
    "item_index",
    "request",
    "callback",
    "event",
    "response",
];

/// A name whose values always have the same fields, and these fields.
pub type KnownFields = (&'static str, &'static [&'static str]);

/// The names whose fields are known. What is in a field may be anything. An `event` is what
/// [EventBridge sends](https://docs.aws.amazon.com/eventbridge/latest/ref/events-structure.html).
pub const FIELDS: [KnownFields; 6] = [
    ("task", &TaskValues::FIELDS),
    ("step", &["started_at"]),
    ("request", &["idempotency_key"]),
    ("callback", &["token", "url"]),
    ("response", &["status", "headers", "body"]),
    (
        "event",
        &[
            "version",
            "id",
            "detail-type",
            "source",
            "account",
            "time",
            "region",
            "replay-name",
            "resources",
            "detail",
        ],
    ),
];

/// An error in a template, found when it is parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A `${` has no closing `}`.
    #[error("`{0}`: `${{` is never closed")]
    Unclosed(String),
    /// The expression is not valid CEL.
    #[error("expression `{expression}`: {reason}")]
    Syntax {
        /// The expression as written.
        expression: String,
        /// The parser's message.
        reason: String,
    },
    /// The expression has too many characters.
    #[error("an expression of {0} characters; the limit is {max}", max = limits::EXPRESSION_CHARS_MAX)]
    TooLong(usize),
    /// The brackets of the expression nest too deep.
    #[error("an expression with brackets nested {0} deep; the limit is {max}", max = limits::EXPRESSION_DEPTH_MAX)]
    TooNested(usize),
    /// The pattern of `matches` is invalid.
    #[error("expression `{expression}`: {reason}")]
    Pattern {
        /// The expression as written.
        expression: String,
        /// Why the pattern is invalid.
        reason: String,
    },
    /// The expression uses an unknown name.
    #[error("expression `{expression}`: unknown name `{name}`")]
    UnknownName {
        /// The expression as written.
        expression: String,
        /// The unknown name.
        name: String,
    },
    /// The definition does not name this value.
    #[error("expression `{expression}`: there is no `{name}`")]
    UnknownValue {
        /// The expression as written.
        expression: String,
        /// The value, such as `vars.total`.
        name: String,
        /// The values that there are.
        hint: String,
    },
    /// The expression has too many parts, with the named values in their places.
    #[error("expression `{0}`: its `vars` have more than {max} parts together, or those of the whole definition more than {all}", max = limits::EXPRESSION_PARTS_MAX, all = limits::DEFINITION_PARTS_MAX)]
    TooManyParts(String),
    /// The expression calls an unknown function.
    #[error("expression `{expression}`: unknown function `{name}`")]
    UnknownFunction {
        /// The expression as written.
        expression: String,
        /// The unknown name.
        name: String,
    },
    /// `steps` is used in another form than `steps.<name>.output`.
    #[error(
        "expression `{0}`: `steps` can only be used as `steps.<name>.output` and `steps.<name>.failed`"
    )]
    StepsForm(String),
    /// The template nests too deep.
    #[error("nested deeper than {max} levels", max = limits::JSON_DEPTH_MAX)]
    TooDeep,
}

impl InvalidTemplate {
    /// A hint how to correct the error, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unclosed(_) => Some("close it with `}`, or write `$${` for a plain `${`".to_owned()),
            Self::UnknownName { name, .. } => {
                Some(hint::closest_match(name, NAMES).map_or_else(
                    || "there are `input`, `steps`, `task`, `vars` and `env`, and in some places `step`, `item`, `item_index`, `request`, `callback`, `event` and `response`".to_owned(),
                    |meant| format!("did you mean `{meant}`?"),
                ))
            }
            Self::UnknownFunction { name, .. } => functions::hint(name),
            Self::UnknownValue { hint, .. } => Some(hint.clone()),
            Self::StepsForm(_) => Some("for example `steps.charge.output.id`".to_owned()),
            Self::Syntax { .. }
            | Self::TooLong(_)
            | Self::TooNested(_)
            | Self::TooManyParts(_)
            | Self::Pattern { .. }
            | Self::TooDeep => None,
        }
    }
}

/// An expression could not be evaluated with the values of a task. A retry would fail too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expression `{expression}`: {reason}")]
pub struct EvaluationError {
    pub(crate) expression: String,
    pub(crate) reason: String,
    /// Whether it read a value that is absent.
    pub(crate) is_absent: bool,
}

/// The values that expressions can read. An expression that reads an absent value fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// `input`: the input of the task.
    pub input: Option<&'a Value>,
    /// `steps.<name>.output`: the outputs of the completed steps.
    pub outputs: Option<&'a BTreeMap<StepName, Cow<'a, Value>>>,
    /// `steps.<name>.failed`: whether the task goes on without the step. If absent, it goes on without none.
    pub failed: Option<&'a BTreeMap<StepName, Value>>,
    /// `task`: what is known of the task when it is submitted.
    pub task: Option<TaskValues<'a>>,
    /// `step.started_at`: when the first request of the step was sent.
    pub step_started_at: Option<Timestamp>,
    /// `item`: the current item of `for_each`.
    pub item: Option<&'a Value>,
    /// `item_index`: its place in the list, from 0.
    pub item_index: Option<u32>,
    /// `request.idempotency_key`: the key of the request, in the form that the request asks for.
    pub request: Option<&'a str>,
    /// `callback.token` and `callback.url`: the token with which a callback completes the step, and the signed URL for it
    /// if the deployment has an endpoint for callbacks.
    pub callback: Option<(&'a str, Option<&'a str>)>,
    /// `event`: the event that triggers a task.
    pub event: Option<&'a Value>,
    /// `response.status`, `response.headers` and `response.body`: the response of the remote service.
    pub response: Option<&'a Value>,
}

/// The values in `task`. They are the same for all attempts.
#[derive(Debug, Clone, Copy)]
pub struct TaskValues<'a> {
    /// The id of the task.
    pub id: &'a str,
    /// The name of its workflow.
    pub workflow: &'a str,
    /// When it was submitted, in the whole milliseconds that the state store keeps.
    pub submitted_at: Timestamp,
    /// When it has to be done, as far as was known when it was submitted.
    pub complete_by: Timestamp,
}

impl TaskValues<'_> {
    /// The names of the fields.
    const FIELDS: [&'static str; 4] = ["id", "workflow", "submitted_at", "complete_by"];

    /// One of them, if there is one with this name.
    pub(super) fn field(&self, name: &str) -> Option<Value> {
        Some(match name {
            "id" => json!(self.id),
            "workflow" => json!(self.workflow),
            "submitted_at" => json!(self.submitted_at),
            "complete_by" => json!(self.complete_by),
            _ => return None,
        })
    }

    fn all(&self) -> Value {
        let field = |name: &str| Some((name.to_owned(), self.field(name)?));
        Self::FIELDS.into_iter().filter_map(field).collect()
    }
}

/// The values that a template reads. They must be loaded before it is rendered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredValues {
    /// The names at the roots of its expressions, except `steps`.
    pub names: BTreeSet<&'static str>,
    /// The steps whose output it reads.
    pub steps: BTreeSet<StepName>,
    /// The steps of which it reads whether they failed.
    pub failed: BTreeSet<StepName>,
    /// Whether it reads `callback.url`.
    pub callback_url: bool,
}

impl RequiredValues {
    /// Adds the values that another template reads.
    pub(crate) fn add(&mut self, other: &Self) {
        self.names.extend(&other.names);
        self.steps.extend(other.steps.iter().cloned());
        self.failed.extend(other.failed.iter().cloned());
        self.callback_url |= other.callback_url;
    }

    /// Whether the template reads `steps`.
    #[must_use]
    pub fn reads_steps(&self) -> bool {
        !self.steps.is_empty() || !self.failed.is_empty()
    }

    /// Whether the template reads `input`.
    #[must_use]
    pub fn input(&self) -> bool {
        self.names.contains("input")
    }
}

impl<'a> Scope<'a> {
    /// `steps.<step>.<field>`, if it is present.
    pub(super) fn of_step(&self, step: &str, field: &str) -> Option<&'a Value> {
        match field {
            "failed" => self.failed.map_or(Some(&Value::Bool(false)), |failed| failed.get(step)),
            _ => self.outputs?.get(step).map(AsRef::as_ref),
        }
    }

    /// The value of a name other than `steps`, if it is present.
    pub(super) fn root(&self, name: &str) -> Option<Cow<'a, Value>> {
        match name {
            "input" => self.input.map(Cow::Borrowed),
            "step" => self.step_started_at.map(|at| Cow::Owned(json!({ "started_at": at }))),
            "item" => self.item.map(Cow::Borrowed),
            "item_index" => self.item_index.map(|index| Cow::Owned(json!(index))),
            "event" => self.event.map(Cow::Borrowed),
            "response" => self.response.map(Cow::Borrowed),
            "request" => self.request.map(|key| Cow::Owned(json!({ "idempotency_key": key }))),
            "callback" => self.callback.map(|(token, url)| {
                let url = url.map(|url| ("url".to_owned(), json!(url)));
                Cow::Owned(iter::once(("token".to_owned(), json!(token))).chain(url).collect())
            }),
            "task" => self.task.map(|task| Cow::Owned(task.all())),
            _ => None,
        }
    }
}
