//! The overload scenario: for ten minutes twice the load that a deployment sustains, and then nothing. It is simulated with
//! intake control, as deployed, and without it.

use serde::Serialize;

use super::{
    limit_rows,
    load_simulation::{self, LoadResult, SIMULATED_AFTER_S},
    model::QueueModel,
    settings::{DeploymentSizing, Load, OverloadHandling, ScaleError, ScaleSettings},
};
use crate::cost::{Demand, FunctionRole, forecast};

/// The load of the scenario, as a multiple of what the deployment sustains.
pub const OVERLOAD_FACTOR: f64 = 2.0;

/// The duration of the load, in seconds.
const LOAD_S: f64 = 600.0;

/// The result of the scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverloadReport {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// The deployment.
    pub deployment: DeploymentSizing,
    /// The limit that is the tightest.
    pub bottleneck: String,
    /// The submissions per second that the deployment sustains.
    pub sustained_rate: f64,
    /// The load.
    pub load: Load,
    /// With intake control.
    pub with_intake_control: OverloadRun,
    /// Without it.
    pub without: OverloadRun,
}

/// One simulation of the scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverloadRun {
    /// Tasks done during the load, as a share of what the deployment sustains.
    pub goodput: f64,
    /// The same in the worst minute, without the first.
    pub goodput_of_worst_minute: f64,
    /// Attempts that may have been abandoned because their request or their reply waited.
    pub lost_attempts: f64,
    /// Requests that agents received past complete-by, and shed.
    pub shed_requests: f64,
    /// The longest wait of a request in the queue of an agent, in seconds.
    pub longest_agent_wait_s: f64,
    /// The longest wait of a message in the scheduler's queue, in seconds.
    pub longest_scheduler_wait_s: f64,
    /// How many submissions were held back at the same time, at most.
    pub held_back_max: f64,
    /// How often a submission was held back, on average.
    pub deferrals_per_submission: f64,
    /// Seconds from the last submission until the last task was done; absent if some were not after four hours.
    pub drained_after_s: Option<f64>,
    /// Tasks that were not done.
    pub unfinished: f64,
}

/// Simulates the overload scenario. The load of `settings` is ignored.
///
/// # Errors
/// A setting is outside its limits, or a task could not be counted.
pub fn overload(settings: &ScaleSettings) -> Result<OverloadReport, ScaleError> {
    settings.check()?;
    let counted = forecast(settings.forecast.clone(), &|| {})?;
    let (bottleneck, sustained_rate) = sustainable(settings, &counted.demand);
    let load = Load::steady(OVERLOAD_FACTOR * sustained_rate, LOAD_S);
    Ok(OverloadReport {
        workflow: counted.workflow.clone(),
        version: counted.version,
        deployment: settings.deployment,
        bottleneck,
        sustained_rate,
        load,
        with_intake_control: OverloadRun::simulate(settings, &counted.demand, true),
        without: OverloadRun::simulate(settings, &counted.demand, false),
    })
}

/// The tightest limit, and the submissions per second that it sustains.
fn sustainable(settings: &ScaleSettings, demand: &Demand) -> (String, f64) {
    let unloaded = ScaleSettings { load: Load::steady(1.0, LOAD_S), ..settings.clone() };
    let rows = limit_rows::rows(&unloaded, &QueueModel::of(&unloaded, demand));
    rows.first().map_or((String::new(), 0.0), |row| (row.bound.to_string(), row.sustained_rate))
}

impl OverloadRun {
    /// Simulates the scenario with or without intake control.
    pub(super) fn simulate(settings: &ScaleSettings, demand: &Demand, holds_back: bool) -> Self {
        let (_, sustained_rate) = sustainable(settings, demand);
        let overload = OverloadHandling { holds_back, ..OverloadHandling::DEPLOYED };
        let deployment = DeploymentSizing { overload, ..settings.deployment };
        let load = Load::steady(OVERLOAD_FACTOR * sustained_rate, LOAD_S);
        let settings = ScaleSettings { load, deployment, ..settings.clone() };
        let model = QueueModel::of(&settings, demand);
        let result = load_simulation::run(&settings, &model, SIMULATED_AFTER_S);
        Self::of(&model, sustained_rate, &result)
    }

    fn of(model: &QueueModel, sustained_rate: f64, result: &LoadResult) -> Self {
        let minutes = (LOAD_S / 60.0) as usize;
        let during: Vec<f64> = (0..minutes)
            .map(|minute| {
                result.done_by_minute.get(minute).copied().unwrap_or(0.0) / sustained_rate / 60.0
            })
            .collect();
        let longest = |counts: fn(&FunctionRole) -> bool| {
            let stages = model.stages.iter().zip(&result.stages);
            let waits = stages.filter(|(stage, _)| counts(&stage.role)).map(|(_, r)| r.max_age_s);
            waits.fold(0.0, f64::max)
        };
        Self {
            goodput: during.iter().sum::<f64>() / minutes as f64,
            goodput_of_worst_minute: during.iter().skip(1).copied().fold(f64::MAX, f64::min),
            lost_attempts: result.lost_attempts,
            shed_requests: result.shed_requests,
            longest_agent_wait_s: longest(|role| matches!(role, FunctionRole::Agent(_))),
            longest_scheduler_wait_s: longest(|role| *role == FunctionRole::Scheduler),
            held_back_max: result.held_back_max,
            deferrals_per_submission: result.turns / result.submitted.max(1.0),
            drained_after_s: result.done_at_s.map(|at_s| at_s - LOAD_S),
            unfinished: if result.done_at_s.is_some() { 0.0 } else { result.unfinished },
        }
    }
}
