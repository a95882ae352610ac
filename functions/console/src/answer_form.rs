//! The form for the answer to a callback, from the schema that its step declares. A schema of an object with simple
//! properties gets a field for each. For every other schema, the operator writes JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use steward_core::model::integers::check_integers;

/// The prefix of the names of fields in the form.
pub(crate) const PREFIX: &str = "answer.";

/// A field of the form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AnswerField {
    /// The property.
    pub(crate) name: String,
    /// The property's title, or its name.
    pub(crate) label: String,
    /// The property's description; may be empty.
    pub(crate) help: String,
    pub(crate) kind: FieldKind,
    pub(crate) required: bool,
    /// What was entered.
    pub(crate) value: String,
}

/// What a field accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    Number,
    YesNo,
    Choice(Vec<String>),
}

/// The fields for a schema, with the entered values. `None` if the schema has no simple form.
pub(crate) fn fields(
    schema: &Value,
    entered: &BTreeMap<String, String>,
) -> Option<Vec<AnswerField>> {
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    let properties = schema.get("properties").and_then(Value::as_object);
    let required: Vec<_> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
    let field = |(name, property): (&String, &Value)| {
        let text = |key| property.get(key).and_then(Value::as_str);
        let kind = match (property.get("enum").and_then(Value::as_array), text("type")) {
            (Some(options), Some("string") | None) => {
                let options = options.iter().map(|option| option.as_str().map(str::to_owned));
                FieldKind::Choice(options.collect::<Option<_>>()?)
            }
            (None, Some("string")) => FieldKind::Text,
            (None, Some("number" | "integer")) => FieldKind::Number,
            (None, Some("boolean")) => FieldKind::YesNo,
            (Some(_) | None, _) => return None,
        };
        Some(AnswerField {
            name: name.clone(),
            label: text("title").unwrap_or(name).to_owned(),
            help: text("description").unwrap_or_default().to_owned(),
            kind,
            required: required.iter().any(|required| required.as_str() == Some(name)),
            value: entered.get(&format!("{PREFIX}{name}")).cloned().unwrap_or_default(),
        })
    };
    properties.filter(|_| is_object)?.iter().map(field).collect()
}

/// The answer in the fields. A field that is empty and not required is absent from it. The schema checks the rest.
pub(crate) fn answer(fields: &[AnswerField]) -> Result<Value, String> {
    let mut answer = Map::new();
    for AnswerField { name, label, kind, required, value, .. } in fields {
        if value.trim().is_empty() {
            if *required {
                return Err(format!("{label} is missing"));
            }
            continue;
        }
        let value = match kind {
            FieldKind::Choice(_) => Value::String(value.clone()),
            FieldKind::Text => Value::String(value.trim().to_owned()),
            FieldKind::YesNo => Value::Bool(value == "yes"),
            FieldKind::Number => {
                let value = value.trim();
                check_integers(value).map_err(|error| format!("{label} has {error}"))?;
                let number: Result<Number, _> = value.parse();
                Value::Number(number.map_err(|_| format!("{label} is not a number"))?)
            }
        };
        answer.insert(name.clone(), value);
    }
    Ok(Value::Object(answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entered(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())).collect()
    }

    #[test]
    fn a_schema_of_simple_properties_has_a_field_for_each() {
        let schema = json!({ "type": "object", "required": ["limit"], "properties": {
            "limit": { "type": "integer", "title": "Credit limit", "description": "In euros." },
            "risk": { "enum": ["low", "high"] },
            "note": { "type": "string" },
            "insured": { "type": "boolean" },
        } });
        let entered = entered(&[("limit", " 500 "), ("risk", "low"), ("insured", "yes")]);
        let fields = fields(&schema, &entered).unwrap();
        let kinds: Vec<_> = fields.iter().map(|field| (&field.kind, field.required)).collect();
        let choice = FieldKind::Choice(vec!["low".to_owned(), "high".to_owned()]);
        assert_eq!(
            kinds,
            [
                (&FieldKind::Number, true),
                (&choice, false),
                (&FieldKind::Text, false),
                (&FieldKind::YesNo, false)
            ]
        );
        assert_eq!(
            (fields[0].label.as_str(), fields[0].help.as_str()),
            ("Credit limit", "In euros.")
        );
        assert_eq!(answer(&fields), Ok(json!({ "limit": 500, "risk": "low", "insured": true })));
    }

    #[test]
    fn missing_and_malformed_values_are_named() {
        let schema = json!({ "type": "object", "required": ["limit"], "properties": {
            "limit": { "type": "number" },
        } });
        let form = |value: &str| fields(&schema, &entered(&[("limit", value)])).unwrap();
        assert_eq!(answer(&form("")), Err("limit is missing".to_owned()));
        assert_eq!(answer(&form("5e")), Err("limit is not a number".to_owned()));
        let lost_digits = answer(&form("18446744073709551617")).unwrap_err();
        assert!(lost_digits.starts_with("limit has an integer of more than 64 bits"));
    }

    #[test]
    fn other_schemas_have_no_fields() {
        for schema in [
            json!(true),
            json!({ "type": "string" }),
            json!({ "type": "object", "properties": { "a": { "type": "array" } } }),
            json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } } }),
        ] {
            assert_eq!(fields(&schema, &BTreeMap::new()), None, "{schema}");
        }
    }
}
