//! Capacity of a deployment under a planned load: what the load needs of each limit of AWS and of the templates, which of
//! them is the bottleneck, how long a backlog lasts, which limits to increase, and what the load costs.
//!
//! ```text
//! workflow ──► forecast: the demand of one task on queues, functions and tables (counted with the real handlers)
//!                 │
//!                 ▼
//!   model: submission, scheduler, agents: a stage for each queue  ◄── aws_limits.yaml, the templates' sizes
//!                 │
//!                 ▼
//!   arithmetic (Little's law): what the peak rate needs of each limit, and the rate that each limit sustains
//! ```
//!
//! Pure: no clock, no I/O, and the same result every time. All figures are estimates: nothing was measured on AWS.

mod aws_limits;
mod limit_kind;
mod limit_rows;
mod model;
mod recommendations;
mod report;
mod scaling_limits;
mod settings;

#[cfg(test)]
mod tests;

pub use aws_limits::{Limit, Limits};
pub use limit_kind::LimitKind;
pub use limit_rows::LimitRow;
pub use recommendations::Recommendation;
pub use report::{LoadCost, ScaleReport, StageRow};
pub use settings::{DeploymentSizing, Load, SHARDS, ScaleError, ScaleSettings, Size};

use crate::cost::{forecast, prices::Prices};

/// The number of tasks for counting the average demand. Without faults, tasks differ only in the time of their agents.
pub const RUNS: u32 = 1_000;

/// Computes how a deployment behaves under a load. The caller must not be inside a runtime.
///
/// # Errors
/// A setting is outside its limits, or a task could not be counted.
pub fn scale(settings: &ScaleSettings) -> Result<ScaleReport, ScaleError> {
    settings.check()?;
    let counted = forecast(settings.forecast.clone(), &|| {})?;
    counted.require_processed()?;
    let model = model::QueueModel::of(settings, &counted.demand);
    Ok(ScaleReport::of(settings, &model, &counted, &Prices::listed()?))
}
