//! What a deployment is given, and what comes to it.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::limits::Limits;
use crate::cost::{self, ForecastError};

/// What the model is asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workflow and how long its calls take; what one of its tasks asks of a deployment is counted
    /// by a forecast of them.
    pub forecast: cost::Settings,
    /// What comes.
    pub load: Load,
    /// What it comes to.
    pub deployment: Deployment,
    /// What AWS lets through.
    pub limits: Limits,
    /// What a message takes of the processor, in seconds, at the functions' memory.
    pub compute_s: f64,
}

/// Submissions over time: a rate, and maybe a higher one for a while in the middle of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Submissions a second.
    pub rate: f64,
    /// For how many seconds, those of the spike included.
    pub lasts_s: f64,
    /// Submissions a second in the spike; the same rate if there is none.
    pub spike: f64,
    /// How many seconds the spike lasts, in the middle.
    pub spike_lasts_s: f64,
}

impl Load {
    /// So many submissions a second for so many seconds.
    #[must_use]
    pub const fn steady(rate: f64, lasts_s: f64) -> Self {
        Self { rate, lasts_s, spike: rate, spike_lasts_s: 0.0 }
    }

    /// The highest rate.
    #[must_use]
    pub fn peak(&self) -> f64 {
        if self.spike_lasts_s > 0.0 { self.rate.max(self.spike) } else { self.rate }
    }

    /// Submissions by then, from the beginning.
    #[must_use]
    pub fn by(&self, at_s: f64) -> f64 {
        let at = at_s.clamp(0.0, self.lasts_s);
        let from = (self.lasts_s - self.spike_lasts_s) / 2.0;
        let spiked = (at - from).clamp(0.0, self.spike_lasts_s);
        self.rate * (at - spiked) + self.spike * spiked
    }

    /// All submissions.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.by(self.lasts_s)
    }
}

/// What `template.yaml` and `infra/agent.yaml` are given, and the tables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Deployment {
    /// The size that the three numbers below are of, or changed from.
    pub size: Size,
    /// Invocations of the submission function at once.
    pub submission: f64,
    /// Invocations of the scheduler at once.
    pub scheduler: f64,
    /// Invocations of each agent at once.
    pub agent: f64,
    /// Pollers of each queue from the start, in provisioned mode; 0 without it.
    pub pollers: f64,
    /// Parts of the due index.
    pub shards: u32,
    /// Write units a second that each table and the index take from the start, if more than a new one.
    pub warm_writes: f64,
    /// Read units a second.
    pub warm_reads: f64,
    /// Whether the index has had this load before, so that each of its shards has a partition to itself.
    pub rehearsed: bool,
}

/// `Size` of the templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Few at once.
    Small,
    /// The default.
    Medium,
    /// Many.
    Large,
}

impl Size {
    /// `Mappings` of `template.yaml` and `infra/agent.yaml`: submission, scheduler, agent.
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
        match text {
            "small" => Ok(Self::Small),
            "medium" => Ok(Self::Medium),
            "large" => Ok(Self::Large),
            _ => Err(ScaleError::Size(text.to_owned())),
        }
    }
}

/// `Shards` of `template.yaml` unless said.
pub const SHARDS: u32 = 8;

/// The most that `template.yaml` lets `Shards` be.
pub(super) const SHARDS_MAX: u32 = 256;

impl Deployment {
    /// As the templates make it, new.
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

/// The longest load, in seconds: it is gone through in steps of 10 ms.
const LASTS_MAX_S: f64 = 4.0 * 3600.0;

/// Submissions a second, at most.
const RATE_MAX: f64 = 1_000_000.0;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// What a task asks could not be counted.
    #[error("what a task takes is counted by a forecast, which failed")]
    Forecast(#[from] ForecastError),
    /// `limits.yaml` is not right.
    #[error("limits.yaml: {0}")]
    Limits(String),
    /// There is no such size.
    #[error("`{0}` is no size: there are small, medium and large")]
    Size(String),
    /// A number is out of its limits.
    #[error("--{option}: must be from {min} to {max}{hint}")]
    OutOfLimits {
        /// The option.
        option: &'static str,
        /// The lower limit.
        min: f64,
        /// The upper limit.
        max: f64,
        /// What to say besides.
        hint: &'static str,
    },
}

impl Settings {
    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), ScaleError> {
        let (load, deployment, limits) = (&self.load, &self.deployment, &self.limits);
        let (at_once_max, hint) = match deployment.pollers > 0.0 {
            true => (limits.provisioned_max.value, ""),
            false => (
                limits.maximum_concurrency_max.value,
                ", which is what MaximumConcurrency can be; with --pollers it may be more",
            ),
        };
        let pollers_max = limits.provisioned_pollers_min_max.value;
        let within = |option, value: f64, min, max, hint| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(ScaleError::OutOfLimits { option, min, max, hint }),
        };
        within("rate", load.rate, 0.0, RATE_MAX, "")?;
        within("spike", load.spike, 0.0, RATE_MAX, "")?;
        within("for", load.lasts_s, 1.0, LASTS_MAX_S, " seconds")?;
        within("spike-for", load.spike_lasts_s, 0.0, load.lasts_s, " seconds, as --for")?;
        within("submission-concurrency", deployment.submission, 2.0, at_once_max, hint)?;
        within("scheduler-concurrency", deployment.scheduler, 2.0, at_once_max, hint)?;
        within("agent-concurrency", deployment.agent, 2.0, at_once_max, hint)?;
        within("pollers", deployment.pollers, 0.0, pollers_max, "")?;
        within("shards", f64::from(deployment.shards), 1.0, 65_536.0, "")?;
        within("compute", self.compute_s, 0.0, 1.0, " seconds")
    }
}
