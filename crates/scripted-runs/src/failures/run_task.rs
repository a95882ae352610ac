//! One run of the analysed workflow's task.

use std::sync::Arc;

use steward_forecast::cost::{
    ForecastError,
    scripted::{ScriptedPlan, ScriptedRun, ScriptedTask},
};

use super::service::{FaultyServices, Observed};

/// Runs the task with the values that `seed` generates. Returns the run, and what the services have seen.
///
/// # Errors
/// The task does not end, or the simulation itself failed.
pub(super) fn run_task(
    plan: &ScriptedPlan,
    seed: u64,
    services: FaultyServices,
) -> Result<(ScriptedRun, Observed), ForecastError> {
    let task = ScriptedTask { task_id: None, input: None, messages: Vec::new(), until: None, seed };
    let services = Arc::new(services);
    let run = plan.run(&task, services.clone())?;
    Ok((run, services.observed()))
}
