//! Whether a schema takes all that it took before: keyword by keyword, as far as that can be said
//! without trying every input. What cannot be said needs a look.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use steward_core::definition::schema::InputSchema;

use super::Changes;

/// Keywords that refuse nothing.
const FOR_PEOPLE: [&str; 7] =
    ["title", "description", "examples", "default", "$comment", "$schema", "$id"];

/// Limits that take less as they grow...
const LOWER: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];

/// ...and as they shrink.
const UPPER: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

const NARROWER: &str = "clients whose inputs were taken before may be refused";

const WIDER: &str = "what was taken before still is; can the steps bear what is new?";

/// Finds what changed in the input's schema.
pub(super) fn compare(found: &mut Changes, old: Option<&InputSchema>, new: Option<&InputSchema>) {
    match (old, new) {
        (None, Some(_)) => found.look("input", "a schema, where anything was taken", NARROWER),
        (Some(_), None) => found.safe("input", "no schema any more", WIDER),
        (Some(old), Some(new)) => {
            Node { found, at: "input".to_owned() }.compare(old.source(), new.source())
        }
        (None, None) => {}
    }
}

/// One schema within the schema.
struct Node<'a> {
    found: &'a mut Changes,
    at: String,
}

impl Node<'_> {
    fn narrower(&mut self, key: &str, what: impl Into<String>) {
        self.found.look(format!("{}.{key}", self.at), what, NARROWER);
    }

    fn wider(&mut self, key: &str, what: impl Into<String>) {
        self.found.safe(format!("{}.{key}", self.at), what, WIDER);
    }

    fn within(&mut self, key: &str) -> Node<'_> {
        Node { found: self.found, at: format!("{}.{key}", self.at) }
    }

    fn compare(&mut self, old: &Value, new: &Value) {
        let (Value::Object(old), Value::Object(new)) = (old, new) else {
            if old != new {
                self.found.look(self.at.clone(), "changed", NARROWER);
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

    /// One keyword that is different; `new` is the schema that it stands in.
    fn keyword(
        &mut self,
        key: &str,
        was: Option<&Value>,
        is: Option<&Value>,
        new: &Map<String, Value>,
    ) {
        match (key, was, is) {
            (key, _, _) if FOR_PEOPLE.contains(&key) => {
                self.found.safe(format!("{}.{key}", self.at), "changed", "it is for people");
            }
            ("required", _, _) => self.required(was, is),
            ("properties", _, _) => self.properties(was, is, new),
            ("items", Some(was), Some(is)) => self.within("items").compare(was, is),
            ("type", Some(was), Some(is)) => {
                let (was, is) = (types(was), types(is));
                let what = format!("{} became {}", listed(&was), listed(&is));
                if takes_all(&was, &is) { self.wider(key, what) } else { self.narrower(key, what) }
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
                self.wider(key, "unknown keys are taken");
            }
            ("additionalProperties", _, Some(Value::Bool(false))) => {
                self.narrower(key, "unknown keys are refused");
            }
            (key, Some(was), Some(is)) if LOWER.contains(&key) || UPPER.contains(&key) => {
                let what = format!("{was} became {is}");
                let grew = is.as_f64() >= was.as_f64();
                if grew == UPPER.contains(&key) {
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
            self.narrower("required", format!("`{key}` is required now"));
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
                (Some(was), Some(is)) => self.within(key).compare(was, is),
                (None, Some(_)) => {
                    let why = "clients who do not send it are not concerned";
                    self.found.safe(format!("{}.{key}", self.at), "described now", why);
                }
                (Some(_), None) if closed => self.narrower(key, "removed, so it is refused"),
                (Some(_), None) => self.wider(key, "no longer described"),
                (None, None) => {}
            }
        }
    }
}

fn texts(list: Option<&Value>) -> BTreeSet<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A type is a text or a list of them.
fn types(value: &Value) -> BTreeSet<&str> {
    value.as_str().map_or_else(|| texts(Some(value)), |one| BTreeSet::from([one]))
}

/// Whether each of `was` is among `is`; an integer is a number.
fn takes_all(was: &BTreeSet<&str>, is: &BTreeSet<&str>) -> bool {
    was.iter().all(|was| is.contains(was) || (*was == "integer" && is.contains("number")))
}

fn listed(types: &BTreeSet<&str>) -> String {
    types.iter().copied().collect::<Vec<_>>().join(" or ")
}
