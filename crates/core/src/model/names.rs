//! Names and ids. Each kind has its own validated type, so that the compiler rejects a mix-up.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::limits::{
    AGENT_VERSION_CHARS_MAX, COMMAND_ID_CHARS_MAX, ITEMS_MAX, LABEL_BYTES_MAX, NAME_CHARS_MAX,
    QUEUE_NAME_CHARS_MAX, STACK_ID_CHARS_MAX, TASK_ID_CHARS_MAX, TENANT_CHARS_MAX,
};

/// The error for a text that is not a valid name or id. It contains the violated rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{text}` is not valid: {rule}")]
pub struct InvalidName {
    kind: &'static str,
    text: String,
    rule: String,
}

impl InvalidName {
    /// The violated rule, without the invalid text.
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
                    text: crate::limits::short_line(&text, 60),
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
    /// The id of a task. The client chooses it, for example an order number. It makes submission idempotent.
    TaskId, "task id", TASK_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'),
    "[A-Za-z0-9][A-Za-z0-9_.:-]",
    "a letter or digit, then letters, digits, `-`, `_`, `.` and `:`"
);

checked_text!(
    /// The tenant of a task: the customer, team or system on whose behalf it runs. It is the message group id of the
    /// task's messages in SQS, so that the load of one tenant does not delay the tasks of others.
    Tenant, "tenant", TENANT_CHARS_MAX,
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    "[A-Za-z0-9._-]",
    "letters, digits, `.`, `_` and `-`"
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
    /// The name of a step. It is part of expressions such as `steps.charge.output`, so it must not contain `-`.
    StepName, "step name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_',
    "[a-z][a-z0-9_]",
    "a lower-case letter, then lower-case letters, digits and `_`"
);

checked_text!(
    /// The name of a value in `vars`, `env` or `labels`. It is part of expressions such as `vars.total`.
    ValueName, "name of a value", NAME_CHARS_MAX,
    |c| c.is_ascii_alphabetic(),
    |c| c.is_ascii_alphanumeric() || c == '_',
    "[A-Za-z][A-Za-z0-9_]",
    "a letter, then letters, digits and `_`"
);

checked_text!(
    /// The value of a label of a task.
    LabelValue, "label", LABEL_BYTES_MAX,
    |c| !c.is_control(),
    |c| !c.is_control(),
    "[^\\p{Cc}]",
    "no control characters"
);

checked_text!(
    /// The id of an operator's command. It is short because it can be part of an idempotency key.
    CommandId, "command id", COMMAND_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_alphanumeric() || c == '-',
    "[A-Za-z0-9][A-Za-z0-9-]",
    "a letter or digit, then letters, digits and `-`"
);

checked_text!(
    /// The name of a logical agent. It determines the name of the agent's queue.
    AgentName, "agent name", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'),
    "[a-z][a-z0-9_-]",
    "a lower-case letter, then lower-case letters, digits, `-` and `_`"
);

checked_text!(
    /// The kind of an agent: `http`, or another word for how it calls its service.
    AgentKind, "agent kind", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
    "[a-z][a-z0-9-]",
    "a lower-case letter, then lower-case letters, digits and `-`"
);

checked_text!(
    /// The name of an AWS service or region in a signature, such as `s3` or `eu-west-1`.
    AwsName, "name of an AWS service or region", NAME_CHARS_MAX,
    |c| c.is_ascii_lowercase(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
    "[a-z][a-z0-9-]",
    "a lower-case letter, then lower-case letters, digits and `-`"
);

checked_text!(
    /// The name of an SQS queue.
    QueueName, "queue name", QUEUE_NAME_CHARS_MAX,
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    "[A-Za-z0-9_-]",
    "letters, digits, `-` and `_`"
);

checked_text!(
    /// The version of an agent's code. Its author chooses it.
    AgentVersion, "agent version", AGENT_VERSION_CHARS_MAX,
    |c| c.is_ascii_graphic(),
    |c| c.is_ascii_graphic(),
    "[!-~]",
    "printable ASCII characters without spaces"
);

checked_text!(
    /// The id of the CloudFormation stack that registered an agent, or `local`.
    StackId, "stack id", STACK_ID_CHARS_MAX,
    |c| c.is_ascii_alphanumeric(),
    |c| c.is_ascii_graphic(),
    "[A-Za-z0-9][!-~]",
    "a letter or digit, then printable ASCII characters without spaces"
);

/// A step, or one item of a step with `for_each`. Each part runs and is undone separately. As text, a step is `ship`, and
/// an item is `ship[3]`, with its index counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    /// The step.
    pub step: StepName,
    /// The index of the item, counted from 0, if the step has items.
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
        let index = item.parse().ok();
        let item = index.filter(|index: &u32| *index < ITEMS_MAX && index.to_string() == item);
        let item = item.ok_or_else(|| InvalidName {
            kind: "item",
            text: crate::limits::short_line(text, 60),
            rule: format!("a step's name and an index from 0 to {}, as `ship[3]`", ITEMS_MAX - 1),
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
            "description": "A step, such as `ship`, or one item of a step with `for_each`, such as `ship[3]`",
        })
    }
}

/// Distinguishes a task from earlier tasks with the same id: the time at which the task was recorded, in milliseconds. An
/// id may be used again after its task has expired. Documents and messages of the earlier task then have another
/// incarnation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Incarnation(u64);

/// Characters of an incarnation as text: its milliseconds since 1970 in base 36.
const INCARNATION_CHARS: usize = 9;

impl Incarnation {
    /// The largest incarnation that fits in its text, in the year 5188.
    const MAX: u64 = 36_u64.pow(INCARNATION_CHARS as u32) - 1;

    /// Returns the incarnation of a task that was recorded at this time.
    #[must_use]
    pub fn recorded_at(time: jiff::Timestamp) -> Self {
        Self(u64::try_from(time.as_millisecond()).unwrap_or_default().min(Self::MAX))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut digits = Vec::with_capacity(INCARNATION_CHARS);
        for _ in 0..INCARNATION_CHARS {
            let digit = u32::try_from(rest % 36).unwrap_or_default();
            digits.push(char::from_digit(digit, 36).unwrap_or('0'));
            rest /= 36;
        }
        f.write_str(&digits.into_iter().rev().collect::<String>())
    }
}

impl FromStr for Incarnation {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        let number = Some(text)
            .filter(|text| text.len() == INCARNATION_CHARS && text.bytes().all(is_digit))
            .and_then(|text| u64::from_str_radix(text, 36).ok());
        number.map(Self).ok_or_else(|| InvalidName {
            kind: "incarnation",
            text: crate::limits::short_line(text, 60),
            rule: format!("{INCARNATION_CHARS} digits in base 36"),
        })
    }
}

/// Authorises a callback of a step, such as `order-7/approve/i0mfvx3k5z`. It is as stable as the step's idempotency key:
/// the same for every attempt, and a new one after an edit of the input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallbackToken {
    /// The task.
    pub task_id: TaskId,
    /// Its step.
    pub step: Part,
    /// The task's incarnation, so that a later task with the same id has other tokens.
    pub incarnation: Incarnation,
    /// The command that edited the input of the request with the token, if any. A callback from before a later edit is
    /// refused.
    pub edit: Option<CommandId>,
}

impl fmt::Display for CallbackToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task_id, step, incarnation, edit } = self;
        write!(f, "{task_id}/{step}/i{incarnation}")?;
        edit.iter().try_for_each(|edit| write!(f, "/{edit}"))
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
            text: crate::limits::short_line(text, 60),
            rule: "a token from a step's request, as `order-7/approve/i0mfvx3k5z`".to_owned(),
        };
        let parts: Vec<_> = text.split('/').collect();
        let (task_id, step, incarnation, edit) = match parts.as_slice() {
            [task_id, step, incarnation] => (task_id, step, incarnation, None),
            [task_id, step, incarnation, edit] => (task_id, step, incarnation, Some(edit.parse()?)),
            _ => return Err(invalid()),
        };
        let incarnation = incarnation.strip_prefix('i').ok_or_else(invalid)?;
        let incarnation = incarnation.parse().map_err(|_| invalid())?;
        Ok(Self { task_id: task_id.parse()?, step: step.parse()?, incarnation, edit })
    }
}

impl schemars::JsonSchema for CallbackToken {
    fn schema_name() -> Cow<'static, str> {
        "CallbackToken".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "The token from the step's request, unchanged",
        })
    }
}

#[cfg(test)]
mod tests;
