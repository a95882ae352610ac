//! The values that an expression of a state can read: the data, the variables, and the context object.

use indexmap::IndexMap;
use serde_json::Value;

use crate::symbol::{Symbol, Untranslatable};

/// What the expressions of one state can read.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// `$` in JSONPath, `$states.input` in JSONata.
    pub(crate) data: Symbol,
    /// The variables that `Assign` has set.
    pub(crate) variables: IndexMap<String, Symbol>,
    /// `$$` in JSONPath, `$states.context` in JSONata.
    pub(crate) context: Symbol,
    /// `$states.result` in JSONata.
    pub(crate) result: Option<Symbol>,
}

/// The parts of the context object that depend on the place.
#[derive(Debug, Clone)]
pub(crate) struct ContextParts {
    /// The input of the execution; `None` in the child workflow of a `Map`.
    pub(crate) input: Option<Symbol>,
    /// The item of the `Map` around.
    pub(crate) item: Option<Symbol>,
}

const NOT_DETERMINISTIC: &str =
    "expressions have no clock and no randomness; put the value into the input of the task";

impl ContextParts {
    /// The context object of a state. `has_token`: it waits for a task token.
    pub(crate) fn object(&self, state: &str, has_token: bool) -> Symbol {
        let clock = |name: &str| Symbol::unknown(name, NOT_DETERMINISTIC);
        let of_parent = |name: &str| {
            Symbol::Unknown(Untranslatable {
                original: name.to_owned(),
                reason: "here it would be that of the child task; pass that of the parent in the \
                         input of the child workflow"
                    .to_owned(),
                is_decision: true,
            })
        };
        let of_task = |path: &str, name: &str| match self.input {
            Some(_) => Symbol::path(path),
            None => of_parent(name),
        };
        let id = || of_task("task.id", "$$.Execution.Id");
        let input = self.input.clone().unwrap_or_else(|| of_parent("$$.Execution.Input"));
        let object = |fields: Vec<(&str, Symbol)>| {
            Symbol::object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)))
        };
        let token = match has_token {
            true => Symbol::path("callback.token"),
            false => Symbol::unknown("$$.Task.Token", "this state does not wait for a task token"),
        };
        let mut parts = vec![
            (
                "Execution",
                object(vec![
                    ("Id", id()),
                    ("Name", id()),
                    ("Input", input),
                    ("StartTime", of_task("task.submitted_at", "$$.Execution.StartTime")),
                    ("RoleArn", Symbol::unknown("$$.Execution.RoleArn", "a task has no role")),
                    ("RedriveCount", clock("$$.Execution.RedriveCount")),
                ]),
            ),
            (
                "State",
                object(vec![
                    ("Name", Symbol::Scalar(state.into())),
                    ("EnteredTime", clock("$$.State.EnteredTime")),
                    (
                        "RetryCount",
                        Symbol::unknown("$$.State.RetryCount", "all attempts send one request"),
                    ),
                ]),
            ),
            (
                "StateMachine",
                object(vec![
                    ("Id", Symbol::path("task.workflow")),
                    ("Name", Symbol::path("task.workflow")),
                ]),
            ),
            ("Task", object(vec![("Token", token)])),
        ];
        if let Some(item) = &self.item {
            let index = Symbol::unknown(
                "$$.Map.Item.Index",
                "an item of `for_each` does not know its index",
            );
            let item = object(vec![("Value", item.clone()), ("Index", index)]);
            parts.push(("Map", object(vec![("Item", item)])));
        }
        object(parts)
    }
}

/// A text of the state machine that no expression is in. It may contain a substitution of the deployment, such as
/// `${TableName}` of AWS SAM.
pub(crate) fn literal(text: &str) -> Symbol {
    match substitution(text) {
        Some(name) => Symbol::Unknown(Untranslatable {
            original: text.to_owned(),
            reason: format!(
                "`${{{name}}}` is replaced when the state machine is deployed; give its value with \
                 `--set {name}=VALUE`"
            ),
            is_decision: true,
        }),
        None => Symbol::Scalar(Value::String(text.to_owned())),
    }
}

/// The name of the first substitution `${Name}` in a text.
pub(crate) fn substitution(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
        if !name.is_empty() && name.chars().all(is_name) {
            return Some(name);
        }
        rest = after;
    }
    None
}
