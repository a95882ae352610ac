//! The schemas of a task's input and of the answer to a callback: JSON Schema (<https://json-schema.org>, draft 2020-12 unless it names another). It
//! is compiled at its first use, because most readers of a definition do not validate inputs.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use jsonschema::{PatternOptions, Validator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The maximum number of errors of an input in a message.
const REPORTED_ERRORS_MAX: usize = 5;

/// The JSON Schema of a payload.
#[derive(Debug, Clone)]
pub struct PayloadSchema {
    source: Value,
    validator: Arc<OnceLock<Result<Validator, String>>>,
}

impl PayloadSchema {
    /// Creates the schema from its JSON source. Does not compile it yet.
    #[must_use]
    pub fn new(source: Value) -> Self {
        Self { source, validator: Arc::default() }
    }

    fn validator(&self) -> Result<&Validator, &String> {
        self.validator.get_or_init(|| compile(&self.source)).as_ref()
    }

    /// The JSON source of the schema.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Why the source is not a valid JSON Schema, or `None` if it is valid.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.validator().err().map(String::as_str)
    }

    /// Validates `payload`. `name` is its name in error messages.
    ///
    /// # Errors
    /// The errors of the payload, with locations, types and limits, but without values.
    pub fn validate(&self, name: &str, payload: &Value) -> Result<(), String> {
        let validator = self.validator().map_err(Clone::clone)?;
        let mut errors = validator.iter_errors(payload);
        let reported: Vec<_> = errors
            .by_ref()
            .take(REPORTED_ERRORS_MAX)
            .map(|error| {
                let at = error.instance_path().to_string();
                format!("{name}{}: {}", at.replace('/', "."), error.masked_with("it"))
            })
            .collect();
        if reported.is_empty() {
            return Ok(());
        }
        let more = errors.count();
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        Err(format!("{}{more}", reported.join("; ")))
    }
}

/// Compiles a schema. External schemas are not fetched, and a pattern takes time linear in the length of the text.
fn compile(source: &Value) -> Result<Validator, String> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(source).map_err(|error| {
        if let jsonschema::error::ValidationErrorKind::Referencing(_) = error.kind() {
            return "it refers to an external schema".to_owned();
        }
        let at = error.instance_path().to_string();
        if at.is_empty() { error.to_string() } else { format!("{at}: {error}") }
    })
}

impl PartialEq for PayloadSchema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Serialize for PayloadSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PayloadSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

impl schemars::JsonSchema for PayloadSchema {
    fn schema_name() -> Cow<'static, str> {
        "PayloadSchema".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A JSON Schema",
            "type": ["object", "boolean"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_of_an_input_do_not_contain_its_values() {
        let schema = PayloadSchema::new(json!({
            "type": "object",
            "required": ["amount"],
            "properties": { "amount": { "type": "integer" }, "to": { "maxLength": 3 } },
            "additionalProperties": false,
        }));
        assert_eq!(schema.problem(), None);
        assert_eq!(schema.validate("input", &json!({ "amount": 1 })), Ok(()));
        let wrong =
            schema.validate("input", &json!({ "amount": "secret", "to": "secret", "x": "secret" }));
        assert_eq!(
            wrong.unwrap_err(),
            "input.amount: it is not of type \"integer\"; input.to: it is longer than 3 characters; \
             input: Additional properties are not allowed ('x' was unexpected)"
        );
        assert_eq!(
            schema.validate("input", &json!({})).unwrap_err(),
            "input: \"amount\" is a required property"
        );
    }

    #[test]
    fn an_invalid_schema_is_reported() {
        for (schema, problem) in [
            (json!({ "type": "objekt" }), "/type: \"objekt\" is not valid under any"),
            (json!({ "$ref": "https://example.com/x.json" }), "it refers to an external schema"),
            (json!({ "pattern": "(" }), "/pattern"),
        ] {
            let reported_problem = PayloadSchema::new(schema).problem().unwrap().to_owned();
            assert!(reported_problem.starts_with(problem), "{reported_problem}");
        }
    }

    #[test]
    fn a_pattern_takes_linear_time() {
        let schema = PayloadSchema::new(json!({ "pattern": "^(a+)+$" }));
        assert!(schema.validate("input", &json!(format!("{}b", "a".repeat(50_000)))).is_err());
    }
}
