//! What is said of steps: odds, latencies, outputs; as the command's options say it.

use std::{fmt, str::FromStr, time::Duration};

use serde_json::Value;

/// Something that is said of a step, as `charge=5%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Said<T> {
    /// Of which step.
    pub at: At,
    /// What.
    pub value: T,
}

/// Which steps something is said of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// All of them, as `*`.
    All,
    /// One, as `charge`; or one of another workflow, as `delivery.pack`.
    Step(String),
}

/// A share from 0 to 1, as `5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

/// A duration, as `2s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub struct Json(pub Value);

/// The longest duration that can be said: what a task may be given.
const SPAN_MAX: Duration = steward_core::limits::TASK_WITHIN_MAX;

/// What cannot be said so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// There is no `=`.
    #[error("say it as STEP={example}, or *={example} for all steps")]
    NoStep {
        /// A value that would do.
        example: &'static str,
    },
    /// It is no share.
    #[error("`{0}` is not a share: say it as 5%, from 0% to 100%")]
    Share(String),
    /// It is no duration.
    #[error("`{0}` is not a duration: say it as 100ms, 2s, 10m or 1h, up to 366d")]
    Span(String),
    /// It is no JSON.
    #[error("not JSON: {0}")]
    Json(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Step(name) => f.write_str(name),
        }
    }
}

/// What can be said of a step.
pub trait Sayable: FromStr<Err = Unclear> {
    /// How it is said.
    const EXAMPLE: &'static str;
}

impl Sayable for Share {
    const EXAMPLE: &'static str = "5%";
}

impl Sayable for Span {
    const EXAMPLE: &'static str = "2s";
}

impl Sayable for Json {
    const EXAMPLE: &'static str = "JSON";
}

impl<T: Sayable> FromStr for Said<T> {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        let said = text.split_once('=').filter(|(at, _)| !at.trim().is_empty());
        let (at, value) = said.ok_or(Unclear::NoStep { example: T::EXAMPLE })?;
        let at = match at.trim() {
            "*" => At::All,
            step => At::Step(step.to_owned()),
        };
        Ok(Self { at, value: value.trim().parse()? })
    }
}

impl FromStr for Share {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(|percent| Self(percent / 100.0)).ok_or_else(|| Unclear::Share(text.to_owned()))
    }
}

impl FromStr for Span {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        let span = humantime::parse_duration(text).ok().filter(|span| *span <= SPAN_MAX);
        span.map(Self).ok_or_else(|| Unclear::Span(text.to_owned()))
    }
}

impl FromStr for Json {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        serde_json::from_str(text).map(Self).map_err(|error| Unclear::Json(error.to_string()))
    }
}
