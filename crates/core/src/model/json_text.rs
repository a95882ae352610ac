//! JSON that is kept as text. A parsed value of many small numbers takes thirty times as much memory as its text. So JSON
//! that is only forwarded, such as the body of a request, is not parsed.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::Value;

/// A JSON value in the form of compact text.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text.
    #[must_use]
    pub fn value(&self) -> Value {
        parsed(&self.0)
    }

    /// The number of bytes in a message, in which two characters that SQS refuses are written as escapes.
    #[must_use]
    pub fn sqs_bytes(&self) -> usize {
        bytes_in_message(&self.0)
    }
}

/// Serialises a message or a record as compact JSON.
///
/// # Panics
/// Serialisation failed. It cannot: all keys of messages and records are strings, and no type in them has a fallible
/// `Serialize`. If that ever changes, nothing wrong is sent or stored: only the message that is being processed fails.
pub fn to_json_text<T: Serialize>(content: &T) -> String {
    infallible(serde_json::to_string(content))
}

/// Serialises a record as a JSON value.
///
/// # Panics
/// As [`to_json_text`].
pub fn to_json_value<T: Serialize>(content: &T) -> Value {
    infallible(serde_json::to_value(content))
}

/// Parses a text that is valid JSON.
///
/// # Panics
/// The text is not valid JSON.
pub(crate) fn parsed(valid: &str) -> Value {
    infallible(serde_json::from_str(valid))
}

#[expect(clippy::expect_used, reason = "an invariant: see `to_json_text`")]
fn infallible<T>(result: serde_json::Result<T>) -> T {
    result.expect("messages and records are valid JSON")
}

/// The number of bytes that a JSON text takes in a message; see [`escape_for_sqs`].
pub(crate) fn bytes_in_message(text: &str) -> usize {
    let escaped: usize = REFUSED_BY_SQS.iter().map(|refused| text.matches(*refused).count()).sum();
    text.len() + 3 * escaped
}

/// Prepares a JSON text for a message: replaces the two characters that SQS refuses by JSON escapes.
pub fn escape_for_sqs(mut text: String) -> String {
    if !REFUSED_BY_SQS.iter().any(|refused| text.contains(*refused)) {
        // Many texts may wait in memory until they are sent.
        text.shrink_to_fit();
        return text;
    }
    text.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
}

/// The characters of JSON texts that SQS does not accept in a message.
const REFUSED_BY_SQS: [char; 2] = ['\u{fffe}', '\u{ffff}'];

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        let mut text = value.to_string();
        text.shrink_to_fit();
        Self(text)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: Value = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::from(&value))
    }
}

impl JsonSchema for JsonText {
    fn inline_schema() -> bool {
        Value::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        Value::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_text_reads_back_as_the_original_value() {
        let value = json!({ "z": [1, 2.5, null], "a": "\u{ffff}" });
        let text = JsonText::from(&value);
        assert_eq!((text.value(), text.as_str().to_owned()), (value.clone(), value.to_string()));
        assert_eq!(serde_json::to_value(&text).unwrap(), value);
        assert_eq!(serde_json::from_value::<JsonText>(value).unwrap(), text);
    }

    #[test]
    fn size_in_a_message_includes_escapes() {
        let text = JsonText::from(json!("a\u{fffe}\u{ffff}\u{fffd}"));
        assert_eq!(text.sqs_bytes(), escape_for_sqs(text.to_string()).len());
        assert_eq!(text.sqs_bytes(), r#""a\ufffe\uffff"#.len() + 4);
    }

    /// Without the feature `float_roundtrip` of serde_json, the last digit of some numbers changes whenever a document
    /// is read and written.
    #[test]
    fn float_keeps_its_last_digit() {
        for text in ["31.245270191439438", "121.48791951161945", "2.638344616030823e-256"] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value.as_f64(), text.parse().ok());
            assert_eq!(value.to_string(), text);
        }
    }
}
