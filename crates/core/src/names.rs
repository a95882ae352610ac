//! Names and ids: small checked texts, so that no other kind of text can take their place.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::limits::{COMMAND_ID_CHARS_MAX, NAME_CHARS_MAX, TASK_ID_CHARS_MAX};

/// A text that cannot be the name or id it was given for. It says which rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{text}` is not valid: {rule}")]
pub struct InvalidName {
    kind: &'static str,
    text: String,
    rule: String,
}

impl InvalidName {
    /// The rule that was broken, without the text that broke it.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $chars_max:expr, $first:expr, $rest:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                let mut chars = text.chars();
                let starts_well = chars.next().is_some_and($first);
                if starts_well && chars.all($rest) && text.len() <= $chars_max {
                    return Ok(Self(text));
                }
                Err(InvalidName {
                    kind: $kind,
                    text: crate::limits::shorten(&text, 60),
                    rule: format!("{}, at most {} characters", $rule, $chars_max),
                })
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::try_from(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "minLength": 1,
                    "maxLength": $chars_max,
                    "description": $rule,
                })
            }
        }
    };
}

checked_text!(
    /// The id of a task, chosen by the client: its order number, say. Submitting the same id twice
    /// is how a client repeats itself safely.
    TaskId, "task id", TASK_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'),
    "a letter or digit, then letters, digits, `-`, `_`, `.` and `:`"
);

checked_text!(
    /// The name of a workflow.
    WorkflowName, "workflow name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'),
    "a lower-case letter, then lower-case letters, digits, `-` and `_`"
);

checked_text!(
    /// The name of a step, as expressions say it: `steps.charge.output`. So it has no `-`.
    StepName, "step name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_',
    "a lower-case letter, then lower-case letters, digits and `_`"
);

checked_text!(
    /// The id of an operator's command: part of an idempotency key, so it is short.
    CommandId, "command id", COMMAND_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_alphanumeric() || c == '-',
    "a letter or digit, then letters, digits and `-`"
);

checked_text!(
    /// The name of a logical agent. Its queue is named after it.
    AgentName, "agent name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'),
    "a lower-case letter, then lower-case letters, digits, `-` and `_`"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_in_a_header_and_in_a_key() {
        assert!("order-2026:11.20_7".parse::<TaskId>().is_ok());
        for bad in ["", "-a", "a/b", "a b", "a\nb", "ü", &"a".repeat(TASK_ID_CHARS_MAX + 1)] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_bad_name_says_which_rule_it_breaks() {
        let error = "reserve-stock".parse::<StepName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "step name `reserve-stock` is not valid: a lower-case letter, then lower-case letters, \
             digits and `_`, at most 40 characters"
        );
    }

    #[test]
    fn a_name_is_checked_when_it_is_read() {
        assert!(serde_json::from_str::<StepName>("\"Charge\"").is_err());
        assert_eq!(serde_json::from_str::<StepName>("\"charge\"").unwrap().as_str(), "charge");
    }
}
