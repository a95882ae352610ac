//! Command options that apply to a step: failure rates, latencies and outputs, as `charge=5%`.

use std::{fmt, str::FromStr, time::Duration};

use serde_json::Value;

/// A value for a step, as `charge=5%`.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOption<T> {
    /// The step.
    pub at: StepSelector,
    /// The value.
    pub value: T,
}

/// The steps to which an option applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepSelector {
    /// All steps: `*`.
    All,
    /// One step, as `charge`, or a step of another workflow, as `delivery.pack`.
    Step(String),
}

/// A share from 0 to 1, as `5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

/// A duration, as `2s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationValue(pub Duration);

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub struct Json(pub Value);

/// The longest duration: the maximum of a task.
const SPAN_MAX: Duration = steward_core::limits::TASK_WITHIN_MAX;

/// An option that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no `=`.
    #[error("write STEP={example}, or *={example} for all steps")]
    NoStep {
        /// An example of a value.
        example: &'static str,
    },
    /// The value is not a share.
    #[error("`{0}` is not a share: write a percentage from 0% to 100%, such as 5%")]
    Share(String),
    /// The value is not a duration.
    #[error(
        "`{0}` is not a duration: write a duration of at most 366d, such as 100ms, 2s, 10m or 1h"
    )]
    Span(String),
    /// The value is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
}

impl fmt::Display for StepSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Step(name) => f.write_str(name),
        }
    }
}

/// A type of value that an option for a step can have.
pub trait OptionValue: FromStr<Err = OptionError> {
    /// An example, for error messages.
    const EXAMPLE: &'static str;
}

impl OptionValue for Share {
    const EXAMPLE: &'static str = "5%";
}

impl OptionValue for DurationValue {
    const EXAMPLE: &'static str = "2s";
}

impl OptionValue for Json {
    const EXAMPLE: &'static str = "JSON";
}

impl<T: OptionValue> FromStr for StepOption<T> {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let said = text.split_once('=').filter(|(at, _)| !at.trim().is_empty());
        let (at, value) = said.ok_or(OptionError::NoStep { example: T::EXAMPLE })?;
        let at = match at.trim() {
            "*" => StepSelector::All,
            step => StepSelector::Step(step.to_owned()),
        };
        Ok(Self { at, value: value.trim().parse()? })
    }
}

impl FromStr for Share {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent
            .map(|percent| Self(percent / 100.0))
            .ok_or_else(|| OptionError::Share(text.to_owned()))
    }
}

impl FromStr for DurationValue {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let span = humantime::parse_duration(text).ok().filter(|span| *span <= SPAN_MAX);
        span.map(Self).ok_or_else(|| OptionError::Span(text.to_owned()))
    }
}

impl FromStr for Json {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        serde_json::from_str(text).map(Self).map_err(|error| OptionError::Json(error.to_string()))
    }
}
