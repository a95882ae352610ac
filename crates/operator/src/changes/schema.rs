//! Whether an input schema accepts every input that the old one accepted. Schemas are compared keyword by keyword; if a
//! comparison is not conclusive, the change counts as risky.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use steward_core::definition::schema::PayloadSchema;

use super::change_list::Changes;

/// Annotations: keywords that reject no input.
const ANNOTATIONS: [&str; 7] =
    ["title", "description", "examples", "default", "$comment", "$schema", "$id"];

/// Limits that reject more inputs if they grow.
const LOWER_LIMITS: [&str; 5] =
    ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];

/// Limits that reject more inputs if they shrink.
const UPPER_LIMITS: [&str; 5] =
    ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

const NARROWER: &str = "inputs that were accepted before may be rejected";

const WIDER: &str = "accepts more inputs than before; check that the steps can handle them";

/// Compares the input schemas of two definitions.
pub(super) fn compare(
    found: &mut Changes,
    old: Option<&PayloadSchema>,
    new: Option<&PayloadSchema>,
) {
    match (old, new) {
        (None, Some(_)) => {
            found.risky("input", "schema added; any input was accepted before", NARROWER)
        }
        (Some(_), None) => found.safe("input", "schema removed", WIDER),
        (Some(old), Some(new)) => {
            SchemaComparison { found, at: "input".to_owned() }.compare(old.source(), new.source())
        }
        (None, None) => {}
    }
}

/// A comparison of two subschemas at the same path.
struct SchemaComparison<'a> {
    found: &'a mut Changes,
    at: String,
}

impl SchemaComparison<'_> {
    fn narrower(&mut self, key: &str, what: impl Into<String>) {
        self.found.risky(format!("{}.{key}", self.at), what, NARROWER);
    }

    fn wider(&mut self, key: &str, what: impl Into<String>) {
        self.found.safe(format!("{}.{key}", self.at), what, WIDER);
    }

    fn nested(&mut self, key: &str) -> SchemaComparison<'_> {
        SchemaComparison { found: self.found, at: format!("{}.{key}", self.at) }
    }

    fn compare(&mut self, old: &Value, new: &Value) {
        let (Value::Object(old), Value::Object(new)) = (old, new) else {
            if old != new {
                self.found.risky(self.at.clone(), "changed", NARROWER);
            }
            return;
        };
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let (was, is) = (old.get(key), new.get(key));
            if was != is {
                self.keyword(key, was, is, new);
            }
        }
    }

    /// Compares one keyword that differs. `new` is the schema that contains it.
    fn keyword(
        &mut self,
        key: &str,
        was: Option<&Value>,
        is: Option<&Value>,
        new: &Map<String, Value>,
    ) {
        match (key, was, is) {
            (key, _, _) if ANNOTATIONS.contains(&key) => {
                self.found.safe(format!("{}.{key}", self.at), "changed", "has no effect on tasks");
            }
            ("required", _, _) => self.required(was, is),
            ("properties", _, _) => self.properties(was, is, new),
            ("items", Some(was), Some(is)) => self.nested("items").compare(was, is),
            ("type", Some(was), Some(is)) => {
                let (was, is) = (types(was), types(is));
                let what = format!("{} became {}", listed(&was), listed(&is));
                if accepts_all(&was, &is) {
                    self.wider(key, what)
                } else {
                    self.narrower(key, what)
                }
            }
            ("enum", Some(Value::Array(was)), Some(Value::Array(is))) => {
                if was.iter().all(|value| is.contains(value)) {
                    self.wider(key, "values added");
                } else {
                    self.narrower(key, "values removed");
                }
            }
            (
                "additionalProperties",
                None | Some(Value::Bool(true)),
                Some(Value::Bool(true)) | None,
            ) => {}
            ("additionalProperties", Some(Value::Bool(false)), _) => {
                self.wider(key, "unknown keys are accepted");
            }
            ("additionalProperties", _, Some(Value::Bool(false))) => {
                self.narrower(key, "unknown keys are rejected");
            }
            (key, Some(was), Some(is))
                if LOWER_LIMITS.contains(&key) || UPPER_LIMITS.contains(&key) =>
            {
                let what = format!("{was} became {is}");
                let grew = is.as_f64() >= was.as_f64();
                if grew == UPPER_LIMITS.contains(&key) {
                    self.wider(key, what);
                } else {
                    self.narrower(key, what);
                }
            }
            (key, Some(_), None) => self.wider(key, "removed"),
            (key, None, Some(_)) => self.narrower(key, "added"),
            (key, _, _) => self.narrower(key, "changed"),
        }
    }

    fn required(&mut self, was: Option<&Value>, is: Option<&Value>) {
        let (was, is) = (texts(was), texts(is));
        for key in is.difference(&was) {
            self.narrower("required", format!("`{key}` is now required"));
        }
        for key in was.difference(&is) {
            self.wider("required", format!("`{key}` is no longer required"));
        }
    }

    fn properties(&mut self, was: Option<&Value>, is: Option<&Value>, new: &Map<String, Value>) {
        let none = Map::new();
        let fields =
            |of: Option<&'_ Value>| of.and_then(Value::as_object).cloned().unwrap_or(none.clone());
        let (was, is) = (fields(was), fields(is));
        let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        let closed = new.get("additionalProperties") == Some(&Value::Bool(false));
        for key in keys {
            match (was.get(key), is.get(key)) {
                (Some(was), Some(is)) => self.nested(key).compare(was, is),
                (None, Some(_)) => {
                    let why = "no effect on inputs without this key";
                    self.found.safe(format!("{}.{key}", self.at), "property added", why);
                }
                (Some(_), None) if closed => {
                    self.narrower(key, "removed; inputs with this key are rejected")
                }
                (Some(_), None) => self.wider(key, "property removed"),
                (None, None) => {}
            }
        }
    }
}

fn texts(list: Option<&Value>) -> BTreeSet<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The types in the value of `type`, which is a string or a list of strings.
fn types(value: &Value) -> BTreeSet<&str> {
    value.as_str().map_or_else(|| texts(Some(value)), |one| BTreeSet::from([one]))
}

/// Whether each type of `was` is accepted by `is`. A number includes an integer.
fn accepts_all(was: &BTreeSet<&str>, is: &BTreeSet<&str>) -> bool {
    was.iter().all(|was| is.contains(was) || (*was == "integer" && is.contains("number")))
}

fn listed(types: &BTreeSet<&str>) -> String {
    types.iter().copied().collect::<Vec<_>>().join(" or ")
}
