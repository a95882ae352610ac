//! Forecast of the outcomes and the cost of a workflow's tasks. The tasks run through the real handlers on a virtual
//! clock, with failure rates and latencies that the user gives. Everything that AWS bills is counted.
//!
//! ```text
//! definition, options ──► plan: failure rates, latencies and output of each step, the input
//!                        │  every expression must have a value, or there is no forecast
//!                        ▼
//!   run 1..n, each with its own queues, tables and clock:
//!     submission, scheduler, agents, supervisor (the real handlers) ──► in-memory ports, which count
//!                        │                                           what DynamoDB, SQS, Lambda and
//!                        ▼                                           EventBridge would charge
//!   report: outcomes, durations, retries, undos, the price of a million tasks, and of the alternatives
//! ```
//!
//! Unlike the simulation of `steward-testkit`, a forecast injects no faults into the network and the
//! functions, and checks no invariants. Services fail as the options say. The same seed gives the same report.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

mod alternatives;
mod assumptions;
mod attempt_outcome;
mod awaited_events;
mod delivery;
mod demand;
mod function_role;
pub mod idle_month;
mod ledger;
mod meter;
mod plan;
mod ports;
pub mod prices;
mod report;
mod run;
mod sample;
mod sample_check;
pub mod scripted;
mod service;
mod settings;
mod step_options;
mod task_simulation;
mod value_shape;

#[cfg(test)]
mod tests;

pub use alternatives::AlternativePrice;
pub use demand::{Demand, Handling, HopMessages, Resource};
pub use function_role::FunctionRole;
pub use ledger::{CostLedger, CostLedgerEntry};
pub use prices::MEMORY_GB;
pub use report::{ForecastReport, OutcomeReason, OutcomeSummary, StepSummary};
pub use settings::{BATCH_MAX, ForecastError, ForecastSettings, RUNS, RUNS_MAX};
pub use step_options::{DurationValue, Json, OptionError, Share, StepOption, StepSelector};
pub use task_simulation::DELIVERY_LATENCY;

/// Runs the number of tasks in `settings` on all processors, and calls `done` after each. The caller must not be inside
/// a runtime.
///
/// # Errors
/// The settings are invalid, or a run could not be counted.
pub fn forecast(
    settings: ForecastSettings,
    done: &(dyn Fn() + Sync),
) -> Result<ForecastReport, ForecastError> {
    let plan = Arc::new(plan::ForecastPlan::new(settings)?);
    let runs = plan.settings.runs;
    let next = AtomicU32::new(0);
    let all = Mutex::new(Vec::new());
    let work = || -> Result<(), ForecastError> {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
                return Ok(());
            }
            let run =
                run::run(&plan, number).inspect_err(|_| next.store(runs, Ordering::Relaxed))?;
            own.push((number, run));
            done();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            let panicked =
                |_| ForecastError::Failed { run: 0, reason: "a run panicked".to_owned() };
            worker.join().map_err(panicked)?
        })
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|(number, _)| *number);
    let finished_runs: Vec<_> = all.into_iter().map(|(_, run)| run).collect();
    Ok(report::ForecastReport::of(&plan, &finished_runs))
}
