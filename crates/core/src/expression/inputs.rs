//! The inputs of one expression: the part of the scope that the expression reads, and nothing else. Of a large task
//! input, only the values on the paths in the expression are converted for the interpreter.

use std::{borrow::Cow, collections::HashMap};

use serde_json::Value;

use super::{json::to_cel, value_size::size};
use crate::expression::scope::Scope;

/// The values at the paths of an expression, as far as they exist in the scope.
pub(super) struct ExpressionInputs<'v> {
    /// The values in the scope that contain the paths, such as `input` or `steps.charge.output`.
    roots: Vec<(Vec<&'v str>, Cow<'v, Value>)>,
    paths: &'v [Vec<String>],
}

impl<'v> ExpressionInputs<'v> {
    /// Looks up the roots of `paths` in the scope.
    pub(super) fn new(paths: &'v [Vec<String>], scope: Scope<'v>) -> Self {
        let mut roots: Vec<(Vec<&str>, Cow<'v, Value>)> = Vec::new();
        for path in paths {
            let (root, value) = match path.as_slice() {
                [steps, step, field, ..] if steps == "steps" => {
                    let root = vec![steps.as_str(), step.as_str(), field.as_str()];
                    (root, scope.of_step(step, field).map(Cow::Borrowed))
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

    /// The value at a path, if it exists.
    pub(super) fn find(&self, path: &[&str]) -> Option<&Value> {
        let (root, value) = self.roots.iter().find(|(root, _)| path.starts_with(root))?;
        let rest = path.get(root.len()..)?;
        rest.iter().try_fold(value.as_ref(), |value, key| value.get(key))
    }

    /// The steps to convert all inputs for the interpreter.
    pub(super) fn size(&self) -> u64 {
        let values = self
            .paths
            .iter()
            .filter_map(|path| self.find(&path.iter().map(String::as_str).collect::<Vec<_>>()));
        values.map(size).fold(0, u64::saturating_add)
    }

    /// The variables for the interpreter, with copies of the values at the paths.
    pub(super) fn variables(&self) -> Vec<(String, cel::Value)> {
        let mut variables: Vec<(String, cel::Value)> = Vec::new();
        // A step without an output is there, so that an expression can ask for it: `has(steps.charge.output)`.
        let mut steps: HashMap<String, HashMap<String, cel::Value>> = self
            .paths
            .iter()
            .filter_map(|path| match path.as_slice() {
                [root, step, ..] if root == "steps" => Some(step.clone()),
                [..] => None,
            })
            .map(|step| (step, HashMap::new()))
            .collect();
        for (root, value) in &self.roots {
            let paths_below = self.paths.iter().filter_map(|path| {
                let is_below =
                    path.len() >= root.len() && root.iter().zip(path).all(|(a, b)| a == b);
                is_below.then(|| path.get(root.len()..)).flatten()
            });
            let copied = copy_paths(value, &paths_below.collect::<Vec<_>>());
            match root.as_slice() {
                [_, step, field] => {
                    steps
                        .entry((*step).to_owned())
                        .or_default()
                        .insert((*field).to_owned(), copied);
                }
                [root, ..] => variables.push(((*root).to_owned(), copied)),
                [] => {}
            }
        }
        if self.paths.iter().any(|path| path.first().is_some_and(|root| root == "steps")) {
            let steps = steps.into_iter().map(|(step, fields)| (step, cel::Value::from(fields)));
            variables.push(("steps".to_owned(), steps.collect::<HashMap<_, _>>().into()));
        }
        variables
    }
}

/// Copies the parts of `value` at `paths`. The copy has the same structure as `value`.
fn copy_paths(value: &Value, paths: &[&[String]]) -> cel::Value {
    if paths.iter().any(|path| path.is_empty()) {
        return to_cel(value);
    }
    let Value::Object(fields) = value else {
        // The paths lead nowhere in a value without fields. An empty value keeps the type for error messages.
        return to_cel(&match value {
            Value::Array(_) => Value::Array(Vec::new()),
            Value::String(_) => Value::String(String::new()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.clone(),
        });
    };
    let mut paths_by_field: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for path in paths {
        if let Some((key, rest)) = path.split_first() {
            paths_by_field.entry(key).or_default().push(rest);
        }
    }
    let copied = paths_by_field.into_iter().filter_map(|(key, paths)| {
        let value = fields.get(key)?;
        Some((key.to_owned(), copy_paths(value, &paths)))
    });
    copied.collect::<HashMap<_, _>>().into()
}
