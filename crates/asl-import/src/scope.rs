//! The values that an expression of a state can read: the data, the variables, and the context object.

use std::{cell::Cell, rc::Rc};

use indexmap::IndexMap;

use crate::{
    cel::{Cel, Precedence},
    symbol::{Symbol, Untranslatable},
};

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
    /// How many unique values the whole import has.
    pub(crate) unique_values: Rc<Cell<u32>>,
}

impl Scope {
    /// A UUID that no other place in the state machine, no other item and no other task has. It is the same for all attempts.
    pub(crate) fn uuid(&self) -> Cel {
        let number = self.unique_values.get() + 1;
        self.unique_values.set(number);
        let sum = |a: &Cel, b: &Cel| a.binary(Precedence::Sum, "+", b);
        let task = sum(&Cel::member("task.id"), &Cel::member("task.submitted_at"));
        let name = sum(&task, &Cel::string(&format!("/{number}")));
        let name = match self.context.field("Map").field("Item").field("Index").cel() {
            Ok(index) => sum(&sum(&name, &Cel::string("/")), &Cel::call("string", &[&index])),
            Err(_) => name,
        };
        Cel::call("hash.uuid", &[&name])
    }
}

/// The parts of the context object that depend on the place.
#[derive(Debug, Clone)]
pub(crate) struct ContextParts {
    /// The input of the execution; `None` in the child workflow of a `Map`.
    pub(crate) input: Option<Symbol>,
    /// The item of the `Map` around.
    pub(crate) item: Option<Item>,
}

/// An item of a `Map`.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) value: Symbol,
    pub(crate) index: Symbol,
}

impl Item {
    /// The item of a step with `for_each`.
    pub(crate) fn of_step() -> Self {
        Self { value: Symbol::path("item"), index: Symbol::path("item_index") }
    }

    /// The item that is the input of a child task, which does not know its index.
    pub(crate) fn of_child(value: Symbol) -> Self {
        let index = Symbol::Unknown(Untranslatable {
            original: "$$.Map.Item.Index".to_owned(),
            reason:
                "a child task does not know the index of its item; pass `item_index` in its input"
                    .to_owned(),
            is_decision: true,
        });
        Self { value, index }
    }
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
        if let Some(Item { value, index }) = &self.item {
            let item = object(vec![("Value", value.clone()), ("Index", index.clone())]);
            parts.push(("Map", object(vec![("Item", item)])));
        }
        object(parts)
    }
}
