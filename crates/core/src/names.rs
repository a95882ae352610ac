//! Names and ids: small checked texts, so that no other kind of text can take their place.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::limits::{COMMAND_ID_CHARS_MAX, ITEMS_MAX, NAME_CHARS_MAX, TASK_ID_CHARS_MAX};

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
    ($(#[$doc:meta])* $name:ident, $kind:literal, $chars_max:expr, $first:expr, $rest:expr, $pattern:literal, $rule:literal) => {
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
                    "pattern": format!("^{}{{0,{}}}$", $pattern, $chars_max - 1),
                    "description": format!("{}, at most {} characters", $rule, $chars_max),
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
    "[A-Za-z0-9][A-Za-z0-9_.:-]",
    "a letter or digit, then letters, digits, `-`, `_`, `.` and `:`"
);

checked_text!(
    /// The name of a workflow.
    WorkflowName, "workflow name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'),
    "[a-z][a-z0-9_-]",
    "a lower-case letter, then lower-case letters, digits, `-` and `_`"
);

checked_text!(
    /// The name of a step, as expressions say it: `steps.charge.output`. So it has no `-`.
    StepName, "step name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_',
    "[a-z][a-z0-9_]",
    "a lower-case letter, then lower-case letters, digits and `_`"
);

checked_text!(
    /// The id of an operator's command: part of an idempotency key, so it is short.
    CommandId, "command id", COMMAND_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_alphanumeric() || c == '-',
    "[A-Za-z0-9][A-Za-z0-9-]",
    "a letter or digit, then letters, digits and `-`"
);

checked_text!(
    /// The name of a logical agent. Its queue is named after it.
    AgentName, "agent name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'),
    "[a-z][a-z0-9_-]",
    "a lower-case letter, then lower-case letters, digits, `-` and `_`"
);

/// What is done, and undone, by itself: a step, or one item of a step with `for_each`. As text
/// `ship`, or `ship[3]` with the item's place counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    /// The step.
    pub step: StepName,
    /// The item's place, if the step has items.
    pub item: Option<u32>,
}

impl From<StepName> for Part {
    fn from(step: StepName) -> Self {
        Self { step, item: None }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "{}[{item}]", self.step),
            None => write!(f, "{}", self.step),
        }
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.to_string()
    }
}

impl TryFrom<String> for Part {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl FromStr for Part {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let Some((step, item)) = text.strip_suffix(']').and_then(|text| text.split_once('['))
        else {
            return Ok(text.parse::<StepName>()?.into());
        };
        let place = item.parse().ok();
        let item = place.filter(|place: &u32| *place < ITEMS_MAX && place.to_string() == item);
        let item = item.ok_or_else(|| InvalidName {
            kind: "item",
            text: crate::limits::shorten(text, 60),
            rule: format!("a step's name and a place from 0 to {}, as `ship[3]`", ITEMS_MAX - 1),
        })?;
        Ok(Self { step: step.parse()?, item: Some(item) })
    }
}

impl schemars::JsonSchema for Part {
    fn schema_name() -> Cow<'static, str> {
        "Part".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A step, as `ship`, or one item of a step with `for_each`, as `ship[3]`",
        })
    }
}

/// Names one attempt at a step that someone else answers, as `order-7/approve/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallbackToken {
    /// The task.
    pub task_id: TaskId,
    /// Its step.
    pub step: Part,
    /// The attempt: another one has another token.
    pub attempt: u32,
}

impl fmt::Display for CallbackToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task_id, step, attempt } = self;
        write!(f, "{task_id}/{step}/{attempt}")
    }
}

impl From<CallbackToken> for String {
    fn from(token: CallbackToken) -> Self {
        token.to_string()
    }
}

impl TryFrom<String> for CallbackToken {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl FromStr for CallbackToken {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = || InvalidName {
            kind: "callback token",
            text: crate::limits::shorten(text, 60),
            rule: "a task, a step and an attempt, as `order-7/approve/1`".to_owned(),
        };
        let parts: Vec<_> = text.split('/').collect();
        let [task_id, step, attempt] = parts.as_slice() else { return Err(invalid()) };
        let attempt = attempt.parse().map_err(|_| invalid())?;
        Ok(Self { task_id: task_id.parse()?, step: step.parse()?, attempt })
    }
}

impl schemars::JsonSchema for CallbackToken {
    fn schema_name() -> Cow<'static, str> {
        "CallbackToken".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "What the step's request handed out, unchanged",
        })
    }
}

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
    fn a_part_reads_as_it_is_written() {
        for text in ["ship", "ship[0]", "ship[99]"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for bad in ["ship[]", "ship[-1]", "ship[01]", "ship[100]", "ship[3", "[3]", "ship[3]x"] {
            assert!(bad.parse::<Part>().is_err(), "{bad:?} was accepted");
        }
        let token: CallbackToken = "order-7/approve[3]/2".parse().unwrap();
        assert_eq!((token.step.item, token.attempt), (Some(3), 2));
        assert_eq!(token.to_string(), "order-7/approve[3]/2");
        for bad in ["order-7/approve", "order-7/approve/1/2", "order-7/approve/x", "/approve/1"] {
            assert!(bad.parse::<CallbackToken>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_name_is_checked_when_it_is_read() {
        assert!(serde_json::from_str::<StepName>("\"Charge\"").is_err());
        assert_eq!(serde_json::from_str::<StepName>("\"charge\"").unwrap().as_str(), "charge");
    }
}
