//! Conversion between JSON and the values of the interpreter.

use std::collections::{BTreeMap, HashMap};

use cel::ConvertToJsonError;
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
    if !has_json_numbers(value) {
        return Err(NO_JSON_NUMBER.to_owned());
    }
    value.json().map(with_sorted_keys).map_err(|error| describe(&error))
}

/// Why a result is not JSON. The value itself may be payload.
fn describe(ConvertToJsonError::Value(value): &ConvertToJsonError<'_>) -> String {
    format!("the result contains a value of type {}, which JSON cannot represent", value.type_of())
}

/// The reason for [`has_json_numbers`].
const NO_JSON_NUMBER: &str = "the result has a number that JSON cannot represent (infinite, or not a number): test the \
    divisor or the argument of `double` first";

/// Whether JSON can represent all numbers in `value`. The conversion would replace an infinite number by null.
fn has_json_numbers(value: &cel::Value) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a foreign enum, whose other variants have no numbers of this kind"
    )]
    match value {
        cel::Value::Float(number) => number.is_finite(),
        cel::Value::List(items) => items.iter().all(has_json_numbers),
        cel::Value::Map(fields) => fields.map.values().all(has_json_numbers),
        _ => true,
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
