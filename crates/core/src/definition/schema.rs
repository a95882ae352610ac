//! The schemas of a task's input and of the answer to a callback: JSON Schema (<https://json-schema.org>, draft 2020-12 unless it names another). It
//! is compiled at its first use, because most readers of a definition do not validate inputs.
//!
//! The time and memory of a validation are limited for every schema and every payload
//! (`docs/adr/0058-a-validation-has-a-budget.md`): `cost.rs` limits the schema, `patterns.rs` its regular expressions, and `metered.rs`
//! counts what the library reads of a payload.

mod cost;
mod metered;
mod patterns;

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use jsonschema::{PatternOptions, ValidationError, Validator};
use metered::{Metered, MeteredValue, Rates};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::limits;

/// How many subschemas are checked against a value for one step, if none of them reads it.
const SUBSCHEMAS_A_STEP: usize = 6;

/// The maximum number of errors of an input in a message.
const REPORTED_ERRORS_MAX: usize = 5;

/// The JSON Schema of a payload.
#[derive(Debug, Clone)]
pub struct PayloadSchema {
    source: Value,
    compiled: Arc<OnceLock<Result<CompiledSchema, String>>>,
}

impl PayloadSchema {
    /// Creates the schema from its JSON source. Does not compile it yet.
    #[must_use]
    pub fn new(source: Value) -> Self {
        Self { source, compiled: Arc::default() }
    }

    fn compiled(&self) -> Result<&CompiledSchema, &String> {
        self.compiled.get_or_init(|| CompiledSchema::new(&self.source)).as_ref()
    }

    /// The JSON source of the schema.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Why the source is not a valid JSON Schema, or may cost too much. `None` if it is valid.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let patterns = cost::of(&self.source).and_then(|cost| patterns::check(cost.patterns));
        patterns.err().or_else(|| self.compiled().err().cloned())
    }

    /// Validates `payload`. `name` is its name in error messages.
    ///
    /// # Errors
    /// The errors of the payload, with locations, types and limits, but without values.
    pub fn validate(&self, name: &str, payload: &Value) -> Result<(), String> {
        let compiled = self.compiled().map_err(Clone::clone)?;
        let bytes = limits::SCHEMA_STACK_BYTES;
        stacker::maybe_grow(bytes, bytes, || compiled.validate(name, MeteredValue::new(payload)))
    }
}

/// A compiled schema.
#[derive(Debug)]
struct CompiledSchema {
    validator: Validator<Metered>,
    cost: cost::Cost,
    /// How many patterns read the name of one member, at most.
    name_patterns: usize,
}

impl CompiledSchema {
    /// Compiles a schema. External schemas are not fetched, and a pattern takes time linear in the length of the text. Formats and the
    /// content of texts are annotations, as in draft 2020-12, whatever the draft: their checks take time that no budget counts.
    fn new(source: &Value) -> Result<Self, String> {
        let cost::SchemaCost { one_value: cost, name_patterns, .. } = cost::of(source)?;
        let validator = jsonschema::options_for()
            .with_pattern_options(PatternOptions::regex().size_limit(patterns::BYTES_MAX))
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .without_content_encoding_support("base64")
            .build(source)
            .map_err(|error| {
                if let jsonschema::error::ValidationErrorKind::Referencing(_) = error.kind() {
                    return "it refers to an external schema".to_owned();
                }
                let at = error.instance_path().to_string();
                if at.is_empty() { error.to_string() } else { format!("{at}: {error}") }
            })?;
        Ok(Self { validator, cost, name_patterns })
    }

    /// Finds first whether the payload is valid, without its errors: their number can grow exponentially with the depth of the
    /// payload, because the errors of each alternative contain those of its own alternatives.
    fn validate(&self, name: &str, payload: MeteredValue<'_>) -> Result<(), String> {
        let rates = Rates {
            child: self.cost.subschemas / SUBSCHEMAS_A_STEP,
            identity: self.cost.depth,
            name: self.name_patterns,
            path: false,
        };
        let max = limits::SCHEMA_STEPS_MAX;
        match metered::within(max, rates, || self.validator.is_valid(payload)) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => {
                return Err(format!(
                    "{name}: it takes more than {max} steps to validate against the schema"
                ));
            }
        }
        let rates = Rates { child: rates.child + self.cost.refusals, path: true, ..rates };
        let within = |work: &dyn Fn() -> String| {
            metered::within(limits::SCHEMA_ERROR_STEPS_MAX, rates, work)
        };
        let errors = within(&|| self.errors(name, payload))
            .or_else(|| within(&|| self.first_error(name, payload)));
        Err(errors.unwrap_or_else(|| format!("{name}: it does not match the schema")))
    }

    /// The first errors of an invalid payload, and the number of the others.
    fn errors(&self, name: &str, payload: MeteredValue<'_>) -> String {
        let mut errors = self.validator.iter_errors(payload);
        let reported: Vec<_> =
            errors.by_ref().take(REPORTED_ERRORS_MAX).map(|error| describe(name, &error)).collect();
        let more = errors.count();
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        format!("{}{more}", reported.join("; "))
    }

    /// The first error of an invalid payload.
    fn first_error(&self, name: &str, payload: MeteredValue<'_>) -> String {
        let error = self.validator.validate(payload).err();
        error.map_or_else(String::new, |error| describe(name, &error))
    }
}

/// Describes an error without values of the payload.
fn describe(name: &str, error: &ValidationError<'_>) -> String {
    let at = error.instance_path().to_string();
    format!("{name}{}: {}", at.replace('/', "."), error.masked_with("it"))
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
mod tests;
