//! The configuration of an agent, from environment variables.

use std::{
    convert::Infallible,
    num::{NonZeroU32, ParseIntError},
    str::FromStr,
};

use envconfig::Envconfig;
use steward_aws::config::HumanDuration;
use steward_core::{
    breaker::BreakerSettings,
    model::{
        key_format::KeyFormat,
        names::AgentName,
        registration::{CallRate, InvalidCallRate},
    },
    rate::RateLimit,
};

use crate::{
    http::{BaseUrl, Headers},
    signed::AgentAuth,
};

/// The configuration of an agent, beside the configuration that all functions share.
#[derive(Debug, Clone, Envconfig)]
pub struct AgentConfig {
    /// The agent's name, as in the `agent` of a step.
    #[envconfig(from = "STEWARD_AGENT_NAME")]
    pub name: AgentName,
    /// How the agent calls its remote service.
    #[envconfig(from = "STEWARD_AGENT_KIND", default = "http")]
    pub kind: AgentKind,
    /// The URL of the remote service. For the kinds of AWS services, another endpoint than the service's own.
    #[envconfig(from = "STEWARD_AGENT_BASE_URL")]
    pub base_url: Option<BaseUrl>,
    /// The ARNs of the resources that the agent may call, for the kinds of AWS services.
    #[envconfig(from = "STEWARD_AGENT_TARGETS", default = "")]
    pub targets: CommaSeparated,
    /// The ARN of the role with whose credentials an agent of kind `aws` calls. Empty: those of the function.
    #[envconfig(from = "STEWARD_AGENT_CALL_ROLE", default = "")]
    pub call_role: String,
    /// Headers of every call, as a JSON object. Their values may be secrets.
    #[envconfig(from = "STEWARD_AGENT_HEADERS", default = "{}")]
    pub headers: Headers,
    /// The ARN of a secret in AWS Secrets Manager whose text is a JSON object of headers. They are added to every call
    /// and override `headers`. Empty if there is no secret.
    #[envconfig(from = "STEWARD_AGENT_SECRET_ARN", default = "")]
    pub secret_arn: String,
    /// How calls are authenticated whose step does not say it.
    #[envconfig(from = "STEWARD_AGENT_AUTH", default = "none")]
    pub auth: AgentAuth,
    /// How the service gets the idempotency key, as `HEADER` or `HEADER/FORM`. Empty: `Idempotency-Key`, in full.
    #[envconfig(from = "STEWARD_AGENT_IDEMPOTENCY_KEY", default = "")]
    pub idempotency_key: KeyFormat,
    /// The time limit of a call, independent of its step. The agent aborts a call that takes longer; its outcome is then
    /// unknown.
    #[envconfig(from = "STEWARD_AGENT_CALL_TIMEOUT", default = "100s")]
    pub call_timeout: HumanDuration,
    /// The number of consecutive calls of one instance that find the service unavailable before the agent's circuit
    /// breaker opens.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_FAILURES", default = "5")]
    pub breaker_failures: NonZeroU32,
    /// How long the breaker stays open at first, as `10s`. The time doubles with each failed probe, up to five minutes.
    #[envconfig(from = "STEWARD_AGENT_BREAKER_OPEN_FOR", default = "10s")]
    pub breaker_open_for: HumanDuration,
    /// How many calls all instances of the agent may make in a second, in the long run, as `0.5`. Empty or zero if there
    /// is no limit.
    #[envconfig(from = "STEWARD_AGENT_RATE_PER_SECOND", default = "")]
    pub rate_per_second: RateSetting,
    /// How many calls they may make at once after a pause. If it is empty: a second's worth, but at least one.
    #[envconfig(from = "STEWARD_AGENT_BURST", default = "")]
    pub burst: BurstSetting,
}

impl AgentConfig {
    /// The circuit breaker's settings. A probe has the same time limit as any call.
    #[must_use]
    pub fn breaker(&self) -> BreakerSettings {
        BreakerSettings {
            failures: self.breaker_failures,
            open_for: self.breaker_open_for.0,
            probe_within: self.call_timeout.0,
        }
    }

    /// The limit of the agent's calls, if there is one.
    #[must_use]
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_per_second.0.map(|per_second| RateLimit::new(per_second, self.burst.0))
    }
}

/// How an agent calls its remote service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentKind {
    /// By HTTP requests to one base URL.
    #[default]
    Http,
    /// By invocations of Lambda functions.
    Lambda,
    /// By messages to SQS queues.
    Sqs,
    /// By events on EventBridge buses.
    Events,
    /// By operations of AWS APIs.
    Aws,
}

/// The text is not an [`AgentKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of agent: `http`, `lambda`, `sqs`, `events` or `aws`")]
pub struct UnknownKind(String);

impl FromStr for AgentKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        match text {
            "http" => Ok(Self::Http),
            "lambda" => Ok(Self::Lambda),
            "sqs" => Ok(Self::Sqs),
            "events" => Ok(Self::Events),
            "aws" => Ok(Self::Aws),
            _ => Err(UnknownKind(text.to_owned())),
        }
    }
}

/// The rate of a limit, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateSetting(pub Option<CallRate>);

/// The text is not a [`RateSetting`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidRate {
    /// It is not a number.
    #[error("`{0}` is not a number of calls per second")]
    NotANumber(String),
    /// The number is too small or too large.
    #[error(transparent)]
    OutOfRange(#[from] InvalidCallRate),
}

impl FromStr for RateSetting {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let number: f64 = text.parse().map_err(|_| InvalidRate::NotANumber(text.to_owned()))?;
        let rate = if number == 0.0 { None } else { Some(CallRate::try_from(number)?) };
        Ok(Self(rate))
    }
}

/// The burst of a limit, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BurstSetting(pub Option<NonZeroU32>);

impl FromStr for BurstSetting {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(|burst| Self(Some(burst))) }
    }
}

/// Texts in one variable, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommaSeparated(pub Vec<String>);

impl FromStr for CommaSeparated {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        Ok(Self(texts.map(str::to_owned).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: &str, burst: &str) -> Result<Option<RateLimit>, String> {
        let RateSetting(rate) = rate.parse().map_err(|error: InvalidRate| error.to_string())?;
        let BurstSetting(burst) =
            burst.parse().map_err(|error: ParseIntError| error.to_string())?;
        Ok(rate.map(|rate| RateLimit::new(rate, burst)))
    }

    #[test]
    fn a_rate_is_a_number_of_calls_per_second_and_empty_or_zero_without_a_limit() {
        for none in ["", "0", "0.0"] {
            assert_eq!(limit(none, ""), Ok(None));
        }
        let limits = [("0.5", "", 0.5, 1), ("20", "", 20.0, 20), ("2.5", "40", 2.5, 40)];
        for (rate, burst, per_second, calls) in limits {
            let limit = limit(rate, burst).unwrap().unwrap();
            assert_eq!((f64::from(limit.per_second), limit.burst.get()), (per_second, calls));
        }
    }

    #[test]
    fn an_invalid_rate_or_burst_is_refused() {
        assert_eq!(limit("fast", ""), Err("`fast` is not a number of calls per second".to_owned()));
        for (rate, burst) in [("0.05", ""), ("-1", ""), ("NaN", ""), ("1", "0"), ("1", "2.5")] {
            assert!(limit(rate, burst).is_err(), "{rate} {burst}");
        }
    }
}
