//! Conversion between JSON and the values of the interpreter.

use std::collections::{BTreeMap, HashMap, HashSet};

use cel::{ConvertToJsonError, objects::Key};
use serde_json::{Map, Value};

/// Converts JSON to a CEL value. Integers become `int` and not `uint`, so that `input.amount * 2` works: CEL does not mix
/// the two types.
pub(super) fn to_cel(value: &Value) -> cel::Value {
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

/// Converts a CEL value to JSON, with sorted keys.
///
/// # Errors
/// The reason why JSON cannot represent it, without values.
pub(super) fn from_cel(value: &cel::Value) -> Result<Value, String> {
    if let Some(reason) = no_json(value) {
        return Err(reason.to_owned());
    }
    value.json().map(with_sorted_keys).map_err(|error| describe(&error))
}

/// Why a result is not JSON. The value itself may be payload.
fn describe(ConvertToJsonError::Value(value): &ConvertToJsonError<'_>) -> String {
    format!("the result contains a value of type {}, which JSON cannot represent", value.type_of())
}

const NO_JSON_NUMBER: &str = "the result has a number that JSON cannot represent (infinite, or not a number): test the \
    divisor or the argument of `double` first";
const EQUAL_KEYS: &str =
    "the result has a map with two keys that are the same in JSON, such as `1` and `\"1\"`";
const OPTIONAL: &str = "the result contains an optional value: end it with `.orValue(…)`";

/// Why JSON cannot represent a value, if the conversion would hide it: it replaces an infinite number and an optional value by
/// null, and of two equal keys it takes any.
fn no_json(value: &cel::Value) -> Option<&'static str> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a foreign enum, whose other variants are converted as they are"
    )]
    match value {
        cel::Value::Float(number) => (!number.is_finite()).then_some(NO_JSON_NUMBER),
        cel::Value::List(items) => items.iter().find_map(no_json),
        cel::Value::Map(fields) => {
            let are_texts = fields.map.keys().all(|key| matches!(key, Key::String(_)));
            let names: HashSet<_> = match are_texts {
                true => HashSet::new(),
                false => fields.map.keys().map(ToString::to_string).collect(),
            };
            let are_equal = !are_texts && names.len() < fields.map.len();
            let in_value = || fields.map.values().find_map(no_json);
            are_equal.then_some(EQUAL_KEYS).or_else(in_value)
        }
        cel::Value::Opaque(_) => Some(OPTIONAL),
        _ => None,
    }
}

/// Sorts the keys of all objects. The maps of the interpreter have a random order, and the result must depend on nothing
/// but the inputs.
fn with_sorted_keys(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(with_sorted_keys).collect()),
        Value::Object(fields) => {
            let ordered: BTreeMap<_, _> = fields.into_iter().collect();
            let fields = ordered.into_iter().map(|(key, value)| (key, with_sorted_keys(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
