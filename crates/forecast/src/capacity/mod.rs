//! A deployment under a load that nobody has sent it yet: where a backlog forms, how long it lasts, which
//! limit of AWS or of the templates it is that binds, what to raise, and what it costs.
//!
//! ```text
//! workflow ──► forecast: what one task asks of queues, functions and tables (the real handlers, counted)
//!                 │
//!                 ▼
//!   model: submission ─► scheduler ⇄ agents, a stage for each queue  ◄── limits.yaml, the templates' sizes
//!                 │
//!                 ├─► arithmetic: what the highest rate needs of each limit, and what each bears
//!                 └─► time: a fluid of messages in steps of 10 ms, every limit applied
//! ```
//!
//! Pure: no clock, no I/O, and the same answer every time. It is paper: nothing in it was measured on AWS.

mod bounds;
mod limits;
mod model;
mod queue;
mod raise;
mod report;
mod run;
mod settings;
mod supply;

#[cfg(test)]
mod tests;

pub use bounds::{Bound, Row};
pub use limits::{Limit, Limits};
pub use raise::Raise;
pub use report::{Cost, Late, Latency, Report, StageRow};
pub use settings::{Deployment, Load, SHARDS, ScaleError, Settings, Size};

use crate::cost::{forecast, prices::Prices};

/// Tasks of which it is counted what one asks: without faults they differ in their agents' times only.
pub const RUNS: u32 = 1_000;

/// Looks how a deployment fares. It must not be called from within a runtime.
///
/// # Errors
/// A number that makes no sense, or why a task could not be counted.
pub fn scale(settings: &Settings) -> Result<Report, ScaleError> {
    settings.check()?;
    let counted = forecast(settings.forecast.clone(), &|| {})?;
    let model = model::Model::of(settings, &counted.demand);
    let ran = run::run(settings, &model, run::WATCHED_S);
    Ok(Report::of(settings, &model, &counted, &Prices::listed()?, &ran))
}
