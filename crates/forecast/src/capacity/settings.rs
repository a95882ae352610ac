//! The settings of the capacity model: the load, the deployment and the limits.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::aws_limits::Limits;
use crate::cost::{self, ForecastError};

/// The input of the capacity model.
#[derive(Debug, Clone)]
pub struct ScaleSettings {
    /// The workflow and the latencies of its calls. A forecast with these settings counts the demand of one task.
    pub forecast: cost::ForecastSettings,
    /// The submissions.
    pub load: Load,
    /// The sizes of the deployment.
    pub deployment: DeploymentSizing,
    /// The limits of AWS.
    pub limits: Limits,
    /// The processor time of a message in seconds, with the memory of the functions.
    pub compute_s: f64,
}

/// Submissions over time: a rate, and optionally a spike in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Submissions per second.
    pub rate: f64,
    /// The duration in seconds, including the spike.
    pub lasts_s: f64,
    /// Submissions per second in the spike; equal to `rate` if there is none.
    pub spike: f64,
    /// The duration of the spike in seconds.
    pub spike_lasts_s: f64,
}

impl Load {
    /// A load without a spike.
    #[must_use]
    pub const fn steady(rate: f64, lasts_s: f64) -> Self {
        Self { rate, lasts_s, spike: rate, spike_lasts_s: 0.0 }
    }

    /// The highest rate, in submissions per second.
    #[must_use]
    pub fn peak(&self) -> f64 {
        if self.spike_lasts_s > 0.0 { self.rate.max(self.spike) } else { self.rate }
    }

    /// The largest number of submissions that have arrived beyond `sustained` submissions per second: at the end of the spike or
    /// at the end of the load.
    #[must_use]
    pub fn backlog_max(&self, sustained: f64) -> f64 {
        let before = (self.lasts_s - self.spike_lasts_s) / 2.0;
        let beyond = |rate: f64, seconds: f64| (rate - sustained) * seconds;
        let at_spike = beyond(self.rate, before).max(0.0);
        let after_spike = (at_spike + beyond(self.spike, self.spike_lasts_s)).max(0.0);
        let at_end = (after_spike + beyond(self.rate, before)).max(0.0);
        at_spike.max(after_spike).max(at_end)
    }

    /// The number of all submissions.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.rate * (self.lasts_s - self.spike_lasts_s) + self.spike * self.spike_lasts_s
    }
}

/// The parameters of `template.yaml` and `infra/agent.yaml`, and the throughput of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeploymentSizing {
    /// The template size that the three following numbers come from, unless they are overridden.
    pub size: Size,
    /// Concurrent invocations of the submission function.
    pub submission: f64,
    /// Concurrent invocations of the scheduler.
    pub scheduler: f64,
    /// Concurrent invocations of each agent.
    pub agent: f64,
    /// Minimum pollers of each queue in provisioned mode; 0 without provisioned mode.
    pub pollers: f64,
    /// Shards of the due index.
    pub shards: u32,
    /// Warm throughput of each table and the due index, in write units per second, if higher than that of a new table.
    pub warm_writes: f64,
    /// The same in read units per second.
    pub warm_reads: f64,
    /// Whether the due index has had this load before, so that each shard has its own partition.
    pub rehearsed: bool,
}

/// `Size` of the templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Few concurrent invocations.
    Small,
    /// The default.
    Medium,
    /// Many concurrent invocations.
    Large,
}

impl Size {
    /// The concurrent invocations in the `Mappings` of `template.yaml` and `infra/agent.yaml`: submission, scheduler, agent.
    #[must_use]
    pub const fn at_once(self) -> (f64, f64, f64) {
        match self {
            Self::Small => (2.0, 4.0, 2.0),
            Self::Medium => (10.0, 20.0, 10.0),
            Self::Large => (100.0, 200.0, 100.0),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        })
    }
}

impl FromStr for Size {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let mut all = [Self::Small, Self::Medium, Self::Large].into_iter();
        let found = all.find(|size| size.to_string() == text);
        found.ok_or_else(|| ScaleError::Size(text.to_owned()))
    }
}

/// The default of `Shards` in `template.yaml`.
pub const SHARDS: u32 = 8;

/// The `MaxValue` of `Shards` in `template.yaml`.
pub(super) const SHARDS_MAX: u32 = 256;

impl DeploymentSizing {
    /// A new deployment with the defaults of the templates.
    #[must_use]
    pub const fn of(size: Size) -> Self {
        let (submission, scheduler, agent) = size.at_once();
        Self {
            size,
            submission,
            scheduler,
            agent,
            pollers: 0.0,
            shards: SHARDS,
            warm_writes: 0.0,
            warm_reads: 0.0,
            rehearsed: false,
        }
    }
}

/// The longest load, in seconds.
const LASTS_MAX_S: f64 = 4.0 * 3600.0;

/// The highest rate, in submissions per second.
const RATE_MAX: f64 = 1_000_000.0;

/// The reason why the capacity could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The demand of a task could not be counted.
    #[error("the forecast that counts the demand of a task failed")]
    Forecast(#[from] ForecastError),
    /// `aws_limits.yaml` cannot be parsed.
    #[error("aws_limits.yaml: {0}")]
    Limits(String),
    /// The size does not exist.
    #[error("`{0}` is not a size: use small, medium or large")]
    Size(String),
    /// A number is outside its limits.
    #[error("--{option}: must be from {min} to {max}{hint}")]
    OutOfLimits {
        /// The option.
        option: &'static str,
        /// The lower limit.
        min: f64,
        /// The upper limit.
        max: f64,
        /// Further information for the message.
        hint: &'static str,
    },
}

impl ScaleSettings {
    /// Checks that all numbers are within their limits.
    ///
    /// # Errors
    /// The first number that is not.
    pub fn check(&self) -> Result<(), ScaleError> {
        let (load, deployment, limits) = (&self.load, &self.deployment, &self.limits);
        let (at_once_max, hint) = match deployment.pollers > 0.0 {
            true => (limits.provisioned_invocations_max.value, ""),
            false => (
                limits.maximum_concurrency_max.value,
                ", the limit of MaximumConcurrency; --pollers allows more",
            ),
        };
        let pollers_max = limits.minimum_pollers_max.value;
        let within = |option, value: f64, min, max, hint| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(ScaleError::OutOfLimits { option, min, max, hint }),
        };
        within("rate", load.rate, 0.0, RATE_MAX, "")?;
        within("spike", load.spike, 0.0, RATE_MAX, "")?;
        within("for", load.lasts_s, 1.0, LASTS_MAX_S, " seconds")?;
        within(
            "spike-for",
            load.spike_lasts_s,
            0.0,
            load.lasts_s,
            " seconds, the duration in --for",
        )?;
        within("submission-concurrency", deployment.submission, 2.0, at_once_max, hint)?;
        within("scheduler-concurrency", deployment.scheduler, 2.0, at_once_max, hint)?;
        within("agent-concurrency", deployment.agent, 2.0, at_once_max, hint)?;
        within("pollers", deployment.pollers, 0.0, pollers_max, "")?;
        within("shards", f64::from(deployment.shards), 1.0, 65_536.0, "")?;
        within("compute", self.compute_s, 0.0, 1.0, " seconds")
    }
}
