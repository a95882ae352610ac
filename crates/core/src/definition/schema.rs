//! The schemas of a task's input and of the answer to a callback: JSON Schema (<https://json-schema.org>, draft 2020-12). It
//! is compiled at its first use, because most readers of a definition do not validate inputs.
//!
//! The time and memory of a validation are limited for every schema and every payload
//! (`docs/adr/0058-a-validation-has-a-budget.md`): `compile.rs` reads the schema, `patterns.rs` limits its regular expressions, and
//! `check.rs` counts its steps.

mod check;
mod compile;
mod number;
mod patterns;

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::limits;
pub(crate) use compile::DIALECT;

/// The JSON Schema of a payload.
#[derive(Debug, Clone)]
pub struct PayloadSchema {
    source: Value,
    compiled: Arc<OnceLock<Result<compile::Rules, String>>>,
}

impl PayloadSchema {
    /// Creates the schema from its JSON source. Does not compile it yet.
    #[must_use]
    pub fn new(source: Value) -> Self {
        Self { source, compiled: Arc::default() }
    }

    fn compiled(&self) -> Result<&compile::Rules, &String> {
        self.compiled.get_or_init(|| compile::compile(&self.source)).as_ref()
    }

    /// The JSON source of the schema.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Why the source is not a valid JSON Schema, or may cost too much. `None` if it is valid.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let compiled = self.compiled().map_err(Clone::clone);
        compiled.and_then(|rules| rules.patterns.check()).err()
    }

    /// Validates `payload`. `name` is its name in error messages.
    ///
    /// # Errors
    /// The errors of the payload, with locations, types and limits, but without values.
    pub fn validate(&self, name: &str, payload: &Value) -> Result<(), String> {
        let rules = self.compiled().map_err(Clone::clone)?;
        let bytes = limits::SCHEMA_STACK_BYTES;
        stacker::maybe_grow(bytes, bytes, || check::check(rules, name, payload))
    }
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
