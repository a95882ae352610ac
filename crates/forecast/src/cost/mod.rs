//! What will become of a workflow's tasks, before it is deployed: tasks run on a virtual clock through
//! the real handlers, under odds that the user gives, and are counted.
//!
//! ```text
//! definition, odds ──► plan: how each step fares, what it returns, what is submitted
//!                        │  every expression has a value over it, or there is no forecast
//!                        ▼
//!   run 1..n, each in a world of its own:
//!     submission, scheduler, agents, supervisor (the real ones) ──► in-memory ports, which count
//!                        │                                           what DynamoDB, SQS, Lambda and
//!                        ▼                                           EventBridge would charge
//!   report: outcomes, durations, retries, undos, the price of a million tasks, here and elsewhere
//! ```
//!
//! Unlike the [`simulation`](steward_testkit::simulation) nothing is attacked here, and nothing judged: the
//! network and the functions work, and the services fare as they are said to. The same seed gives the
//! same report.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

mod demand;
mod elsewhere;
mod ledger;
mod meter;
mod odds;
mod plan;
mod ports;
pub mod prices;
mod report;
mod roles;
mod run;
mod sample;
mod service;
mod settings;
mod shape;
mod world;

#[cfg(test)]
mod tests;

pub use demand::{Asked, Demand, Handling, Hop};
pub use elsewhere::Elsewhere;
pub use ledger::{Entry, Ledger};
pub use meter::MEMORY_GB;
pub use odds::{At, Json, Said, Share, Span, Unclear};
pub use report::{Outcome, Reason, Report, Step};
pub use settings::{BATCH_MAX, ForecastError, RUNS, RUNS_MAX, Settings};
pub use world::{DELIVERY_TAKES, Role};

/// Runs as many tasks as `settings` say, on all processors; `done` is called after each. It must not be
/// called from within a runtime.
///
/// # Errors
/// What is wrong with the settings, or the first run that could not be counted.
pub fn forecast(settings: Settings, done: &(dyn Fn() + Sync)) -> Result<Report, ForecastError> {
    let plan = Arc::new(plan::Plan::new(settings)?);
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
            let ran =
                run::run(&plan, number).inspect_err(|_| next.store(runs, Ordering::Relaxed))?;
            own.push((number, ran));
            done();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            let panicked =
                |_| ForecastError::Broken { run: 0, reason: "a run panicked".to_owned() };
            worker.join().map_err(panicked)?
        })
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|(number, _)| *number);
    let ran: Vec<_> = all.into_iter().map(|(_, ran)| ran).collect();
    Ok(report::Report::of(&plan, &ran))
}
