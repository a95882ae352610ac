//! Capacity model of a deployment under a planned load: where a backlog forms, how long it lasts, which limit of AWS or
//! of the templates is the bottleneck, which limits to increase, and what the load costs.
//!
//! ```text
//! workflow ──► forecast: the demand of one task on queues, functions and tables (counted with the real handlers)
//!                 │
//!                 ▼
//!   model: submission ─► scheduler ⇄ agents, a stage for each queue  ◄── aws_limits.yaml, the templates' sizes
//!                 │
//!                 ├─► arithmetic: what the peak rate needs of each limit, and the rate that each limit sustains
//!                 └─► fluid simulation: messages as a fluid in steps of 10 ms, with every limit applied
//! ```
//!
//! Pure: no clock, no I/O, and the same result every time. All figures are estimates: nothing was measured on AWS.

mod aws_limits;
mod fluid;
mod limit_kind;
mod limit_rows;
mod load_simulation;
mod model;
mod overload;
mod recommendations;
mod report;
mod scaling_limits;
mod settings;
mod stage_queue;
mod tenants;

#[cfg(test)]
mod overload_tests;
#[cfg(test)]
mod tests;

pub use aws_limits::{Limit, Limits};
pub use limit_kind::LimitKind;
pub use limit_rows::LimitRow;
pub use overload::{OVERLOAD_FACTOR, OverloadReport, OverloadRun, overload};
pub use recommendations::Recommendation;
pub use report::{LateReplies, LatencySummary, LoadCost, ScaleReport, StageRow};
pub use settings::{
    DeploymentSizing, Load, OverloadHandling, SHARDS, ScaleError, ScaleSettings, Size,
};
pub use tenants::{
    NOISY_LOAD_FACTOR, NoisyTenantReport, QUIET_TENANTS, QuietTenants, noisy_tenant,
};

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
    let model = model::QueueModel::of(settings, &counted.demand);
    let result = load_simulation::run(settings, &model, load_simulation::SIMULATED_AFTER_S);
    Ok(ScaleReport::of(settings, &model, &counted, &Prices::listed()?, &result))
}
