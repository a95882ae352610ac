//! The form for the answer to a callback, from the schema that its step declares. A schema of an object with simple
//! properties gets a field for each. For every other schema, people write JSON. The console and the page of a callback's URL
//! both show it.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::{Map, Number, Value};
use steward_core::{
    limits::{
        ANSWER_CHOICES_MAX, ANSWER_FIELDS_MAX, ANSWER_HELP_CHARS_MAX, ANSWER_LABEL_CHARS_MAX,
        short_line,
    },
    model::integers::check_integers,
};

/// What a schema may say of the object as a whole that no field can show.
const OTHER_RULES: [&str; 9] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "minProperties",
    "patternProperties",
    "dependentRequired",
    "$ref",
];

/// The prefix of the names of fields in the form.
const PREFIX: &str = "answer.";

/// The fields for an answer, with what was entered. Displayed, it is their HTML, in which all texts are escaped.
#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "answer_form.html")]
pub struct AnswerForm {
    fields: Vec<AnswerField>,
}

/// A field of the form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AnswerField {
    /// The property.
    name: String,
    /// The property's title, or its name.
    label: String,
    /// The property's description; may be empty.
    help: String,
    kind: FieldKind,
    /// The limits of the value, as attributes of an HTML input.
    limits: Vec<(&'static str, String)>,
    required: bool,
    /// What was entered.
    value: String,
}

/// What a field accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldKind {
    Text,
    Number,
    YesNo,
    Choice(Vec<String>),
}

impl AnswerForm {
    /// The fields for a schema, with the entered values by the names of the fields. `None` if the schema has no simple form.
    #[must_use]
    pub fn new(schema: &Value, entered: &BTreeMap<String, String>) -> Option<Self> {
        let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.filter(|all| is_object && all.len() <= ANSWER_FIELDS_MAX)?;
        let required: Vec<_> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let named = |name: &&Value| name.as_str().is_some_and(|name| properties.contains_key(name));
        if !required.iter().all(named) || OTHER_RULES.iter().any(|rule| schema.get(rule).is_some())
        {
            return None;
        }
        let fields = properties.iter().map(|(name, property)| {
            let value = entered.get(&format!("{PREFIX}{name}")).cloned().unwrap_or_default();
            let required = required.iter().any(|required| required.as_str() == Some(name));
            AnswerField::new(name, property, required, value)
        });
        Some(Self { fields: fields.collect::<Option<_>>()? })
    }

    /// The answer in the fields. A field that is empty and not required is absent from it. The schema checks the rest.
    ///
    /// # Errors
    /// A required value is missing, or a number is not one. The error contains no value.
    pub fn answer(&self) -> Result<Value, String> {
        let mut answer = Map::new();
        for field in &self.fields {
            if let Some(value) = field.answer()? {
                answer.insert(field.name.clone(), value);
            }
        }
        Ok(Value::Object(answer))
    }
}

impl AnswerField {
    /// The field for a property. `None` if it has no simple form.
    fn new(name: &str, property: &Value, required: bool, value: String) -> Option<Self> {
        let text = |key| property.get(key).and_then(Value::as_str);
        let kind = match (property.get("enum").and_then(Value::as_array), text("type")) {
            (Some(options), Some("string") | None) if options.len() <= ANSWER_CHOICES_MAX => {
                let options = options.iter().map(|option| option.as_str().filter(|o| is_short(o)));
                let options = options.map(|option| option.map(str::to_owned));
                FieldKind::Choice(options.collect::<Option<_>>()?)
            }
            (None, Some("string")) => FieldKind::Text,
            (None, Some("number" | "integer")) => FieldKind::Number,
            (None, Some("boolean")) => FieldKind::YesNo,
            (Some(_) | None, _) => return None,
        };
        is_short(name).then(|| Self {
            name: name.to_owned(),
            label: short_line(text("title").unwrap_or(name), ANSWER_LABEL_CHARS_MAX),
            help: short_line(text("description").unwrap_or_default(), ANSWER_HELP_CHARS_MAX),
            limits: input_limits(&kind, property),
            kind,
            required,
            value,
        })
    }

    /// The value of the property; `None` if it is absent.
    fn answer(&self) -> Result<Option<Value>, String> {
        let Self { label, value, .. } = self;
        if value.trim().is_empty() {
            return if self.required { Err(format!("{label} is missing")) } else { Ok(None) };
        }
        Ok(Some(match self.kind {
            FieldKind::Choice(_) => Value::String(value.clone()),
            FieldKind::Text => Value::String(value.trim().to_owned()),
            FieldKind::YesNo => match value.as_str() {
                "yes" => Value::Bool(true),
                "no" => Value::Bool(false),
                _ => return Err(format!("{label} must be yes or no")),
            },
            FieldKind::Number => {
                let value = value.trim();
                check_integers(value).map_err(|error| format!("{label} has {error}"))?;
                let number: Result<Number, _> = value.parse();
                Value::Number(number.map_err(|_| format!("{label} is not a number"))?)
            }
        }))
    }
}

fn is_short(text: &str) -> bool {
    text.chars().count() <= ANSWER_LABEL_CHARS_MAX
}

/// The limits that an HTML input can check. The schema checks all of them again.
fn input_limits(kind: &FieldKind, property: &Value) -> Vec<(&'static str, String)> {
    let limit = |keyword: &str, attribute| {
        let value = property.get(keyword).filter(|value| value.is_number())?;
        Some((attribute, value.to_string()))
    };
    match kind {
        FieldKind::Text => [limit("minLength", "minlength"), limit("maxLength", "maxlength")]
            .into_iter()
            .flatten()
            .collect(),
        FieldKind::Number => {
            let is_integer = property.get("type").and_then(Value::as_str) == Some("integer");
            // Steps are counted from the minimum.
            let in_steps = is_integer && property.get("minimum").is_none_or(Value::is_i64);
            let step = ("step", if in_steps { "1" } else { "any" }.to_owned());
            let limits = [limit("minimum", "min"), limit("maximum", "max"), Some(step)];
            limits.into_iter().flatten().collect()
        }
        FieldKind::YesNo | FieldKind::Choice(_) => Vec::new(),
    }
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
        let form = AnswerForm::new(&schema, &entered).unwrap();
        let fields = &form.fields;
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
        assert_eq!(form.answer(), Ok(json!({ "limit": 500, "risk": "low", "insured": true })));
    }

    #[test]
    fn yes_and_no_have_one_spelling_each() {
        let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
        let answer = |value| AnswerForm::new(&schema, &entered(&[("ok", value)])).unwrap().answer();
        assert_eq!(answer("no"), Ok(json!({ "ok": false })));
        assert_eq!(answer("true"), Err("ok must be yes or no".to_owned()));
    }

    #[test]
    fn missing_and_malformed_values_are_named() {
        let schema = json!({ "type": "object", "required": ["limit"], "properties": {
            "limit": { "type": "number" },
        } });
        let form =
            |value: &str| AnswerForm::new(&schema, &entered(&[("limit", value)])).unwrap().answer();
        assert_eq!(form(""), Err("limit is missing".to_owned()));
        assert_eq!(form("5e"), Err("limit is not a number".to_owned()));
        let lost_digits = form("18446744073709551617").unwrap_err();
        assert!(lost_digits.starts_with("limit has an integer of more than 64 bits"));
    }

    #[test]
    fn other_schemas_have_no_fields() {
        let many: Map<_, _> =
            (0..=ANSWER_FIELDS_MAX).map(|n| (n.to_string(), json!({ "type": "string" }))).collect();
        let options: Vec<_> = (0..=ANSWER_CHOICES_MAX).map(|n| n.to_string()).collect();
        let long = "x".repeat(ANSWER_LABEL_CHARS_MAX + 1);
        for schema in [
            json!({ "type": "object", "properties": many }),
            json!({ "type": "object", "properties": { "a": { "enum": options } } }),
            json!({ "type": "object", "properties": { "a": { "enum": [long] } } }),
            json!({ "type": "object", "properties": { long: { "type": "string" } } }),
            json!(true),
            json!({ "type": "string" }),
            json!({ "type": "object", "properties": { "a": { "type": "array" } } }),
            json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } } }),
            json!({ "type": "object", "properties": {}, "required": ["outside"] }),
            json!({ "type": "object", "properties": {}, "minProperties": 1 }),
        ] {
            assert_eq!(AnswerForm::new(&schema, &BTreeMap::new()), None, "{schema}");
        }
    }

    #[test]
    fn the_html_has_the_limits_and_escapes_every_text() {
        let hostile = "\"><script>alert(1)</script>";
        let schema = json!({ "type": "object", "required": ["n"], "properties": {
            "n": { "type": "integer", "minimum": 1, "maximum": 500 },
            "x": { "type": "number", "minimum": 0.5 },
            "t": { "type": "string", "minLength": 2, "maxLength": 9, "title": hostile, "description": hostile },
            "c": { "enum": [hostile] },
            hostile: { "type": "string" },
        } });
        let html = AnswerForm::new(&schema, &entered(&[("t", hostile)])).unwrap().to_string();
        for part in [
            r#"min="1" max="500" step="1" required"#,
            r#"min="0.5" step="any""#,
            r#"minlength="2" maxlength="9""#,
        ] {
            assert!(html.contains(part), "no `{part}` in {html}");
        }
        assert!(!html.contains("<script"), "{html}");
        assert!(html.matches("&#60;script&#62;").count() >= 5, "{html}");
    }
}
