//! The values that one expression reads, and only those: of a large input, the parts that it names.

use std::{borrow::Cow, collections::HashMap};

use serde_json::Value;

use super::bound;
use crate::expression::scope::Scope;

/// What each path of an expression leads to in a scope, as far as it leads.
pub(super) struct Documents<'v> {
    roots: Vec<(Vec<&'v str>, Cow<'v, Value>)>,
    paths: &'v [Vec<String>],
}

impl<'v> Documents<'v> {
    /// Looks up what `paths` need.
    pub(super) fn new(paths: &'v [Vec<String>], scope: Scope<'v>) -> Self {
        let mut roots: Vec<(Vec<&str>, Cow<'v, Value>)> = Vec::new();
        for path in paths {
            let (root, value) = match path.as_slice() {
                [steps, step, output, ..] if steps == "steps" => {
                    let value = scope.outputs.and_then(|outputs| outputs.get(step.as_str()));
                    let root = vec![steps.as_str(), step.as_str(), output.as_str()];
                    (root, value.map(|value| Cow::Borrowed(value.as_ref())))
                }
                [root, ..] => (vec![root.as_str()], scope.root(root)),
                [] => continue,
            };
            if let Some(value) = value
                && !roots.iter().any(|(known, _)| *known == root)
            {
                roots.push((root, value));
            }
        }
        Self { roots, paths }
    }

    /// The value at a path, if there is one.
    pub(super) fn find(&self, path: &[&str]) -> Option<&Value> {
        let (root, value) = self.roots.iter().find(|(root, _)| path.starts_with(root))?;
        let rest = path.get(root.len()..)?;
        rest.iter().try_fold(value.as_ref(), |value, key| value.get(key))
    }

    /// The size of what is brought in, in steps.
    pub(super) fn size(&self) -> u64 {
        let parts = self
            .paths
            .iter()
            .filter_map(|path| self.find(&path.iter().map(String::as_str).collect::<Vec<_>>()));
        parts.map(bound::size).fold(0, u64::saturating_add)
    }

    /// The variables of the interpreter.
    pub(super) fn variables(&self) -> Vec<(String, cel::Value)> {
        let mut variables: Vec<(String, cel::Value)> = Vec::new();
        let mut steps = HashMap::new();
        for (root, value) in &self.roots {
            let inside = self.paths.iter().filter_map(|path| {
                let is_here =
                    path.len() >= root.len() && root.iter().zip(path).all(|(a, b)| a == b);
                is_here.then(|| path.get(root.len()..)).flatten()
            });
            let picked = pick(value, &inside.collect::<Vec<_>>());
            match root.as_slice() {
                [_, step, output] => {
                    let made = HashMap::from([((*output).to_owned(), picked)]);
                    steps.insert((*step).to_owned(), cel::Value::from(made));
                }
                [root, ..] => variables.push(((*root).to_owned(), picked)),
                [] => {}
            }
        }
        if self.paths.iter().any(|path| path.first().is_some_and(|root| root == "steps")) {
            variables.push(("steps".to_owned(), steps.into()));
        }
        variables
    }
}

/// The parts of `value` that `paths` lead to, in the same places.
fn pick(value: &Value, paths: &[&[String]]) -> cel::Value {
    if paths.iter().any(|path| path.is_empty()) {
        return to_cel(value);
    }
    let Value::Object(fields) = value else {
        // Nothing in it has a name: all that can be said of it is its type.
        return to_cel(&match value {
            Value::Array(_) => Value::Array(Vec::new()),
            Value::String(_) => Value::String(String::new()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.clone(),
        });
    };
    let mut inside: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for path in paths {
        if let Some((key, rest)) = path.split_first() {
            inside.entry(key).or_default().push(rest);
        }
    }
    let picked = inside.into_iter().filter_map(|(key, rest)| {
        let value = fields.get(key)?;
        Some((key.to_owned(), pick(value, &rest)))
    });
    picked.collect::<HashMap<_, _>>().into()
}

/// JSON's integers become CEL's `int` (and not `uint`), as people expect of `input.amount * 2`.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => value.into(),
            (None, Some(value)) => value.into(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), to_cel(value)))
            .collect::<HashMap<_, _>>()
            .into(),
    }
}
