//! The properties of the custom resource. CloudFormation sends all values as texts. An empty text counts as absent, so
//! that a template can pass a parameter whose default is empty.

use std::{fmt::Display, num::NonZeroU32, str::FromStr};

use serde_json::{Map, Value};
use steward_core::{
    limits::short_line,
    model::{
        names::{AgentKind, AgentName, AgentVersion, InvalidName, QueueName},
        registration::{CallRate, InvalidCallRate},
    },
};

/// The properties that the registrar knows.
const KNOWN: [&str; 12] = [
    "ServiceToken",
    "ServiceTimeout",
    "Name",
    "Kind",
    "DeadLetterQueue",
    "Contract",
    "Version",
    "Timeout",
    "CallsAtOnce",
    "RatePerSecond",
    "Burst",
    // Not read. If the main stack is created anew, it has another table, and CloudFormation registers the agents again.
    "DocumentsTable",
];

/// The largest timeout of a function, in seconds: Lambda's limit.
const TIMEOUT_SECONDS_MAX: u32 = 900;

/// A property is missing or invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProperties {
    /// The property is required.
    #[error("the property `{0}` is missing")]
    Missing(&'static str),
    /// The property is unknown.
    #[error("unknown property `{0}`; known are {known}", known = KNOWN.join(", "))]
    Unknown(String),
    /// The value is invalid.
    #[error("the property `{property}` is invalid: {problem}")]
    Invalid {
        /// The property.
        property: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The stack id is invalid.
    #[error(transparent)]
    StackId(InvalidName),
    /// The name of the agent's queue is too long.
    #[error(transparent)]
    QueueName(InvalidName),
}

/// What the stack of an agent says about the agent.
#[derive(Debug)]
pub(crate) struct AgentProperties {
    pub(crate) name: AgentName,
    pub(crate) kind: AgentKind,
    pub(crate) dead_letter_queue: QueueName,
    pub(crate) contract: NonZeroU32,
    pub(crate) version: Option<AgentVersion>,
    /// The timeout of the agent's function.
    pub(crate) timeout_seconds: Option<NonZeroU32>,
    pub(crate) calls_at_once: Option<NonZeroU32>,
    pub(crate) rate_per_second: Option<CallRate>,
    pub(crate) burst: Option<NonZeroU32>,
}

impl AgentProperties {
    pub(crate) fn parse(properties: &Map<String, Value>) -> Result<Self, InvalidProperties> {
        if let Some(unknown) = properties.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(InvalidProperties::Unknown(short_line(unknown, 60)));
        }
        let timeout_seconds: Option<NonZeroU32> = optional(properties, "Timeout")?;
        if timeout_seconds.is_some_and(|timeout| timeout.get() > TIMEOUT_SECONDS_MAX) {
            return Err(invalid("Timeout", format!("more than {TIMEOUT_SECONDS_MAX} s")));
        }
        let rate: Option<f64> = optional(properties, "RatePerSecond")?;
        // Zero stands for no limit, as in the agent's own configuration.
        let rate = rate.filter(|rate| *rate != 0.0).map(CallRate::try_from).transpose();
        Ok(Self {
            name: required(properties, "Name")?,
            kind: required(properties, "Kind")?,
            dead_letter_queue: required(properties, "DeadLetterQueue")?,
            contract: required(properties, "Contract")?,
            version: optional(properties, "Version")?,
            timeout_seconds,
            calls_at_once: optional(properties, "CallsAtOnce")?,
            rate_per_second: rate
                .map_err(|error: InvalidCallRate| invalid("RatePerSecond", error))?,
            burst: optional(properties, "Burst")?,
        })
    }
}

fn required<T: FromStr<Err: Display>>(
    properties: &Map<String, Value>,
    property: &'static str,
) -> Result<T, InvalidProperties> {
    optional(properties, property)?.ok_or(InvalidProperties::Missing(property))
}

fn optional<T: FromStr<Err: Display>>(
    properties: &Map<String, Value>,
    property: &'static str,
) -> Result<Option<T>, InvalidProperties> {
    let text = match properties.get(property) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        // Some emulators keep the types of the template.
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(invalid(property, "not a text or a number"));
        }
    };
    text.parse().map(Some).map_err(|error| invalid(property, error))
}

fn invalid(property: &'static str, problem: impl Display) -> InvalidProperties {
    InvalidProperties::Invalid { property, problem: problem.to_string() }
}
