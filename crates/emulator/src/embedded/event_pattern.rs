//! [Event patterns](https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-patterns.html): which events a rule
//! matches.
//!
//! An event matches if it has every field of the pattern, at any depth, with a value that one of the field's matchers
//! accepts. Of a list in an event, one element is enough.
//!
//! | matcher | accepts |
//! | --- | --- |
//! | a text, a number, `true`, `false`, `null` | this value |
//! | `{ "prefix": "a" }` | texts that begin with `a` |
//! | `{ "anything-but": "a" }`, `{ "anything-but": ["a", 1] }` | all other values |
//! | `{ "anything-but": { "prefix": "a" } }` | all values except texts that begin with `a` |
//!
//! EventBridge has more matchers. They are refused here, so that no test passes because a rule was silently ignored.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The fields that an event must have.
#[derive(Debug)]
pub(super) struct EventPattern(BTreeMap<String, FieldPattern>);

#[derive(Debug)]
enum FieldPattern {
    /// The value of the field is accepted by one of these.
    OneOf(Vec<Matcher>),
    /// The field is an object with these fields.
    Object(EventPattern),
}

#[derive(Debug)]
enum Matcher {
    Exactly(Value),
    Prefix(String),
    AnythingBut(Vec<Value>),
    AnythingButPrefix(String),
}

impl EventPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// What is wrong with it, or not supported here, and at which field.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pattern = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Self::of_fields("", &pattern)
    }

    fn of_fields(at: &str, fields: &Map<String, Value>) -> Result<Self, String> {
        if fields.is_empty() {
            return Err(format!("`{at}`: an object without fields"));
        }
        let parsed = fields.iter().map(|(name, value)| {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            Ok((name.clone(), FieldPattern::parse(&at, value)?))
        });
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Whether an event, or an object in it, matches.
    pub(super) fn matches(&self, event: &Value) -> bool {
        match event {
            Value::Object(event) => self
                .0
                .iter()
                .all(|(name, field)| event.get(name).is_some_and(|value| field.matches(value))),
            Value::Array(elements) => elements.iter().any(|element| self.matches(element)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
}

impl FieldPattern {
    fn parse(at: &str, value: &Value) -> Result<Self, String> {
        match value {
            Value::Object(fields) => EventPattern::of_fields(at, fields).map(Self::Object),
            Value::Array(matchers) if !matchers.is_empty() => {
                let matchers = matchers.iter().map(|matcher| Matcher::parse(at, matcher));
                matchers.collect::<Result<_, _>>().map(Self::OneOf)
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(format!("`{at}`: expected a list of values, or an object")),
        }
    }

    fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Object(fields), value) => fields.matches(value),
            (Self::OneOf(_), Value::Array(elements)) => {
                elements.iter().any(|element| self.matches(element))
            }
            (Self::OneOf(matchers), value) => matchers.iter().any(|matcher| matcher.accepts(value)),
        }
    }
}

impl Matcher {
    fn parse(at: &str, matcher: &Value) -> Result<Self, String> {
        let unsupported = || format!("`{at}`: the matcher {matcher} is not supported");
        let operator = match matcher {
            Value::Object(operator) => operator,
            Value::Array(_) => return Err(unsupported()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Ok(Self::Exactly(matcher.clone()));
            }
        };
        let mut operators = operator.iter().map(|(name, operand)| (name.as_str(), operand));
        match (operators.next(), operators.next()) {
            (Some(("prefix", Value::String(prefix))), None) => Ok(Self::Prefix(prefix.clone())),
            (Some(("anything-but", Value::Array(values))), None) => {
                Ok(Self::AnythingBut(values.clone()))
            }
            (Some(("anything-but", inner @ Value::Object(_))), None) => {
                match Self::parse(at, inner)? {
                    Self::Prefix(prefix) => Ok(Self::AnythingButPrefix(prefix)),
                    Self::Exactly(_) | Self::AnythingBut(_) | Self::AnythingButPrefix(_) => {
                        Err(unsupported())
                    }
                }
            }
            (Some(("anything-but", value)), None) => Ok(Self::AnythingBut(vec![value.clone()])),
            _ => Err(unsupported()),
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        let begins_with =
            |prefix: &String| value.as_str().is_some_and(|text| text.starts_with(prefix));
        match self {
            Self::Exactly(accepted) => value == accepted,
            Self::Prefix(prefix) => begins_with(prefix),
            Self::AnythingBut(refused) => !refused.contains(value),
            Self::AnythingButPrefix(prefix) => !begins_with(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_matches_if_each_field_has_an_accepted_value() {
        let event = json!({ "source": "shop", "detail": {
            "order": { "id": "o-17", "lines": 2, "gift": true, "coupon": null },
            "tags": ["new", "eu"],
            "items": [{ "sku": "a", "lot": 1 }, { "sku": "b", "lot": 2 }],
        } });
        let order = |field: Value| json!({ "detail": { "order": field } });
        for (pattern, expected) in [
            (order(json!({ "lines": [1, 2], "gift": [true], "coupon": [null] })), true),
            (order(json!({ "lines": ["2"] })), false),
            (order(json!({ "lines": [2], "gift": [false] })), false),
            (order(json!({ "id": [{ "prefix": "o-" }] })), true),
            (order(json!({ "id": [{ "prefix": "p-" }, "o-17"] })), true),
            (order(json!({ "lines": [{ "prefix": "2" }] })), false),
            (order(json!({ "id": [{ "anything-but": "o-17" }] })), false),
            (order(json!({ "id": [{ "anything-but": ["o-1", "o-2"] }] })), true),
            (order(json!({ "lines": [{ "anything-but": [1, 2] }] })), false),
            (order(json!({ "id": [{ "anything-but": { "prefix": "o-" } }] })), false),
            (order(json!({ "id": [{ "anything-but": { "prefix": "p-" } }] })), true),
            (order(json!({ "absent": [{ "anything-but": "x" }] })), false),
            (order(json!({ "id": { "deeper": ["x"] } })), false),
            (json!({ "source": ["shop"], "detail": { "tags": ["eu"] } }), true),
            (json!({ "source": ["stock"], "detail": { "tags": ["eu"] } }), false),
            (json!({ "detail": { "items": { "sku": ["a"], "lot": [1] } } }), true),
            (json!({ "detail": { "items": { "sku": ["a"], "lot": [2] } } }), false),
        ] {
            let parsed = EventPattern::parse(&pattern.to_string()).unwrap();
            assert_eq!(parsed.matches(&event), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_is_invalid_or_not_supported_is_refused_with_its_field() {
        for (pattern, problem) in [
            ("{", "EOF while parsing"),
            ("[]", "invalid type: sequence"),
            ("{}", "``: an object without fields"),
            (r#"{"detail":{"a":{}}}"#, "`detail.a`: an object without fields"),
            (r#"{"source":"a"}"#, "`source`: expected a list of values, or an object"),
            (r#"{"source":[]}"#, "`source`: expected a list of values, or an object"),
            (r#"{"source":[["a"]]}"#, r#"`source`: the matcher ["a"] is not supported"#),
            (
                r#"{"detail":{"a":[{"suffix":"b"}]}}"#,
                r#"`detail.a`: the matcher {"suffix":"b"} is not supported"#,
            ),
            (
                r#"{"a":[{"prefix":"b","suffix":"c"}]}"#,
                r#"`a`: the matcher {"prefix":"b","suffix":"c"} is not supported"#,
            ),
            (
                r#"{"a":[{"anything-but":{"anything-but":"b"}}]}"#,
                r#"`a`: the matcher {"anything-but":{"anything-but":"b"}} is not supported"#,
            ),
        ] {
            let refused = EventPattern::parse(pattern).unwrap_err();
            assert!(refused.starts_with(problem), "{pattern}: {refused}");
        }
    }
}
